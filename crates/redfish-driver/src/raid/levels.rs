// SPDX-License-Identifier: Apache-2.0
//! RAID levels: their names for operators and in Redfish, the number of drives they need, and the
//! usable capacity.

use redfish::RedfishResource;

/// A RAID level that Redfish BMCs can create.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RaidLevel {
    /// The name in a RAID configuration.
    pub(super) name: &'static str,
    /// The Redfish `RAIDType`.
    pub(super) raid_type: &'static str,
    /// The deprecated Redfish `VolumeType`.
    pub(super) volume_type: &'static str,
    /// Minimum number of drives.
    pub(super) min_drives: usize,
    /// Maximum number of drives.
    max_drives: usize,
    /// The number of drives is a multiple of this.
    drives_multiple: usize,
    /// The capacity used for redundancy.
    redundancy: RaidRedundancy,
}

#[derive(Debug, PartialEq, Eq)]
enum RaidRedundancy {
    /// The capacity of this many drives.
    Drives(usize),
    /// Half of the capacity.
    Half,
}

/// More drives than any controller has.
const UNLIMITED: usize = 1000;

/// All levels. A volume with only a `VolumeType` counts as the first level with that type.
pub(super) const LEVELS: &[RaidLevel] = &[
    RaidLevel {
        name: "0",
        raid_type: "RAID0",
        volume_type: "NonRedundant",
        min_drives: 1,
        max_drives: UNLIMITED,
        drives_multiple: 1,
        redundancy: RaidRedundancy::Drives(0),
    },
    RaidLevel {
        name: "1",
        raid_type: "RAID1",
        volume_type: "Mirrored",
        min_drives: 2,
        max_drives: 2,
        drives_multiple: 2,
        redundancy: RaidRedundancy::Half,
    },
    RaidLevel {
        name: "5",
        raid_type: "RAID5",
        volume_type: "StripedWithParity",
        min_drives: 3,
        max_drives: UNLIMITED,
        drives_multiple: 1,
        redundancy: RaidRedundancy::Drives(1),
    },
    RaidLevel {
        name: "6",
        raid_type: "RAID6",
        volume_type: "StripedWithParity",
        min_drives: 4,
        max_drives: UNLIMITED,
        drives_multiple: 1,
        redundancy: RaidRedundancy::Drives(2),
    },
    RaidLevel {
        name: "1+0",
        raid_type: "RAID10",
        volume_type: "SpannedMirrors",
        min_drives: 4,
        max_drives: UNLIMITED,
        drives_multiple: 2,
        redundancy: RaidRedundancy::Half,
    },
    RaidLevel {
        name: "5+0",
        raid_type: "RAID50",
        volume_type: "SpannedStripesWithParity",
        min_drives: 6,
        max_drives: UNLIMITED,
        drives_multiple: 2,
        redundancy: RaidRedundancy::Drives(2),
    },
    RaidLevel {
        name: "6+0",
        raid_type: "RAID60",
        volume_type: "SpannedStripesWithParity",
        min_drives: 8,
        max_drives: UNLIMITED,
        drives_multiple: 2,
        redundancy: RaidRedundancy::Drives(4),
    },
];

impl RaidLevel {
    /// Returns the level with this name in a RAID configuration.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        LEVELS.iter().find(|level| level.name == name)
    }

    /// Returns the level of a volume; `None` for a passed-through drive.
    pub(super) fn of_volume(volume: &RedfishResource) -> Option<&'static Self> {
        let by = |key, field: fn(&RaidLevel) -> &'static str| {
            let name = volume.text(key)?;
            LEVELS.iter().find(|level| field(level) == name)
        };
        by("/RAIDType", |level| level.raid_type)
            .or_else(|| by("/VolumeType", |level| level.volume_type))
    }

    /// Whether it can be built on this number of drives.
    pub(super) fn accepts_drive_count(&self, drives: usize) -> bool {
        drives >= self.min_drives
            && drives <= self.max_drives
            && drives.is_multiple_of(self.drives_multiple)
    }

    /// The possible numbers of drives, up to `at_most`.
    pub(super) fn drive_counts(&self, at_most: usize) -> impl Iterator<Item = usize> {
        (self.min_drives..=self.max_drives.min(at_most))
            .filter(|count| self.accepts_drive_count(*count))
    }

    /// The number of drives whose capacity is usable for data; at least one.
    pub(super) fn data_drives(&self, drives: usize) -> u64 {
        let data = match self.redundancy {
            RaidRedundancy::Drives(lost) => drives.saturating_sub(lost),
            RaidRedundancy::Half => drives / 2,
        };
        data.max(1) as u64
    }

    /// Describes the required number of drives, for messages.
    pub(super) fn drive_requirement(&self) -> String {
        match (self.max_drives == self.min_drives, self.drives_multiple) {
            (true, _) => format!("exactly {} drives", self.min_drives),
            (false, 1) => format!("at least {} drive(s)", self.min_drives),
            (false, _) => format!("at least {} drives and an even number of them", self.min_drives),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn computes_drive_counts_and_capacity() {
        for (name, drives, takes, data) in [
            ("0", 1, true, 1),
            ("0", 3, true, 3),
            ("1", 2, true, 1),
            ("1", 4, false, 2),
            ("5", 2, false, 1),
            ("5", 5, true, 4),
            ("6", 4, true, 2),
            ("1+0", 5, false, 2),
            ("1+0", 6, true, 3),
            ("5+0", 6, true, 4),
            ("6+0", 8, true, 4),
        ] {
            let level = RaidLevel::named(name).unwrap();
            assert_eq!(
                (level.accepts_drive_count(drives), level.data_drives(drives)),
                (takes, data),
                "{name}"
            );
        }
        assert_eq!(RaidLevel::named("1+0").unwrap().drive_counts(9).collect::<Vec<_>>(), [4, 6, 8]);
        assert_eq!(RaidLevel::named("1").unwrap().drive_counts(1).count(), 0);
        assert_eq!(RaidLevel::named("JBOD"), None);
    }

    #[test]
    fn reads_level_from_raid_type_or_volume_type() {
        for (body, level) in [
            (json!({"RAIDType": "RAID10", "VolumeType": "Mirrored"}), Some("1+0")),
            (json!({"VolumeType": "Mirrored"}), Some("1")),
            (json!({"RAIDType": "RAID6TP", "VolumeType": "StripedWithParity"}), Some("5")),
            (json!({"VolumeType": "RawDevice", "RAIDType": null}), None),
            (json!({}), None),
        ] {
            let volume = RedfishResource { path: String::new(), etag: None, body: body.clone() };
            assert_eq!(RaidLevel::of_volume(&volume).map(|level| level.name), level, "{body}");
        }
    }
}
