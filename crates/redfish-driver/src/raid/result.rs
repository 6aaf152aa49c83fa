// SPDX-License-Identifier: Apache-2.0
//! The node changes that record volumes.

use drivers::{DriverTarget, NodeChanges};
use node_model::JsonObject;
use serde_json::{Map, Value, json};

use super::CreatedVolume;
use super::plan::same_path;
use super::requested_disks::GIB;
use super::storage::RedfishRaidVolume;

/// Returns the changes for these volumes, each with the id of its controller. `created` marks the
/// root volume.
pub(super) fn changes(
    target: &DriverTarget<'_>,
    volumes: &[(&str, RedfishRaidVolume)],
    created: &[CreatedVolume],
) -> NodeChanges {
    let capabilities = target.node.properties.get_str("capabilities").unwrap_or_default();
    let now = target.now.to_string();
    let mut changes = NodeChanges::none();
    let mut disks = Vec::new();
    for (controller, volume) in volumes {
        let created = created.iter().find(|created| same_path(&created.path, &volume.path));
        let reported = volume.level.map(|level| level.name);
        let Some(level) = reported.or(created.map(|created| created.level.as_str())) else {
            continue;
        };
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
        if created.is_some_and(|created| created.root) {
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
        // Without volumes the stored root device no longer exists.
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

/// Controller and id of the volumes recorded in `raid_config`.
pub(super) fn recorded(target: &DriverTarget<'_>) -> Vec<(String, String)> {
    let Some(Value::Array(disks)) = target.node.raid_config.get("logical_disks") else {
        return Vec::new();
    };
    let text = |disk: &Value, key: &str| Some(disk.get(key)?.as_str()?.to_owned());
    disks.iter().filter_map(|disk| Some((text(disk, "controller")?, text(disk, "id")?))).collect()
}

/// The root device hint of a volume. Linux reports a WWN of up to 16 digits as `wwn`; a longer one is
/// unique only with its extension.
fn hint(volume: &RedfishRaidVolume) -> Option<Value> {
    const SHORT: usize = "0x".len() + 16;
    let wwn = volume.wwn.as_deref()?;
    let key = if wwn.len() <= SHORT { "wwn" } else { "wwn_with_extension" };
    Some(json!({ key: wwn }))
}

/// Replaces the RAID level in the capabilities.
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
    fn builds_root_device_hint_and_capabilities() {
        let volume = |wwn: Option<&str>| RedfishRaidVolume {
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
