// SPDX-License-Identifier: Apache-2.0
//! The inspection hooks, by Ironic's names: each transfers one kind of data from a report to the node.
//!
//! A hook has a check, a change, or both. The checks of all enabled hooks run before the first change.

mod disks;
mod interfaces;
mod network;
mod pci;
mod ramdisk;
mod system;

use std::fmt;
use std::str::FromStr;

use agent_protocol::RootDeviceHintError;

pub(crate) use interfaces::pxe_mac;

use crate::capabilities::CapabilitiesError;
use crate::inspection_draft::InspectionDraft;

type HookFn = fn(&mut InspectionDraft<'_>) -> Result<(), HookError>;

struct HookEntry {
    hook: Hook,
    name: &'static str,
    requires: &'static [Hook],
    check: HookFn,
    apply: HookFn,
}

/// Why a hook fails the inspection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// The ramdisk reported an error.
    #[error("the ramdisk reported: {0}")]
    Ramdisk(String),
    /// No interface has a name and a valid MAC address.
    #[error("no network interface has a name and a valid MAC address")]
    NoInterfaces,
    /// The setting `add_ports` selects no interface.
    #[error("no network interface is left with add_ports = {0}; try add_ports = all")]
    NoSelectedInterfaces(&'static str),
    /// The report lacks the data of the hook.
    #[error("the inventory has no usable {0}")]
    Missing(&'static str),
    /// The capabilities cannot be parsed, and writing them would lose entries.
    #[error("the node's capabilities cannot be read")]
    Capabilities(#[from] CapabilitiesError),
    /// Invalid root device hints.
    #[error("the node's {property} cannot be used")]
    Hints {
        /// The property with the hints.
        property: &'static str,
        /// The cause.
        #[source]
        source: RootDeviceHintError,
    },
    /// No disk matches the hints.
    #[error("none of {disks} disks matches properties/root_device; correct the hints or the disks")]
    NoRootDisk {
        /// The number of disks.
        disks: usize,
    },
}

macro_rules! hooks {
    ($($(#[$doc:meta])* $hook:ident = $name:literal, $check:path, $apply:path, requires $requires:expr;)*) => {
        /// An inspection hook.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Hook {
            $($(#[$doc])* $hook,)*
        }

        /// In the order of the enum: the discriminant is the index.
        const TABLE: &[HookEntry] = &[
            $(HookEntry { hook: Hook::$hook, name: $name, requires: $requires, check: $check, apply: $apply },)*
        ];
    };
}

hooks! {
    /// Fails if the ramdisk reported an error.
    RamdiskError = "ramdisk-error", ramdisk::error, no_op, requires &[];
    /// Selects the network interfaces that get ports.
    ValidateInterfaces = "validate-interfaces", interfaces::validate, no_op, requires &[];
    /// Creates, updates and deletes ports.
    Ports = "ports", no_op, interfaces::ports, requires &[Hook::ValidateInterfaces];
    /// `properties/cpu_arch`.
    Architecture = "architecture", no_op, system::architecture, requires &[];
    /// `properties/accelerators`.
    Accelerators = "accelerators", no_op, pci::accelerators, requires &[];
    /// The capability `boot_mode`.
    BootMode = "boot-mode", no_op, system::boot_mode, requires &[];
    /// Capabilities for CPU flags.
    CpuCapabilities = "cpu-capabilities", no_op, system::cpu_capabilities, requires &[];
    /// `properties/cpus`.
    Cpus = "cpus", no_op, system::cpus, requires &[];
    /// `properties/memory_mb`.
    Memory = "memory", no_op, system::memory, requires &[];
    /// Sets the root disk and `properties/local_gb`.
    RootDevice = "root-device", no_op, disks::root_device, requires &[];
    /// Sets the root device to the only disk that is new since the last inspection.
    RaidDevice = "raid-device", no_op, disks::raid_device, requires &[];
    /// Capabilities that count PCI devices.
    PciDevices = "pci-devices", no_op, pci::pci_devices, requires &[];
    /// Converts the output of `hardware-detect` to nested objects.
    ExtraHardware = "extra-hardware", no_op, ramdisk::extra_hardware, requires &[];
    /// `physical_network` of ports, by IP address.
    PhysicalNetwork = "physical-network", no_op, network::physical_network, requires &[Hook::ValidateInterfaces];
    /// `local_link_connection` of ports, from LLDP.
    LocalLinkConnection = "local-link-connection", no_op, network::local_link_connection, requires &[Hook::ValidateInterfaces];
    /// Parsed LLDP data in the plugin data.
    ParseLldp = "parse-lldp", no_op, network::parse_lldp, requires &[];
}

impl Hook {
    /// The hooks that run by default.
    pub const DEFAULT: &[Self] =
        &[Self::RamdiskError, Self::ValidateInterfaces, Self::Ports, Self::Architecture];

    /// Returns all hooks.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|entry| entry.hook)
    }

    /// Returns Ironic's name of the hook.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.entry().name
    }

    /// Returns the hooks that must precede it.
    #[must_use]
    pub fn requires(self) -> &'static [Self] {
        self.entry().requires
    }

    /// Runs the check of the hook.
    pub(crate) fn check(self, draft: &mut InspectionDraft<'_>) -> Result<(), HookError> {
        (self.entry().check)(draft)
    }

    /// Runs the change of the hook.
    pub(crate) fn apply(self, draft: &mut InspectionDraft<'_>) -> Result<(), HookError> {
        (self.entry().apply)(draft)
    }

    /// Returns all names, for error messages.
    pub(crate) fn names() -> String {
        TABLE.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ")
    }

    fn entry(self) -> &'static HookEntry {
        &TABLE[self as usize]
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Hook {
    type Err = ();
    fn from_str(name: &str) -> Result<Self, ()> {
        TABLE.iter().find(|entry| entry.name == name).map(|entry| entry.hook).ok_or(())
    }
}

fn no_op(_: &mut InspectionDraft<'_>) -> Result<(), HookError> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_names_of_all_sixteen_hooks() {
        assert_eq!(Hook::all().count(), 16);
        for hook in Hook::all() {
            assert_eq!(hook.as_str().parse(), Ok(hook));
        }
    }
}
