// SPDX-License-Identifier: Apache-2.0
//! The power interface: reads and changes the power state over Redfish. The sequence of commands is
//! planned in [`drivers::power_plan`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use drivers::power_plan::{
    self, ObservedPower, PowerControl, PowerPlanCommand, PowerTimeouts, RestartOptions,
};
use drivers::{DriverError, DriverTarget, NodeChanges, PowerInterface, bmc_interface};
use node_model::{PowerState, PowerTarget};
use redfish::RedfishResource;

use super::bmc::RedfishBmc;
use super::boot_settings;
use super::connections::RedfishConnections;
use super::reset::ResetAction;
use super::variant::RedfishVariant;

/// The Redfish power interface.
pub(crate) struct RedfishPower(pub(super) Arc<RedfishConnections>, pub(super) RedfishVariant);

bmc_interface!(variants RedfishPower, Power);

/// Timeout of the check of address and credentials.
const ACCESS_CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// The power control of one machine during a power change.
struct RedfishPowerControl<'a> {
    connections: &'a RedfishConnections,
    target: &'a DriverTarget<'a>,
    bmc: RedfishBmc,
    /// The System as last read.
    system: RedfishResource,
    reset: ResetAction,
    /// `LastResetTime` before the last command was sent.
    reset_before: Option<String>,
}

#[async_trait]
impl PowerInterface for RedfishPower {
    fn supported(&self) -> &'static [PowerTarget] {
        PowerTarget::ALL
    }

    async fn get(&self, target: &DriverTarget<'_>) -> Result<Option<PowerState>, DriverError> {
        let bmc = self.0.bmc(target, "read the power state")?;
        Ok(observed_power(&bmc.system().await?).state())
    }

    async fn set(
        &self,
        target: &DriverTarget<'_>,
        wanted: PowerTarget,
        timeout: Option<Duration>,
    ) -> Result<NodeChanges, DriverError> {
        let bmc = self.0.bmc(target, power_plan::power_action_text(wanted))?;
        let system = bmc.system().await?;
        let reset = ResetAction::read(&bmc, &system).await?;
        let restarts = RestartOptions {
            supports_soft_restart: reset.supports(PowerPlanCommand::SoftRestart),
            never_off: target.node.disable_power_off,
        };
        let limits = PowerTimeouts {
            requested: timeout,
            change: Duration::from_secs(self.0.settings.power_state_change_timeout),
            soft: Duration::from_secs(self.0.settings.soft_power_off_timeout),
        };
        let first = observed_power(&system);
        let connections = &self.0;
        let mut machine =
            RedfishPowerControl { connections, target, bmc, system, reset, reset_before: None };
        power_plan::change_power(&mut machine, first, wanted, restarts, limits).await?;
        Ok(NodeChanges::power(wanted.state()))
    }

    async fn check_access(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        let bmc = self.0.bmc(target, "check the access")?;
        // A validation is explicit: the operator may have corrected the password on the BMC.
        bmc.client().clear_rejection();
        let query = async {
            bmc.client().root().await.map_err(|error| bmc.explain(error))?;
            bmc.system().await.map(drop)
        };
        tokio::time::timeout(ACCESS_CHECK_TIMEOUT, query).await.unwrap_or_else(|_| {
            Err(DriverError::BmcUnreachable {
                address: bmc.address().to_owned(),
                what: "check the access".to_owned(),
                source: Some(
                    format!("no response within {} s", ACCESS_CHECK_TIMEOUT.as_secs()).into(),
                ),
            })
        })
    }
}

#[async_trait]
impl PowerControl for RedfishPowerControl<'_> {
    async fn query_power(&mut self) -> Result<ObservedPower, DriverError> {
        self.system = self.bmc.system().await?;
        Ok(observed_power(&self.system))
    }

    async fn send_command(
        &mut self,
        purpose: PowerPlanCommand,
        timeout: Duration,
    ) -> Result<Option<&'static str>, DriverError> {
        self.reset_before = last_reset(&self.system).map(str::to_owned);
        self.reset.send(&self.bmc, purpose, observed_power(&self.system), timeout).await
    }

    async fn prepare_start(&mut self) -> Result<(), DriverError> {
        boot_settings::restore_device(self.connections, &self.bmc, self.target, &self.system).await;
        Ok(())
    }

    fn off_on_delay(&self) -> Duration {
        let quirks = self.connections.quirks.for_node(self.target.node, &self.system);
        Duration::from_secs(quirks.behaviour.delay_after_power_off.unwrap_or(0))
    }

    fn was_reset(&self) -> bool {
        let after = last_reset(&self.system);
        after.is_some() && after != self.reset_before.as_deref()
    }
}

/// The power state of `system`.
pub(super) fn observed_power(system: &RedfishResource) -> ObservedPower {
    match system.text("/PowerState") {
        // A paused machine has power; only its processors are halted.
        Some("On" | "Paused") => ObservedPower::On,
        Some("PoweringOn") => ObservedPower::PoweringOn,
        Some("Off") => ObservedPower::Off,
        Some("PoweringOff") => ObservedPower::PoweringOff,
        Some(_) | None => ObservedPower::Unknown,
    }
}

fn last_reset(system: &RedfishResource) -> Option<&str> {
    system.text("/LastResetTime")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn power_states() {
        for (body, state) in [
            (json!({"PowerState": "On"}), Some(PowerState::On)),
            (json!({"PowerState": "PoweringOn"}), Some(PowerState::On)),
            (json!({"PowerState": "Paused"}), Some(PowerState::On)),
            (json!({"PowerState": "Off"}), Some(PowerState::Off)),
            (json!({"PowerState": "PoweringOff"}), Some(PowerState::Off)),
            (json!({"PowerState": "Reset"}), None),
            (json!({"PowerState": null}), None),
            (json!({"PowerState": 1}), None),
            (json!({}), None),
        ] {
            let system = RedfishResource { path: String::new(), etag: None, body };
            assert_eq!(observed_power(&system).state(), state, "{}", system.body);
        }
    }
}
