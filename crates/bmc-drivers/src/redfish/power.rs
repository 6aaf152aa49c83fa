// SPDX-License-Identifier: Apache-2.0
//! On and off by Redfish: how a BMC shows and changes a machine's power. What is sent when is
//! planned in [`crate::power_plan`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use node_model::{PowerState, PowerTarget};
use redfish::Resource;

use super::bmc::Bmc;
use super::boot_settings;
use super::connections::Connections;
use super::reset::Reset;
use crate::connected::connected_interface;
use crate::power_plan::{self, Limits, Purpose, Restarts, Seen, Switch};
use crate::{Error, NodeChanges, Power, Target};

/// The redfish power interface.
pub(crate) struct RedfishPower(pub(super) Arc<Connections>);

connected_interface!(RedfishPower, Power);

/// How long the check of an address and its credentials may take.
const ACCESS_PATIENCE: Duration = Duration::from_secs(10);

/// The power of one machine in the middle of a change.
struct MachinePower<'a> {
    connections: &'a Connections,
    target: &'a Target<'a>,
    bmc: Bmc,
    /// The machine as it was last seen.
    system: Resource,
    reset: Reset,
    /// When the machine was last reset, as the BMC said when something was last sent.
    reset_before: Option<String>,
}

#[async_trait]
impl Power for RedfishPower {
    fn supported(&self) -> &'static [PowerTarget] {
        PowerTarget::ALL
    }

    async fn get(&self, target: &Target<'_>) -> Result<Option<PowerState>, Error> {
        let bmc = self.0.bmc(target, "read the power state")?;
        Ok(seen(&bmc.system().await?).state())
    }

    async fn set(
        &self,
        target: &Target<'_>,
        wanted: PowerTarget,
        timeout: Option<Duration>,
    ) -> Result<NodeChanges, Error> {
        let bmc = self.0.bmc(target, power_plan::what(wanted))?;
        let system = bmc.system().await?;
        let reset = Reset::of(&bmc, &system).await?;
        let restarts = Restarts {
            softly: reset.can(Purpose::RestartSoftly),
            never_off: target.node.disable_power_off,
        };
        let limits = Limits {
            asked: timeout,
            change: Duration::from_secs(self.0.settings.power_state_change_timeout),
            soft: Duration::from_secs(self.0.settings.soft_power_off_timeout),
        };
        let first = seen(&system);
        let connections = &self.0;
        let mut machine =
            MachinePower { connections, target, bmc, system, reset, reset_before: None };
        power_plan::bring(&mut machine, first, wanted, restarts, limits).await?;
        Ok(NodeChanges::power(wanted.state()))
    }

    async fn check_access(&self, target: &Target<'_>) -> Result<(), Error> {
        let bmc = self.0.bmc(target, "look at its service")?;
        // Whoever asks may have put the password right on the BMC.
        bmc.client().try_again();
        let look = async {
            bmc.client().root().await.map_err(|error| bmc.explain(error))?;
            bmc.system().await.map(drop)
        };
        tokio::time::timeout(ACCESS_PATIENCE, look).await.unwrap_or_else(|_| {
            Err(Error::Unreachable {
                address: bmc.address().to_owned(),
                what: "look at its service".to_owned(),
                source: Some(format!("no answer within {} s", ACCESS_PATIENCE.as_secs()).into()),
            })
        })
    }
}

#[async_trait]
impl Switch for MachinePower<'_> {
    async fn look(&mut self) -> Result<Seen, Error> {
        self.system = self.bmc.system().await?;
        Ok(seen(&self.system))
    }

    async fn send(
        &mut self,
        purpose: Purpose,
        patience: Duration,
    ) -> Result<Option<&'static str>, Error> {
        self.reset_before = last_reset(&self.system).map(str::to_owned);
        self.reset.send(&self.bmc, purpose, seen(&self.system), patience).await
    }

    async fn before_start(&mut self) -> Result<(), Error> {
        boot_settings::restore(self.connections, &self.bmc, self.target, &self.system).await;
        Ok(())
    }

    fn rest(&self) -> Duration {
        let quirks = self.connections.quirks.of(self.target.node, &self.system);
        Duration::from_secs(quirks.behaviour.rest_after_power_off.unwrap_or(0))
    }

    fn shows_a_reset(&self) -> bool {
        let after = last_reset(&self.system);
        after.is_some() && after != self.reset_before.as_deref()
    }
}

/// What `system` shows.
pub(super) fn seen(system: &Resource) -> Seen {
    match system.text("/PowerState") {
        // A paused machine has power; it is its processors that stand still.
        Some("On" | "Paused") => Seen::On,
        Some("PoweringOn") => Seen::GoingOn,
        Some("Off") => Seen::Off,
        Some("PoweringOff") => Seen::GoingOff,
        Some(_) | None => Seen::Unknown,
    }
}

fn last_reset(system: &Resource) -> Option<&str> {
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
            let system = Resource { path: String::new(), etag: None, body };
            assert_eq!(seen(&system).state(), state, "{}", system.body);
        }
    }
}
