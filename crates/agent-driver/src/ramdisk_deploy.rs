// SPDX-License-Identifier: Apache-2.0
//! The deploy interface `ramdisk`: the instance runs from memory and boots over the network or from an
//! ISO image at every start. Nothing is written to a disk, and deployment needs no agent.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::next_boot::RAMDISK_DEPLOY;
use drivers::ramdisk_boot::{power_off, start_machine};
use drivers::requested_firmware::{RequestedFirmware, prepare_instance_firmware};
use drivers::{
    BaseInterface, DeployInterface, DriverError, DriverTarget, InBandAgent, NetworkPurpose,
    NodeChanges, RegistryBuilder, SINGLE_DEPLOY_STEP, StepOutcome, steps_of_flow,
};
use node_model::{AvailableStep, InterfaceKind, Step, StepFlow};

use super::AgentAccess;
use super::agent_boot::tear_down_instance;

/// Registers this implementation.
pub(crate) fn register(registry: &mut RegistryBuilder, in_band: &Arc<AgentAccess>) {
    registry.implementations.add_deploy(Arc::new(RamdiskDeploy(Arc::clone(in_band))));
}

/// Deploys by booting. Cleaning and service use the agent, because the instance may have written to the
/// disks.
struct RamdiskDeploy(Arc<AgentAccess>);

#[async_trait]
impl BaseInterface for RamdiskDeploy {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Deploy
    }

    fn name(&self) -> &'static str {
        RAMDISK_DEPLOY
    }

    async fn validate(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        let boot = target.driver.boot();
        if !boot.capabilities().contains(&"ramdisk_boot") {
            return Err(boot.unsupported("boot an instance that runs from memory"));
        }
        RequestedFirmware::from_target(target)?;
        boot.validate(target).await
    }

    fn steps(&self, flow: StepFlow) -> Vec<AvailableStep> {
        steps_of_flow(SINGLE_DEPLOY_STEP, self.kind(), flow)
    }

    fn runs_agent_steps(&self) -> bool {
        true
    }

    async fn execute_step(
        &self,
        target: &DriverTarget<'_>,
        flow: StepFlow,
        step: &Step,
    ) -> Result<StepOutcome, DriverError> {
        if flow != StepFlow::Deploy || step.step != SINGLE_DEPLOY_STEP[0].name {
            return self.0.run_agent_step(target, flow, step).await;
        }
        let changes = power_off(target).await?;
        let driver = target.driver;
        let changes = changes.and(driver.network().join(target, NetworkPurpose::Tenant).await?);
        let changes = changes.and(driver.boot().prepare_instance(target).await?);
        let changes = changes.and(prepare_instance_firmware(target).await?);
        Ok(StepOutcome::done(start_machine(target, changes).await?))
    }
}

#[async_trait]
impl DeployInterface for RamdiskDeploy {
    fn in_band(&self) -> Option<&dyn InBandAgent> {
        Some(&*self.0)
    }

    async fn prepare(&self, _target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        Ok(NodeChanges::none())
    }

    async fn tear_down(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        tear_down_instance(target).await
    }

    async fn clean_up(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        target.driver.boot().clean_up_instance(target).await
    }
}
