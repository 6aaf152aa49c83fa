// SPDX-License-Identifier: Apache-2.0
//! What runs on the machine, and what its disk holds.
//!
//! Nothing is really loaded: what was booted from the network or from a CD is taken for a ramdisk
//! with an agent, and what was booted from the disk for the system that was last written to it.

use node_model::Timestamp;
use serde::Serialize;

use super::{BootTarget, Machine, Power};

/// What runs on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Runs {
    /// Nothing: it is off, or its firmware starts.
    Nothing,
    /// A tool of the firmware: its setup, a shell, diagnostics.
    Firmware,
    /// A ramdisk with an agent.
    Ramdisk,
    /// The ramdisk, handed over to the owner of the instance.
    Rescue,
    /// What was written to the disk.
    Instance,
    /// Firmware looks at a disk on which there is nothing.
    EmptyDisk,
}

/// An image on the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrittenImage {
    /// Where it came from.
    pub source: Box<str>,
    /// The checksum it came with, or the one that was found if it was fetched.
    pub checksum: Option<Box<str>>,
    /// Whether a config drive was written with it.
    pub config_drive: bool,
    /// When it was written.
    pub at: Timestamp,
}

/// What outlives boots, and what the boot at hand was changed to.
#[derive(Clone, Debug, Default)]
pub(super) struct Software {
    /// How many boots there were.
    boots: u32,
    /// What took over from what was booted.
    successor: Option<Runs>,
    disk: Option<WrittenImage>,
    /// How often each step was carried out to its end.
    carried_out: Vec<(Box<str>, u32)>,
}

impl Software {
    pub(super) fn booted(&mut self) {
        self.boots = self.boots.wrapping_add(1);
        self.successor = None;
    }
}

impl Machine {
    /// What runs now.
    #[must_use]
    pub fn runs(&self) -> Runs {
        let Some(boot) = self.booted() else { return Runs::Nothing };
        if let Some(successor) = self.software.successor {
            return successor;
        }
        match boot.from {
            BootTarget::Pxe
            | BootTarget::UefiHttp
            | BootTarget::Cd
            | BootTarget::UsbCd
            | BootTarget::Usb
            | BootTarget::Floppy => Runs::Ramdisk,
            BootTarget::None | BootTarget::Hdd if self.software.disk.is_some() => Runs::Instance,
            BootTarget::None | BootTarget::Hdd => Runs::EmptyDisk,
            BootTarget::BiosSetup
            | BootTarget::Utilities
            | BootTarget::Diags
            | BootTarget::UefiShell => Runs::Firmware,
        }
    }

    /// How many boots there were.
    #[must_use]
    pub fn boot_count(&self) -> u32 {
        self.software.boots
    }

    /// What was last written to the disk, unless it was erased since.
    #[must_use]
    pub fn disk(&self) -> Option<&WrittenImage> {
        self.software.disk.as_ref()
    }

    /// Writes to the disk, or erases it.
    pub fn set_disk(&mut self, image: Option<WrittenImage>) {
        self.software.disk = image;
    }

    /// How often an agent carried out a step of this name to its end, over all boots.
    #[must_use]
    pub fn carried_out(&self, step: &str) -> u32 {
        let found = self.software.carried_out.iter().find(|(name, _)| **name == *step);
        found.map_or(0, |(_, times)| *times)
    }

    /// All steps that agents carried out, with how often, in the order of the first time.
    #[must_use]
    pub fn all_carried_out(&self) -> &[(Box<str>, u32)] {
        &self.software.carried_out
    }

    /// Counts a step.
    pub(crate) fn count_step(&mut self, step: &str) {
        match self.software.carried_out.iter_mut().find(|(name, _)| **name == *step) {
            Some((_, times)) => *times = times.saturating_add(1),
            None => self.software.carried_out.push((step.into(), 1)),
        }
    }

    /// What runs becomes something else without a boot, as kexec does.
    pub(crate) fn hand_over_to(&mut self, successor: Runs) {
        if self.booted().is_some() {
            self.software.successor = Some(successor);
        }
    }

    /// The machine goes off by itself: what runs on it said so, or the power was cut.
    pub fn go_off(&mut self, now: Timestamp) {
        self.advance(now);
        if !matches!(self.power, Power::Off | Power::TurningOff { .. }) {
            self.turn_off(now, false);
        }
    }
}
