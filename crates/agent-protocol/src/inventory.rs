// SPDX-License-Identifier: Apache-2.0
//! What a machine is made of, as the inspection ramdisk sends it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The body of `POST /v1/continue_inspection`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The hardware.
    pub inventory: Inventory,
    /// The disk an image would be written to.
    #[serde(default)]
    pub root_disk: Option<Disk>,
    /// The card it booted from, as boot loaders write it: `01-` and the address with dashes.
    #[serde(default)]
    pub boot_interface: Option<String>,
    /// What collected all this.
    #[serde(default)]
    pub configuration: Option<Configuration>,
    /// Why collecting failed, if it did.
    #[serde(default)]
    pub error: Option<String>,
    /// The ramdisk's logs: a tar archive, compressed with gzip, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<String>,
    /// What further collectors found, by their keys.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Which collectors and hardware managers made a report.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Configuration {
    /// The collectors.
    pub collectors: Vec<String>,
    /// The hardware managers.
    pub managers: Vec<ManagerVersion>,
}

/// A hardware manager.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ManagerVersion {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// The hardware.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Inventory {
    /// Network cards.
    pub interfaces: Vec<Interface>,
    /// Processors.
    pub cpu: Cpu,
    /// Disks.
    pub disks: Vec<Disk>,
    /// Memory.
    pub memory: Memory,
    /// The BMC's IPv4 address; `0.0.0.0` if it has none, null if nobody looked.
    pub bmc_address: Option<String>,
    /// The BMC's IPv6 address; `::/0` if it has none, null if nobody looked.
    pub bmc_v6address: Option<String>,
    /// The BMC's hardware address.
    #[serde(default)]
    pub bmc_mac: Option<String>,
    /// Who made the machine.
    pub system_vendor: SystemVendor,
    /// How it booted.
    pub boot: BootInfo,
    /// The ramdisk's host name.
    pub hostname: String,
}

/// A network card.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Interface {
    /// The kernel's name for it.
    pub name: String,
    /// Hardware address.
    pub mac_address: String,
    /// IPv4 address it has.
    pub ipv4_address: Option<String>,
    /// IPv6 address it has.
    pub ipv6_address: Option<String>,
    /// Whether a cable is plugged in and the other end is up.
    pub has_carrier: bool,
    /// What was heard by LLDP: the type of each record and its value in hexadecimal.
    pub lldp: Option<Vec<(u8, String)>>,
    /// PCI vendor: `0x8086`.
    pub vendor: Option<String>,
    /// PCI device: `0x1572`.
    pub product: Option<String>,
    /// DHCP client id, for InfiniBand.
    pub client_id: Option<String>,
    /// The name the firmware gives it.
    pub biosdevname: Option<String>,
    /// Speed in Mbit/s.
    pub speed_mbps: Option<u64>,
    /// Where it is on the PCI bus.
    pub pci_address: Option<String>,
    /// The kernel's driver for it.
    pub driver: Option<String>,
}

/// The processors.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Cpu {
    /// Model.
    pub model_name: Option<String>,
    /// Highest frequency in MHz, as text.
    pub frequency: Option<String>,
    /// How many the kernel runs.
    pub count: u32,
    /// `x86_64`, `aarch64`.
    pub architecture: String,
    /// What they can do.
    pub flags: Vec<String>,
    /// How many sockets they are in.
    pub socket_count: Option<u32>,
}

/// The memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Bytes the kernel can use.
    pub total: Option<u64>,
    /// MiB that are installed.
    pub physical_mb: Option<u64>,
}

/// A disk.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Disk {
    /// Its device file.
    pub name: String,
    /// Model.
    pub model: Option<String>,
    /// Bytes.
    pub size: u64,
    /// Whether it rotates.
    pub rotational: bool,
    /// World-wide name.
    pub wwn: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// Maker.
    pub vendor: Option<String>,
    /// World-wide name with the extension of its maker.
    pub wwn_with_extension: Option<String>,
    /// That extension.
    pub wwn_vendor_extension: Option<String>,
    /// Host, channel, target and LUN of SCSI.
    pub hctl: Option<String>,
    /// The link that tells where it is plugged in.
    pub by_path: Option<String>,
    /// Bytes of a sector as it is addressed.
    #[serde(default)]
    pub logical_sectors: Option<u32>,
    /// Bytes of a sector as it is written.
    #[serde(default)]
    pub physical_sectors: Option<u32>,
    /// How it is connected: `sata`, `nvme`, `virtio`.
    #[serde(default)]
    pub tran: Option<String>,
}

/// Who made the machine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SystemVendor {
    /// Model.
    pub product_name: String,
    /// Serial number.
    pub serial_number: String,
    /// Maker.
    pub manufacturer: String,
    /// Its firmware.
    #[serde(default)]
    pub firmware: Firmware,
}

/// Firmware.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Firmware {
    /// Maker.
    pub vendor: String,
    /// Version.
    pub version: String,
    /// When it was built.
    pub build_date: String,
}

/// How the machine booted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BootInfo {
    /// `bios` or `uefi`.
    pub current_boot_mode: String,
    /// The card it booted from, as boot loaders write it.
    pub pxe_interface: Option<String>,
}
