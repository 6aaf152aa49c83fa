// SPDX-License-Identifier: Apache-2.0
//! Power: what a reset does, how long it takes, and what a BMC shows meanwhile.

use node_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Machine, Refused};
use crate::personality::Redundant;

/// Where the machine is between off and running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// Off.
    Off,
    /// The power supplies are coming up.
    TurningOn {
        /// When the firmware starts.
        until: Timestamp,
    },
    /// The firmware checks the hardware; a boot device is chosen when it is done.
    Post {
        /// When it is done.
        until: Timestamp,
    },
    /// Something was booted and runs.
    Running,
    /// What was booted is closing down, because it was asked to.
    ShuttingDown {
        /// When it has closed down.
        until: Timestamp,
        /// Whether it boots again afterwards.
        then_on: bool,
    },
    /// The power supplies are going down.
    TurningOff {
        /// When it is off.
        until: Timestamp,
        /// Whether it is switched on again afterwards.
        then_on: bool,
    },
}

/// What Redfish calls power states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PowerState {
    /// Powered.
    On,
    /// Not powered.
    Off,
    /// Between off and on.
    PoweringOn,
    /// Between on and off.
    PoweringOff,
}

/// What can be asked of a machine's power, with Redfish's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reset {
    /// Switch on.
    On,
    /// Switch on, whatever the system says.
    ForceOn,
    /// Cut the power.
    ForceOff,
    /// Ask the operating system to close down.
    GracefulShutdown,
    /// Ask the operating system to boot again.
    GracefulRestart,
    /// Reset without asking.
    ForceRestart,
    /// Cut the power, then switch on.
    PowerCycle,
    /// Press the button on the front.
    PushPowerButton,
    /// Interrupt the processors for a crash dump.
    Nmi,
}

impl Reset {
    /// All of them.
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

    /// Redfish's name.
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

    /// The one with that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reset| reset.name() == name)
    }

    /// Whether it asks for something the machine must be on for.
    fn needs_power(self) -> bool {
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
    /// Redfish's name.
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

impl Machine {
    /// Does as asked, or says why not.
    ///
    /// # Errors
    /// When this kind of BMC does not take the request, or not in this state.
    pub fn reset(&mut self, reset: Reset, now: Timestamp) -> Result<(), Refused> {
        self.advance(now);
        let is_on = !matches!(self.power, Power::Off | Power::TurningOff { then_on: false, .. });
        let is_redundant = match reset {
            Reset::On | Reset::ForceOn => is_on,
            Reset::PushPowerButton | Reset::PowerCycle => false,
            Reset::ForceOff
            | Reset::GracefulShutdown
            | Reset::GracefulRestart
            | Reset::ForceRestart
            | Reset::Nmi => reset.needs_power() && !is_on,
        };
        if is_redundant {
            return match self.personality.power.redundant {
                Redundant::Accepted => {
                    // Restarting what is off is understood as switching on.
                    if matches!(reset, Reset::ForceRestart | Reset::GracefulRestart) {
                        self.turn_on(now);
                    }
                    Ok(())
                }
                Redundant::Refused => {
                    Err(Refused::WrongPowerState { asked: reset, is: self.power_state() })
                }
            };
        }
        self.carry_out(reset, is_on, now);
        Ok(())
    }

    /// What the BMC shows. Some show nothing between on and off.
    #[must_use]
    pub fn power_state(&self) -> PowerState {
        let shows_between = self.personality.power.shows_between;
        match self.power {
            Power::Off => PowerState::Off,
            Power::TurningOn { .. } if shows_between => PowerState::PoweringOn,
            Power::TurningOn { .. } => PowerState::Off,
            Power::Post { .. } | Power::Running | Power::ShuttingDown { .. } => PowerState::On,
            Power::TurningOff { .. } if shows_between => PowerState::PoweringOff,
            Power::TurningOff { .. } => PowerState::On,
        }
    }

    /// Where the machine really is.
    #[must_use]
    pub fn power(&self) -> Power {
        self.power
    }

    /// How often the processors were interrupted for a crash dump.
    #[must_use]
    pub fn interrupts(&self) -> u32 {
        self.interrupts
    }

    /// When the power changes by itself.
    pub(super) fn power_due(&self) -> Option<Timestamp> {
        match self.power {
            Power::Off | Power::Running => None,
            Power::TurningOn { until }
            | Power::Post { until }
            | Power::ShuttingDown { until, .. }
            | Power::TurningOff { until, .. } => Some(until),
        }
    }

    /// Takes the step that was due at `at`.
    pub(super) fn power_step(&mut self, at: Timestamp) {
        match self.power {
            Power::Off | Power::Running => {}
            Power::TurningOn { .. } | Power::ShuttingDown { then_on: true, .. } => {
                self.begin_post(at)
            }
            Power::Post { .. } => self.finish_post(at),
            Power::ShuttingDown { then_on: false, .. } => self.turn_off(at, false),
            Power::TurningOff { then_on: false, .. } => self.power = Power::Off,
            Power::TurningOff { then_on: true, .. } => self.turn_on(at),
        }
    }

    fn carry_out(&mut self, reset: Reset, is_on: bool, now: Timestamp) {
        match reset {
            Reset::On | Reset::ForceOn => self.turn_on(now),
            Reset::ForceOff => self.turn_off(now, false),
            Reset::GracefulShutdown => self.shut_down(now, false),
            Reset::GracefulRestart => self.shut_down(now, true),
            Reset::ForceRestart => self.begin_post(now),
            Reset::PowerCycle if is_on => self.turn_off(now, true),
            Reset::PushPowerButton if is_on => self.shut_down(now, false),
            Reset::PowerCycle | Reset::PushPowerButton => self.turn_on(now),
            Reset::Nmi => self.interrupts = self.interrupts.saturating_add(1),
        }
    }

    fn turn_on(&mut self, now: Timestamp) {
        // Switched on while it is going down: it goes down first.
        if let Power::TurningOff { until, .. } = self.power
            && until > now
        {
            self.power = Power::TurningOff { until, then_on: true };
            return;
        }
        self.power = Power::TurningOn { until: now.plus(self.pace().turn_on) };
    }

    pub(super) fn turn_off(&mut self, now: Timestamp, then_on: bool) {
        self.power = Power::TurningOff { until: now.plus(self.pace().turn_off), then_on };
    }

    /// An operating system takes its time; the firmware, before one runs, goes at once.
    fn shut_down(&mut self, now: Timestamp, then_on: bool) {
        let until = match self.power {
            Power::Running => now.plus(self.pace().shut_down),
            Power::ShuttingDown { until, .. } => until,
            Power::Off
            | Power::TurningOn { .. }
            | Power::Post { .. }
            | Power::TurningOff { .. } => now,
        };
        self.power = Power::ShuttingDown { until, then_on };
        self.advance(now);
    }

    fn begin_post(&mut self, at: Timestamp) {
        self.apply_pending_bios(at);
        self.apply_secure_boot();
        self.start_tasks_waiting_for_reset(at);
        self.power = Power::Post { until: at.plus(self.pace().post) };
    }

    fn finish_post(&mut self, at: Timestamp) {
        self.boot_something(at);
        self.power = Power::Running;
    }
}
