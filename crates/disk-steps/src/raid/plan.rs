// SPDX-License-Identifier: Apache-2.0
//! Validates `target_raid_config` and plans arrays with their disks and partitions.

use std::collections::BTreeMap;
use std::path::PathBuf;

use agent_protocol::{InventoryDisk, RootDeviceHints, parse_bool};
use serde_json::{Map, Value};

use super::{SoftwareRaidError, member_path};

/// Supported levels and their minimum number of disks.
const LEVELS: &[(&str, usize)] = &[("0", 2), ("1", 2), ("1+0", 2), ("5", 3), ("6", 4)];
const MIB: u64 = 1 << 20;

/// Options of [`validate`].
#[derive(Debug, Clone, Copy, Default)]
pub struct RaidOptions<'a> {
    /// Whether the machine boots in UEFI mode.
    pub uefi: bool,
    /// Whether disks get a GPT in BIOS mode as well.
    pub gpt: bool,
    /// Volume names of arrays to keep.
    pub keep: &'a [String],
}

/// Arrays to create.
#[derive(Debug, Clone, PartialEq)]
pub struct RaidPlan {
    /// Arrays, in the order of their partitions.
    pub arrays: Vec<PlannedArray>,
    /// All disks of the arrays.
    pub disks: Vec<String>,
    /// Whether disks get a GPT.
    pub gpt: bool,
    /// Bytes reserved in front of the first partition for boot partitions.
    pub reserved: u64,
    /// The validated configuration.
    pub target: Value,
}

/// An array to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedArray {
    /// Device file.
    pub device: String,
    /// Volume name.
    pub name: String,
    /// RAID level as in Ironic: `1+0`.
    pub level: String,
    /// Size of its partitions in GiB; `None` for the remaining space.
    pub gib: Option<u64>,
    /// Its disks.
    pub disks: Vec<String>,
    /// Its partitions.
    pub members: Vec<PathBuf>,
    /// The `--metadata` argument of mdadm.
    pub metadata: &'static str,
}

/// Validates a configuration against the available disks.
///
/// # Errors
/// Fails with all problems found.
pub fn validate(
    target: &Value,
    disks: &[InventoryDisk],
    options: &RaidOptions<'_>,
) -> Result<RaidPlan, SoftwareRaidError> {
    let empty = Vec::new();
    let logical = target.get("logical_disks").and_then(Value::as_array).unwrap_or(&empty);
    let problems = problems(logical, options);
    if !problems.is_empty() {
        return Err(SoftwareRaidError::Invalid { problems });
    }
    let mut next: BTreeMap<String, u32> = BTreeMap::new();
    let mut arrays = Vec::new();
    let mut problems = Vec::new();
    for (position, (index, logical)) in partition_order(logical).into_iter().enumerate() {
        let level = text(logical, "raid_level").unwrap_or_default();
        let selected = select_disks(logical, disks)?;
        let needed =
            LEVELS.iter().find(|(known, _)| *known == level).map_or(2, |(_, count)| *count);
        let selected = match selected {
            Ok(selected) if selected.len() >= needed => selected,
            Ok(selected) => {
                problems.push(format!(
                    "RAID level {level} needs {needed} disks, and {} are available for logical disk {}",
                    selected.len(),
                    index + 1
                ));
                continue;
            }
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        let members = selected.iter().map(|disk| {
            let number = next.entry(disk.clone()).or_insert(1);
            *number += 1;
            member_path(disk, *number - 1)
        });
        arrays.push(PlannedArray {
            device: format!("/dev/md{position}"),
            name: volume_name(position, logical),
            level,
            gib: size(logical),
            members: members.collect(),
            disks: selected,
            metadata: "--metadata=1",
        });
    }
    if !problems.is_empty() {
        return Err(SoftwareRaidError::Invalid { problems });
    }
    let gpt = options.uefi || options.gpt;
    let reserved = if options.uefi { 550 * MIB } else { 7 * MIB };
    for disk in disks {
        check_room(disk, &arrays, if gpt { reserved } else { 0 })?;
    }
    let disks = next.into_keys().collect();
    Ok(RaidPlan { arrays, disks, gpt, reserved, target: target.clone() })
}

/// Returns the software volumes of a configuration: name, and `is_root_volume` if set.
#[must_use]
pub fn volumes(config: &Value) -> Vec<(String, Option<bool>)> {
    let none = Vec::new();
    let logical = config.get("logical_disks").and_then(Value::as_array).unwrap_or(&none);
    let software: Vec<Value> = logical
        .iter()
        .filter(|disk| text(disk, "controller").as_deref() == Some("software"))
        .cloned()
        .collect();
    let ordered = partition_order(&software).into_iter().enumerate();
    ordered
        .map(|(position, (_, disk))| {
            (volume_name(position, disk), disk.get("is_root_volume").and_then(parse_bool))
        })
        .collect()
}

/// Returns the logical disks in the order of their partitions, with their indexes in the configuration.
/// The one that takes the remaining space comes last.
fn partition_order(logical: &[Value]) -> Vec<(usize, &Value)> {
    let mut order: Vec<(usize, &Value)> = logical.iter().enumerate().collect();
    order.sort_by_key(|(_, disk)| size(disk).is_none());
    order
}

fn volume_name(position: usize, logical: &Value) -> String {
    text(logical, "volume_name").unwrap_or_else(|| format!("md{position}"))
}

/// Fails if the partitions do not fit, before anything is written.
fn check_room(
    disk: &InventoryDisk,
    arrays: &[PlannedArray],
    reserved: u64,
) -> Result<(), SoftwareRaidError> {
    // Space before the first partition, and after the last one for the backup GPT.
    let mut left = disk.size.saturating_sub(reserved + 2 * MIB);
    for array in arrays.iter().filter(|array| array.disks.contains(&disk.name)) {
        let requested = array.gib.map_or(MIB, |gib| gib.saturating_mul(1 << 30));
        left = left.checked_sub(requested).ok_or_else(|| SoftwareRaidError::NoFreeSpace {
            disk: disk.name.clone(),
            gib: array.gib.unwrap_or(0),
        })?;
    }
    Ok(())
}

/// Returns all problems of the logical disks that do not depend on the available disks.
fn problems(logical: &[Value], options: &RaidOptions<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut add = |text: &str| problems.push(text.to_owned());
    if !(1..=2).contains(&logical.len()) {
        add("there must be one or two logical disks");
    }
    let get = |disk: &Value, name: &str| disk.get(name).cloned().unwrap_or(Value::Null);
    if logical.iter().any(|disk| get(disk, "controller") != "software") {
        add("every logical disk must have the controller \"software\"");
    }
    let volume_names: Vec<String> =
        logical.iter().filter_map(|disk| text(disk, "volume_name")).collect();
    if volume_names.iter().enumerate().any(|(index, name)| volume_names[..index].contains(name)) {
        add("two logical disks have the same volume_name");
    }
    if !options.keep.is_empty() && volume_names.len() < logical.len() {
        add("every logical disk needs a volume_name, as skip_block_devices names volumes");
    }
    let is_root = |disk: &&Value| get(disk, "is_root_volume") == true;
    if logical.iter().filter(is_root).count() > 1 {
        add("only one logical disk can be the root volume");
    }
    if logical.first().is_some_and(|disk| text(disk, "raid_level").as_deref() != Some("1")) {
        add("the first logical disk must be RAID-1, to boot from");
    }
    for disk in logical {
        let level = text(disk, "raid_level").unwrap_or_default();
        if LEVELS.iter().all(|(known, _)| *known != level) {
            add(&format!("RAID level {level:?} is not possible: use 0, 1, 1+0, 5 or 6"));
        }
        let size = get(disk, "size_gb");
        if size != "MAX" && size.as_u64().is_none_or(|gib| gib == 0) {
            add("size_gb must be a number above zero, or \"MAX\"");
        }
        let hints = get(disk, "physical_disks");
        let is_list = hints
            .as_array()
            .is_some_and(|list| list.len() >= 2 && list.iter().all(Value::is_object));
        if !hints.is_null() && !is_list {
            add("physical_disks must be a list of at least two objects with device hints");
        }
    }
    if logical.iter().filter(|disk| size(disk).is_none()).count() > 1 {
        add("only one logical disk can have the size \"MAX\"");
    }
    problems
}

/// Selects the disks of an array: one per hint, none twice; without hints, all.
fn select_disks(
    logical: &Value,
    disks: &[InventoryDisk],
) -> Result<Result<Vec<String>, String>, SoftwareRaidError> {
    let Some(requested) = logical.get("physical_disks").and_then(Value::as_array) else {
        return Ok(Ok(disks.iter().map(|disk| disk.name.clone()).collect()));
    };
    let fields = |disk: &InventoryDisk| match serde_json::to_value(disk) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Map::new(),
    };
    let mut selected: Vec<String> = Vec::new();
    for hints in requested.iter().filter_map(Value::as_object) {
        let checked = RootDeviceHints::parse(hints)?;
        let free = |disk: &&InventoryDisk| {
            !selected.contains(&disk.name) && checked.matches(&fields(disk))
        };
        let Some(disk) = disks.iter().find(free) else {
            let hints = Value::Object(hints.clone());
            return Ok(Err(format!("no disk is left that matches the hints {hints}")));
        };
        selected.push(disk.name.clone());
    }
    Ok(Ok(selected))
}

fn text(disk: &Value, name: &str) -> Option<String> {
    disk.get(name)?.as_str().map(str::to_owned)
}

/// Returns the size in GiB; `None` for the remaining space.
fn size(disk: &Value) -> Option<u64> {
    disk.get("size_gb")?.as_u64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::raid::create_command;

    fn disks(count: u64) -> Vec<InventoryDisk> {
        let volume_names = ["/dev/sda", "/dev/sdb", "/dev/nvme0n1", "/dev/sdd"].into_iter();
        let sizes = (1..=count).map(|n| (n * 100) << 30);
        let one = |(name, size): (&str, u64)| InventoryDisk {
            name: name.to_owned(),
            size,
            ..InventoryDisk::default()
        };
        volume_names.zip(sizes).map(one).collect()
    }

    fn planned(target: &Value, count: u64) -> Result<RaidPlan, String> {
        let options = RaidOptions { uefi: true, ..RaidOptions::default() };
        validate(target, &disks(count), &options).map_err(|error| error.to_string())
    }

    #[test]
    fn plans_two_arrays_on_all_disks() {
        let target = json!({"logical_disks": [
            {"raid_level": "1", "size_gb": "MAX", "controller": "software", "is_root_volume": true},
            {"raid_level": "1+0", "size_gb": 20, "controller": "software", "volume_name": "data"},
        ]});
        let plan = planned(&target, 3).unwrap();
        let commands: Vec<String> =
            plan.arrays.iter().map(|array| create_command(array).join(" ")).collect();
        assert_eq!(
            commands,
            [
                "--create /dev/md0 --force --run --metadata=1 --level 10 --name data --raid-devices 3 /dev/sda1 /dev/sdb1 /dev/nvme0n1p1",
                "--create /dev/md1 --force --run --metadata=1 --level 1 --name md1 --raid-devices 3 /dev/sda2 /dev/sdb2 /dev/nvme0n1p2",
            ]
        );
        assert_eq!((plan.gpt, plan.reserved), (true, 550 << 20));
        assert_eq!(
            volumes(&target),
            [("data".to_owned(), None), ("md1".to_owned(), Some(true))],
            "named as they are created"
        );
        assert!(volumes(&json!({})).is_empty());
        let hardware = json!({"logical_disks": [{"size_gb": 1, "is_root_volume": true}]});
        assert!(volumes(&hardware).is_empty());
    }

    #[test]
    fn refuses_arrays_that_do_not_fit() {
        let array =
            |size: Value| json!({"raid_level": "1", "size_gb": size, "controller": "software"});
        // The smallest disk has 100 GiB.
        for (sizes, fits) in [
            (vec![json!(99)], true),
            (vec![json!(100)], false),
            (vec![json!(50), json!(50)], false),
            (vec![json!(99), json!("MAX")], true),
            (vec![json!(100), json!("MAX")], false),
        ] {
            let logical: Vec<Value> = sizes.iter().cloned().map(array).collect();
            let planned = planned(&json!({ "logical_disks": logical }), 3);
            assert_eq!(planned.is_ok(), fits, "{sizes:?}: {planned:?}");
            if let Err(error) = planned {
                assert!(error.contains("/dev/sda has no space"), "{error}");
            }
        }
    }

    #[test]
    fn selects_disks_by_hints() {
        let target = json!({"logical_disks": [{
            "raid_level": "1", "size_gb": 50, "controller": "software",
            "physical_disks": [{"size": ">= 100"}, {"name": "/dev/sda"}],
        }]});
        // The first hint selects /dev/sda, so no disk is left for the second.
        assert!(planned(&target, 3).unwrap_err().contains("no disk is left"));
        let target = json!({"logical_disks": [{
            "raid_level": "1", "size_gb": 50, "controller": "software",
            "physical_disks": [{"size": ">= 200"}, {"name": "/dev/sda"}],
        }]});
        let plan = planned(&target, 3).unwrap();
        assert_eq!(plan.arrays[0].disks, ["/dev/sdb", "/dev/sda"]);
        assert_eq!(plan.disks, ["/dev/sda", "/dev/sdb"]);
    }

    #[test]
    fn reports_all_problems() {
        let check = |target: Value, count, part: &str| {
            let error = planned(&target, count).unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        check(json!({}), 2, "one or two logical disks");
        let array = |level: &str, size: Value| json!({"raid_level": level, "size_gb": size, "controller": "software"});
        let two = |one: Value, other: Value| json!({"logical_disks": [one, other]});
        check(
            two(array("5", json!(1)), array("1", json!(1))),
            4,
            "first logical disk must be RAID-1",
        );
        check(two(array("1", json!("MAX")), array("0", json!("MAX"))), 4, "only one logical disk");
        check(two(array("1", json!(0)), array("7", json!(1))), 4, "\"7\" is not possible");
        check(two(array("1", json!(9)), array("5", json!(1))), 2, "level 5 needs 3 disks");
        check(two(array("1", json!(9)), array("6", json!(1))), 3, "level 6 needs 4 disks");
        check(two(array("1", json!(9)), json!({"raid_level": "0", "size_gb": 1})), 4, "controller");
    }
}
