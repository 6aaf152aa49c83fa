// SPDX-License-Identifier: Apache-2.0
//! What this machine is made of.
//!
//! Everything is read from the kernel: `/sys`, `/proc`, the firmware's SMBIOS tables, netlink, the
//! IPMI device and packet sockets. No program is run and no udev is needed, so it works in a ramdisk
//! that holds nothing but the agent. The shapes, names and values are those of ironic-python-agent,
//! which gets them from `lsblk`, `lscpu`, `lshw`, `dmidecode`, `ipmitool` and udev; where ours can
//! only come near, the module says so.
//!
//! Nothing here panics or fails on what a kernel or firmware says: reads are bounded, whatever is
//! missing or makes no sense is left out.

mod addresses;
pub mod benchmarks;
mod bmc;
mod collectors;
mod cpu;
mod disk;
mod dmi;
mod ethtool;
mod extra_hardware;
mod interface;
mod kernel;
pub mod lldp;
mod memory;
mod natural;
mod netlink;
mod path_id;
mod smbios;
#[cfg(test)]
mod tests;
mod tree;
mod vendor;
mod vital_product_data;

use std::collections::BTreeMap;
use std::path::Path;

use agent_protocol::{BootInfo, Cpu, Disk, Interface, Inventory, Memory, SystemVendor};
use serde_json::Value;

pub use bmc::Bmc;

use addresses::Links;
use smbios::Smbios;
use tree::Tree;

/// A machine, seen through its kernel's file systems.
pub struct Machine {
    tree: Tree,
    /// Whether this is the machine we run on, so that netlink and devices speak of it too.
    here: bool,
}

/// What an inventory needs to be told.
#[derive(Clone, Debug, Default)]
pub struct InventoryOptions {
    /// The card it booted from, from the kernel's command line.
    pub bootif: Option<String>,
    /// Whether to ask the BMC for its addresses.
    pub detect_bmc: bool,
    /// The ramdisk's host name.
    pub hostname: String,
    /// What [`lldp::listen`] heard, if it was asked.
    pub lldp: BTreeMap<String, Vec<(u8, String)>>,
}

impl Machine {
    /// The machine this runs on.
    pub fn here() -> Self {
        Self { tree: Tree::at(Path::new("/")), here: true }
    }

    /// A machine whose `/sys`, `/proc` and `/dev` are below this folder.
    pub fn at(root: &Path) -> Self {
        Self { tree: Tree::at(root), here: false }
    }

    /// Its processors.
    pub fn cpu(&self) -> Cpu {
        cpu::read(&self.tree, &self.smbios())
    }

    /// Its memory.
    pub fn memory(&self) -> Memory {
        memory::read(&self.tree, &self.smbios())
    }

    /// Its disks, in natural order of their names.
    pub fn disks(&self) -> Vec<Disk> {
        disk::list(&self.tree)
    }

    /// Its network cards, in natural order of their names.
    pub fn interfaces(&self) -> Vec<Interface> {
        interface::list(&self.tree, &self.links(), &self.smbios())
    }

    /// Who made it.
    pub fn system_vendor(&self) -> SystemVendor {
        vendor::read(&self.tree, &self.smbios())
    }

    /// How it booted, given what the kernel's command line says of the card.
    pub fn boot_info(&self, bootif: Option<&str>) -> BootInfo {
        let efi = self.tree.is_folder("sys/firmware/efi");
        BootInfo {
            current_boot_mode: if efi { "uefi" } else { "bios" }.to_owned(),
            pxe_interface: bootif.map(str::to_owned),
        }
    }

    /// Its BMC's addresses, asked through the kernel's IPMI device. Takes some hundred milliseconds.
    pub fn bmc(&self) -> Bmc {
        bmc::detect(&self.tree)
    }

    /// The whole inventory.
    pub fn inventory(&self, options: &InventoryOptions) -> Inventory {
        let smbios = self.smbios();
        let bmc = if options.detect_bmc { self.bmc() } else { Bmc::default() };
        let mut interfaces = interface::list(&self.tree, &self.links(), &smbios);
        for interface in &mut interfaces {
            interface.lldp = options.lldp.get(&interface.name).cloned();
        }
        Inventory {
            interfaces,
            cpu: cpu::read(&self.tree, &smbios),
            disks: self.disks(),
            memory: memory::read(&self.tree, &smbios),
            bmc_address: bmc.v4,
            bmc_v6address: bmc.v6,
            bmc_mac: bmc.mac,
            system_vendor: vendor::read(&self.tree, &smbios),
            boot: self.boot_info(options.bootif.as_deref()),
            hostname: options.hostname.clone(),
        }
    }

    /// Collector `pci-devices`, to be sent as `pci_devices`.
    pub fn pci_devices(&self) -> Value {
        collectors::pci_devices(&self.tree)
    }

    /// Collector `usb-devices`, to be sent as `usb_devices`.
    pub fn usb_devices(&self) -> Value {
        collectors::usb_devices(&self.tree)
    }

    /// Collector `numa-topology`, to be sent as `numa_topology`; nothing if the kernel knows no nodes.
    pub fn numa_topology(&self) -> Option<Value> {
        collectors::numa_topology(&self.tree)
    }

    /// Collector `dmi-decode`, to be sent as `dmi`; nothing if the firmware has no SMBIOS tables.
    pub fn dmi(&self) -> Option<Value> {
        dmi::collect(&self.smbios())
    }

    /// Collector `extra-hardware` without benchmarks, to be sent as `data`: quadruples of class,
    /// device, key and value. [`benchmarks::run`] makes more of them.
    pub fn extra_hardware(&self) -> Vec<Value> {
        extra_hardware::collect(self)
    }

    fn smbios(&self) -> Smbios {
        Smbios::read(&self.tree)
    }

    fn links(&self) -> Links {
        if self.here { Links::of_kernel() } else { Links::default() }
    }
}
