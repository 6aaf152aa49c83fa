// SPDX-License-Identifier: Apache-2.0
//! Access to agents, shared by all implementations of this crate, and cleaning and service with the
//! agent.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use drivers::ramdisk_boot::{boot_ramdisk_next, leave_ramdisk_networks, power_off, start_machine};
use drivers::requested_firmware::prepare_instance_firmware;
use drivers::{
    BootService, DriverError, DriverTarget, InBandAgent, NetworkPurpose, NodeChanges, RamdiskMode,
    StepOutcome,
};
use node_model::{AvailableStep, StepFlow};
use serde_json::{Map, Value};

use super::agent_client::{AgentClient, COLLECT_LOGS};
use super::autodetect_deploy;
use super::settings::{AgentDriverError, AgentDriverSettings, AgentSettings};

/// Access to agents, with the settings for it.
pub(crate) struct AgentAccess {
    pub(crate) client: AgentClient,
    pub(crate) boot_service: Arc<dyn BootService>,
    pub(crate) settings: AgentSettings,
    /// Whether running agents are used where the node has no `fast_track`.
    pub(crate) fast_track: bool,
    /// How long after its last heartbeat an agent still counts as running.
    pub(crate) heartbeat_validity: Duration,
}

impl AgentAccess {
    pub(crate) fn new(
        settings: &AgentDriverSettings,
        boot_service: Arc<dyn BootService>,
    ) -> Result<Self, AgentDriverError> {
        let client = AgentClient::new(&settings.agent)
            .map_err(|error| AgentDriverError { reason: error.to_string() })?;
        Ok(Self {
            client,
            boot_service,
            settings: settings.agent.clone(),
            fast_track: settings.fast_track,
            heartbeat_validity: Duration::from_secs(settings.heartbeat_validity),
        })
    }
}

impl std::fmt::Debug for AgentAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentAccess").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[async_trait]
impl InBandAgent for AgentAccess {
    async fn list_steps(
        &self,
        target: &DriverTarget<'_>,
        flow: StepFlow,
    ) -> Result<(Vec<AvailableStep>, NodeChanges), DriverError> {
        self.list_agent_steps(target, flow).await
    }

    fn usual_steps(&self, flow: StepFlow) -> Vec<AvailableStep> {
        self.usual_agent_steps(flow)
    }

    async fn collect_logs(&self, target: &DriverTarget<'_>) -> Result<Option<String>, DriverError> {
        if target.node.agent.url.is_none() {
            return Ok(None);
        }
        let result = self.client.run_sync(target, COLLECT_LOGS, Map::new()).await?;
        Ok(result.get("system_logs").and_then(Value::as_str).map(str::to_owned))
    }

    async fn prepare_cleaning(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<StepOutcome, DriverError> {
        let erase_options = self.settings.erase_options();
        let booted = self.boot_agent(target, RamdiskMode::Deploy, NetworkPurpose::Cleaning).await?;
        Ok(booted.after(erase_options))
    }

    /// Keeps the agent for the next job if cleaning succeeded and the node allows it.
    async fn tear_down_cleaning(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<NodeChanges, DriverError> {
        let restored = autodetect_deploy::restore_deploy_interface(target);
        if target.job.may_keep_agent && self.running_agent(target).await.is_some() {
            return Ok(restored);
        }
        let off = power_off(target).await?;
        let boot = target.driver.boot();
        let cleaned_up = boot.clean_up_ramdisk(target, RamdiskMode::Deploy).await?;
        let left = leave_ramdisk_networks(target).await?;
        Ok(NodeChanges { agent_stopped: true, ..restored.and(off).and(cleaned_up).and(left) })
    }

    async fn prepare_service(&self, target: &DriverTarget<'_>) -> Result<StepOutcome, DriverError> {
        if target.agent_was_awaited() {
            return Ok(StepOutcome::done(NodeChanges::none()));
        }
        let off = power_off(target).await?;
        let cleaned_up = target.driver.boot().clean_up_instance(target).await?;
        let left = target.driver.network().leave(target, NetworkPurpose::Tenant).await?;
        let changes = self.settings.erase_options().and(off).and(cleaned_up).and(left);
        let booted =
            boot_ramdisk_next(target, RamdiskMode::Deploy, NetworkPurpose::Servicing).await?;
        Ok(target.wait_for_agent(start_machine(target, changes.and(booted)).await?))
    }

    async fn tear_down_service(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<NodeChanges, DriverError> {
        let driver = target.driver;
        let off = power_off(target).await?;
        let cleaned_up = driver.boot().clean_up_ramdisk(target, RamdiskMode::Deploy).await?;
        let left = driver.network().leave(target, NetworkPurpose::Servicing).await?;
        let joined = driver.network().join(target, NetworkPurpose::Tenant).await?;
        let booted = driver.boot().prepare_instance(target).await?;
        let firmware = prepare_instance_firmware(target).await?;
        let changes = off.and(cleaned_up).and(left).and(joined).and(booted).and(firmware);
        let changes = start_machine(target, changes).await?;
        Ok(NodeChanges { agent_stopped: true, ..changes })
    }
}
