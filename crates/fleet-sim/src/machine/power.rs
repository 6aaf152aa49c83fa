// SPDX-License-Identifier: Apache-2.0
//! Power transitions: effect and duration of each reset type, and the power state shown meanwhile.

use node_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::{MachineError, MachineModel};
use crate::personality::RedundantResetRule;

/// The actual power phase of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerPhase {
    /// Off.
    Off,
    /// The power supplies are starting.
    TurningOn {
        /// When POST starts.
        until: Timestamp,
    },
    /// POST is running; the boot device is chosen at its end.
    Post {
        /// When POST ends.
        until: Timestamp,
    },
    /// Booted software is running.
    Running,
    /// The operating system is shutting down.
    ShuttingDown {
        /// When the shutdown is complete.
        until: Timestamp,
        /// Whether the machine boots again afterwards.
        then_on: bool,
    },
    /// The power supplies are stopping.
    TurningOff {
        /// When the machine is off.
        until: Timestamp,
        /// Whether the machine is powered on again afterwards.
        then_on: bool,
    },
}

/// The power state that the BMC reports, with Redfish's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PowerState {
    /// On.
    On,
    /// Off.
    Off,
    /// Changing from off to on.
    PoweringOn,
    /// Changing from on to off.
    PoweringOff,
}

/// Redfish's `ResetType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ResetType {
    /// Power on.
    On,
    /// Power on immediately.
    ForceOn,
    /// Power off without a shutdown.
    ForceOff,
    /// Shut down the operating system.
    GracefulShutdown,
    /// Restart the operating system.
    GracefulRestart,
    /// Restart without a shutdown.
    ForceRestart,
    /// Power off, then power on.
    PowerCycle,
    /// Press the power button.
    PushPowerButton,
    /// Send a non-maskable interrupt, as for a crash dump.
    Nmi,
}

impl ResetType {
    /// All reset types.
    pub const ALL: &[Self] = &[
        Self::On,
        Self::ForceOn,
        Self::ForceOff,
        Self::GracefulShutdown,
        Self::GracefulRestart,
        Self::ForceRestart,
        Self::PowerCycle,
        Self::PushPowerButton,
        Self::Nmi,
    ];

    /// Returns Redfish's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::On => "On",
            Self::ForceOn => "ForceOn",
            Self::ForceOff => "ForceOff",
            Self::GracefulShutdown => "GracefulShutdown",
            Self::GracefulRestart => "GracefulRestart",
            Self::ForceRestart => "ForceRestart",
            Self::PowerCycle => "PowerCycle",
            Self::PushPowerButton => "PushPowerButton",
            Self::Nmi => "Nmi",
        }
    }

    /// Parses Redfish's name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reset| reset.name() == name)
    }

    /// Whether the machine must be on for this reset.
    fn requires_power_on(self) -> bool {
        match self {
            Self::On | Self::ForceOn | Self::PushPowerButton | Self::PowerCycle => false,
            Self::ForceOff
            | Self::GracefulShutdown
            | Self::GracefulRestart
            | Self::ForceRestart
            | Self::Nmi => true,
        }
    }
}

impl PowerState {
    /// Returns Redfish's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::On => "On",
            Self::Off => "Off",
            Self::PoweringOn => "PoweringOn",
            Self::PoweringOff => "PoweringOff",
        }
    }
}

impl MachineModel {
    /// Performs a reset.
    ///
    /// # Errors
    /// When the machine is already in the requested state and the personality rejects that.
    pub fn reset(&mut self, reset: ResetType, now: Timestamp) -> Result<(), MachineError> {
        self.advance(now);
        let is_on =
            !matches!(self.power, PowerPhase::Off | PowerPhase::TurningOff { then_on: false, .. });
        let is_redundant = match reset {
            ResetType::On | ResetType::ForceOn => is_on,
            ResetType::PushPowerButton | ResetType::PowerCycle => false,
            ResetType::ForceOff
            | ResetType::GracefulShutdown
            | ResetType::GracefulRestart
            | ResetType::ForceRestart
            | ResetType::Nmi => reset.requires_power_on() && !is_on,
        };
        if is_redundant {
            return match self.personality.power.redundant_reset {
                RedundantResetRule::Accepted => {
                    // A restart of a machine that is off powers it on.
                    if matches!(reset, ResetType::ForceRestart | ResetType::GracefulRestart) {
                        self.turn_on(now);
                    }
                    Ok(())
                }
                RedundantResetRule::Rejected => Err(MachineError::WrongPowerState {
                    requested: reset,
                    current: self.power_state(),
                }),
            };
        }
        self.apply_reset(reset, is_on, now);
        Ok(())
    }

    /// Returns the power state that the BMC reports. Some BMCs report only `On` and `Off`.
    #[must_use]
    pub fn power_state(&self) -> PowerState {
        let shows_transitional = self.personality.power.shows_transitional_states;
        match self.power {
            PowerPhase::Off => PowerState::Off,
            PowerPhase::TurningOn { .. } if shows_transitional => PowerState::PoweringOn,
            PowerPhase::TurningOn { .. } => PowerState::Off,
            PowerPhase::Post { .. } | PowerPhase::Running | PowerPhase::ShuttingDown { .. } => {
                PowerState::On
            }
            PowerPhase::TurningOff { .. } if shows_transitional => PowerState::PoweringOff,
            PowerPhase::TurningOff { .. } => PowerState::On,
        }
    }

    /// Returns the actual power phase.
    #[must_use]
    pub fn power_phase(&self) -> PowerPhase {
        self.power
    }

    /// Returns the number of non-maskable interrupts.
    #[must_use]
    pub fn nmi_count(&self) -> u32 {
        self.nmi_count
    }

    /// Returns when the power phase ends without a request.
    pub(super) fn next_power_change(&self) -> Option<Timestamp> {
        match self.power {
            PowerPhase::Off | PowerPhase::Running => None,
            PowerPhase::TurningOn { until }
            | PowerPhase::Post { until }
            | PowerPhase::ShuttingDown { until, .. }
            | PowerPhase::TurningOff { until, .. } => Some(until),
        }
    }

    /// Enters the power phase that was due at `at`.
    pub(super) fn apply_power_change(&mut self, at: Timestamp) {
        match self.power {
            PowerPhase::Off | PowerPhase::Running => {}
            PowerPhase::TurningOn { .. } | PowerPhase::ShuttingDown { then_on: true, .. } => {
                self.begin_post(at)
            }
            PowerPhase::Post { .. } => self.finish_post(at),
            PowerPhase::ShuttingDown { then_on: false, .. } => self.turn_off(at, false),
            PowerPhase::TurningOff { then_on: false, .. } => self.power = PowerPhase::Off,
            PowerPhase::TurningOff { then_on: true, .. } => self.turn_on(at),
        }
    }

    fn apply_reset(&mut self, reset: ResetType, is_on: bool, now: Timestamp) {
        match reset {
            ResetType::On | ResetType::ForceOn => self.turn_on(now),
            ResetType::ForceOff => self.turn_off(now, false),
            ResetType::GracefulShutdown => self.shut_down(now, false),
            ResetType::GracefulRestart => self.shut_down(now, true),
            ResetType::ForceRestart => self.begin_post(now),
            ResetType::PowerCycle if is_on => self.turn_off(now, true),
            ResetType::PushPowerButton if is_on => self.shut_down(now, false),
            ResetType::PowerCycle | ResetType::PushPowerButton => self.turn_on(now),
            ResetType::Nmi => self.nmi_count = self.nmi_count.saturating_add(1),
        }
    }

    fn turn_on(&mut self, now: Timestamp) {
        // A machine that is powering off does so completely before it is powered on.
        if let PowerPhase::TurningOff { until, .. } = self.power
            && until > now
        {
            self.power = PowerPhase::TurningOff { until, then_on: true };
            return;
        }
        self.power = PowerPhase::TurningOn { until: now.plus(self.durations().power_on) };
    }

    pub(super) fn turn_off(&mut self, now: Timestamp, then_on: bool) {
        self.power =
            PowerPhase::TurningOff { until: now.plus(self.durations().power_off), then_on };
    }

    /// Shuts down. An operating system needs time for it; before one runs, the machine stops at
    /// once.
    fn shut_down(&mut self, now: Timestamp, then_on: bool) {
        let until = match self.power {
            PowerPhase::Running => now.plus(self.durations().shutdown),
            PowerPhase::ShuttingDown { until, .. } => until,
            PowerPhase::Off
            | PowerPhase::TurningOn { .. }
            | PowerPhase::Post { .. }
            | PowerPhase::TurningOff { .. } => now,
        };
        self.power = PowerPhase::ShuttingDown { until, then_on };
        self.advance(now);
    }

    fn begin_post(&mut self, at: Timestamp) {
        self.apply_pending_bios(at);
        self.apply_secure_boot();
        self.start_tasks_waiting_for_reset(at);
        self.power = PowerPhase::Post { until: at.plus(self.durations().post) };
    }

    fn finish_post(&mut self, at: Timestamp) {
        self.boot_next_device(at);
        self.power = PowerPhase::Running;
    }
}
