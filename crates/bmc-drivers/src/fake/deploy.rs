// SPDX-License-Identifier: Apache-2.0
//! Deployment of a simulated machine: done when it has taken its time, and, where asked for, when
//! an agent has called.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::{InterfaceKind, Step, StepFlow};

use super::FakeBehaviour;
use super::behaviour::{done_with_agent, fake_interface};
use crate::step::StepRow;
use crate::{Deploy, Error, NodeChanges, Outcome, Target};

/// The fake deploy interface.
pub(crate) struct FakeDeploy(pub(super) Arc<FakeBehaviour>);

fake_interface!(FakeDeploy, Deploy, DEPLOY, STEPS);

/// The one deploy step there is.
const DEPLOY_STEP: &str = "deploy";

// Erasing is there for manual cleaning, to have something that takes time and can be aborted. It
// is not part of automated cleaning, because it is not in Ironic's fake deploy interface.
const STEPS: &[StepRow] = &[
    StepRow {
        name: DEPLOY_STEP,
        flows: &[StepFlow::Deploy],
        priority: 100,
        abortable: false,
        requires_ramdisk: true,
        arguments: &[],
    },
    StepRow {
        name: "erase_devices",
        flows: &[StepFlow::Clean],
        priority: 0,
        abortable: true,
        requires_ramdisk: true,
        arguments: &[],
    },
    StepRow {
        name: "erase_devices_metadata",
        flows: &[StepFlow::Clean],
        priority: 0,
        abortable: true,
        requires_ramdisk: true,
        arguments: &[],
    },
];

impl FakeDeploy {
    /// Deploying is where the agent first calls; for cleaning it called before the first step.
    fn run(&self, target: &Target<'_>, step: &Step) -> Result<Outcome, Error> {
        if step.step == DEPLOY_STEP {
            done_with_agent(target)
        } else {
            Ok(Outcome::Done(NodeChanges::none()))
        }
    }

    async fn act(&self, target: &Target<'_>, operation: &str) -> Result<NodeChanges, Error> {
        self.0.act(InterfaceKind::Deploy, target, operation).await?;
        Ok(NodeChanges::none())
    }
}

#[async_trait]
impl Deploy for FakeDeploy {
    async fn prepare(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.act(target, "prepare").await
    }

    async fn tear_down(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.act(target, "tear_down").await
    }

    async fn clean_up(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.act(target, "clean_up").await
    }

    async fn take_over(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.act(target, "take_over").await
    }

    async fn prepare_cleaning(&self, target: &Target<'_>) -> Result<Outcome, Error> {
        self.0.act(InterfaceKind::Deploy, target, "prepare_cleaning").await?;
        done_with_agent(target)
    }

    async fn tear_down_cleaning(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.act(target, "tear_down_cleaning").await
    }

    async fn prepare_service(&self, target: &Target<'_>) -> Result<Outcome, Error> {
        self.0.act(InterfaceKind::Deploy, target, "prepare_service").await?;
        done_with_agent(target)
    }

    async fn tear_down_service(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.act(target, "tear_down_service").await
    }
}
