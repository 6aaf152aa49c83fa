// SPDX-License-Identifier: Apache-2.0
//! On and off by Redfish.
//!
//! What has to be done is planned from what the BMC shows; then each leg of the plan is sent and
//! awaited. A machine that is already there is left alone.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use node_model::{PowerState, PowerTarget};
use redfish::Resource;

use super::bmc::Bmc;
use super::boot_settings;
use super::connections::Connections;
use super::interface::redfish_interface;
use super::patience::Pace;
use super::reset::{Purpose, Reset};
use crate::{Error, NodeChanges, Power, Target};

/// The redfish power interface.
pub(crate) struct RedfishPower(pub(super) Arc<Connections>);

redfish_interface!(RedfishPower, Power);

/// How long the check of an address and its credentials may take.
const ACCESS_PATIENCE: Duration = Duration::from_secs(10);

/// How long a machine that is restarted may still show the state from before, on a BMC that does
/// not say when the last reset was.
const RESTART_SHOWS_AFTER: Duration = Duration::from_secs(15);

/// How a machine's power looks to its BMC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    On,
    GoingOn,
    Off,
    GoingOff,
    /// The BMC does not say, or says something we do not know.
    Unknown,
}

/// One part of a change: what to send, if anything, and what to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Leg {
    send: Option<Purpose>,
    until: Seen,
}

#[async_trait]
impl Power for RedfishPower {
    fn supported(&self) -> &'static [PowerTarget] {
        PowerTarget::ALL
    }

    async fn get(&self, target: &Target<'_>) -> Result<Option<PowerState>, Error> {
        let bmc = self.0.bmc(target, "read the power state")?;
        Ok(Seen::of(&bmc.system().await?).state())
    }

    async fn set(
        &self,
        target: &Target<'_>,
        wanted: PowerTarget,
        timeout: Option<Duration>,
    ) -> Result<NodeChanges, Error> {
        let bmc = self.0.bmc(target, what(wanted))?;
        let mut system = bmc.system().await?;
        let reset = Reset::of(&bmc, &system).await?;
        let restarts = Restarts {
            softly: !reset.candidates(Purpose::RestartSoftly).is_empty(),
            never_off: target.node.disable_power_off,
        };
        let legs = plan(wanted, Seen::of(&system), restarts);
        let whole = timeout.map(Pace::within);
        for leg in legs {
            if leg.until == Seen::On && leg.send.is_some() {
                boot_settings::restore(&self.0, &bmc, target, &system).await;
            }
            let patience = match &whole {
                Some(whole) => whole.left(),
                None => self.patience(leg.send),
            };
            let sent = match leg.send {
                None => None,
                Some(purpose) => reset.send(&bmc, purpose, Seen::of(&system), patience).await?,
            };
            system = wait(&bmc, *leg, sent, last_reset(&system), patience).await?;
            if leg.until == Seen::Off && wanted.state() == PowerState::On {
                self.rest(&system).await;
            }
        }
        Ok(NodeChanges::power(wanted.state()))
    }

    async fn check_access(&self, target: &Target<'_>) -> Result<(), Error> {
        let bmc = self.0.bmc(target, "look at its service")?;
        let look = async {
            bmc.client().root().await.map_err(|error| bmc.explain(error))?;
            bmc.system().await.map(drop)
        };
        tokio::time::timeout(ACCESS_PATIENCE, look).await.unwrap_or_else(|_| {
            Err(Error::Unreachable {
                address: bmc.address().to_owned(),
                what: "look at its service".to_owned(),
                source: Some(format!("no answer within {}", seconds(ACCESS_PATIENCE)).into()),
            })
        })
    }
}

impl RedfishPower {
    /// How long a leg may take if the caller does not say.
    fn patience(&self, purpose: Option<Purpose>) -> Duration {
        let settings = &self.0.settings;
        Duration::from_secs(match purpose {
            Some(Purpose::ShutDown | Purpose::RestartSoftly) => settings.soft_power_off_timeout,
            None | Some(Purpose::On | Purpose::Off | Purpose::Restart | Purpose::Interrupt) => {
                settings.power_state_change_timeout
            }
        })
    }

    /// Leaves a machine alone between off and on, where it needs that.
    async fn rest(&self, system: &Resource) {
        if let Some(seconds) = self.0.quirks.of(system).behaviour.rest_after_power_off {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
    }
}

impl Seen {
    /// What `system` shows.
    pub(super) fn of(system: &Resource) -> Self {
        match system.text("/PowerState") {
            // A paused machine has power; it is its processors that stand still.
            Some("On" | "Paused") => Self::On,
            Some("PoweringOn") => Self::GoingOn,
            Some("Off") => Self::Off,
            Some("PoweringOff") => Self::GoingOff,
            Some(_) | None => Self::Unknown,
        }
    }

    /// Whether the machine is where `end` is, or on its way there.
    pub(super) fn is_at_or_going(self, end: Self) -> bool {
        self != Self::Unknown && self.state() == end.state()
    }

    const fn state(self) -> Option<PowerState> {
        match self {
            Self::On | Self::GoingOn => Some(PowerState::On),
            Self::Off | Self::GoingOff => Some(PowerState::Off),
            Self::Unknown => None,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::GoingOn => "switching on",
            Self::Off => "off",
            Self::GoingOff => "switching off",
            Self::Unknown => "in a state the BMC does not tell",
        }
    }
}

/// How a machine may be restarted.
#[derive(Clone, Copy, Debug)]
struct Restarts {
    /// Whether its operating system can be asked to.
    softly: bool,
    /// Whether it must never be switched off.
    never_off: bool,
}

/// What to do to a machine that shows `seen`.
fn plan(wanted: PowerTarget, seen: Seen, restarts: Restarts) -> &'static [Leg] {
    const fn leg(purpose: Purpose) -> Leg {
        Leg { send: Some(purpose), until: purpose.leads_to() }
    }
    const ON: Leg = leg(Purpose::On);
    const OFF: Leg = leg(Purpose::Off);
    const SHUT_DOWN: Leg = leg(Purpose::ShutDown);
    const BECOMES_ON: Leg = Leg { send: None, until: Seen::On };
    const BECOMES_OFF: Leg = Leg { send: None, until: Seen::Off };
    const RESTART: Leg = leg(Purpose::Restart);
    const RESTART_SOFTLY: Leg = leg(Purpose::RestartSoftly);
    match (wanted, seen) {
        (PowerTarget::On, Seen::On) | (PowerTarget::Off | PowerTarget::SoftOff, Seen::Off) => &[],
        (PowerTarget::On, Seen::GoingOn) => &[BECOMES_ON],
        (PowerTarget::Off | PowerTarget::SoftOff, Seen::GoingOff) => &[BECOMES_OFF],
        (PowerTarget::Off, Seen::On | Seen::GoingOn | Seen::Unknown) => &[OFF],
        (PowerTarget::SoftOff, Seen::On | Seen::GoingOn | Seen::Unknown) => &[SHUT_DOWN],
        (PowerTarget::On, Seen::Off | Seen::Unknown)
        | (PowerTarget::Reboot | PowerTarget::SoftReboot, Seen::Off) => &[ON],
        // A BMC refuses to switch on what is still going off.
        (PowerTarget::On | PowerTarget::Reboot | PowerTarget::SoftReboot, Seen::GoingOff) => {
            &[BECOMES_OFF, ON]
        }
        (PowerTarget::Reboot, Seen::On | Seen::GoingOn) if !restarts.never_off => &[OFF, ON],
        // Off could not be awaited where the state is not told.
        (PowerTarget::Reboot, Seen::On | Seen::GoingOn | Seen::Unknown) => &[RESTART],
        (PowerTarget::SoftReboot, Seen::On | Seen::GoingOn | Seen::Unknown) => {
            if restarts.softly || restarts.never_off { &[RESTART_SOFTLY] } else { &[SHUT_DOWN, ON] }
        }
    }
}

/// Looks until the machine is where the leg leads. A BMC that does not answer for a moment is
/// busy with what it was asked to.
async fn wait(
    bmc: &Bmc,
    leg: Leg,
    sent: Option<&'static str>,
    reset_before: Option<&str>,
    patience: Duration,
) -> Result<Resource, Error> {
    let mut pace = Pace::within(patience);
    loop {
        let seen = match bmc.system().await {
            Ok(system) => {
                let seen = Seen::of(&system);
                if seen == leg.until && has_restarted(leg, reset_before, &system, pace.spent()) {
                    return Ok(system);
                }
                Ok(seen)
            }
            Err(
                error @ (Error::Unreachable { .. } | Error::NotFound { .. } | Error::Failed { .. }),
            ) => Err(error),
            Err(
                error @ (Error::Refused { .. }
                | Error::Untrusted { .. }
                | Error::Unsupported { .. }
                | Error::InvalidParameter { .. }
                | Error::MissingParameter { .. }),
            ) => return Err(error),
        };
        if !pace.pause().await {
            return Err(bmc.failed(too_late(leg, sent, seen?, patience)));
        }
    }
}

/// Whether what is seen can be of after the reset. Only a restart leaves this open: the machine
/// is on before and after.
fn has_restarted(leg: Leg, before: Option<&str>, system: &Resource, spent: Duration) -> bool {
    if leg.send != Some(Purpose::Restart) {
        return true;
    }
    let after = last_reset(system);
    (after.is_some() && after != before) || spent >= RESTART_SHOWS_AFTER
}

fn last_reset(system: &Resource) -> Option<&str> {
    system.text("/LastResetTime")
}

/// What is said of a machine that did not get there in time.
fn too_late(leg: Leg, sent: Option<&str>, seen: Seen, patience: Duration) -> String {
    let sent = sent.map_or_else(String::new, |kind| format!(" after the BMC took '{kind}'"));
    let seen = seen.words();
    let advice = match leg.send {
        Some(Purpose::ShutDown | Purpose::RestartSoftly) => {
            "the operating system did not follow; allow more time, or use 'power off' or \
             'rebooting', which do not ask it"
        }
        None | Some(Purpose::On | Purpose::Off | Purpose::Restart | Purpose::Interrupt) => {
            "look at the machine's own log for the cause, or allow more time"
        }
    };
    format!("the machine is {seen} {}{sent}; {advice}", seconds(patience))
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

/// What is wanted, for messages.
const fn what(wanted: PowerTarget) -> &'static str {
    match wanted {
        PowerTarget::On => "switch the machine on",
        PowerTarget::Off => "switch the machine off",
        PowerTarget::Reboot => "reboot the machine",
        PowerTarget::SoftOff => "shut the machine down",
        PowerTarget::SoftReboot => "restart the machine's operating system",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn system(body: Value) -> Resource {
        Resource { path: "/redfish/v1/Systems/1".to_owned(), etag: None, body }
    }

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
            assert_eq!(Seen::of(&system(body.clone())).state(), state, "{body}");
        }
    }

    #[test]
    fn plans() {
        use PowerTarget as T;
        const FREE: Restarts = Restarts { softly: true, never_off: false };
        const NO_SOFT: Restarts = Restarts { softly: false, never_off: false };
        const NEVER_OFF: Restarts = Restarts { softly: false, never_off: true };
        for (wanted, seen, restarts, sent) in [
            (T::On, Seen::On, FREE, "nothing"),
            (T::On, Seen::Off, FREE, "On"),
            (T::On, Seen::GoingOn, FREE, "until On"),
            (T::On, Seen::GoingOff, FREE, "until Off, On"),
            (T::Off, Seen::Off, FREE, "nothing"),
            (T::Off, Seen::Unknown, FREE, "Off"),
            (T::SoftOff, Seen::On, FREE, "ShutDown"),
            (T::SoftOff, Seen::GoingOff, FREE, "until Off"),
            (T::Reboot, Seen::On, FREE, "Off, On"),
            (T::Reboot, Seen::Off, FREE, "On"),
            (T::Reboot, Seen::GoingOff, FREE, "until Off, On"),
            (T::Reboot, Seen::Unknown, FREE, "Restart"),
            (T::Reboot, Seen::On, NEVER_OFF, "Restart"),
            (T::Reboot, Seen::Off, NEVER_OFF, "On"),
            (T::SoftReboot, Seen::On, FREE, "RestartSoftly"),
            (T::SoftReboot, Seen::On, NO_SOFT, "ShutDown, On"),
            (T::SoftReboot, Seen::On, NEVER_OFF, "RestartSoftly"),
            (T::SoftReboot, Seen::Off, NO_SOFT, "On"),
        ] {
            let legs = plan(wanted, seen, restarts);
            let words: Vec<_> = legs
                .iter()
                .map(|leg| match leg.send {
                    Some(purpose) => format!("{purpose:?}"),
                    None => format!("until {:?}", leg.until),
                })
                .collect();
            let words = if words.is_empty() { "nothing".to_owned() } else { words.join(", ") };
            assert_eq!(words, sent, "{wanted} {seen:?} {restarts:?}");
        }
    }

    #[test]
    fn a_restart_is_seen_by_its_time_or_given_time() {
        let restart =
            plan(PowerTarget::Reboot, Seen::On, Restarts { softly: true, never_off: true })[0];
        let before = Some("2026-01-01T00:00:00Z");
        let same = system(json!({"LastResetTime": "2026-01-01T00:00:00Z"}));
        let later = system(json!({"LastResetTime": "2026-01-01T00:00:05Z"}));
        let soon = Duration::from_secs(1);
        assert!(!has_restarted(restart, before, &same, soon));
        assert!(has_restarted(restart, before, &later, soon));
        assert!(!has_restarted(restart, None, &system(json!({})), soon));
        assert!(has_restarted(restart, None, &system(json!({})), RESTART_SHOWS_AFTER));
    }

    #[test]
    fn what_is_said_when_it_takes_too_long() {
        let leg = Leg { send: Some(Purpose::ShutDown), until: Seen::Off };
        let said = too_late(leg, Some("GracefulShutdown"), Seen::On, Duration::from_secs(600));
        assert!(said.contains("is on 600 s after the BMC took 'GracefulShutdown'"), "{said}");
        assert!(said.contains("'power off'"), "{said}");
    }
}
