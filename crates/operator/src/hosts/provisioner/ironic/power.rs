// SPDX-License-Identifier: Apache-2.0
//! Power state, power failures and health.

use kube_resources::hosts::annotations::HostRebootMode;
use serde_json::{Value, json};

use super::super::outcome::{ProvisionerWaitReason, VerbOutcome, VerbStop};
use super::super::requests::{HostHealth, HostObservation, ManagedHost, PowerOffRequest};
use super::calls::IronicCalls;
use super::node::{NodeResponse, NodeState};

/// Seconds after which a soft power off has failed.
const SOFT_POWER_OFF_TIMEOUT: u32 = 180;
const POWER_ON: &str = "power on";
const POWER_OFF: &str = "power off";

impl IronicCalls<'_> {
    pub(super) async fn observe(&self, host: &ManagedHost) -> VerbOutcome<HostObservation> {
        let node = self.node(host).await?;
        let powered_on = match node.power_state.as_deref() {
            Some(POWER_ON) => Some(true),
            Some(POWER_OFF) => Some(false),
            Some(_) | None => None,
        };
        Ok(HostObservation {
            powered_on,
            has_power_failure: node.has_power_failure(),
            health: health(node.health.as_deref()),
        })
    }

    pub(super) async fn power_on(&self, host: &ManagedHost, is_forced: bool) -> VerbOutcome<()> {
        let node = self.node(host).await?;
        if node.power_state.as_deref() == Some(POWER_ON) {
            return Ok(());
        }
        self.check_power_change(&node, is_forced)?;
        Err(self.change_power(&node, &json!({"target": POWER_ON})).await)
    }

    pub(super) async fn power_off(
        &self,
        host: &ManagedHost,
        request: &PowerOffRequest,
    ) -> VerbOutcome<()> {
        let node = self.node(host).await?;
        if let Some(stop) = self.abort_waiting(&node, request.aborts).await {
            return Err(stop);
        }
        let reboots = host.disable_power_off;
        if node.power_state.as_deref() == Some(POWER_OFF) && !reboots {
            return Ok(());
        }
        self.check_power_change(&node, request.is_forced)?;
        if request.mode == HostRebootMode::Soft {
            let target = if reboots { "soft rebooting" } else { "soft power off" };
            let body = json!({"target": target, "timeout": SOFT_POWER_OFF_TIMEOUT});
            let stop = self.change_power(&node, &body).await;
            // A rejected request means that the driver has no soft power off.
            if !matches!(stop, VerbStop::Failed(_)) {
                return Err(stop);
            }
        }
        let target = if reboots { "rebooting" } else { POWER_OFF };
        Err(self.change_power(&node, &json!({"target": target})).await)
    }

    async fn change_power(&self, node: &NodeResponse, body: &Value) -> VerbStop {
        match self.put(&format!("{}/states/power", node.path()), body).await {
            Ok(()) => VerbStop::started(ProvisionerWaitReason::Power),
            Err(stop) => stop,
        }
    }

    /// Whether the power state may be changed now.
    fn check_power_change(&self, node: &NodeResponse, is_forced: bool) -> VerbOutcome<()> {
        if node.target_power_state.is_some() {
            return Err(node.running(ProvisionerWaitReason::Power));
        }
        if node.target_provision_state.is_some() && !is_settled(node.provision_state) {
            return Err(node.running(ProvisionerWaitReason::StateChange));
        }
        let error = node.last_error.as_deref().unwrap_or_default();
        if !is_forced && error.to_ascii_lowercase().contains("power") {
            return Err(self.failed(error));
        }
        Ok(())
    }
}

/// Failed states keep a target although nothing is running. In a state that the operator does not
/// know the service decides.
fn is_settled(state: NodeState) -> bool {
    matches!(
        state,
        NodeState::Enroll
            | NodeState::Manageable
            | NodeState::Available
            | NodeState::Active
            | NodeState::DeployFailed
            | NodeState::CleanFailed
            | NodeState::InspectFailed
            | NodeState::AdoptFailed
            | NodeState::ServiceFailed
            | NodeState::Error
            | NodeState::Other
    )
}

fn health(text: Option<&str>) -> Option<HostHealth> {
    match text?.to_ascii_lowercase().as_str() {
        "ok" => Some(HostHealth::Ok),
        "warning" => Some(HostHealth::Warning),
        "critical" => Some(HostHealth::Critical),
        _ => None,
    }
}
