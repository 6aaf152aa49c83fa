// SPDX-License-Identifier: Apache-2.0
//! The logical disks an operator asks for, and which drives they may be on.

use serde_json::{Map, Value};

use super::hardware::Drive;
use super::levels::{LEVELS, Level};
use crate::Error;

/// Bytes in a GiB, the unit of a RAID configuration.
pub(super) const GIB: u64 = 1 << 30;

/// A logical disk that is asked for.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// Its place in the configuration, for messages.
    pub(super) place: usize,
    pub(super) level: &'static Level,
    /// Its size; none for all there is.
    pub(super) bytes: Option<u64>,
    pub(super) name: Option<String>,
    /// Whether the operating system goes here.
    pub(super) root: bool,
    /// Whether its drives may hold other logical disks too.
    pub(super) share: bool,
    /// Only drives of this media type.
    pub(super) media: Option<String>,
    /// Only drives with this interface.
    pub(super) protocol: Option<String>,
    /// Exactly so many drives.
    pub(super) count: Option<usize>,
    /// Only drives of this controller.
    pub(super) controller: Option<String>,
    /// Only these drives.
    pub(super) drives: Option<Choice>,
}

/// The drives an operator chose.
#[derive(Debug, Clone)]
pub(super) enum Choice {
    /// By name.
    Named(Vec<String>),
    /// By what they are like, one hint per drive.
    Like(Vec<Map<String, Value>>),
}

/// Which of the logical disks are to be created.
#[derive(Debug, Clone, Copy)]
pub(super) struct Selection {
    pub(super) root: bool,
    pub(super) others: bool,
}

impl Wanted {
    /// The logical disks of a configuration that is well formed.
    pub(super) fn read(
        config: &Map<String, Value>,
        selection: Selection,
    ) -> Result<Vec<Self>, Error> {
        let disks = config.get("logical_disks").and_then(Value::as_array);
        let mut wanted = Vec::new();
        for (place, disk) in disks.into_iter().flatten().enumerate() {
            let disk = Self::of(place, disk)?;
            if if disk.root { selection.root } else { selection.others } {
                wanted.push(disk);
            }
        }
        if wanted.is_empty() {
            return Err(Error::missing(
                "logical_disks",
                "none is left to create; look at create_root_volume, create_nonroot_volumes and \
                 is_root_volume",
            ));
        }
        Ok(wanted)
    }

    fn of(place: usize, disk: &Value) -> Result<Self, Error> {
        let text = |key: &str| disk.get(key).and_then(Value::as_str);
        let flag = |key: &str| disk.get(key).and_then(Value::as_bool).unwrap_or(false);
        let level = text("raid_level").unwrap_or_default();
        let level = Level::named(level).ok_or_else(|| {
            let known: Vec<_> = LEVELS.iter().map(|level| level.name).collect();
            Error::invalid(
                format!("logical_disks[{place}].raid_level"),
                format!("'{level}' cannot be had over Redfish; use one of {}", known.join(", ")),
            )
        })?;
        let count = disk.get("number_of_physical_disks").and_then(Value::as_u64);
        let lower = |key: &str| text(key).map(str::to_ascii_lowercase);
        Ok(Self {
            place,
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

    /// Whether a drive is of the kind asked for.
    pub(super) fn fits(&self, drive: &Drive) -> bool {
        self.media.as_ref().is_none_or(|media| drive.media == *media)
            && self.protocol.as_ref().is_none_or(|protocol| drive.protocol == *protocol)
    }

    /// What is asked for, in words.
    pub(super) fn words(&self) -> String {
        let size = match self.bytes {
            Some(bytes) => format!("{} GiB", bytes / GIB),
            None => "all the space there is".to_owned(),
        };
        format!("logical disk {} (RAID {}, {size})", self.place, self.level.name)
    }
}

/// Whether a drive is like a hint says. An unknown key is the error.
pub(super) fn is_like(drive: &Drive, hint: &Map<String, Value>) -> Result<bool, String> {
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
            "size" => compares(drive.bytes / GIB, &wanted),
            "rotational" => (drive.media == "hdd").to_string() == wanted.to_ascii_lowercase(),
            "id" | "name" => drive.is_called(&wanted),
            "model" => reads(&drive.model, &wanted),
            "vendor" => reads(&drive.vendor, &wanted),
            "serial" => reads(&drive.serial, &wanted),
            "disk_type" => reads(&drive.media, &wanted),
            "interface_type" => reads(&drive.protocol, &wanted),
            other => {
                return Err(format!(
                    "'{other}' is not known of drives; use size, rotational, name, model, vendor, \
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

fn choice(value: Option<&Value>) -> Option<Choice> {
    let list = value?.as_array().filter(|list| !list.is_empty())?;
    if list.iter().all(Value::is_string) {
        return Some(Choice::Named(
            list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        ));
    }
    Some(Choice::Like(list.iter().filter_map(Value::as_object).cloned().collect()))
}

/// Whether a size in GiB is as `wanted` says: `100`, `>= 100`, `< 500`.
fn compares(gib: u64, wanted: &str) -> bool {
    type Order = (&'static str, fn(u64, u64) -> bool);
    const ORDERS: &[Order] = &[
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

/// Whether a text is as `wanted` says: the text itself in any case, `<in>` part of it, or one of
/// several after `<or>`.
fn reads(text: &str, wanted: &str) -> bool {
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
    fn hints() {
        let drive = Drive {
            id: "0".to_owned(),
            name: "Bay 1".to_owned(),
            bytes: 500 * GIB,
            media: "ssd".to_owned(),
            model: "PM1643".to_owned(),
            ..Drive::default()
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
            let found = is_like(&drive, hint.as_object().unwrap()).map_err(|_| ());
            assert_eq!(found, expected, "{hint}");
        }
    }

    #[test]
    fn what_is_asked_for() {
        let config = json!({"logical_disks": [
            {"raid_level": "1", "size_gb": 100, "is_root_volume": true},
            {"raid_level": "5", "size_gb": "MAX", "disk_type": "HDD", "volume_name": "data"},
        ]});
        let read =
            |root, others| Wanted::read(config.as_object().unwrap(), Selection { root, others });
        let all = read(true, true).unwrap();
        assert_eq!(all[0].words(), "logical disk 0 (RAID 1, 100 GiB)");
        assert_eq!(all[1].words(), "logical disk 1 (RAID 5, all the space there is)");
        assert_eq!(read(true, false).unwrap().len(), 1);
        assert_eq!(read(false, true).unwrap()[0].name.as_deref(), Some("data"));
        assert!(read(false, false).unwrap_err().to_string().contains("create_root_volume"));
        let odd = json!({"logical_disks": [{"raid_level": "JBOD", "size_gb": 1}]});
        let all = Selection { root: true, others: true };
        let error = Wanted::read(odd.as_object().unwrap(), all).unwrap_err().to_string();
        assert!(error.contains("'JBOD'") && error.contains("1+0"), "{error}");
    }
}
