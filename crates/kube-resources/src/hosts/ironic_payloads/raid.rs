// SPDX-License-Identifier: Apache-2.0
//! RAID volumes as Ironic's logical disks, and the steps that create them.

use serde_json::{Map, Value, json};

use super::super::bmc_address::NO_RAID;
use super::super::raid::{HardwareRaidVolume, HostRaid, SoftwareRaidVolume};
use super::IronicStep;
use super::root_device::root_device;

/// RAID interface for software RAID.
pub const SOFTWARE_RAID_INTERFACE: &str = "agent";

/// The value of `target_raid_config.logical_disks`, empty if no volume is requested. Without hints
/// the first volume becomes the root volume.
#[must_use]
pub fn logical_disks(raid: &HostRaid, has_root_device_hints: bool) -> Vec<Value> {
    let mut disks: Vec<Map<String, Value>> = match raid.hardware() {
        [] => raid.software().iter().map(software_disk).collect(),
        volumes => volumes.iter().map(hardware_disk).collect(),
    };
    if let Some(first) = disks.first_mut().filter(|_| !has_root_device_hints) {
        first.insert("is_root_volume".to_owned(), json!(true));
    }
    disks.into_iter().map(Value::Object).collect()
}

fn hardware_disk(volume: &HardwareRaidVolume) -> Map<String, Value> {
    let mut disk = Map::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            disk.insert(key.to_owned(), value);
        }
    };
    set("size_gb", Some(size(volume.size_gibibytes)));
    set("raid_level", Some(json!(volume.level)));
    set("volume_name", volume.name.as_ref().map(|name| json!(name)));
    let disk_type = |is_rotational| if is_rotational { "hdd" } else { "ssd" };
    set("disk_type", volume.rotational.map(|rotational| json!(disk_type(rotational))));
    set("number_of_physical_disks", volume.number_of_physical_disks.map(|count| json!(count)));
    set("controller", volume.controller.as_ref().map(|controller| json!(controller)));
    let listed = Some(&volume.physical_disks).filter(|names| !names.is_empty());
    set("physical_disks", listed.map(|names| json!(names)));
    disk
}

fn software_disk(volume: &SoftwareRaidVolume) -> Map<String, Value> {
    let mut disk = Map::from_iter([
        ("size_gb".to_owned(), size(volume.size_gibibytes)),
        ("raid_level".to_owned(), json!(volume.level)),
        ("controller".to_owned(), json!("software")),
    ]);
    if !volume.physical_disks.is_empty() {
        let hints = volume.physical_disks.iter().map(|hints| Value::Object(root_device(hints)));
        disk.insert("physical_disks".to_owned(), hints.collect());
    }
    disk
}

/// Ironic has no volumes of size 0; like a missing size it means as large as possible.
fn size(gibibytes: Option<i64>) -> Value {
    match gibibytes {
        None | Some(0) => json!("MAX"),
        Some(size) => json!(size),
    }
}

/// The RAID interface that the node needs to get from the applied to the requested volumes.
/// `driver_interface` is that of the BMC type.
#[must_use]
pub fn raid_interface<'a>(
    driver_interface: &'a str,
    requested: Option<&HostRaid>,
    applied: Option<&HostRaid>,
) -> &'a str {
    let Some(requested) = requested else { return driver_interface };
    let creates_software = !requested.software().is_empty();
    // Deletion needs the interface that created the volumes.
    let deletes_software = applied.is_some_and(|applied| !applied.software().is_empty());
    if creates_software || deletes_software { SOFTWARE_RAID_INTERFACE } else { driver_interface }
}

/// The steps that replace the applied by the requested volumes; none if nothing changes.
///
/// `create_configuration` keeps existing volumes, so it always follows `delete_configuration`.
#[must_use]
pub fn raid_clean_steps(
    driver_interface: &str,
    requested: Option<&HostRaid>,
    applied: Option<&HostRaid>,
) -> Vec<IronicStep> {
    let Some(requested) = requested else { return Vec::new() };
    let step = IronicStep::without_arguments;
    let delete = step("raid", "delete_configuration");
    let create = step("raid", "create_configuration");
    if let Some(volumes) = &requested.software_volumes {
        let applied = applied.and_then(|applied| applied.software_volumes.as_ref());
        let is_applied =
            applied == Some(volumes) || (volumes.is_empty() && applied.is_none_or(Vec::is_empty));
        return match (is_applied, volumes.is_empty()) {
            (true, _) => Vec::new(),
            (false, true) => vec![delete, step("deploy", "erase_devices_metadata")],
            (false, false) => vec![delete, step("deploy", "erase_devices_metadata"), create],
        };
    }
    let Some(volumes) = &requested.hardware_volumes else { return Vec::new() };
    let applied = applied.and_then(|applied| applied.hardware_volumes.as_ref());
    match (driver_interface == NO_RAID || applied == Some(volumes), volumes.is_empty()) {
        (true, _) => Vec::new(),
        (false, true) => vec![delete],
        (false, false) => vec![delete, create],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raid(value: Value) -> HostRaid {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn volumes_become_logical_disks() {
        let check = |volumes: Value, has_hints: bool, expected: Value| {
            assert_eq!(Value::Array(logical_disks(&raid(volumes), has_hints)), expected);
        };
        check(json!({}), false, json!([]));
        check(json!({"hardwareRAIDVolumes": []}), false, json!([]));
        check(
            json!({"hardwareRAIDVolumes": [
                {"level": "1", "name": "root", "sizeGibibytes": 100, "rotational": false,
                 "numberOfPhysicalDisks": 2, "controller": "C", "physicalDisks": ["a", "b"]},
                {"level": "5+0", "rotational": true, "sizeGibibytes": 0},
            ]}),
            false,
            json!([
                {"size_gb": 100, "raid_level": "1", "volume_name": "root", "disk_type": "ssd",
                 "number_of_physical_disks": 2, "controller": "C", "physical_disks": ["a", "b"],
                 "is_root_volume": true},
                {"size_gb": "MAX", "raid_level": "5+0", "disk_type": "hdd"},
            ]),
        );
        check(
            json!({"softwareRAIDVolumes": [
                {"level": "1", "sizeGibibytes": 10, "physicalDisks": [
                    {"deviceName": "/dev/sda"}, {"minSizeGigabytes": 50}]},
                {"level": "0"},
            ]}),
            true,
            json!([
                {"size_gb": 10, "raid_level": "1", "controller": "software",
                 "physical_disks": [{"name": "s== /dev/sda"}, {"size": ">= 50"}]},
                {"size_gb": "MAX", "raid_level": "0", "controller": "software"},
            ]),
        );
    }

    #[test]
    fn steps_replace_applied_volumes() {
        let software = || json!({"softwareRAIDVolumes": [{"level": "1"}]});
        let no_software = || json!({"softwareRAIDVolumes": []});
        let hardware = || json!({"hardwareRAIDVolumes": [{"level": "5"}]});
        let no_hardware = || json!({"hardwareRAIDVolumes": []});
        for (driver, requested, applied, interface, expected) in [
            ("redfish", None, Some(hardware()), "redfish", ""),
            ("redfish", Some(json!({})), Some(hardware()), "redfish", ""),
            ("redfish", Some(hardware()), None, "redfish", "delete create"),
            ("redfish", Some(hardware()), Some(hardware()), "redfish", ""),
            ("redfish", Some(no_hardware()), Some(hardware()), "redfish", "delete"),
            ("redfish", Some(no_hardware()), None, "redfish", "delete"),
            ("redfish", Some(no_hardware()), Some(no_hardware()), "redfish", ""),
            ("no-raid", Some(no_hardware()), None, "no-raid", ""),
            ("redfish", Some(software()), None, "agent", "delete erase create"),
            ("no-raid", Some(software()), Some(software()), "agent", ""),
            ("redfish", Some(no_software()), Some(software()), "agent", "delete erase"),
            ("redfish", Some(no_software()), None, "redfish", ""),
            ("redfish", Some(hardware()), Some(software()), "agent", "delete create"),
        ] {
            let (requested, applied) = (requested.map(raid), applied.map(raid));
            let steps = raid_clean_steps(driver, requested.as_ref(), applied.as_ref());
            let names: Vec<&str> =
                steps.iter().filter_map(|step| step.step.split('_').next()).collect();
            let case = format!("{driver} {requested:?} {applied:?}");
            assert_eq!(names.join(" "), expected, "{case}");
            let chosen = raid_interface(driver, requested.as_ref(), applied.as_ref());
            assert_eq!(chosen, interface, "{case}");
        }
    }

    #[test]
    fn steps_have_no_empty_arguments() {
        let steps = raid_clean_steps(
            "redfish",
            Some(&raid(json!({"softwareRAIDVolumes": [{"level": "1"}]}))),
            None,
        );
        assert_eq!(
            json!(steps),
            json!([
                {"interface": "raid", "step": "delete_configuration"},
                {"interface": "deploy", "step": "erase_devices_metadata"},
                {"interface": "raid", "step": "create_configuration"},
            ])
        );
    }
}
