// SPDX-License-Identifier: Apache-2.0
//! State of a simulated machine and its BMC, without HTTP, sockets or clocks.
//!
//! Every call takes the current time. [`MachineModel::advance`] first applies all changes that
//! became due since the last call, such as a finished shutdown, so an idle machine costs no CPU
//! time.

mod bios;
mod boot;
mod firmware;
mod identity;
mod media;
mod power;
mod sensors;
mod software;
mod storage;
mod tasks;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use node_model::{Mac, Timestamp};
use serde::{Deserialize, Serialize};

pub use bios::{BiosState, SecureBootKeys, SecureBootState};
pub use boot::{BootChange, BootMode, BootOverride, BootRecord, BootSettings, BootTarget};
pub use identity::MachineIdentity;
pub(crate) use identity::{fraction, mix};
pub use media::{InsertedMedia, MediaKind};
pub use power::{PowerPhase, PowerState, ResetType};
pub use sensors::{SENSORS, SensorKind, SensorRule, SimulatedSensorReading};
pub use software::{RunningSoftware, WrittenImage};
pub use storage::{ApplyTime, RaidKind, SimulatedVolume, VolumeOutcome, VolumeRequest};
pub use tasks::{BmcTask, BmcTaskId, BmcTaskJob, BmcTaskStage};

use crate::personality::Personality;

/// The state of a machine with its BMC.
#[derive(Clone, Debug)]
pub struct MachineModel {
    identity: MachineIdentity,
    personality: Arc<Personality>,
    power: PowerPhase,
    nmi_count: u32,
    boot_settings: BootSettings,
    boot_history: Vec<BootRecord>,
    software: software::SoftwareState,
    media: Box<[Option<InsertedMedia>]>,
    bios: BiosState,
    secure_boot: SecureBootState,
    volumes: Vec<SimulatedVolume>,
    next_volume: u32,
    /// Versions that differ from the personality's, by component index.
    changed_firmware: Vec<(usize, Box<str>)>,
    tasks: Vec<BmcTask>,
    last_task: BmcTaskId,
    indicator: IndicatorLed,
    /// Drives whose LED is on, as (controller index, drive index).
    lit_drives: Vec<(usize, usize)>,
    health: Health,
    /// Set while the BMC restarts: the time at which it is reachable again.
    bmc_unreachable_until: Option<Timestamp>,
    /// The time of the last BMC restart.
    bmc_restarted_at: Option<Timestamp>,
    /// Number of BMC restarts; sessions from before the last one are invalid.
    bmc_restarts: u32,
    /// Whether the virtual CD was selected by an import of a system configuration.
    boots_virtual_cd: bool,
}

/// State of the chassis identify LED, with Redfish's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndicatorLed {
    /// Off.
    Off,
    /// Lit.
    Lit,
    /// Blinking.
    Blinking,
}

/// Health of the machine, with Redfish's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Health {
    /// No problem.
    #[serde(rename = "OK")]
    Ok,
    /// Needs attention.
    Warning,
    /// Failed.
    Critical,
}

/// How long operations take on one machine.
#[derive(Clone, Copy, Debug)]
pub struct OperationDurations {
    /// From power-on to the start of POST.
    pub power_on: Duration,
    /// From a forced power-off until the machine is off.
    pub power_off: Duration,
    /// Shutdown of the operating system.
    pub shutdown: Duration,
    /// POST.
    pub post: Duration,
    /// Restart of the BMC.
    pub bmc_restart: Duration,
    /// Download of a firmware image by the BMC.
    pub firmware_download: Duration,
    /// Creating or deleting a volume, or installing downloaded firmware.
    pub volume_change: Duration,
}

/// The reason why a machine rejected an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// The operation is not possible in the current power state.
    #[error("cannot do {} while the power state is {}", .requested.name(), .current.name())]
    WrongPowerState {
        /// The requested reset.
        requested: ResetType,
        /// The current power state.
        current: PowerState,
    },
    /// Boot settings are locked during POST.
    #[error("boot settings cannot be changed during POST")]
    DuringPost,
    /// The BMC does not support this value.
    #[error("{property} cannot be {value}")]
    NotInList {
        /// The property or parameter.
        property: &'static str,
        /// The value.
        value: String,
    },
    /// The property is read-only on this BMC.
    #[error("{property} cannot be changed")]
    NotWritable {
        /// The property.
        property: &'static str,
    },
    /// The BIOS attribute is read-only.
    #[error("{property} cannot be changed")]
    ReadOnly {
        /// The attribute.
        property: String,
    },
    /// The property does not exist.
    #[error("there is no property {property}")]
    UnknownProperty {
        /// The property.
        property: String,
    },
    /// The value has the wrong type.
    #[error("{property} does not accept the type of {value}")]
    WrongType {
        /// The property.
        property: String,
        /// The value as JSON.
        value: String,
    },
    /// The BIOS attribute does not accept this value.
    #[error("{property} cannot be {value}")]
    BadValue {
        /// The attribute.
        property: String,
        /// The value as JSON.
        value: String,
    },
    /// The value is malformed.
    #[error("{property} cannot be {value}")]
    BadFormat {
        /// The property.
        property: &'static str,
        /// The value.
        value: String,
    },
    /// The resource is in use.
    #[error("{what} is in use")]
    InUse {
        /// The resource.
        what: &'static str,
    },
    /// The resource is empty.
    #[error("{what} is empty")]
    Empty {
        /// The resource.
        what: &'static str,
    },
    /// The operation conflicts with the current state.
    #[error("{reason}")]
    Conflict {
        /// The conflict.
        reason: &'static str,
    },
    /// The iDRAC runs another job.
    #[error("a job is already running")]
    JobRunning,
    /// A job of the iDRAC waits for a reset.
    #[error("a configuration is pending until the next reset")]
    ConfigurationPending,
    /// The resource does not exist.
    #[error("there is no such {what}")]
    NotFound {
        /// The kind of resource.
        what: &'static str,
    },
}

impl IndicatorLed {
    /// Returns Redfish's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "Off",
            Self::Lit => "Lit",
            Self::Blinking => "Blinking",
        }
    }

    /// Parses Redfish's name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Off, Self::Lit, Self::Blinking].into_iter().find(|it| it.name() == name)
    }
}

impl Health {
    /// Returns Redfish's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "Warning",
            Self::Critical => "Critical",
        }
    }
}

impl MachineModel {
    /// Creates a machine that is off and has factory settings.
    #[must_use]
    pub fn new(identity: MachineIdentity, personality: Arc<Personality>) -> Self {
        let slots = personality.media.slots.len();
        Self {
            identity,
            power: PowerPhase::Off,
            nmi_count: 0,
            boot_settings: BootSettings::default(),
            boot_history: Vec::new(),
            software: software::SoftwareState::default(),
            media: vec![None; slots].into(),
            bios: BiosState::default(),
            secure_boot: SecureBootState {
                enabled: false,
                current: false,
                keys: SecureBootKeys::Default,
            },
            volumes: Vec::new(),
            next_volume: 1,
            changed_firmware: Vec::new(),
            tasks: Vec::new(),
            last_task: 0,
            indicator: IndicatorLed::Off,
            lit_drives: Vec::new(),
            health: Health::Ok,
            bmc_unreachable_until: None,
            bmc_restarted_at: None,
            bmc_restarts: 0,
            boots_virtual_cd: false,
            personality,
        }
    }

    /// Returns the identity: serial number, UUID, MACs.
    #[must_use]
    pub fn identity(&self) -> MachineIdentity {
        self.identity
    }

    /// Returns the MACs of its NIC ports.
    #[must_use]
    pub fn nic_macs(&self) -> Vec<Mac> {
        (0..self.personality.network.count).map(|nic| self.identity.mac(nic)).collect()
    }

    /// Returns the vendor profile.
    #[must_use]
    pub fn personality(&self) -> &Arc<Personality> {
        &self.personality
    }

    /// Applies all changes that are due at `now`, in chronological order.
    pub fn advance(&mut self, now: Timestamp) {
        while let Some(due) = self.next_change().filter(|due| *due <= now) {
            if self.next_power_change() == Some(due) {
                self.apply_power_change(due);
            } else if self.bmc_unreachable_until == Some(due) {
                self.bmc_unreachable_until = None;
            } else {
                self.apply_task_change(due);
            }
        }
    }

    /// Returns the time of the next change that happens without a request.
    #[must_use]
    pub fn next_change(&self) -> Option<Timestamp> {
        [self.next_power_change(), self.next_task_change(), self.bmc_unreachable_until]
            .into_iter()
            .flatten()
            .min()
    }

    /// Restarts the BMC: it is unreachable for a while and loses its sessions.
    pub fn restart_bmc(&mut self, now: Timestamp) {
        self.restart_bmc_for(now, self.durations().bmc_restart);
    }

    /// Restarts the BMC and keeps it unreachable for `duration`.
    pub fn restart_bmc_for(&mut self, now: Timestamp, duration: Duration) {
        self.bmc_unreachable_until = Some(now.plus(duration));
        self.bmc_restarted_at = Some(now);
        self.bmc_restarts = self.bmc_restarts.wrapping_add(1);
    }

    /// Returns the time of the last BMC restart.
    #[must_use]
    pub fn bmc_restarted_at(&self) -> Option<Timestamp> {
        self.bmc_restarted_at
    }

    /// Whether the BMC responds at `now`.
    #[must_use]
    pub fn bmc_is_reachable(&self, now: Timestamp) -> bool {
        self.bmc_unreachable_until.is_none_or(|back| back <= now)
    }

    /// Returns the number of BMC restarts.
    #[must_use]
    pub fn bmc_restarts(&self) -> u32 {
        self.bmc_restarts
    }

    /// Returns the state of the identify LED.
    #[must_use]
    pub fn indicator(&self) -> IndicatorLed {
        self.indicator
    }

    /// Sets the identify LED.
    pub fn set_indicator(&mut self, indicator: IndicatorLed) {
        self.indicator = indicator;
    }

    /// Whether the LED of a drive is on.
    #[must_use]
    pub fn drive_led_is_lit(&self, controller: usize, drive: usize) -> bool {
        self.lit_drives.contains(&(controller, drive))
    }

    /// Switches the LED of a drive on or off.
    pub fn set_drive_led(&mut self, controller: usize, drive: usize, is_lit: bool) {
        self.lit_drives.retain(|lit| *lit != (controller, drive));
        if is_lit {
            self.lit_drives.push((controller, drive));
        }
    }

    /// Returns the health.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health
    }

    /// Sets the health.
    pub fn set_health(&mut self, health: Health) {
        self.health = health;
    }

    /// Returns how long operations take on this machine: the personality's durations with jitter.
    #[must_use]
    pub fn durations(&self) -> OperationDurations {
        let scaled = |seconds: f64, what: u32| {
            let seconds = seconds * self.identity.jitter(what) / self.personality.speed;
            Duration::try_from_secs_f64(seconds).unwrap_or_default()
        };
        let rules = &self.personality.durations;
        OperationDurations {
            power_on: scaled(rules.power_on, 1),
            power_off: scaled(rules.power_off, 2),
            shutdown: scaled(rules.shutdown, 3),
            post: scaled(rules.post, 4),
            bmc_restart: scaled(rules.bmc_restart, 5),
            firmware_download: scaled(rules.firmware_download, 6),
            volume_change: scaled(rules.volume_change, 7),
        }
    }
}
