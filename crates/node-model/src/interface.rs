// SPDX-License-Identifier: Apache-2.0
//! The thirteen interfaces a driver is composed of, and which implementation a node uses for each.

use serde::{Deserialize, Serialize};

use crate::named;

named! {
    /// One part of a driver.
    InterfaceKind {
        /// Firmware settings.
        Bios = "bios",
        /// How the ramdisk and the instance are booted.
        Boot = "boot",
        /// Serial or graphical console.
        Console = "console",
        /// How an image gets onto the machine.
        Deploy = "deploy",
        /// Firmware versions and updates.
        Firmware = "firmware",
        /// How hardware is discovered.
        Inspect = "inspect",
        /// Boot device, boot mode, indicators, sensors.
        Management = "management",
        /// Which networks the machine is attached to, when.
        Network = "network",
        /// On and off.
        Power = "power",
        /// Logical disks.
        Raid = "raid",
        /// The rescue system.
        Rescue = "rescue",
        /// Remote volumes.
        Storage = "storage",
        /// What only this vendor has.
        Vendor = "vendor",
    }
}

impl InterfaceKind {
    /// The field of a node that names its implementation.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Bios => "bios_interface",
            Self::Boot => "boot_interface",
            Self::Console => "console_interface",
            Self::Deploy => "deploy_interface",
            Self::Firmware => "firmware_interface",
            Self::Inspect => "inspect_interface",
            Self::Management => "management_interface",
            Self::Network => "network_interface",
            Self::Power => "power_interface",
            Self::Raid => "raid_interface",
            Self::Rescue => "rescue_interface",
            Self::Storage => "storage_interface",
            Self::Vendor => "vendor_interface",
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// The implementation chosen for each interface; none where it has not been chosen.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Interfaces([Option<Box<str>>; 13]);

impl Interfaces {
    /// The implementation of `kind`.
    #[must_use]
    pub fn get(&self, kind: InterfaceKind) -> Option<&str> {
        self.0[kind.index()].as_deref()
    }

    /// Chooses the implementation of `kind`, or none.
    pub fn set(&mut self, kind: InterfaceKind, implementation: Option<&str>) {
        self.0[kind.index()] = implementation.map(Box::from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_place() {
        let mut interfaces = Interfaces::default();
        for kind in InterfaceKind::ALL {
            interfaces.set(*kind, Some(kind.as_str()));
        }
        for kind in InterfaceKind::ALL {
            assert_eq!(interfaces.get(*kind), Some(kind.as_str()));
        }
    }
}
