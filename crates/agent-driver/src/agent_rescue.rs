// SPDX-License-Identifier: Apache-2.0
//! The rescue interface `agent`: boots the agent, which sets the rescue password.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::ramdisk_boot::{boot_ramdisk_next, power_off, start_machine};
use drivers::requested_firmware::prepare_instance_firmware;
use drivers::{
    BaseInterface, DriverError, DriverTarget, NetworkPurpose, NodeChanges, RamdiskMode,
    RegistryBuilder, RescueInterface, StepOutcome,
};
use node_model::InterfaceKind;
use serde_json::{Map, Value};

use super::finish_deploy::is_unreachable_for_long;
use super::{AgentAccess, rescue_password};

/// Registers this implementation.
pub(super) fn register(registry: &mut RegistryBuilder, in_band: &Arc<AgentAccess>) {
    let rescue = AgentRescue(Arc::clone(in_band));
    registry.implementations.add_rescue(Arc::new(rescue));
}

struct AgentRescue(Arc<AgentAccess>);

#[async_trait]
impl BaseInterface for AgentRescue {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Rescue
    }

    fn name(&self) -> &'static str {
        "agent"
    }

    async fn validate(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        target.driver.boot().validate(target).await
    }
}

#[async_trait]
impl RescueInterface for AgentRescue {
    fn boots_ramdisk(&self) -> bool {
        true
    }

    async fn rescue(&self, target: &DriverTarget<'_>) -> Result<StepOutcome, DriverError> {
        if target.node.agent.url.is_none() {
            let driver = target.driver;
            let changes = power_off(target).await?;
            let changes = changes.and(driver.boot().clean_up_instance(target).await?);
            let left = driver.network().leave(target, NetworkPurpose::Tenant).await?;
            let booted =
                boot_ramdisk_next(target, RamdiskMode::Rescue, NetworkPurpose::Rescuing).await?;
            let changes = start_machine(target, changes.and(left).and(booted)).await?;
            return Ok(target.wait_for_agent(changes));
        }
        let Some(plain) = target.instance_info.get("rescue_password").and_then(Value::as_str)
        else {
            return Err(DriverError::missing(
                "instance_info/rescue_password",
                "without it, users cannot log in",
            ));
        };
        let hashed = rescue_password::hash_password(plain)?;
        let params = Map::from_iter([
            ("rescue_password".to_owned(), Value::String(hashed)),
            ("hashed".to_owned(), Value::Bool(true)),
        ]);
        match self.0.client.run_sync(target, "rescue.finalize_rescue", params).await {
            Ok(_) => {}
            // The agent stops after this command. If it is unreachable after a recent heartbeat, the
            // command has ended and its response was lost.
            Err(error) if error.unreachable_peer().is_some() && is_unreachable_for_long(target) => {
            }
            Err(error) => return Err(error),
        }
        let boot = target.driver.boot();
        let changes = boot.clean_up_ramdisk(target, RamdiskMode::Rescue).await?;
        let joined = target.driver.network().join(target, NetworkPurpose::Tenant).await?;
        Ok(StepOutcome::done(NodeChanges { agent_stopped: true, ..changes.and(joined) }))
    }

    async fn unrescue(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        let driver = target.driver;
        let changes = power_off(target).await?;
        let changes = changes.and(self.clean_up(target).await?);
        let joined = driver.network().join(target, NetworkPurpose::Tenant).await?;
        let booted = driver.boot().prepare_instance(target).await?;
        let firmware = prepare_instance_firmware(target).await?;
        start_machine(target, changes.and(joined).and(booted).and(firmware)).await
    }

    async fn clean_up(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        let boot = target.driver.boot();
        let changes = boot.clean_up_ramdisk(target, RamdiskMode::Rescue).await?;
        Ok(changes.and(target.driver.network().leave(target, NetworkPurpose::Rescuing).await?))
    }
}
