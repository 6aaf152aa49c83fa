// SPDX-License-Identifier: Apache-2.0
//! The RAID interface, and validation of RAID configurations. Steps create and delete logical disks.

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::{BaseInterface, DriverProperty};
use crate::{DriverError, DriverTarget};

/// Logical disks. Steps: `create_configuration`, `delete_configuration`, `apply_configuration`.
#[async_trait]
pub trait RaidInterface: BaseInterface {
    /// Fails if `config` is not a valid target configuration.
    async fn validate_config(
        &self,
        _target: &DriverTarget<'_>,
        config: &Map<String, Value>,
    ) -> Result<(), DriverError> {
        validate_raid_config(config)
    }

    /// The properties of a logical disk; `None` without RAID support.
    fn logical_disk_properties(&self) -> Option<&'static [DriverProperty]> {
        Some(logical_disk_properties())
    }
}

/// The properties of a logical disk, with their descriptions.
#[must_use]
pub const fn logical_disk_properties() -> &'static [DriverProperty] {
    &[
        (
            "raid_level",
            "RAID level: 'JBOD', '0', '1', '2', '5', '6', '1+0', '5+0' or '6+0'. Required.",
        ),
        ("size_gb", "Size in GiB, or 'MAX' for all the space that is left. Required."),
        ("volume_name", "Name of the volume; one is made up if it is not given. Optional."),
        ("is_root_volume", "Whether the operating system goes here; false if not given. Optional."),
        (
            "share_physical_disks",
            "Whether other logical disks may use the same physical disks; false if not given. Optional.",
        ),
        ("disk_type", "Use only physical disks of this type: 'hdd' or 'ssd'. Optional."),
        (
            "interface_type",
            "Use only physical disks with this interface: 'sata', 'scsi' or 'sas'. Optional.",
        ),
        (
            "number_of_physical_disks",
            "How many physical disks to use; the fewest the level needs if not given. Optional.",
        ),
        (
            "controller",
            "The RAID controller to use; the driver chooses one if not given. Optional.",
        ),
        (
            "physical_disks",
            "The physical disks to use; the driver chooses them if not given. Needs 'controller'. Optional.",
        ),
    ]
}

/// `capabilities` with `raid_level` set to the level of the root volume.
pub fn with_raid_level(capabilities: &str, level: &str) -> String {
    let others = capabilities.split(',').filter(|capability| {
        !capability.is_empty() && capability.split(':').next().map(str::trim) != Some("raid_level")
    });
    let level = format!("raid_level:{level}");
    others.chain(std::iter::once(level.as_str())).collect::<Vec<_>>().join(",")
}

/// Fails if `config` is not `{"logical_disks": [...]}` with valid disks.
pub fn validate_raid_config(config: &Map<String, Value>) -> Result<(), DriverError> {
    if let Some(unknown) = config.keys().find(|key| *key != "logical_disks") {
        return Err(DriverError::invalid(
            unknown,
            "a RAID configuration holds only 'logical_disks'",
        ));
    }
    let Some(disks) = config.get("logical_disks").and_then(Value::as_array) else {
        return Err(DriverError::missing("logical_disks", "give the list of logical disks"));
    };
    if disks.is_empty() {
        return Err(DriverError::invalid("logical_disks", "give at least one logical disk"));
    }
    let mut root_volumes = 0;
    for (index, disk) in disks.iter().enumerate() {
        let path = format!("logical_disks[{index}]");
        let Some(disk) = disk.as_object() else {
            return Err(DriverError::invalid(path, "a logical disk is an object"));
        };
        validate_logical_disk(&path, disk)?;
        root_volumes += usize::from(disk.get("is_root_volume") == Some(&Value::Bool(true)));
    }
    if root_volumes > 1 {
        return Err(DriverError::invalid(
            "is_root_volume",
            "only one logical disk can be the root volume",
        ));
    }
    Ok(())
}

/// A property's name, its check, and the advice if the check fails.
type RaidFieldRule = (&'static str, fn(&Value) -> bool, &'static str);

const RULES: &[RaidFieldRule] = &[
    ("raid_level", is_raid_level, "use 'JBOD', '0', '1', '2', '5', '6', '1+0', '5+0' or '6+0'"),
    ("size_gb", is_size, "use a whole number of GiB, or 'MAX'"),
    ("volume_name", Value::is_string, "use a string"),
    ("is_root_volume", Value::is_boolean, "use true or false"),
    ("share_physical_disks", Value::is_boolean, "use true or false"),
    ("disk_type", |value| is_one_of(value, &["hdd", "ssd"]), "use 'hdd' or 'ssd'"),
    (
        "interface_type",
        |value| is_one_of(value, &["sata", "scsi", "sas"]),
        "use 'sata', 'scsi' or 'sas'",
    ),
    (
        "number_of_physical_disks",
        |value| value.as_u64().is_some_and(|number| number > 0),
        "use a whole number above zero",
    ),
    ("controller", Value::is_string, "use a string"),
    (
        "physical_disks",
        is_disk_list,
        "use a list of disk names, or a list of at least two objects with hints",
    ),
];

fn validate_logical_disk(path: &str, disk: &Map<String, Value>) -> Result<(), DriverError> {
    for (key, value) in disk {
        let Some((_, is_valid, advice)) = RULES.iter().find(|(name, ..)| name == key) else {
            let known: Vec<_> = RULES.iter().map(|(name, ..)| *name).collect();
            return Err(DriverError::invalid(
                format!("{path}.{key}"),
                format!("there is no such property; valid ones are {}", known.join(", ")),
            ));
        };
        if !is_valid(value) {
            return Err(DriverError::invalid(format!("{path}.{key}"), *advice));
        }
    }
    for required in ["raid_level", "size_gb"] {
        if !disk.contains_key(required) {
            return Err(DriverError::missing(
                format!("{path}.{required}"),
                "every logical disk needs it",
            ));
        }
    }
    if disk.contains_key("physical_disks") && !disk.contains_key("controller") {
        return Err(DriverError::missing(
            format!("{path}.controller"),
            "'physical_disks' needs it",
        ));
    }
    Ok(())
}

fn is_raid_level(value: &Value) -> bool {
    is_one_of(value, &["JBOD", "0", "1", "2", "5", "6", "1+0", "5+0", "6+0"])
}

fn is_size(value: &Value) -> bool {
    value.is_u64() || value == "MAX"
}

fn is_disk_list(value: &Value) -> bool {
    const MIN_HINTS: usize = 2;
    value.as_array().is_some_and(|disks| {
        disks.iter().all(Value::is_string)
            || (disks.len() >= MIN_HINTS && disks.iter().all(Value::is_object))
    })
}

fn is_one_of(value: &Value, choices: &[&str]) -> bool {
    value.as_str().is_some_and(|text| choices.contains(&text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(config: Value) -> Result<(), String> {
        let Value::Object(config) = config else { panic!("{config} is not an object") };
        validate_raid_config(&config).map_err(|error| error.to_string())
    }

    #[test]
    fn accepts_valid_configurations() {
        for disks in [
            json!([{"raid_level": "1", "size_gb": 100, "is_root_volume": true}]),
            json!([{"raid_level": "5+0", "size_gb": "MAX", "controller": "c", "physical_disks": ["a"]}]),
            json!([{"raid_level": "JBOD", "size_gb": 0}, {"raid_level": "0", "size_gb": 5, "disk_type": "ssd"}]),
        ] {
            assert_eq!(check(json!({ "logical_disks": disks.clone() })), Ok(()), "{disks}");
        }
    }

    #[test]
    fn rejects_invalid_configurations_and_names_the_key() {
        for (disks, key) in [
            (json!([]), "logical_disks"),
            (json!([1]), "logical_disks[0]"),
            (json!([{"size_gb": 1}]), "raid_level"),
            (json!([{"raid_level": "1"}]), "size_gb"),
            (json!([{"raid_level": "9", "size_gb": 1}]), "raid_level"),
            (json!([{"raid_level": "1", "size_gb": -1}]), "size_gb"),
            (json!([{"raid_level": "1", "size_gb": "max"}]), "size_gb"),
            (json!([{"raid_level": "1", "size_gb": 1, "color": "red"}]), "color"),
            (json!([{"raid_level": "1", "size_gb": 1, "number_of_physical_disks": 0}]), "number"),
            (json!([{"raid_level": "1", "size_gb": 1, "physical_disks": ["a"]}]), "controller"),
            (
                json!([{"raid_level": "1", "size_gb": 1, "controller": "c", "physical_disks": [{}]}]),
                "physical_disks",
            ),
            (
                json!([{"raid_level": "1", "size_gb": 1, "is_root_volume": true},
                       {"raid_level": "1", "size_gb": 1, "is_root_volume": true}]),
                "is_root_volume",
            ),
        ] {
            let message = check(json!({ "logical_disks": disks.clone() })).expect_err("refused");
            assert!(message.contains(key), "{disks}: {message}");
        }
        assert!(check(json!({})).is_err());
        assert!(
            check(json!({"logical_disks": [{"raid_level": "1", "size_gb": 1}], "x": 1})).is_err()
        );
    }

    #[test]
    fn every_property_has_a_rule_and_a_description() {
        let described: Vec<_> = logical_disk_properties().iter().map(|(name, _)| *name).collect();
        let ruled: Vec<_> = RULES.iter().map(|(name, ..)| *name).collect();
        assert_eq!(described, ruled);
    }
}
