// SPDX-License-Identifier: Apache-2.0
//! Requested logical disks, and matching of drives against them.

use drivers::DriverError;
use serde_json::{Map, Value};

use super::levels::{LEVELS, RaidLevel};
use super::storage::RaidDrive;

/// Bytes in a GiB, the unit of a RAID configuration.
pub(super) const GIB: u64 = 1 << 30;

/// A requested logical disk.
#[derive(Debug, Clone)]
pub(super) struct RequestedLogicalDisk {
    /// Its index in the configuration, for messages.
    pub(super) index: usize,
    pub(super) level: &'static RaidLevel,
    /// Its size; `None` for the maximum.
    pub(super) bytes: Option<u64>,
    pub(super) name: Option<String>,
    /// Whether it is the root volume.
    pub(super) root: bool,
    /// Whether its drives may hold other logical disks too.
    pub(super) share: bool,
    /// Only drives of this media type.
    pub(super) media: Option<String>,
    /// Only drives with this interface.
    pub(super) protocol: Option<String>,
    /// The exact number of drives.
    pub(super) count: Option<usize>,
    /// Only drives of this controller.
    pub(super) controller: Option<String>,
    /// Only these drives.
    pub(super) drives: Option<DriveChoice>,
}

/// The drives that the operator selected.
#[derive(Debug, Clone)]
pub(super) enum DriveChoice {
    /// By name.
    Named(Vec<String>),
    /// By properties, one hint per drive.
    Hints(Vec<Map<String, Value>>),
}

/// Which logical disks are created.
#[derive(Debug, Clone, Copy)]
pub(super) struct VolumeSelection {
    pub(super) root: bool,
    pub(super) others: bool,
}

impl RequestedLogicalDisk {
    /// Parses the logical disks of a validated configuration.
    pub(super) fn read(
        config: &Map<String, Value>,
        selection: VolumeSelection,
    ) -> Result<Vec<Self>, DriverError> {
        let disks = config.get("logical_disks").and_then(Value::as_array);
        let mut wanted = Vec::new();
        for (index, disk) in disks.into_iter().flatten().enumerate() {
            let disk = Self::parse_disk(index, disk)?;
            if if disk.root { selection.root } else { selection.others } {
                wanted.push(disk);
            }
        }
        if wanted.is_empty() {
            return Err(DriverError::missing(
                "logical_disks",
                "no logical disk is left to create; check create_root_volume, create_nonroot_volumes and \
                 is_root_volume",
            ));
        }
        Ok(wanted)
    }

    fn parse_disk(index: usize, disk: &Value) -> Result<Self, DriverError> {
        let text = |key: &str| disk.get(key).and_then(Value::as_str);
        let flag = |key: &str| disk.get(key).and_then(Value::as_bool).unwrap_or(false);
        let level = text("raid_level").unwrap_or_default();
        let level = RaidLevel::named(level).ok_or_else(|| {
            let known: Vec<_> = LEVELS.iter().map(|level| level.name).collect();
            DriverError::invalid(
                format!("logical_disks[{index}].raid_level"),
                format!("'{level}' is not supported over Redfish; use one of {}", known.join(", ")),
            )
        })?;
        let count = disk.get("number_of_physical_disks").and_then(Value::as_u64);
        let lower = |key: &str| text(key).map(str::to_ascii_lowercase);
        Ok(Self {
            index,
            level,
            bytes: disk.get("size_gb").and_then(Value::as_u64).map(|gib| gib.saturating_mul(GIB)),
            name: text("volume_name").map(str::to_owned),
            root: flag("is_root_volume"),
            share: flag("share_physical_disks"),
            media: lower("disk_type"),
            protocol: lower("interface_type"),
            count: count.map(|count| usize::try_from(count).unwrap_or(usize::MAX)),
            controller: text("controller").map(str::to_owned),
            drives: choice(disk.get("physical_disks")),
        })
    }

    /// Whether a drive has the requested media type and interface.
    pub(super) fn fits(&self, drive: &RaidDrive) -> bool {
        self.media.as_ref().is_none_or(|media| drive.media == *media)
            && self.protocol.as_ref().is_none_or(|protocol| drive.protocol == *protocol)
    }

    /// Describes the disk, for messages.
    pub(super) fn description(&self) -> String {
        let size = match self.bytes {
            Some(bytes) => format!("{} GiB", bytes / GIB),
            None => "maximum size".to_owned(),
        };
        format!("logical disk {} (RAID {}, {size})", self.index, self.level.name)
    }
}

/// Whether a drive matches a hint. Fails for an unknown key.
pub(super) fn matches_hint(drive: &RaidDrive, hint: &Map<String, Value>) -> Result<bool, String> {
    for (key, wanted) in hint {
        let wanted = match wanted {
            Value::String(text) => text.trim().to_owned(),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => wanted.to_string(),
        };
        let fits = match key.as_str() {
            "size" => size_matches(drive.bytes / GIB, &wanted),
            "rotational" => (drive.media == "hdd").to_string() == wanted.to_ascii_lowercase(),
            "id" | "name" => drive.is_called(&wanted),
            "model" => text_matches(&drive.model, &wanted),
            "vendor" => text_matches(&drive.vendor, &wanted),
            "serial" => text_matches(&drive.serial, &wanted),
            "disk_type" => text_matches(&drive.media, &wanted),
            "interface_type" => text_matches(&drive.protocol, &wanted),
            other => {
                return Err(format!(
                    "unknown drive hint '{other}'; use size, rotational, name, model, vendor, \
                     serial, disk_type or interface_type"
                ));
            }
        };
        if !fits {
            return Ok(false);
        }
    }
    Ok(true)
}

fn choice(value: Option<&Value>) -> Option<DriveChoice> {
    let list = value?.as_array().filter(|list| !list.is_empty())?;
    if list.iter().all(Value::is_string) {
        return Some(DriveChoice::Named(
            list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        ));
    }
    Some(DriveChoice::Hints(list.iter().filter_map(Value::as_object).cloned().collect()))
}

/// Whether a size in GiB matches an expression: `100`, `>= 100`, `< 500`.
fn size_matches(gib: u64, wanted: &str) -> bool {
    type SizeComparison = (&'static str, fn(u64, u64) -> bool);
    const ORDERS: &[SizeComparison] = &[
        (">=", |size, limit| size >= limit),
        ("<=", |size, limit| size <= limit),
        ("==", |size, limit| size == limit),
        ("!=", |size, limit| size != limit),
        ("=", |size, limit| size >= limit),
        (">", |size, limit| size > limit),
        ("<", |size, limit| size < limit),
        ("", |size, limit| size == limit),
    ];
    ORDERS.iter().any(|(sign, holds)| {
        let number = wanted.strip_prefix(sign).and_then(|rest| rest.trim().parse().ok());
        number.is_some_and(|limit| holds(gib, limit))
    })
}

/// Whether a text matches an expression: the same text ignoring case, `<in>` for a substring, or
/// alternatives after `<or>`.
fn text_matches(text: &str, wanted: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let wanted = wanted.to_ascii_lowercase();
    if let Some(part) = wanted.strip_prefix("<in>") {
        text.contains(part.trim())
    } else if wanted.starts_with("<or>") {
        wanted.split("<or>").skip(1).any(|choice| choice.trim() == text)
    } else {
        wanted.strip_prefix("s==").unwrap_or(&wanted).trim() == text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn matches_drive_hints() {
        let drive = RaidDrive {
            id: "0".to_owned(),
            name: "Bay 1".to_owned(),
            bytes: 500 * GIB,
            media: "ssd".to_owned(),
            model: "PM1643".to_owned(),
            ..RaidDrive::default()
        };
        for (hint, expected) in [
            (json!({}), Ok(true)),
            (json!({"size": 500}), Ok(true)),
            (json!({"size": ">= 500", "rotational": false}), Ok(true)),
            (json!({"size": "> 500"}), Ok(false)),
            (json!({"size": "<= 400"}), Ok(false)),
            (json!({"rotational": "True"}), Ok(false)),
            (json!({"model": "pm1643"}), Ok(true)),
            (json!({"model": "<in> 164"}), Ok(true)),
            (json!({"model": "<or> a <or> PM1643"}), Ok(true)),
            (json!({"model": "s== PM"}), Ok(false)),
            (json!({"name": "Bay 1"}), Ok(true)),
            (json!({"hctl": "0:0:0:0"}), Err(())),
        ] {
            let found = matches_hint(&drive, hint.as_object().unwrap()).map_err(|_| ());
            assert_eq!(found, expected, "{hint}");
        }
    }

    #[test]
    fn parses_logical_disks() {
        let config = json!({"logical_disks": [
            {"raid_level": "1", "size_gb": 100, "is_root_volume": true},
            {"raid_level": "5", "size_gb": "MAX", "disk_type": "HDD", "volume_name": "data"},
        ]});
        let read = |root, others| {
            RequestedLogicalDisk::read(
                config.as_object().unwrap(),
                VolumeSelection { root, others },
            )
        };
        let all = read(true, true).unwrap();
        assert_eq!(all[0].description(), "logical disk 0 (RAID 1, 100 GiB)");
        assert_eq!(all[1].description(), "logical disk 1 (RAID 5, maximum size)");
        assert_eq!(read(true, false).unwrap().len(), 1);
        assert_eq!(read(false, true).unwrap()[0].name.as_deref(), Some("data"));
        assert!(read(false, false).unwrap_err().to_string().contains("create_root_volume"));
        let odd = json!({"logical_disks": [{"raid_level": "JBOD", "size_gb": 1}]});
        let all = VolumeSelection { root: true, others: true };
        let error =
            RequestedLogicalDisk::read(odd.as_object().unwrap(), all).unwrap_err().to_string();
        assert!(error.contains("'JBOD'") && error.contains("1+0"), "{error}");
    }
}
