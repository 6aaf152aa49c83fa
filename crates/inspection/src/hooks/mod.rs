// SPDX-License-Identifier: Apache-2.0
//! The hooks: what is believed of a report, one subject each.
//!
//! A hook may have a first look, which every enabled hook gets before any does its work, and it
//! may have work. Both are functions on the draft; the table says which hook has which.

mod disks;
mod interfaces;
mod network;
mod pci;
mod ramdisk;
mod system;

use std::fmt;
use std::str::FromStr;

use agent_protocol::HintError;

pub(crate) use interfaces::pxe_mac;

use crate::capabilities::MalformedCapabilities;
use crate::draft::Draft;

type Function = fn(&mut Draft<'_>) -> Result<(), HookFailure>;

struct Entry {
    hook: Hook,
    name: &'static str,
    needs: &'static [Hook],
    look: Function,
    work: Function,
}

/// Why a hook ends the inspection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HookFailure {
    /// The ramdisk itself says that something went wrong.
    #[error("the ramdisk reported: {0}")]
    Ramdisk(String),
    /// No card has both a name and a valid hardware address.
    #[error("no network interface has a name and a valid MAC address")]
    NoInterfaces,
    /// There are cards, but the settings want none of them.
    #[error("no network interface is left with add_ports = {0}; try add_ports = all")]
    NoWantedInterfaces(&'static str),
    /// The report lacks something the hook is for.
    #[error("the inventory has no usable {0}")]
    Missing(&'static str),
    /// The capabilities cannot be read, and would be lost if they were written.
    #[error("the node's capabilities cannot be read")]
    Capabilities(#[from] MalformedCapabilities),
    /// The hints are wrong.
    #[error("the node's {property} cannot be used")]
    Hints {
        /// Where they are.
        property: &'static str,
        /// What is wrong.
        #[source]
        source: HintError,
    },
    /// The hints are right and no disk is.
    #[error("none of {disks} disks matches properties/root_device; correct the hints or the disks")]
    NoRootDisk {
        /// How many were looked at.
        disks: usize,
    },
}

macro_rules! hooks {
    ($($(#[$doc:meta])* $hook:ident = $name:literal, $look:path, $work:path, needs $needs:expr;)*) => {
        /// A hook.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Hook {
            $($(#[$doc])* $hook,)*
        }

        /// In the order of the enum, so that a hook is its own index.
        const TABLE: &[Entry] = &[
            $(Entry { hook: Hook::$hook, name: $name, needs: $needs, look: $look, work: $work },)*
        ];
    };
}

hooks! {
    /// Fails if the ramdisk reported an error.
    RamdiskError = "ramdisk-error", ramdisk::error, nothing, needs &[];
    /// Finds the network cards that count.
    ValidateInterfaces = "validate-interfaces", interfaces::validate, nothing, needs &[];
    /// Creates, corrects and deletes ports.
    Ports = "ports", nothing, interfaces::ports, needs &[Hook::ValidateInterfaces];
    /// `properties/cpu_arch`.
    Architecture = "architecture", nothing, system::architecture, needs &[];
    /// `properties/accelerators`.
    Accelerators = "accelerators", nothing, pci::accelerators, needs &[];
    /// The capability `boot_mode`.
    BootMode = "boot-mode", nothing, system::boot_mode, needs &[];
    /// Capabilities for CPU flags.
    CpuCapabilities = "cpu-capabilities", nothing, system::cpu_capabilities, needs &[];
    /// `properties/cpus`.
    Cpus = "cpus", nothing, system::cpus, needs &[];
    /// `properties/memory_mb`.
    Memory = "memory", nothing, system::memory, needs &[];
    /// Finds the root disk, and `properties/local_gb`.
    RootDevice = "root-device", nothing, disks::root_device, needs &[];
    /// Makes the one disk that is new since the last inspection the root disk.
    RaidDevice = "raid-device", nothing, disks::raid_device, needs &[];
    /// Capabilities that count PCI devices.
    PciDevices = "pci-devices", nothing, pci::pci_devices, needs &[];
    /// Puts the output of `hardware-detect` into a readable shape.
    ExtraHardware = "extra-hardware", nothing, ramdisk::extra_hardware, needs &[];
    /// `physical_network` of ports, by their addresses.
    PhysicalNetwork = "physical-network", nothing, network::physical_network, needs &[Hook::ValidateInterfaces];
    /// `local_link_connection` of ports, from LLDP.
    LocalLinkConnection = "local-link-connection", nothing, network::local_link_connection, needs &[Hook::ValidateInterfaces];
    /// Everything LLDP says, readable, in the plugin data.
    ParseLldp = "parse-lldp", nothing, network::parse_lldp, needs &[];
}

impl Hook {
    /// What runs unless the operator says otherwise.
    pub const DEFAULT: &[Self] =
        &[Self::RamdiskError, Self::ValidateInterfaces, Self::Ports, Self::Architecture];

    /// Every hook.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|entry| entry.hook)
    }

    /// Ironic's name for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.entry().name
    }

    /// Which hooks must come before it.
    #[must_use]
    pub fn needs(self) -> &'static [Self] {
        self.entry().needs
    }

    pub(crate) fn look(self, draft: &mut Draft<'_>) -> Result<(), HookFailure> {
        (self.entry().look)(draft)
    }

    pub(crate) fn work(self, draft: &mut Draft<'_>) -> Result<(), HookFailure> {
        (self.entry().work)(draft)
    }

    /// All names, for messages.
    pub(crate) fn names() -> String {
        TABLE.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ")
    }

    fn entry(self) -> &'static Entry {
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

fn nothing(_: &mut Draft<'_>) -> Result<(), HookFailure> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_hooks_each_its_own_entry() {
        assert_eq!(Hook::all().count(), 16);
        for hook in Hook::all() {
            assert_eq!(hook.as_str().parse(), Ok(hook));
        }
    }
}
