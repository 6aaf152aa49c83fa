// SPDX-License-Identifier: Apache-2.0
//! Changes the power state of a machine, independent of the BMC's protocol.
//!
//! The steps are planned from the observed power; each step sends a command and waits for its effect.
//! A machine that is already in the target state is left alone.
//!
//! Callers repeat a change that failed because the BMC did not respond. That is harmless, except for a
//! reboot whose machine may already be starting: it would be interrupted and started again. From that
//! step on an unresponsive BMC is polled until the timeout, and the final error is permanent.

use std::time::Duration;

use async_trait::async_trait;
use node_model::{PowerState, PowerTarget};

use crate::DriverError;
use crate::poll_timer::PollTimer;

/// How long a restarted machine may still report its previous state, on a BMC that does not report the
/// time of the last reset.
const RESTART_VISIBLE_AFTER: Duration = Duration::from_secs(15);

/// Power control of a machine, implemented per protocol.
#[async_trait]
pub trait PowerControl: Send {
    /// Queries the current power.
    async fn query_power(&mut self) -> Result<ObservedPower, DriverError>;

    /// Sends a command. Returns the BMC's name of it, or `None` if there was nothing left to do. A busy
    /// BMC may be retried until `timeout`.
    async fn send_command(
        &mut self,
        command: PowerPlanCommand,
        timeout: Duration,
    ) -> Result<Option<&'static str>, DriverError>;

    /// Applies settings that must be set before the machine starts.
    async fn prepare_start(&mut self) -> Result<(), DriverError>;

    /// The delay between power-off and power-on.
    fn off_on_delay(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether the last query showed a reset since the last command. False if the BMC does not report
    /// resets.
    fn was_reset(&self) -> bool {
        false
    }
}

/// Power as the BMC reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObservedPower {
    /// On.
    On,
    /// Powering on.
    PoweringOn,
    /// Off.
    Off,
    /// Powering off.
    PoweringOff,
    /// Not reported, or an unknown value.
    Unknown,
}

/// A power command for a BMC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PowerPlanCommand {
    /// Power on.
    On,
    /// Power off immediately.
    Off,
    /// Request a shutdown from the operating system.
    SoftOff,
    /// Reset without a shutdown and without power-off.
    Restart,
    /// Request a restart from the operating system.
    SoftRestart,
}

/// How a machine may be restarted.
#[derive(Clone, Copy, Debug)]
pub struct RestartOptions {
    /// Whether the BMC can request a restart from the operating system.
    pub supports_soft_restart: bool,
    /// Whether the machine must never be powered off.
    pub never_off: bool,
}

/// The timeout of each step.
#[derive(Clone, Copy, Debug)]
pub struct PowerTimeouts {
    /// The caller's timeout, for every step.
    pub requested: Option<Duration>,
    /// For a power change.
    pub change: Duration,
    /// For a shutdown or restart by the operating system.
    pub soft: Duration,
}

/// One step of a change: the command to send, if any, and the power to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PowerPlanStep {
    command: Option<PowerPlanCommand>,
    expected: ObservedPower,
}

/// The result of sending a step's command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PowerCommandResult {
    /// No command was needed.
    NotNeeded,
    /// The BMC accepted the command with this name.
    Accepted(&'static str),
    /// The BMC may have accepted it; the reply was lost.
    Unconfirmed,
}

/// Brings a machine with the power `first` to `power_target`.
pub async fn change_power(
    control: &mut impl PowerControl,
    first: ObservedPower,
    power_target: PowerTarget,
    options: RestartOptions,
    timeouts: PowerTimeouts,
) -> Result<(), DriverError> {
    for step in plan_steps(power_target, first, options) {
        let timeout = timeouts.for_command(step.command);
        if step.expected == ObservedPower::On && step.command.is_some() {
            control.prepare_start().await?;
        }
        let result = send_step(control, power_target, *step, timeout).await?;
        // A power state that the BMC does not report cannot be awaited.
        if first != ObservedPower::Unknown || result == PowerCommandResult::Unconfirmed {
            wait_for_step(control, power_target, *step, result, timeout).await?;
        }
        if step.expected == ObservedPower::Off && power_target.state() == PowerState::On {
            tokio::time::sleep(control.off_on_delay()).await;
        }
    }
    Ok(())
}

/// The power change for error messages: a verb and its object.
pub const fn power_action_text(power_target: PowerTarget) -> &'static str {
    match power_target {
        PowerTarget::On => "switch the machine on",
        PowerTarget::Off => "switch the machine off",
        PowerTarget::Reboot => "reboot the machine",
        PowerTarget::SoftOff => "shut the machine down",
        PowerTarget::SoftReboot => "restart the machine's operating system",
    }
}

impl ObservedPower {
    /// Whether the machine is in the state of `end` or entering it.
    pub fn is_in_or_entering(self, end: Self) -> bool {
        self != Self::Unknown && self.state() == end.state()
    }

    /// The power state; `None` for [`ObservedPower::Unknown`].
    pub const fn state(self) -> Option<PowerState> {
        match self {
            Self::On | Self::PoweringOn => Some(PowerState::On),
            Self::Off | Self::PoweringOff => Some(PowerState::Off),
            Self::Unknown => None,
        }
    }

    const fn display_text(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::PoweringOn => "switching on",
            Self::Off => "off",
            Self::PoweringOff => "switching off",
            Self::Unknown => "in an unknown power state",
        }
    }
}

impl PowerPlanCommand {
    /// The power after the command.
    pub const fn expected_power(self) -> ObservedPower {
        match self {
            Self::On | Self::Restart | Self::SoftRestart => ObservedPower::On,
            Self::Off | Self::SoftOff => ObservedPower::Off,
        }
    }

    /// Whether the command has no effect on a machine already in its target state, so that it may be
    /// sent twice.
    pub const fn is_idempotent(self) -> bool {
        match self {
            Self::On | Self::Off | Self::SoftOff => true,
            Self::Restart | Self::SoftRestart => false,
        }
    }

    const fn is_soft(self) -> bool {
        match self {
            Self::SoftOff | Self::SoftRestart => true,
            Self::On | Self::Off | Self::Restart => false,
        }
    }
}

impl PowerTimeouts {
    fn for_command(&self, command: Option<PowerPlanCommand>) -> Duration {
        let is_soft = command.is_some_and(PowerPlanCommand::is_soft);
        self.requested.unwrap_or(if is_soft { self.soft } else { self.change })
    }
}

impl PowerPlanStep {
    /// Whether repeating the change after this step would start the machine again.
    fn starts_machine_for(self, power_target: PowerTarget) -> bool {
        match power_target {
            PowerTarget::Reboot | PowerTarget::SoftReboot => self.expected == ObservedPower::On,
            PowerTarget::On | PowerTarget::Off | PowerTarget::SoftOff => false,
        }
    }
}

/// The steps for a machine with the power `observed`.
fn plan_steps(
    power_target: PowerTarget,
    observed: ObservedPower,
    options: RestartOptions,
) -> &'static [PowerPlanStep] {
    const fn step(purpose: PowerPlanCommand) -> PowerPlanStep {
        PowerPlanStep { command: Some(purpose), expected: purpose.expected_power() }
    }
    const ON: PowerPlanStep = step(PowerPlanCommand::On);
    const OFF: PowerPlanStep = step(PowerPlanCommand::Off);
    const SOFT_OFF: PowerPlanStep = step(PowerPlanCommand::SoftOff);
    const WAIT_FOR_ON: PowerPlanStep = PowerPlanStep { command: None, expected: ObservedPower::On };
    const WAIT_FOR_OFF: PowerPlanStep =
        PowerPlanStep { command: None, expected: ObservedPower::Off };
    const RESTART: PowerPlanStep = step(PowerPlanCommand::Restart);
    const SOFT_RESTART: PowerPlanStep = step(PowerPlanCommand::SoftRestart);
    match (power_target, observed) {
        (PowerTarget::On, ObservedPower::On)
        | (PowerTarget::Off | PowerTarget::SoftOff, ObservedPower::Off) => &[],
        (PowerTarget::On, ObservedPower::PoweringOn) => &[WAIT_FOR_ON],
        (PowerTarget::Off | PowerTarget::SoftOff, ObservedPower::PoweringOff) => &[WAIT_FOR_OFF],
        (
            PowerTarget::Off,
            ObservedPower::On | ObservedPower::PoweringOn | ObservedPower::Unknown,
        ) => &[OFF],
        (
            PowerTarget::SoftOff,
            ObservedPower::On | ObservedPower::PoweringOn | ObservedPower::Unknown,
        ) => &[SOFT_OFF],
        (PowerTarget::On, ObservedPower::Off | ObservedPower::Unknown)
        | (PowerTarget::Reboot | PowerTarget::SoftReboot, ObservedPower::Off) => &[ON],
        // A BMC rejects power-on while the machine is powering off.
        (
            PowerTarget::On | PowerTarget::Reboot | PowerTarget::SoftReboot,
            ObservedPower::PoweringOff,
        ) => &[WAIT_FOR_OFF, ON],
        (PowerTarget::Reboot, ObservedPower::On | ObservedPower::PoweringOn)
            if !options.never_off =>
        {
            &[OFF, ON]
        }
        (PowerTarget::SoftReboot, ObservedPower::On | ObservedPower::PoweringOn)
            if !options.supports_soft_restart && !options.never_off =>
        {
            &[SOFT_OFF, ON]
        }
        // Without a reported power state, power-off could not be awaited.
        (
            PowerTarget::Reboot,
            ObservedPower::On | ObservedPower::PoweringOn | ObservedPower::Unknown,
        ) => &[RESTART],
        (
            PowerTarget::SoftReboot,
            ObservedPower::On | ObservedPower::PoweringOn | ObservedPower::Unknown,
        ) => &[SOFT_RESTART],
    }
}

/// Sends the step's command.
async fn send_step(
    control: &mut impl PowerControl,
    power_target: PowerTarget,
    step: PowerPlanStep,
    timeout: Duration,
) -> Result<PowerCommandResult, DriverError> {
    let Some(command) = step.command else { return Ok(PowerCommandResult::NotNeeded) };
    let mut timer = PollTimer::with_timeout(timeout);
    loop {
        match control.send_command(command, timer.remaining()).await {
            Ok(name) => {
                return Ok(name.map_or(PowerCommandResult::NotNeeded, PowerCommandResult::Accepted));
            }
            Err(error) if !error.is_transient() || !step.starts_machine_for(power_target) => {
                return Err(error);
            }
            Err(_) if !command.is_idempotent() => return Ok(PowerCommandResult::Unconfirmed),
            Err(error) => {
                if !timer.wait().await {
                    return Err(start_unconfirmed(
                        power_target,
                        step,
                        PowerCommandResult::Unconfirmed,
                        &error,
                        timeout,
                    ));
                }
            }
        }
    }
}

/// Polls until the machine reaches the step's power. A BMC that does not respond for a while is busy
/// with the command.
async fn wait_for_step(
    control: &mut impl PowerControl,
    power_target: PowerTarget,
    step: PowerPlanStep,
    result: PowerCommandResult,
    timeout: Duration,
) -> Result<(), DriverError> {
    let mut timer = PollTimer::with_timeout(timeout);
    loop {
        let queried = match control.query_power().await {
            Ok(observed)
                if observed == step.expected
                    && reflects_command(control, step, result, timer.elapsed()) =>
            {
                return Ok(());
            }
            Err(
                error @ (DriverError::CredentialsRejected { .. }
                | DriverError::Untrusted { .. }
                | DriverError::Unsupported { .. }
                | DriverError::InvalidParameter { .. }
                | DriverError::MissingParameter { .. }),
            ) => return Err(error),
            looked => looked,
        };
        if !timer.wait().await {
            return Err(match queried {
                Err(error) if step.starts_machine_for(power_target) => {
                    start_unconfirmed(power_target, step, result, &error, timeout)
                }
                Err(error) => error,
                Ok(observed) => {
                    power_change_failed(power_target, timeout_text(step, result, observed, timeout))
                }
            });
        }
    }
}

/// Whether the observed power is later than the command. Only a restart is ambiguous: the machine is
/// on before and after.
fn reflects_command(
    control: &impl PowerControl,
    step: PowerPlanStep,
    result: PowerCommandResult,
    elapsed: Duration,
) -> bool {
    match (step.command, result) {
        (
            None | Some(PowerPlanCommand::On | PowerPlanCommand::Off | PowerPlanCommand::SoftOff),
            _,
        ) => true,
        (
            Some(PowerPlanCommand::Restart | PowerPlanCommand::SoftRestart),
            PowerCommandResult::Unconfirmed,
        ) => control.was_reset(),
        (
            Some(PowerPlanCommand::Restart),
            PowerCommandResult::Accepted(_) | PowerCommandResult::NotNeeded,
        ) => control.was_reset() || elapsed >= RESTART_VISIBLE_AFTER,
        // The operating system takes its time, and its restart cannot be observed.
        (
            Some(PowerPlanCommand::SoftRestart),
            PowerCommandResult::Accepted(_) | PowerCommandResult::NotNeeded,
        ) => true,
    }
}

fn power_change_failed(power_target: PowerTarget, why: String) -> DriverError {
    DriverError::Failed { what: power_action_text(power_target).to_owned(), why }
}

/// The error for a machine that should have started when its BMC stopped responding.
fn start_unconfirmed(
    power_target: PowerTarget,
    step: PowerPlanStep,
    result: PowerCommandResult,
    error: &DriverError,
    timeout: Duration,
) -> DriverError {
    let progress = match (step.command, result) {
        (Some(PowerPlanCommand::On) | None, _) => "the machine was off",
        (Some(_), PowerCommandResult::Accepted(_) | PowerCommandResult::NotNeeded) => {
            "the BMC accepted the request"
        }
        (Some(_), PowerCommandResult::Unconfirmed) => {
            "it is not known whether the BMC accepted the request"
        }
    };
    let seconds = timeout.as_secs();
    let why = format!(
        "{progress}, and power-on could not be confirmed within {seconds} s ({error}); when the BMC \
         responds again, check the power state before you retry"
    );
    power_change_failed(power_target, why)
}

/// The error text for a machine that did not reach the step's power in time.
fn timeout_text(
    step: PowerPlanStep,
    result: PowerCommandResult,
    observed: ObservedPower,
    timeout: Duration,
) -> String {
    let after = match result {
        PowerCommandResult::NotNeeded => String::new(),
        PowerCommandResult::Accepted(name) => format!(" after the BMC accepted '{name}'"),
        PowerCommandResult::Unconfirmed => {
            " after the request, and it is not known whether the BMC accepted it".to_owned()
        }
    };
    let advice = if step.command.is_some_and(PowerPlanCommand::is_soft) {
        "the operating system did not respond; allow more time, or use 'power off' or 'rebooting', \
         which do not depend on it"
    } else {
        "check the machine's own log for the cause, or allow more time"
    };
    format!("the machine is {} {} s{after}; {advice}", observed.display_text(), timeout.as_secs())
}

#[cfg(test)]
mod tests;
