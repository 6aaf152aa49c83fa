// SPDX-License-Identifier: Apache-2.0
//! RAID levels: what operators and Redfish call them, how many drives they take, and how much of
//! those is left for data.

use redfish::Resource;

/// A RAID level that can be asked of a Redfish BMC.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Level {
    /// As operators write it.
    pub(super) name: &'static str,
    /// As Redfish calls it.
    pub(super) raid_type: &'static str,
    /// As Redfish called it before there were RAID types.
    pub(super) volume_type: &'static str,
    /// The fewest drives it takes.
    pub(super) fewest: usize,
    /// The most drives it takes.
    most: usize,
    /// Drives come in such bundles.
    bundle: usize,
    /// How the drives' space is used up.
    redundancy: Redundancy,
}

#[derive(Debug, PartialEq, Eq)]
enum Redundancy {
    /// So many drives' worth of space is lost.
    Drives(usize),
    /// Half of the space is lost.
    Half,
}

/// More drives than any controller has.
const ANY: usize = 1000;

/// All levels. A volume that only has an old type counts as the first level with it.
pub(super) const LEVELS: &[Level] = &[
    Level {
        name: "0",
        raid_type: "RAID0",
        volume_type: "NonRedundant",
        fewest: 1,
        most: ANY,
        bundle: 1,
        redundancy: Redundancy::Drives(0),
    },
    Level {
        name: "1",
        raid_type: "RAID1",
        volume_type: "Mirrored",
        fewest: 2,
        most: 2,
        bundle: 2,
        redundancy: Redundancy::Half,
    },
    Level {
        name: "5",
        raid_type: "RAID5",
        volume_type: "StripedWithParity",
        fewest: 3,
        most: ANY,
        bundle: 1,
        redundancy: Redundancy::Drives(1),
    },
    Level {
        name: "6",
        raid_type: "RAID6",
        volume_type: "StripedWithParity",
        fewest: 4,
        most: ANY,
        bundle: 1,
        redundancy: Redundancy::Drives(2),
    },
    Level {
        name: "1+0",
        raid_type: "RAID10",
        volume_type: "SpannedMirrors",
        fewest: 4,
        most: ANY,
        bundle: 2,
        redundancy: Redundancy::Half,
    },
    Level {
        name: "5+0",
        raid_type: "RAID50",
        volume_type: "SpannedStripesWithParity",
        fewest: 6,
        most: ANY,
        bundle: 2,
        redundancy: Redundancy::Drives(2),
    },
    Level {
        name: "6+0",
        raid_type: "RAID60",
        volume_type: "SpannedStripesWithParity",
        fewest: 8,
        most: ANY,
        bundle: 2,
        redundancy: Redundancy::Drives(4),
    },
];

impl Level {
    /// The level operators call so.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        LEVELS.iter().find(|level| level.name == name)
    }

    /// The level of a volume; none for a drive that is passed through as it is.
    pub(super) fn of(volume: &Resource) -> Option<&'static Self> {
        let by = |key, field: fn(&Level) -> &'static str| {
            let name = volume.text(key)?;
            LEVELS.iter().find(|level| field(level) == name)
        };
        by("/RAIDType", |level| level.raid_type)
            .or_else(|| by("/VolumeType", |level| level.volume_type))
    }

    /// Whether it can be built on so many drives.
    pub(super) fn takes(&self, drives: usize) -> bool {
        drives >= self.fewest && drives <= self.most && drives.is_multiple_of(self.bundle)
    }

    /// The numbers of drives it can be built on, of so many at most.
    pub(super) fn counts(&self, at_most: usize) -> impl Iterator<Item = usize> {
        (self.fewest..=self.most.min(at_most)).filter(|count| self.takes(*count))
    }

    /// How many drives' worth of data fit onto so many drives; at least one.
    pub(super) fn data_drives(&self, drives: usize) -> u64 {
        let data = match self.redundancy {
            Redundancy::Drives(lost) => drives.saturating_sub(lost),
            Redundancy::Half => drives / 2,
        };
        data.max(1) as u64
    }

    /// The drives it takes, in words.
    pub(super) fn needs(&self) -> String {
        match (self.most == self.fewest, self.bundle) {
            (true, _) => format!("exactly {} drives", self.fewest),
            (false, 1) => format!("at least {} drive(s)", self.fewest),
            (false, _) => format!("at least {} drives and an even number of them", self.fewest),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn drives_and_data() {
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
            let level = Level::named(name).unwrap();
            assert_eq!((level.takes(drives), level.data_drives(drives)), (takes, data), "{name}");
        }
        assert_eq!(Level::named("1+0").unwrap().counts(9).collect::<Vec<_>>(), [4, 6, 8]);
        assert_eq!(Level::named("1").unwrap().counts(1).count(), 0);
        assert_eq!(Level::named("JBOD"), None);
    }

    #[test]
    fn levels_of_volumes_old_and_new() {
        for (body, level) in [
            (json!({"RAIDType": "RAID10", "VolumeType": "Mirrored"}), Some("1+0")),
            (json!({"VolumeType": "Mirrored"}), Some("1")),
            (json!({"RAIDType": "RAID6TP", "VolumeType": "StripedWithParity"}), Some("5")),
            (json!({"VolumeType": "RawDevice", "RAIDType": null}), None),
            (json!({}), None),
        ] {
            let volume = Resource { path: String::new(), etag: None, body: body.clone() };
            assert_eq!(Level::of(&volume).map(|level| level.name), level, "{body}");
        }
    }
}
