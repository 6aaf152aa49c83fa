// SPDX-License-Identifier: Apache-2.0
//! Target RAID configuration: `PUT …/states/raid`.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "JSON has six kinds of value and will not get a seventh"
)]

use node_model::JsonObject;
use serde_json::{Map, Value};

use crate::body::parse_object;
use crate::error::{WireError, excerpt};
use crate::value::{ValueError, check_one_of, unexpected_type};

/// Type of a property of a logical disk.
enum RaidPropertyRule {
    Text,
    Flag,
    OneOf(&'static [&'static str]),
    Size,
    Positive,
    PhysicalDisks,
}

const PROPERTIES: &[(&str, RaidPropertyRule)] = &[
    (
        "raid_level",
        RaidPropertyRule::OneOf(&["JBOD", "0", "1", "2", "5", "6", "1+0", "5+0", "6+0"]),
    ),
    ("size_gb", RaidPropertyRule::Size),
    ("volume_name", RaidPropertyRule::Text),
    ("is_root_volume", RaidPropertyRule::Flag),
    ("share_physical_disks", RaidPropertyRule::Flag),
    ("disk_type", RaidPropertyRule::OneOf(&["hdd", "ssd"])),
    ("interface_type", RaidPropertyRule::OneOf(&["sata", "scsi", "sas"])),
    ("number_of_physical_disks", RaidPropertyRule::Positive),
    ("controller", RaidPropertyRule::Text),
    ("physical_disks", RaidPropertyRule::PhysicalDisks),
];

/// Parses and checks the configuration. An empty one clears the target.
///
/// # Errors
/// 400 with the disk and the property that is invalid.
pub fn parse_raid_config(body: &[u8]) -> Result<JsonObject, WireError> {
    let config = parse_object(body, "RAID configuration")?;
    check(&config).map_err(|error| error.in_field("target_raid_config"))?;
    Ok(config.into())
}

fn check(config: &Map<String, Value>) -> Result<(), ValueError> {
    if config.is_empty() {
        return Ok(());
    }
    let disks = match config.get("logical_disks") {
        Some(Value::Array(disks)) if !disks.is_empty() => disks,
        Some(Value::Array(_)) => return Err("logical_disks must not be empty".into()),
        Some(other) => return Err(unexpected_type("logical_disks to be an array", other)),
        None => return Err("logical_disks is missing".into()),
    };
    if let Some(unknown) = config.keys().find(|key| *key != "logical_disks") {
        return Err(format!("'{}' was not expected", excerpt(unknown)).into());
    }
    let mut roots = 0;
    for (index, disk) in disks.iter().enumerate() {
        check_disk(disk).map_err(|error| error.at(format_args!("logical disk {index}")))?;
        roots += usize::from(disk.get("is_root_volume") == Some(&Value::Bool(true)));
    }
    if roots > 1 {
        return Err("only one logical disk can be the root volume".into());
    }
    Ok(())
}

fn check_disk(disk: &Value) -> Result<(), ValueError> {
    let Value::Object(disk) = disk else {
        return Err(unexpected_type("an object", disk));
    };
    for required in ["raid_level", "size_gb"] {
        if !disk.contains_key(required) {
            return Err(format!("{required} is missing").into());
        }
    }
    for (key, value) in disk {
        let Some((name, rule)) = PROPERTIES.iter().find(|(name, _)| name == key) else {
            return Err(format!("'{}' was not expected", excerpt(key)).into());
        };
        check_property(rule, value).map_err(|error| error.at(name))?;
    }
    if disk.contains_key("physical_disks") && !disk.contains_key("controller") {
        return Err("physical_disks needs controller as well".into());
    }
    Ok(())
}

fn check_property(rule: &RaidPropertyRule, value: &Value) -> Result<(), ValueError> {
    let good = match rule {
        RaidPropertyRule::Text => value.is_string(),
        RaidPropertyRule::Flag => value.is_boolean(),
        RaidPropertyRule::OneOf(words) => {
            return match value {
                Value::String(word) => check_one_of(word, words),
                other => Err(unexpected_type("a string", other)),
            };
        }
        RaidPropertyRule::Size => value.as_u64().is_some() || value == "MAX",
        RaidPropertyRule::Positive => value.as_u64().is_some_and(|number| number > 0),
        RaidPropertyRule::PhysicalDisks => value.as_array().is_some_and(|disks| {
            disks.iter().all(Value::is_string)
                || (disks.len() >= 2 && disks.iter().all(Value::is_object))
        }),
    };
    if good {
        return Ok(());
    }
    Err(match rule {
        RaidPropertyRule::Text | RaidPropertyRule::OneOf(_) => "expected a string".into(),
        RaidPropertyRule::Flag => "expected a boolean".into(),
        RaidPropertyRule::Size => "expected a size in GiB or \"MAX\"".into(),
        RaidPropertyRule::Positive => "expected a positive integer".into(),
        RaidPropertyRule::PhysicalDisks => {
            "expected an array of disk names, or of at least two objects with hints".into()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_raid_configuration() {
        for (body, expected) in [
            (r"{}", None),
            (r#"{"logical_disks":[{"size_gb":5,"raid_level":"1"}]}"#, None),
            (
                r#"{"logical_disks":[{"size_gb":"MAX","raid_level":"1+0","controller":"software","physical_disks":[{"size":"> 1"},{"size":"> 1"}]}]}"#,
                None,
            ),
            (r#"{"x":1}"#, Some("logical_disks is missing")),
            (r#"{"logical_disks":[]}"#, Some("must not be empty")),
            (r#"{"logical_disks":[{}]}"#, Some("raid_level is missing")),
            (r#"{"logical_disks":[{"size_gb":"x","raid_level":"1"}]}"#, Some("size_gb")),
            (r#"{"logical_disks":[{"size_gb":5,"raid_level":"9"}]}"#, Some("raid_level: '9'")),
            (
                r#"{"logical_disks":[{"size_gb":5,"raid_level":"1","physical_disks":["a"]}]}"#,
                Some("controller"),
            ),
            (
                r#"{"logical_disks":[{"size_gb":5,"raid_level":"1","is_root_volume":true},{"size_gb":5,"raid_level":"1","is_root_volume":true}]}"#,
                Some("root volume"),
            ),
            (r"[]", Some("object")),
        ] {
            match (parse_raid_config(body.as_bytes()), expected) {
                (Ok(_), None) => {}
                (Err(error), Some(expected)) => {
                    assert_eq!(error.status(), 400);
                    assert!(error.message().contains(expected), "{body}: {error}");
                }
                (result, _) => panic!("{body}: {result:?}"),
            }
        }
    }
}
