// SPDX-License-Identifier: Apache-2.0
//! The software that runs on the machine, and the content of its disk.
//!
//! Nothing is really loaded. A boot from the network, a URL or virtual media is taken for a ramdisk
//! with an agent, and a boot from the disk for the image last written to it.

use node_model::Timestamp;
use serde::Serialize;

use super::{BootTarget, MachineModel, PowerPhase};

/// The software that runs on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunningSoftware {
    /// None: the machine is off or in POST.
    Nothing,
    /// A firmware tool: setup, shell or diagnostics.
    Firmware,
    /// A ramdisk with an agent.
    Ramdisk,
    /// The ramdisk in rescue mode, for the user of the instance.
    Rescue,
    /// The image on the disk.
    Instance,
    /// The firmware found no operating system on the disk.
    EmptyDisk,
}

/// An image written to the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrittenImage {
    /// Its URL.
    pub source: Box<str>,
    /// The disk that it was written to, such as `/dev/sda`.
    pub device: Box<str>,
    /// The checksum given with it, or the computed one if it was downloaded.
    pub checksum: Option<Box<str>>,
    /// Whether a config drive was written with it.
    pub config_drive: bool,
    /// When it was written.
    pub at: Timestamp,
}

/// State that survives reboots, and changes to the current boot.
#[derive(Clone, Debug, Default)]
pub(super) struct SoftwareState {
    /// Number of boots.
    boot_count: u32,
    /// The software that replaced the booted one without a reboot.
    handed_over_to: Option<RunningSoftware>,
    disk_image: Option<WrittenImage>,
    /// Step names, each with the number of completed executions.
    completed_steps: Vec<(Box<str>, u32)>,
}

impl SoftwareState {
    pub(super) fn record_boot(&mut self) {
        self.boot_count = self.boot_count.wrapping_add(1);
        self.handed_over_to = None;
    }
}

impl MachineModel {
    /// Returns the software that runs now.
    #[must_use]
    pub fn running_software(&self) -> RunningSoftware {
        let Some(boot) = self.current_boot() else { return RunningSoftware::Nothing };
        if let Some(successor) = self.software.handed_over_to {
            return successor;
        }
        match boot.from {
            BootTarget::Pxe
            | BootTarget::UefiHttp
            | BootTarget::Cd
            | BootTarget::UsbCd
            | BootTarget::Usb
            | BootTarget::Floppy => RunningSoftware::Ramdisk,
            BootTarget::None | BootTarget::Hdd if self.software.disk_image.is_some() => {
                RunningSoftware::Instance
            }
            BootTarget::None | BootTarget::Hdd => RunningSoftware::EmptyDisk,
            BootTarget::BiosSetup
            | BootTarget::Utilities
            | BootTarget::Diags
            | BootTarget::UefiShell => RunningSoftware::Firmware,
        }
    }

    /// Returns the number of boots.
    #[must_use]
    pub fn boot_count(&self) -> u32 {
        self.software.boot_count
    }

    /// Returns the image on the disk, or `None` if the disk is erased.
    #[must_use]
    pub fn disk_image(&self) -> Option<&WrittenImage> {
        self.software.disk_image.as_ref()
    }

    /// Sets the image on the disk; `None` erases it.
    pub fn set_disk_image(&mut self, image: Option<WrittenImage>) {
        self.software.disk_image = image;
    }

    /// Returns how often agents completed the step, over all boots.
    #[must_use]
    pub fn completed_step_count(&self, step: &str) -> u32 {
        let found = self.software.completed_steps.iter().find(|(name, _)| **name == *step);
        found.map_or(0, |(_, times)| *times)
    }

    /// Returns all completed steps with their counts, in the order of their first completion.
    #[must_use]
    pub fn completed_steps(&self) -> &[(Box<str>, u32)] {
        &self.software.completed_steps
    }

    /// Counts the completion of a step.
    pub(crate) fn record_completed_step(&mut self, step: &str) {
        match self.software.completed_steps.iter_mut().find(|(name, _)| **name == *step) {
            Some((_, times)) => *times = times.saturating_add(1),
            None => self.software.completed_steps.push((step.into(), 1)),
        }
    }

    /// Replaces the running software without a reboot, as kexec does.
    pub(crate) fn hand_over_to(&mut self, successor: RunningSoftware) {
        if self.current_boot().is_some() {
            self.software.handed_over_to = Some(successor);
        }
    }

    /// Powers the machine off without a BMC request: its software stopped it, or the power was cut.
    pub fn power_down(&mut self, now: Timestamp) {
        self.advance(now);
        if !matches!(self.power, PowerPhase::Off | PowerPhase::TurningOff { .. }) {
            self.turn_off(now, false);
        }
    }
}
