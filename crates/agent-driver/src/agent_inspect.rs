// SPDX-License-Identifier: Apache-2.0
//! The inspect interface `agent`: boots the agent, which sends the inventory.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::ramdisk_boot::{boot_ramdisk_next, leave_ramdisk_networks, power_off, start_machine};
use drivers::{
    BaseInterface, DriverError, DriverProperty, DriverTarget, InspectInterface, InspectionOutcome,
    NetworkPurpose, NodeChanges, RamdiskMode, RegistryBuilder,
};
use node_model::InterfaceKind;

use super::AgentAccess;
use super::agent_boot::FAST_TRACK;

/// Registers this implementation.
pub(super) fn register(registry: &mut RegistryBuilder, in_band: &Arc<AgentAccess>) {
    let inspect = AgentInspect(Arc::clone(in_band));
    registry.implementations.add_inspect(Arc::new(inspect));
}

struct AgentInspect(Arc<AgentAccess>);

#[async_trait]
impl BaseInterface for AgentInspect {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Inspect
    }

    fn name(&self) -> &'static str {
        "agent"
    }

    fn properties(&self) -> &[DriverProperty] {
        &[FAST_TRACK]
    }

    async fn validate(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        target.driver.boot().validate(target).await
    }
}

#[async_trait]
impl InspectInterface for AgentInspect {
    async fn inspect(&self, target: &DriverTarget<'_>) -> Result<InspectionOutcome, DriverError> {
        let changes =
            boot_ramdisk_next(target, RamdiskMode::Inspection, NetworkPurpose::Inspection).await?;
        Ok(InspectionOutcome::WaitForAgent(Box::new(start_machine(target, changes).await?)))
    }

    async fn abort(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        stop_inspection(target).await
    }

    /// Does not stop an agent that may be kept. It sends its callback URL only after the inventory, so it
    /// cannot be queried yet.
    async fn clean_up(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        if self.0.keeps_agent(target) {
            Ok(NodeChanges::none())
        } else {
            stop_inspection(target).await
        }
    }
}

async fn stop_inspection(target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
    let changes = power_off(target).await?;
    let boot = target.driver.boot();
    let changes = changes.and(boot.clean_up_ramdisk(target, RamdiskMode::Inspection).await?);
    let left = leave_ramdisk_networks(target).await?;
    Ok(NodeChanges { agent_stopped: true, ..changes.and(left) })
}
