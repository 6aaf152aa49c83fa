// SPDX-License-Identifier: Apache-2.0
//! A simulated machine: its state, and the rules by which it changes.
//!
//! Nothing here knows HTTP, sockets or clocks. Time is given to every call, and what should have
//! happened since the last call (a shutdown that is through, an update that is loaded) is caught up
//! with first, so a machine nobody asks about costs nothing.

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

use node_model::Timestamp;
use serde::{Deserialize, Serialize};

pub use bios::{Bios, Keys, SecureBoot};
pub use boot::{Boot, BootChange, BootMode, BootSettings, BootTarget, Override};
pub use identity::Identity;
pub(crate) use identity::{fraction, mix};
pub use media::{Media, MediaKind};
pub use power::{Power, PowerState, Reset};
pub use sensors::{Reading, SENSORS, SensorKind, SensorRule};
pub use software::{Runs, WrittenImage};
pub use storage::{ApplyTime, RaidKind, Volume, VolumeOutcome, VolumeWish};
pub use tasks::{Job, Stage, Task, TaskId};

use crate::personality::Personality;

/// A machine with its BMC.
#[derive(Clone, Debug)]
pub struct Machine {
    identity: Identity,
    personality: Arc<Personality>,
    power: Power,
    interrupts: u32,
    boot: BootSettings,
    boots: Vec<Boot>,
    software: software::Software,
    media: Box<[Option<Media>]>,
    bios: Bios,
    secure_boot: SecureBoot,
    volumes: Vec<Volume>,
    next_volume: u32,
    /// Versions that differ from the personality's, by the component's place.
    firmware: Vec<(usize, Box<str>)>,
    tasks: Vec<Task>,
    last_task: TaskId,
    indicator: Indicator,
    /// Drives whose light is on: the controller and the drive by their places.
    lit_drives: Vec<(usize, usize)>,
    health: Health,
    /// When the BMC itself is back, if it is restarting.
    bmc_back_at: Option<Timestamp>,
    /// How often the BMC itself restarted; what it keeps in memory only is gone each time.
    bmc_restarts: u32,
}

/// The light that shows a person in the aisle which machine is meant, with Redfish's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Indicator {
    /// Dark.
    Off,
    /// Lit.
    Lit,
    /// Blinking.
    Blinking,
}

/// How the machine is, with Redfish's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Health {
    /// Well.
    #[serde(rename = "OK")]
    Ok,
    /// Somebody should look.
    Warning,
    /// Something is broken.
    Critical,
}

/// How long things take on one machine.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From off to the start of the firmware.
    pub turn_on: Duration,
    /// From on to off when the power is cut.
    pub turn_off: Duration,
    /// An operating system closing down.
    pub shut_down: Duration,
    /// The firmware, until something is booted.
    pub post: Duration,
    /// The BMC itself, until it answers again.
    pub bmc_restart: Duration,
    /// Loading an image of firmware.
    pub load_image: Duration,
    /// Making or deleting a volume, or installing loaded firmware.
    pub volume: Duration,
}

/// Why a machine does not do as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The power is not as the request needs it.
    #[error("cannot do {} while the power state is {}", .asked.name(), .is.name())]
    WrongPowerState {
        /// The request.
        asked: Reset,
        /// The state.
        is: PowerState,
    },
    /// The firmware is starting and holds its settings.
    #[error("boot settings cannot be changed during POST")]
    DuringPost,
    /// The value is none of those this BMC takes.
    #[error("{property} cannot be {value}")]
    NotInList {
        /// The property or parameter.
        property: &'static str,
        /// The value.
        value: String,
    },
    /// This BMC does not let the property be changed.
    #[error("{property} cannot be changed")]
    NotWritable {
        /// The property.
        property: &'static str,
    },
    /// This attribute of the firmware cannot be changed.
    #[error("{property} cannot be changed")]
    ReadOnly {
        /// The attribute.
        property: String,
    },
    /// There is no such property.
    #[error("there is no property {property}")]
    Unknown {
        /// The property.
        property: String,
    },
    /// The value is of the wrong type.
    #[error("{property} cannot be of the type of {value}")]
    WrongType {
        /// The property.
        property: String,
        /// The value as JSON.
        value: String,
    },
    /// The attribute does not take this value.
    #[error("{property} cannot be {value}")]
    BadValue {
        /// The attribute.
        property: String,
        /// The value as JSON.
        value: String,
    },
    /// The value is not written as it must be.
    #[error("{property} cannot be {value}")]
    BadFormat {
        /// The property.
        property: &'static str,
        /// The value.
        value: String,
    },
    /// It is taken.
    #[error("{what} is in use")]
    InUse {
        /// What.
        what: &'static str,
    },
    /// There is nothing in it.
    #[error("{what} is empty")]
    Empty {
        /// What.
        what: &'static str,
    },
    /// It cannot be done as things are.
    #[error("{why}")]
    Conflict {
        /// Why not.
        why: &'static str,
    },
    /// There is no such thing.
    #[error("there is no such {what}")]
    NoSuch {
        /// What kind of thing.
        what: &'static str,
    },
}

impl Indicator {
    /// Redfish's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "Off",
            Self::Lit => "Lit",
            Self::Blinking => "Blinking",
        }
    }

    /// The one with that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Off, Self::Lit, Self::Blinking].into_iter().find(|it| it.name() == name)
    }
}

impl Health {
    /// Redfish's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "Warning",
            Self::Critical => "Critical",
        }
    }
}

impl Machine {
    /// A machine as it comes from the maker: off, with nothing changed.
    #[must_use]
    pub fn new(identity: Identity, personality: Arc<Personality>) -> Self {
        let slots = personality.media.slots.len();
        Self {
            identity,
            power: Power::Off,
            interrupts: 0,
            boot: BootSettings::default(),
            boots: Vec::new(),
            software: software::Software::default(),
            media: vec![None; slots].into(),
            bios: Bios::default(),
            secure_boot: SecureBoot { enabled: false, current: false, keys: Keys::Default },
            volumes: Vec::new(),
            next_volume: 1,
            firmware: Vec::new(),
            tasks: Vec::new(),
            last_task: 0,
            indicator: Indicator::Off,
            lit_drives: Vec::new(),
            health: Health::Ok,
            bmc_back_at: None,
            bmc_restarts: 0,
            personality,
        }
    }

    /// Who it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// What kind of machine it is.
    #[must_use]
    pub fn personality(&self) -> &Arc<Personality> {
        &self.personality
    }

    /// Catches up with what should have happened by `now`, in its order.
    pub fn advance(&mut self, now: Timestamp) {
        while let Some(due) = self.next_change().filter(|due| *due <= now) {
            if self.power_due() == Some(due) {
                self.power_step(due);
            } else if self.bmc_back_at == Some(due) {
                self.bmc_back_at = None;
            } else {
                self.task_step(due);
            }
        }
    }

    /// When something changes by itself next.
    #[must_use]
    pub fn next_change(&self) -> Option<Timestamp> {
        [self.power_due(), self.tasks_due(), self.bmc_back_at].into_iter().flatten().min()
    }

    /// The BMC itself restarts: it answers nobody for a while and forgets its sessions.
    pub fn restart_bmc(&mut self, now: Timestamp) {
        self.keep_bmc_away(now, self.pace().bmc_restart);
    }

    /// The BMC itself restarts and takes this long.
    pub fn keep_bmc_away(&mut self, now: Timestamp, how_long: Duration) {
        self.bmc_back_at = Some(now.plus(how_long));
        self.bmc_restarts = self.bmc_restarts.wrapping_add(1);
    }

    /// Whether the BMC answers.
    #[must_use]
    pub fn bmc_answers(&self, now: Timestamp) -> bool {
        self.bmc_back_at.is_none_or(|back| back <= now)
    }

    /// How often the BMC itself restarted.
    #[must_use]
    pub fn bmc_restarts(&self) -> u32 {
        self.bmc_restarts
    }

    /// The light on the front.
    #[must_use]
    pub fn indicator(&self) -> Indicator {
        self.indicator
    }

    /// Switches the light on the front.
    pub fn set_indicator(&mut self, indicator: Indicator) {
        self.indicator = indicator;
    }

    /// Whether a drive's light is on.
    #[must_use]
    pub fn drive_is_lit(&self, controller: usize, drive: usize) -> bool {
        self.lit_drives.contains(&(controller, drive))
    }

    /// Switches a drive's light.
    pub fn light_drive(&mut self, controller: usize, drive: usize, is_lit: bool) {
        self.lit_drives.retain(|lit| *lit != (controller, drive));
        if is_lit {
            self.lit_drives.push((controller, drive));
        }
    }

    /// How the machine is.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health
    }

    /// Makes the machine well or ill.
    pub fn set_health(&mut self, health: Health) {
        self.health = health;
    }

    /// How long things take on this machine: the personality's times, a little different on each.
    #[must_use]
    pub fn pace(&self) -> Pace {
        let scaled = |seconds: f64, what: u32| {
            let seconds = seconds * self.identity.jitter(what) / self.personality.speed;
            Duration::try_from_secs_f64(seconds).unwrap_or_default()
        };
        let pace = &self.personality.pace;
        Pace {
            turn_on: scaled(pace.turn_on, 1),
            turn_off: scaled(pace.turn_off, 2),
            shut_down: scaled(pace.shut_down, 3),
            post: scaled(pace.post, 4),
            bmc_restart: scaled(pace.bmc_restart, 5),
            load_image: scaled(pace.load_image, 6),
            volume: scaled(pace.volume, 7),
        }
    }
}
