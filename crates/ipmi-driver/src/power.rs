// SPDX-License-Identifier: Apache-2.0
//! The power interface over IPMI. [`drivers::power_plan`] decides which commands are sent.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use drivers::power_plan::{
    self, ObservedPower, PowerControl, PowerPlanCommand, PowerTimeouts, RestartOptions,
};
use drivers::{DriverError, DriverTarget, NodeChanges, PowerInterface, bmc_interface};
use ipmi::{ChassisControl, GetChassisStatus};
use node_model::{PowerState, PowerTarget};

use super::bmc::IpmiBmc;
use super::boot_device;
use super::connections::IpmiConnections;

/// The IPMI power interface.
pub(super) struct IpmiPower(pub(super) Arc<IpmiConnections>);

bmc_interface!(IpmiPower, Power);

/// Timeout of the credentials check: shorter than users wait, so that they get the cause.
const ACCESS_CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// Power control of one control during a change.
struct IpmiPowerControl<'a> {
    connections: &'a IpmiConnections,
    target: &'a DriverTarget<'a>,
    bmc: IpmiBmc,
    /// Changes of the stored boot device.
    changes: NodeChanges,
}

#[async_trait]
impl PowerInterface for IpmiPower {
    fn supported(&self) -> &'static [PowerTarget] {
        PowerTarget::ALL
    }

    async fn get(&self, target: &DriverTarget<'_>) -> Result<Option<PowerState>, DriverError> {
        let bmc = self.0.bmc(target, "read the power state")?;
        Ok(query_power(&bmc).await?.state())
    }

    async fn set(
        &self,
        target: &DriverTarget<'_>,
        power_target: PowerTarget,
        timeout: Option<Duration>,
    ) -> Result<NodeChanges, DriverError> {
        let bmc = self.0.bmc(target, power_plan::power_action_text(power_target))?;
        let first = query_power(&bmc).await?;
        let options = RestartOptions {
            supports_soft_restart: false,
            never_off: target.node.disable_power_off,
        };
        let timeouts = PowerTimeouts {
            requested: timeout,
            change: Duration::from_secs(self.0.settings.power_state_change_timeout),
            soft: Duration::from_secs(self.0.settings.soft_power_off_timeout),
        };
        let changes = NodeChanges::none();
        let mut control = IpmiPowerControl { connections: &self.0, target, bmc, changes };
        power_plan::change_power(&mut control, first, power_target, options, timeouts).await?;
        Ok(NodeChanges::power(power_target.state()).and(control.changes))
    }

    async fn check_access(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        let bmc = self.0.bmc(target, "read the chassis status")?;
        bmc.execute_within(&GetChassisStatus, ACCESS_CHECK_TIMEOUT).await.map(drop)
    }
}

#[async_trait]
impl PowerControl for IpmiPowerControl<'_> {
    async fn query_power(&mut self) -> Result<ObservedPower, DriverError> {
        query_power(&self.bmc).await
    }

    async fn send_command(
        &mut self,
        command: PowerPlanCommand,
        _timeout: Duration,
    ) -> Result<Option<&'static str>, DriverError> {
        let Some((control, name)) = chassis_control(command) else {
            return Err(self.bmc.failed(
                "IPMI supports a soft reboot only as shutdown and power-on, which \
                 disable_power_off forbids; use 'rebooting'",
            ));
        };
        match self.bmc.try_execute(&control).await {
            Ok(()) => Ok(Some(name)),
            // The control's power shows whether the BMC received it.
            Err(ipmi::IpmiError::Uncertain { .. }) if command.is_idempotent() => Ok(Some(name)),
            // Some BMCs reject a command whose target state is already reached.
            Err(error @ ipmi::IpmiError::Completion { .. }) if command.is_idempotent() => {
                match query_power(&self.bmc).await {
                    Ok(observed) if observed == command.expected_power() => Ok(None),
                    Ok(_) | Err(_) => Err(self.bmc.explain(error)),
                }
            }
            Err(error) => Err(self.bmc.explain(error)),
        }
    }

    async fn prepare_start(&mut self) -> Result<(), DriverError> {
        self.changes =
            boot_device::before_power_on(self.connections, &self.bmc, self.target).await?;
        Ok(())
    }
}

async fn query_power(bmc: &IpmiBmc) -> Result<ObservedPower, DriverError> {
    let status = bmc.execute(&GetChassisStatus).await?;
    Ok(if status.power_on { ObservedPower::On } else { ObservedPower::Off })
}

/// The IPMI command and its name for messages; `None` if IPMI has no such command.
const fn chassis_control(command: PowerPlanCommand) -> Option<(ChassisControl, &'static str)> {
    match command {
        PowerPlanCommand::On => Some((ChassisControl::PowerUp, "power up")),
        PowerPlanCommand::Off => Some((ChassisControl::PowerDown, "power down")),
        PowerPlanCommand::SoftOff => Some((ChassisControl::SoftShutdown, "soft shutdown")),
        PowerPlanCommand::Restart => Some((ChassisControl::HardReset, "hard reset")),
        PowerPlanCommand::SoftRestart => None,
    }
}
