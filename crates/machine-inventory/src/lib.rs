// SPDX-License-Identifier: Apache-2.0
//! Hardware inventory of the machine the agent runs on.
//!
//! All data comes from the kernel: `/sys`, `/proc`, the SMBIOS tables, netlink, the IPMI device and
//! packet sockets. No program is run and udev is not required, so it works in a ramdisk that contains
//! only the agent. The JSON shapes, names and values are those of ironic-python-agent (IPA), which gets
//! them from `lsblk`, `lscpu`, `lshw`, `dmidecode`, `ipmitool` and udev; known differences are
//! documented in the module concerned.
//!
//! Malformed kernel or firmware data never causes a panic or an error: reads are bounded, and missing
//! or invalid values are omitted.

pub mod benchmarks;
mod bmc;
mod collectors;
mod cpu;
mod disk;
mod dmi;
mod ethtool;
mod extra_hardware;
mod interface;
mod kernel_files;
mod links;
pub mod lldp;
mod memory;
mod natural_order;
pub mod netlink;
mod path_id;
mod smbios;
mod syscalls;
#[cfg(test)]
mod tests;
mod vendor;
mod vital_product_data;

use std::collections::BTreeMap;
use std::path::Path;

use agent_protocol::{
    AgentInventory, InventoryBoot, InventoryCpu, InventoryDisk, InventoryInterface,
    InventoryMemory, SystemVendor,
};
use serde_json::Value;

pub use bmc::BmcAddresses;

use kernel_files::KernelFiles;
use links::NetworkLinks;
use smbios::Smbios;

/// A machine described by its kernel's file systems.
pub struct LocalMachine {
    files: KernelFiles,
    /// Whether this is the machine this process runs on, so that netlink and device queries apply to it.
    is_local: bool,
}

/// Input of [`LocalMachine::inventory`].
#[derive(Clone, Debug, Default)]
pub struct InventoryOptions {
    /// Boot interface from the kernel command line (`BOOTIF`), reported as `pxe_interface`.
    pub bootif: Option<String>,
    /// Whether to query the BMC for its addresses.
    pub detect_bmc: bool,
    /// Host name of the ramdisk.
    pub hostname: String,
    /// LLDP TLVs by interface, from [`lldp::listen`].
    pub lldp: BTreeMap<String, Vec<(u8, String)>>,
}

impl Default for LocalMachine {
    fn default() -> Self {
        Self::new()
    }
}

impl LocalMachine {
    /// Returns the machine this process runs on.
    pub fn new() -> Self {
        Self { files: KernelFiles::with_root(Path::new("/")), is_local: true }
    }

    /// Returns a machine whose `/sys`, `/proc` and `/dev` are copies below `root`.
    pub fn with_root(root: &Path) -> Self {
        Self { files: KernelFiles::with_root(root), is_local: false }
    }

    /// Returns the processors.
    pub fn cpu(&self) -> InventoryCpu {
        cpu::read(&self.files, &self.smbios())
    }

    /// Returns the memory size.
    pub fn memory(&self) -> InventoryMemory {
        memory::read(&self.files, &self.smbios())
    }

    /// Returns the disks, in natural order of their names.
    pub fn disks(&self) -> Vec<InventoryDisk> {
        disk::list(&self.files)
    }

    /// Returns the network interfaces, in natural order of their names.
    pub fn interfaces(&self) -> Vec<InventoryInterface> {
        interface::list(&self.files, &self.links(), &self.smbios())
    }

    /// Returns manufacturer, product, serial number and firmware version.
    pub fn system_vendor(&self) -> SystemVendor {
        vendor::read(&self.files, &self.smbios())
    }

    /// Returns the boot mode, and `bootif` as the boot interface.
    pub fn boot_info(&self, bootif: Option<&str>) -> InventoryBoot {
        let efi = self.files.is_directory("sys/firmware/efi");
        InventoryBoot {
            current_boot_mode: if efi { "uefi" } else { "bios" }.to_owned(),
            pxe_interface: bootif.map(str::to_owned),
        }
    }

    /// Queries the BMC for its addresses over the kernel's IPMI device. Takes some hundred milliseconds.
    pub fn bmc(&self) -> BmcAddresses {
        bmc::detect(&self.files)
    }

    /// Returns the whole inventory.
    pub fn inventory(&self, options: &InventoryOptions) -> AgentInventory {
        let smbios = self.smbios();
        let bmc = if options.detect_bmc { self.bmc() } else { BmcAddresses::default() };
        let mut interfaces = interface::list(&self.files, &self.links(), &smbios);
        for interface in &mut interfaces {
            interface.lldp = options.lldp.get(&interface.name).cloned();
        }
        AgentInventory {
            interfaces,
            cpu: cpu::read(&self.files, &smbios),
            disks: self.disks(),
            memory: memory::read(&self.files, &smbios),
            bmc_address: bmc.ipv4,
            bmc_v6address: bmc.ipv6,
            bmc_mac: bmc.mac,
            system_vendor: vendor::read(&self.files, &smbios),
            boot: self.boot_info(options.bootif.as_deref()),
            hostname: options.hostname.clone(),
        }
    }

    /// Collector `pci-devices`, sent as `pci_devices`.
    pub fn pci_devices(&self) -> Value {
        collectors::pci_devices(&self.files)
    }

    /// Collector `usb-devices`, sent as `usb_devices`.
    pub fn usb_devices(&self) -> Value {
        collectors::usb_devices(&self.files)
    }

    /// Collector `numa-topology`, sent as `numa_topology`; `None` if the kernel exposes no NUMA nodes.
    pub fn numa_topology(&self) -> Option<Value> {
        collectors::numa_topology(&self.files)
    }

    /// Collector `dmi-decode`, sent as `dmi`; `None` if the firmware has no SMBIOS tables.
    pub fn dmi(&self) -> Option<Value> {
        dmi::collect(&self.smbios())
    }

    /// Collector `extra-hardware` without benchmarks, sent as `data`: quadruples of class, device, key
    /// and value. [`benchmarks::run`] returns further ones.
    pub fn extra_hardware(&self) -> Vec<Value> {
        extra_hardware::collect(self)
    }

    fn smbios(&self) -> Smbios {
        Smbios::read(&self.files)
    }

    fn links(&self) -> NetworkLinks {
        if self.is_local { NetworkLinks::query() } else { NetworkLinks::default() }
    }
}
