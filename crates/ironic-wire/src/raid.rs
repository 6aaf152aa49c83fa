// SPDX-License-Identifier: Apache-2.0
//! The logical disks a user wants: `PUT …/states/raid`.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "JSON has six kinds of value and will not get a seventh"
)]

use node_model::JsonObject;
use serde_json::{Map, Value};

use crate::body::parse_object;
use crate::error::{WireError, excerpt};
use crate::value::{Problem, expected, one_of};

/// What a property of a logical disk must look like.
enum Rule {
    Text,
    Flag,
    OneOf(&'static [&'static str]),
    Size,
    Positive,
    PhysicalDisks,
}

const PROPERTIES: &[(&str, Rule)] = &[
    ("raid_level", Rule::OneOf(&["JBOD", "0", "1", "2", "5", "6", "1+0", "5+0", "6+0"])),
    ("size_gb", Rule::Size),
    ("volume_name", Rule::Text),
    ("is_root_volume", Rule::Flag),
    ("share_physical_disks", Rule::Flag),
    ("disk_type", Rule::OneOf(&["hdd", "ssd"])),
    ("interface_type", Rule::OneOf(&["sata", "scsi", "sas"])),
    ("number_of_physical_disks", Rule::Positive),
    ("controller", Rule::Text),
    ("physical_disks", Rule::PhysicalDisks),
];

/// The configuration, checked. The empty one clears what was wanted.
///
/// # Errors
/// 400 saying which disk and which property is wrong.
pub fn parse_raid_config(body: &[u8]) -> Result<JsonObject, WireError> {
    let config = parse_object(body, "RAID configuration")?;
    check(&config).map_err(|problem| problem.in_field("target_raid_config"))?;
    Ok(config.into())
}

fn check(config: &Map<String, Value>) -> Result<(), Problem> {
    if config.is_empty() {
        return Ok(());
    }
    let disks = match config.get("logical_disks") {
        Some(Value::Array(disks)) if !disks.is_empty() => disks,
        Some(Value::Array(_)) => return Err("logical_disks must not be empty".into()),
        Some(other) => return Err(expected("logical_disks to be an array", other)),
        None => return Err("logical_disks is missing".into()),
    };
    if let Some(unknown) = config.keys().find(|key| *key != "logical_disks") {
        return Err(format!("'{}' was not expected", excerpt(unknown)).into());
    }
    let mut roots = 0;
    for (index, disk) in disks.iter().enumerate() {
        check_disk(disk).map_err(|problem| problem.at(format_args!("logical disk {index}")))?;
        roots += usize::from(disk.get("is_root_volume") == Some(&Value::Bool(true)));
    }
    if roots > 1 {
        return Err("only one logical disk can be the root volume".into());
    }
    Ok(())
}

fn check_disk(disk: &Value) -> Result<(), Problem> {
    let Value::Object(disk) = disk else {
        return Err(expected("an object", disk));
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
        check_property(rule, value).map_err(|problem| problem.at(name))?;
    }
    if disk.contains_key("physical_disks") && !disk.contains_key("controller") {
        return Err("physical_disks needs controller as well".into());
    }
    Ok(())
}

fn check_property(rule: &Rule, value: &Value) -> Result<(), Problem> {
    let good = match rule {
        Rule::Text => value.is_string(),
        Rule::Flag => value.is_boolean(),
        Rule::OneOf(words) => {
            return match value {
                Value::String(word) => one_of(word, words),
                other => Err(expected("a string", other)),
            };
        }
        Rule::Size => value.as_u64().is_some() || value == "MAX",
        Rule::Positive => value.as_u64().is_some_and(|number| number > 0),
        Rule::PhysicalDisks => value.as_array().is_some_and(|disks| {
            disks.iter().all(Value::is_string)
                || (disks.len() >= 2 && disks.iter().all(Value::is_object))
        }),
    };
    if good {
        return Ok(());
    }
    Err(match rule {
        Rule::Text | Rule::OneOf(_) => "expected a string".into(),
        Rule::Flag => "expected a boolean".into(),
        Rule::Size => "expected a size in GiB or \"MAX\"".into(),
        Rule::Positive => "expected a positive integer".into(),
        Rule::PhysicalDisks => {
            "expected an array of disk names, or of at least two objects with hints".into()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        for (body, says) in [
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
            match (parse_raid_config(body.as_bytes()), says) {
                (Ok(_), None) => {}
                (Err(error), Some(says)) => {
                    assert_eq!(error.status(), 400);
                    assert!(error.message().contains(says), "{body}: {error}");
                }
                (outcome, _) => panic!("{body}: {outcome:?}"),
            }
        }
    }
}
