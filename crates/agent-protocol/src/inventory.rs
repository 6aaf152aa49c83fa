// SPDX-License-Identifier: Apache-2.0
//! The hardware inventory that the inspection ramdisk sends.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The body of `POST /v1/continue_inspection`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct InspectionReport {
    /// The hardware inventory.
    pub inventory: AgentInventory,
    /// The disk chosen by the root device hints, or by default.
    #[serde(default)]
    pub root_disk: Option<InventoryDisk>,
    /// The MAC address of the boot NIC in PXELINUX notation: `01-` and the address with dashes.
    #[serde(default)]
    pub boot_interface: Option<String>,
    /// The collectors and hardware managers that produced the report.
    #[serde(default)]
    pub configuration: Option<CollectorConfiguration>,
    /// The error text of failed collectors.
    #[serde(default)]
    pub error: Option<String>,
    /// The ramdisk's logs: a gzip-compressed tar archive in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<String>,
    /// The data of further collectors, by key.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// The collectors and hardware managers that produced a report.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CollectorConfiguration {
    /// The names of the collectors.
    pub collectors: Vec<String>,
    /// The hardware managers.
    pub managers: Vec<ManagerVersion>,
}

/// The name and version of a hardware manager.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ManagerVersion {
    /// The class name, such as `generic_hardware_manager`.
    pub name: String,
    /// The version.
    pub version: String,
}

/// The hardware inventory of a machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AgentInventory {
    /// The network interfaces.
    pub interfaces: Vec<InventoryInterface>,
    /// The processors.
    pub cpu: InventoryCpu,
    /// The disks.
    pub disks: Vec<InventoryDisk>,
    /// The memory.
    pub memory: InventoryMemory,
    /// The BMC's IPv4 address; `0.0.0.0` if it has none, null if it was not queried.
    pub bmc_address: Option<String>,
    /// The BMC's IPv6 address; `::/0` if it has none, null if it was not queried.
    pub bmc_v6address: Option<String>,
    /// The BMC's MAC address.
    #[serde(default)]
    pub bmc_mac: Option<String>,
    /// Manufacturer, model and firmware.
    pub system_vendor: SystemVendor,
    /// Boot mode and boot interface.
    pub boot: InventoryBoot,
    /// The ramdisk's host name.
    pub hostname: String,
}

/// A network interface.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct InventoryInterface {
    /// The kernel's name of the interface.
    pub name: String,
    /// The MAC address.
    pub mac_address: String,
    /// The first IPv4 address.
    pub ipv4_address: Option<String>,
    /// The first IPv6 address.
    pub ipv6_address: Option<String>,
    /// Whether the link is up.
    pub has_carrier: bool,
    /// Received LLDP TLVs: type and value in hexadecimal.
    pub lldp: Option<Vec<(u8, String)>>,
    /// PCI vendor id, such as `0x8086`.
    pub vendor: Option<String>,
    /// PCI device id, such as `0x1572`.
    pub product: Option<String>,
    /// DHCP client id, for InfiniBand.
    pub client_id: Option<String>,
    /// The firmware's name of the interface.
    pub biosdevname: Option<String>,
    /// The link speed in Mbit/s.
    pub speed_mbps: Option<u64>,
    /// The PCI address.
    pub pci_address: Option<String>,
    /// The kernel driver.
    pub driver: Option<String>,
}

/// The processors.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct InventoryCpu {
    /// Model name.
    pub model_name: Option<String>,
    /// Maximum frequency in MHz, as text.
    pub frequency: Option<String>,
    /// Number of logical processors.
    pub count: u32,
    /// The architecture: `x86_64` or `aarch64`.
    pub architecture: String,
    /// Feature flags.
    pub flags: Vec<String>,
    /// Number of sockets.
    pub socket_count: Option<u32>,
}

/// The memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct InventoryMemory {
    /// Memory usable by the kernel, in bytes.
    pub total: Option<u64>,
    /// Installed memory in MiB.
    pub physical_mb: Option<u64>,
}

/// A disk.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct InventoryDisk {
    /// The device file.
    pub name: String,
    /// The model.
    pub model: Option<String>,
    /// The size in bytes.
    pub size: u64,
    /// Whether the disk is rotational.
    pub rotational: bool,
    /// The WWN.
    pub wwn: Option<String>,
    /// The serial number.
    pub serial: Option<String>,
    /// The manufacturer.
    pub vendor: Option<String>,
    /// The WWN with the vendor extension.
    pub wwn_with_extension: Option<String>,
    /// The vendor extension of the WWN.
    pub wwn_vendor_extension: Option<String>,
    /// SCSI host, channel, target and LUN.
    pub hctl: Option<String>,
    /// The `/dev/disk/by-path` link.
    pub by_path: Option<String>,
    /// Logical sector size in bytes.
    #[serde(default)]
    pub logical_sectors: Option<u32>,
    /// Physical sector size in bytes.
    #[serde(default)]
    pub physical_sectors: Option<u32>,
    /// The transport: `sata`, `nvme`, `virtio`, ….
    #[serde(default)]
    pub tran: Option<String>,
}

/// Manufacturer, model and firmware of a machine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SystemVendor {
    /// The model.
    pub product_name: String,
    /// The serial number.
    pub serial_number: String,
    /// The manufacturer.
    pub manufacturer: String,
    /// The system firmware.
    #[serde(default)]
    pub firmware: InventoryFirmware,
}

/// The system firmware.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct InventoryFirmware {
    /// The manufacturer.
    pub vendor: String,
    /// The version.
    pub version: String,
    /// The build date.
    pub build_date: String,
}

/// Boot mode and boot interface.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct InventoryBoot {
    /// `bios` or `uefi`.
    pub current_boot_mode: String,
    /// The MAC address of the boot NIC, in the notation of `BOOTIF`.
    pub pxe_interface: Option<String>,
}
