// SPDX-License-Identifier: Apache-2.0
//! The fake deploy interface: done after its delay and, if requested, after an agent's heartbeat.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::{
    DeployInterface, DriverError, DriverTarget, NodeChanges, StepDefinition, StepOutcome,
};
use node_model::{InterfaceKind, Step, StepFlow};

use super::FakeBehaviour;
use super::behaviour::{done_with_agent, fake_interface};

/// The fake deploy interface.
pub(crate) struct FakeDeploy(pub(super) Arc<FakeBehaviour>);

fake_interface!(FakeDeploy, Deploy, DEPLOY, STEPS);

/// The only deploy step.
const DEPLOY_STEP: &str = "deploy";

// Erasing is available for manual cleaning, as a step that takes time and can be aborted. It is not
// part of automated cleaning, because Ironic's fake deploy interface does not have it.
const STEPS: &[StepDefinition] = &[
    StepDefinition {
        name: DEPLOY_STEP,
        flows: &[StepFlow::Deploy],
        priority: 100,
        abortable: false,
        requires_ramdisk: true,
        arguments: &[],
    },
    StepDefinition {
        name: "erase_devices",
        flows: &[StepFlow::Clean],
        priority: 0,
        abortable: true,
        requires_ramdisk: true,
        arguments: &[],
    },
    StepDefinition {
        name: "erase_devices_metadata",
        flows: &[StepFlow::Clean],
        priority: 0,
        abortable: true,
        requires_ramdisk: true,
        arguments: &[],
    },
];

impl FakeDeploy {
    /// The deploy step waits for the agent; for cleaning it was awaited before the first step.
    fn run(&self, target: &DriverTarget<'_>, step: &Step) -> Result<StepOutcome, DriverError> {
        if step.step == DEPLOY_STEP {
            done_with_agent(target)
        } else {
            Ok(StepOutcome::done(NodeChanges::none()))
        }
    }

    async fn begin_call(
        &self,
        target: &DriverTarget<'_>,
        operation: &str,
    ) -> Result<NodeChanges, DriverError> {
        self.0.begin_call(InterfaceKind::Deploy, target, operation).await?;
        Ok(NodeChanges::none())
    }
}

#[async_trait]
impl DeployInterface for FakeDeploy {
    async fn prepare(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        self.begin_call(target, "prepare").await
    }

    async fn tear_down(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        self.begin_call(target, "tear_down").await
    }

    async fn clean_up(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        self.begin_call(target, "clean_up").await
    }

    async fn take_over(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        self.begin_call(target, "take_over").await
    }

    async fn prepare_cleaning(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<StepOutcome, DriverError> {
        self.0.begin_call(InterfaceKind::Deploy, target, "prepare_cleaning").await?;
        done_with_agent(target)
    }

    async fn tear_down_cleaning(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<NodeChanges, DriverError> {
        self.begin_call(target, "tear_down_cleaning").await
    }

    async fn prepare_service(&self, target: &DriverTarget<'_>) -> Result<StepOutcome, DriverError> {
        self.0.begin_call(InterfaceKind::Deploy, target, "prepare_service").await?;
        done_with_agent(target)
    }

    async fn tear_down_service(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<NodeChanges, DriverError> {
        self.begin_call(target, "tear_down_service").await
    }
}
