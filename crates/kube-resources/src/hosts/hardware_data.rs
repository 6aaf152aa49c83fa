// SPDX-License-Identifier: Apache-2.0
//! `HardwareData` and the hardware details that inspection finds.

use serde::{Deserialize, Serialize};

use crate::kind::namespaced_kind;
use crate::optional::{is_default, is_false, non_empty, null_is_default};
use crate::text_enum::text_enum;

namespaced_kind! {
    /// Hardware of the host with the same name.
    pub struct HardwareData in "metal3.io" / "v1alpha1", plural "hardwaredata" {
        spec: HardwareDataSpec,
    }
}

/// An inspection result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HardwareDataSpec {
    /// The hardware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareDetails>,
}

/// Hardware of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HardwareDetails {
    /// Manufacturer and product.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub system_vendor: HostSystemVendor,
    /// Firmware of the system board.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub firmware: HostFirmware,
    /// Memory in MiB.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub ram_mebibytes: i64,
    /// NICs. One with both an IPv4 and an IPv6 address is listed twice.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub nics: Vec<HostNic>,
    /// Disks.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub storage: Vec<HostDisk>,
    /// Processors.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub cpu: HostCpu,
    /// Host name during inspection.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub hostname: Option<String>,
}

/// Manufacturer and product of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HostSystemVendor {
    /// Manufacturer.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub manufacturer: Option<String>,
    /// Product name.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub product_name: Option<String>,
    /// Serial number.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub serial_number: Option<String>,
}

/// Firmware of the system board.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostFirmware {
    /// BIOS or UEFI firmware.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub bios: HostBios,
}

/// BIOS or UEFI firmware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostBios {
    /// Release date.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub date: Option<String>,
    /// Vendor.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub vendor: Option<String>,
    /// Version.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub version: Option<String>,
}

/// A NIC and one of its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HostNic {
    /// Name in the ramdisk.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub name: Option<String>,
    /// Vendor and product identifiers.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub model: Option<String>,
    /// MAC address.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub mac: Option<String>,
    /// IPv4 or IPv6 address.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub ip: Option<String>,
    /// Speed in Gbit/s.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub speed_gbps: i64,
    /// VLANs of the switch port.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub vlans: Vec<HostVlan>,
    /// Untagged VLAN of the switch port.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub vlan_id: i32,
    /// Whether the host booted from this NIC.
    #[serde(skip_serializing_if = "is_false")]
    pub pxe: bool,
    /// Switch port, as received over LLDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lldp: Option<HostLldp>,
    /// PCI address.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub pci_address: Option<String>,
}

/// A VLAN of a switch port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostVlan {
    /// VLAN ID.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub id: i32,
    /// Name.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub name: Option<String>,
}

/// A switch port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostLldp {
    /// Chassis identifier of the switch.
    #[serde(
        rename = "switchID",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "non_empty"
    )]
    pub switch_id: Option<String>,
    /// Port identifier.
    #[serde(
        rename = "portID",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "non_empty"
    )]
    pub port_id: Option<String>,
    /// System name of the switch.
    #[serde(
        rename = "switchSystemName",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "non_empty"
    )]
    pub switch_system_name: Option<String>,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HostDisk {
    /// Path of the device, below `/dev/disk/by-path/` if there is one.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub name: Option<String>,
    /// All paths of the device.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub alternate_names: Vec<String>,
    /// Whether the disk rotates.
    #[serde(skip_serializing_if = "is_false")]
    pub rotational: bool,
    /// Kind of disk.
    #[serde(
        rename = "type",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "non_empty"
    )]
    pub disk_type: Option<HostDiskType>,
    /// Size in bytes.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub size_bytes: i64,
    /// Vendor.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub vendor: Option<String>,
    /// Model name.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub model: Option<String>,
    /// Serial number.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub serial_number: Option<String>,
    /// World Wide Name.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub wwn: Option<String>,
    /// Vendor extension of the World Wide Name.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub wwn_vendor_extension: Option<String>,
    /// World Wide Name with its vendor extension.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub wwn_with_extension: Option<String>,
    /// SCSI address.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub hctl: Option<String>,
}

text_enum! {
    /// Kind of disk.
    pub enum HostDiskType {
        /// Rotating disk.
        Hdd = "HDD",
        /// Solid-state disk.
        Ssd = "SSD",
        /// NVMe device.
        Nvme = "NVME",
    }
}

/// Processors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HostCpu {
    /// Architecture.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub arch: Option<String>,
    /// Model name.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub model: Option<String>,
    /// Clock rate in MHz.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub clock_megahertz: f64,
    /// Features reported by the kernel.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub flags: Vec<String>,
    /// Number of logical processors.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub count: i64,
}
