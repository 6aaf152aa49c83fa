// SPDX-License-Identifier: Apache-2.0
//! On and off by IPMI: how a BMC shows and changes a machine's power. What is sent when is planned
//! in [`crate::power_plan`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ipmi::{ChassisControl, GetChassisStatus};
use node_model::{PowerState, PowerTarget};

use super::bmc::Bmc;
use super::boot_device;
use super::connections::Connections;
use crate::connected::connected_interface;
use crate::power_plan::{self, Limits, Purpose, Restarts, Seen, Switch};
use crate::{Error, NodeChanges, Power, Target};

/// The IPMI power interface.
pub(super) struct IpmiPower(pub(super) Arc<Connections>);

connected_interface!(IpmiPower, Power);

/// How long the check of an address and its credentials may take: less than users wait for it, so
/// that they are told the cause.
const ACCESS_PATIENCE: Duration = Duration::from_secs(10);

/// The power of one machine in the middle of a change.
struct MachinePower<'a> {
    connections: &'a Connections,
    target: &'a Target<'a>,
    bmc: Bmc,
    /// What is to be remembered about its boot device.
    changes: NodeChanges,
}

#[async_trait]
impl Power for IpmiPower {
    fn supported(&self) -> &'static [PowerTarget] {
        PowerTarget::ALL
    }

    async fn get(&self, target: &Target<'_>) -> Result<Option<PowerState>, Error> {
        let bmc = self.0.bmc(target, "read the power state")?;
        Ok(look(&bmc).await?.state())
    }

    async fn set(
        &self,
        target: &Target<'_>,
        wanted: PowerTarget,
        timeout: Option<Duration>,
    ) -> Result<NodeChanges, Error> {
        let bmc = self.0.bmc(target, power_plan::what(wanted))?;
        let first = look(&bmc).await?;
        let restarts = Restarts { softly: false, never_off: target.node.disable_power_off };
        let limits = Limits {
            asked: timeout,
            change: Duration::from_secs(self.0.settings.power_state_change_timeout),
            soft: Duration::from_secs(self.0.settings.soft_power_off_timeout),
        };
        let changes = NodeChanges::none();
        let mut machine = MachinePower { connections: &self.0, target, bmc, changes };
        power_plan::bring(&mut machine, first, wanted, restarts, limits).await?;
        Ok(NodeChanges::power(wanted.state()).and(machine.changes))
    }

    async fn check_access(&self, target: &Target<'_>) -> Result<(), Error> {
        let bmc = self.0.bmc(target, "look at its chassis")?;
        bmc.ask_within(&GetChassisStatus, ACCESS_PATIENCE).await.map(drop)
    }
}

#[async_trait]
impl Switch for MachinePower<'_> {
    async fn look(&mut self) -> Result<Seen, Error> {
        look(&self.bmc).await
    }

    async fn send(
        &mut self,
        purpose: Purpose,
        _patience: Duration,
    ) -> Result<Option<&'static str>, Error> {
        let Some((control, word)) = control(purpose) else {
            return Err(self.bmc.failed(
                "IPMI can only restart a system softly by shutting it down and switching it on, and \
                 disable_power_off forbids that; use 'rebooting'",
            ));
        };
        match self.bmc.try_ask(&control).await {
            Ok(()) => Ok(Some(word)),
            // Whether it was heard is seen by what the machine does.
            Err(ipmi::Error::Uncertain { .. }) if purpose.is_idempotent() => Ok(Some(word)),
            // Some refuse what has already come about by itself.
            Err(error @ ipmi::Error::Completion { .. }) if purpose.is_idempotent() => {
                match look(&self.bmc).await {
                    Ok(seen) if seen == purpose.leads_to() => Ok(None),
                    Ok(_) | Err(_) => Err(self.bmc.explain(error)),
                }
            }
            Err(error) => Err(self.bmc.explain(error)),
        }
    }

    async fn before_start(&mut self) -> Result<(), Error> {
        self.changes =
            boot_device::before_power_on(self.connections, &self.bmc, self.target).await?;
        Ok(())
    }
}

async fn look(bmc: &Bmc) -> Result<Seen, Error> {
    let status = bmc.ask(&GetChassisStatus).await?;
    Ok(if status.power_on { Seen::On } else { Seen::Off })
}

/// What a BMC is told, and how messages call it; none for what IPMI has no word for.
const fn control(purpose: Purpose) -> Option<(ChassisControl, &'static str)> {
    match purpose {
        Purpose::On => Some((ChassisControl::PowerUp, "power up")),
        Purpose::Off => Some((ChassisControl::PowerDown, "power down")),
        Purpose::ShutDown => Some((ChassisControl::SoftShutdown, "soft shutdown")),
        Purpose::Restart => Some((ChassisControl::HardReset, "hard reset")),
        Purpose::RestartSoftly => None,
    }
}
