// SPDX-License-Identifier: Apache-2.0
//! On and off by IPMI.
//!
//! What has to be done is planned from what the BMC shows; then each leg of the plan is sent and
//! awaited. A machine that is already there is left alone.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ipmi::{ChassisControl, GetChassisStatus};
use node_model::{PowerState, PowerTarget};
use tokio::time::{Instant, sleep, timeout};

use super::bmc::Bmc;
use super::boot_device;
use super::connections::Connections;
use super::interface::ipmi_interface;
use crate::{Error, NodeChanges, Power, Target};

/// The IPMI power interface.
pub(super) struct IpmiPower(pub(super) Arc<Connections>);

ipmi_interface!(IpmiPower, Power);

/// One part of a change: what to send, and the state to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Leg {
    control: ChassisControl,
    until_on: bool,
}

const ON: Leg = Leg { control: ChassisControl::PowerUp, until_on: true };
const OFF: Leg = Leg { control: ChassisControl::PowerDown, until_on: false };
const SHUT_DOWN: Leg = Leg { control: ChassisControl::SoftShutdown, until_on: false };
const RESTART: Leg = Leg { control: ChassisControl::HardReset, until_on: true };

/// How long the check of an address and its credentials may take.
const ACCESS_PATIENCE: Duration = Duration::from_secs(10);
/// The pause before the second look; a machine that is quick is not kept waiting.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The pause that later ones grow to; a BMC that is slow is not kept busy.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// How long a machine that is reset may still show the state from before.
const RESTART_SHOWS_AFTER: Duration = Duration::from_secs(15);

#[async_trait]
impl Power for IpmiPower {
    fn supported(&self) -> &'static [PowerTarget] {
        PowerTarget::ALL
    }

    async fn get(&self, target: &Target<'_>) -> Result<Option<PowerState>, Error> {
        let bmc = self.0.bmc(target, "read the power state")?;
        let status = bmc.ask(&GetChassisStatus).await?;
        Ok(Some(if status.power_on { PowerState::On } else { PowerState::Off }))
    }

    async fn set(
        &self,
        target: &Target<'_>,
        wanted: PowerTarget,
        timeout: Option<Duration>,
    ) -> Result<NodeChanges, Error> {
        let bmc = self.0.bmc(target, what(wanted))?;
        let is_on = bmc.ask(&GetChassisStatus).await?.power_on;
        let legs = plan(wanted, is_on, target.node.disable_power_off).ok_or_else(|| {
            bmc.failed(
                "IPMI can only restart a system softly by shutting it down and switching it on, and \
                 disable_power_off forbids that; use 'rebooting'",
            )
        })?;
        let mut changes = NodeChanges::power(wanted.state());
        for leg in legs {
            if leg.until_on {
                changes = changes.and(boot_device::before_power_on(&self.0, &bmc, target).await?);
            }
            send(&bmc, *leg).await?;
            wait(&bmc, *leg, timeout.unwrap_or_else(|| self.patience(*leg))).await?;
        }
        Ok(changes)
    }

    async fn check_access(&self, target: &Target<'_>) -> Result<(), Error> {
        let bmc = self.0.bmc(target, "look at its chassis")?;
        match timeout(ACCESS_PATIENCE, bmc.ask(&GetChassisStatus)).await {
            Ok(asked) => asked.map(drop),
            Err(_) => Err(Error::Unreachable {
                address: bmc.access.endpoint.address.clone(),
                what: "look at its chassis".to_owned(),
                source: None,
            }),
        }
    }
}

impl IpmiPower {
    /// How long a leg may take if the caller does not say.
    fn patience(&self, leg: Leg) -> Duration {
        let settings = &self.0.settings;
        Duration::from_secs(if leg == SHUT_DOWN {
            settings.soft_power_off_timeout
        } else {
            settings.power_state_change_timeout
        })
    }
}

/// What to do to a machine; none if it cannot be done.
fn plan(wanted: PowerTarget, is_on: bool, never_off: bool) -> Option<&'static [Leg]> {
    Some(match (wanted, is_on) {
        (PowerTarget::On, true) | (PowerTarget::Off | PowerTarget::SoftOff, false) => &[],
        (PowerTarget::On | PowerTarget::Reboot | PowerTarget::SoftReboot, false) => &[ON],
        (PowerTarget::Off, true) => &[OFF],
        (PowerTarget::SoftOff, true) => &[SHUT_DOWN],
        (PowerTarget::Reboot, true) if never_off => &[RESTART],
        (PowerTarget::Reboot, true) => &[OFF, ON],
        (PowerTarget::SoftReboot, true) if never_off => return None,
        (PowerTarget::SoftReboot, true) => &[SHUT_DOWN, ON],
    })
}

/// Sends what the leg needs. Some BMCs refuse what has already come about by itself.
async fn send(bmc: &Bmc, leg: Leg) -> Result<(), Error> {
    match bmc.try_ask(&leg.control).await {
        Ok(()) => Ok(()),
        Err(error @ ipmi::Error::Completion { .. }) if leg != RESTART => {
            match bmc.try_ask(&GetChassisStatus).await {
                Ok(status) if status.power_on == leg.until_on => Ok(()),
                Ok(_) | Err(_) => Err(bmc.explain(error)),
            }
        }
        Err(error) => Err(bmc.explain(error)),
    }
}

/// Looks until the machine is where the leg leads. A BMC that does not answer for a moment is
/// busy with what it was asked to.
async fn wait(bmc: &Bmc, leg: Leg, patience: Duration) -> Result<(), Error> {
    let started = Instant::now();
    let mut pause = if leg == RESTART { RESTART_SHOWS_AFTER.min(patience) } else { FIRST_PAUSE };
    loop {
        sleep(pause.min(patience.saturating_sub(started.elapsed()))).await;
        pause = if leg == RESTART { LONGEST_PAUSE } else { (pause * 3 / 2).min(LONGEST_PAUSE) };
        let seen = match bmc.try_ask(&GetChassisStatus).await {
            Ok(status) if status.power_on == leg.until_on => return Ok(()),
            Ok(_) => None,
            Err(error @ (ipmi::Error::Unreachable { .. } | ipmi::Error::Completion { .. })) => {
                Some(error)
            }
            Err(error) => return Err(bmc.explain(error)),
        };
        if started.elapsed() >= patience {
            return Err(match seen {
                Some(error) => bmc.explain(error),
                None => bmc.failed(too_late(leg, patience)),
            });
        }
    }
}

/// What is said of a machine that did not get there in time.
fn too_late(leg: Leg, patience: Duration) -> String {
    let state = if leg.until_on { "off" } else { "on" };
    let seconds = patience.as_secs();
    let advice = if leg == SHUT_DOWN {
        "the operating system did not follow; allow more time, or use 'power off' or 'rebooting', \
         which do not ask it"
    } else {
        "look at the machine's own log for the cause, or allow more time"
    };
    format!("the machine is still {state} {seconds} s after the BMC took the command; {advice}")
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
    use super::*;

    #[test]
    fn plans() {
        use PowerTarget as T;
        for (wanted, is_on, never_off, sent) in [
            (T::On, true, false, Some(&[][..])),
            (T::On, false, false, Some(&[ON])),
            (T::Off, false, false, Some(&[])),
            (T::Off, true, false, Some(&[OFF])),
            (T::SoftOff, true, false, Some(&[SHUT_DOWN])),
            (T::SoftOff, false, false, Some(&[])),
            (T::Reboot, true, false, Some(&[OFF, ON])),
            (T::Reboot, false, false, Some(&[ON])),
            (T::Reboot, true, true, Some(&[RESTART])),
            (T::Reboot, false, true, Some(&[ON])),
            (T::SoftReboot, true, false, Some(&[SHUT_DOWN, ON])),
            (T::SoftReboot, true, true, None),
        ] {
            assert_eq!(plan(wanted, is_on, never_off), sent, "{wanted} {is_on} {never_off}");
        }
    }

    #[test]
    fn what_is_said_when_it_takes_too_long() {
        let said = too_late(SHUT_DOWN, Duration::from_secs(600));
        assert!(said.contains("still on 600 s") && said.contains("'power off'"), "{said}");
        let said = too_late(ON, Duration::from_secs(60));
        assert!(said.contains("still off 60 s") && !said.contains("operating"), "{said}");
    }
}
