// SPDX-License-Identifier: Apache-2.0
//! The thirteen interfaces of a driver, and the implementations that a node uses.

use serde::{Deserialize, Serialize};

use crate::named_enum;

named_enum! {
    /// An interface of a driver.
    InterfaceKind {
        /// BIOS settings.
        Bios = "bios",
        /// Boots the ramdisk and the instance.
        Boot = "boot",
        /// The serial or graphical console.
        Console = "console",
        /// Writes an image to the machine.
        Deploy = "deploy",
        /// Firmware versions and updates.
        Firmware = "firmware",
        /// Collects the inventory.
        Inspect = "inspect",
        /// Boot device, boot mode, indicators, sensors.
        Management = "management",
        /// Attaches the machine to networks.
        Network = "network",
        /// Power control.
        Power = "power",
        /// Logical disks.
        Raid = "raid",
        /// The rescue system.
        Rescue = "rescue",
        /// Remote volumes.
        Storage = "storage",
        /// Vendor-specific methods.
        Vendor = "vendor",
    }
}

impl InterfaceKind {
    /// The field of a node that names the implementation.
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

/// The implementation of each interface; `None` where none was chosen.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Interfaces([Option<Box<str>>; 13]);

impl Interfaces {
    /// The implementation of `kind`.
    #[must_use]
    pub fn get(&self, kind: InterfaceKind) -> Option<&str> {
        self.0[kind.index()].as_deref()
    }

    /// Sets or clears the implementation of `kind`.
    pub fn set(&mut self, kind: InterfaceKind, implementation: Option<&str>) {
        self.0[kind.index()] = implementation.map(Box::from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_do_not_share_a_slot() {
        let mut interfaces = Interfaces::default();
        for kind in InterfaceKind::ALL {
            interfaces.set(*kind, Some(kind.as_str()));
        }
        for kind in InterfaceKind::ALL {
            assert_eq!(interfaces.get(*kind), Some(kind.as_str()));
        }
    }
}
