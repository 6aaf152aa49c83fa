// SPDX-License-Identifier: Apache-2.0
//! What is written on a node about the volumes it has.

use node_model::JsonObject;
use serde_json::{Map, Value, json};

use super::Made;
use super::hardware::Volume;
use super::plan::same_path;
use super::wanted::GIB;
use crate::{NodeChanges, Target};

/// What to write for these volumes, each with the name of its controller. Those that were made tell
/// which is for the operating system.
pub(super) fn changes(
    target: &Target<'_>,
    volumes: &[(&str, Volume)],
    made: &[Made],
) -> NodeChanges {
    let capabilities = target.node.properties.get_str("capabilities").unwrap_or_default();
    let now = target.now.to_string();
    let mut changes = NodeChanges::none();
    let mut disks = Vec::new();
    for (controller, volume) in volumes {
        let made = made.iter().find(|made| same_path(&made.path, &volume.path));
        let told = volume.level.map(|level| level.name);
        let Some(level) = told.or(made.map(|made| made.level.as_str())) else { continue };
        let mut disk = Map::new();
        let size = volume.bytes / GIB;
        disk.insert("id".to_owned(), volume.id.as_str().into());
        disk.insert("name".to_owned(), volume.name.as_str().into());
        disk.insert("volume_name".to_owned(), volume.name.as_str().into());
        disk.insert("controller".to_owned(), (*controller).into());
        disk.insert("size_gb".to_owned(), size.into());
        disk.insert("raid_level".to_owned(), level.into());
        let hint = hint(volume);
        if let Some(hint) = &hint {
            disk.insert("root_device_hint".to_owned(), hint.clone());
        }
        if made.is_some_and(|made| made.root) {
            disk.insert("is_root_volume".to_owned(), true.into());
            changes.properties.insert("local_gb".to_owned(), size.into());
            if let Some(hint) = hint {
                changes.properties.insert("root_device".to_owned(), hint);
            }
            let capabilities = with_level(&capabilities, level);
            changes.properties.insert("capabilities".to_owned(), capabilities.into());
        }
        disks.push(Value::Object(disk));
    }
    changes.raid_config = Some(if disks.is_empty() {
        // There is no volume left to find the operating system on.
        changes.properties.insert("root_device".to_owned(), Value::Null);
        JsonObject::empty()
    } else {
        let mut config = Map::new();
        config.insert("logical_disks".to_owned(), Value::Array(disks));
        config.insert("last_updated".to_owned(), now.into());
        JsonObject::from(config)
    });
    changes
}

/// Controller and id of the volumes that the node is known to have.
pub(super) fn recorded(target: &Target<'_>) -> Vec<(String, String)> {
    let Some(Value::Array(disks)) = target.node.raid_config.get("logical_disks") else {
        return Vec::new();
    };
    let text = |disk: &Value, key: &str| Some(disk.get(key)?.as_str()?.to_owned());
    disks.iter().filter_map(|disk| Some((text(disk, "controller")?, text(disk, "id")?))).collect()
}

/// How an operating system recognises a volume. Up to sixteen digits are what Linux calls the name;
/// of a longer one only the whole is unique.
fn hint(volume: &Volume) -> Option<Value> {
    const SHORT: usize = "0x".len() + 16;
    let wwn = volume.wwn.as_deref()?;
    let key = if wwn.len() <= SHORT { "wwn" } else { "wwn_with_extension" };
    Some(json!({ key: wwn }))
}

/// The capabilities with this RAID level among them instead of any other.
fn with_level(capabilities: &str, level: &str) -> String {
    let others = capabilities.split(',').filter(|capability| {
        !capability.is_empty() && capability.split(':').next() != Some("raid_level")
    });
    let mut all: Vec<String> = others.map(str::to_owned).collect();
    all.push(format!("raid_level:{level}"));
    all.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_and_capabilities() {
        let volume = |wwn: Option<&str>| Volume {
            id: "1".to_owned(),
            path: "/v/1".to_owned(),
            name: "root".to_owned(),
            level: None,
            bytes: 0,
            drives: Vec::new(),
            wwn: wwn.map(str::to_owned),
        };
        assert_eq!(hint(&volume(None)), None);
        assert_eq!(
            hint(&volume(Some("0x5000c500a1b2c3d4"))),
            Some(json!({"wwn": "0x5000c500a1b2c3d4"}))
        );
        let long = "0x64cd98f0d0c8a1002d3b8a5b0a1b2c3d";
        assert_eq!(hint(&volume(Some(long))), Some(json!({"wwn_with_extension": long})));
        assert_eq!(with_level("", "1"), "raid_level:1");
        assert_eq!(
            with_level("boot_mode:uefi,raid_level:5", "1+0"),
            "boot_mode:uefi,raid_level:1+0"
        );
    }
}
