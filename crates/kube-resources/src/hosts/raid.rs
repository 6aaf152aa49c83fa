// SPDX-License-Identifier: Apache-2.0
//! RAID volumes and hints that select disks.

use serde::{Deserialize, Serialize};

use crate::optional::{non_empty, null_is_default};
use crate::text_enum::text_enum;

/// Requested or applied RAID volumes.
///
/// A missing list leaves the volumes unchanged, an empty list deletes them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostRaid {
    /// Volumes of a RAID controller.
    #[serde(rename = "hardwareRAIDVolumes", skip_serializing_if = "Option::is_none")]
    pub hardware_volumes: Option<Vec<HardwareRaidVolume>>,
    /// Volumes of Linux software RAID.
    #[serde(rename = "softwareRAIDVolumes", skip_serializing_if = "Option::is_none")]
    pub software_volumes: Option<Vec<SoftwareRaidVolume>>,
}

/// A volume of a RAID controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HardwareRaidVolume {
    /// RAID level.
    pub level: RaidVolumeLevel,
    /// Size in GiB; as large as possible if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_gibibytes: Option<i64>,
    /// Name, generated if missing.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub name: Option<String>,
    /// Whether only rotating (true) or only solid-state disks (false) are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
    /// How many disks are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number_of_physical_disks: Option<i64>,
    /// Name of the RAID controller.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub controller: Option<String>,
    /// Names of the disks, in the notation of the controller.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub physical_disks: Vec<String>,
}

/// A volume of Linux software RAID.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SoftwareRaidVolume {
    /// RAID level.
    pub level: RaidVolumeLevel,
    /// Size in GiB; as large as possible if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_gibibytes: Option<i64>,
    /// Hints for each disk.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub physical_disks: Vec<DiskHints>,
}

text_enum! {
    /// RAID level. Software RAID supports only 0, 1 and 1+0.
    pub enum RaidVolumeLevel {
        /// Striping.
        Raid0 = "0",
        /// Mirroring.
        Raid1 = "1",
        /// Bit striping with error correction.
        Raid2 = "2",
        /// Single parity.
        Raid5 = "5",
        /// Double parity.
        Raid6 = "6",
        /// Striped mirrors.
        Raid10 = "1+0",
        /// Striped single parity.
        Raid50 = "5+0",
        /// Striped double parity.
        Raid60 = "6+0",
    }
}

impl Default for RaidVolumeLevel {
    /// No level, which validation rejects.
    fn default() -> Self {
        Self::Other(String::new())
    }
}

/// Properties of a disk. All that are given must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DiskHints {
    /// Path below `/dev/` or `/dev/disk/by-path/`.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub device_name: Option<String>,
    /// SCSI address.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub hctl: Option<String>,
    /// Part of the model name.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub model: Option<String>,
    /// Part of the vendor name.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub vendor: Option<String>,
    /// Serial number.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub serial_number: Option<String>,
    /// Smallest size in GB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_size_gigabytes: Option<i64>,
    /// World Wide Name.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub wwn: Option<String>,
    /// World Wide Name with its vendor extension.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub wwn_with_extension: Option<String>,
    /// Vendor extension of the World Wide Name.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub wwn_vendor_extension: Option<String>,
    /// Whether the disk rotates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
}

impl HostRaid {
    /// The requested hardware volumes, none if the list is missing.
    #[must_use]
    pub fn hardware(&self) -> &[HardwareRaidVolume] {
        self.hardware_volumes.as_deref().unwrap_or_default()
    }

    /// The requested software volumes, none if the list is missing.
    #[must_use]
    pub fn software(&self) -> &[SoftwareRaidVolume] {
        self.software_volumes.as_deref().unwrap_or_default()
    }
}
