// SPDX-License-Identifier: Apache-2.0
//! Selects disks by the properties of a node: protected disks, and the root disk.

use std::path::Path;

use agent_protocol::{InventoryDisk, RootDeviceHints, choose_root_device};
use disk_steps::raid::{self, ExistingArray};
use serde_json::{Map, Value};

use error_chain::error_chain;

/// The disk-related properties of a node.
#[derive(Debug, Default)]
pub(super) struct DiskSelection {
    /// Root device hints.
    root_hints: Option<Map<String, Value>>,
    /// Hints for protected disks.
    protected_disks: Vec<RootDeviceHints>,
    /// Names of protected RAID volumes.
    protected_volumes: Vec<String>,
    /// RAID volumes with an explicit `is_root_volume`, by name.
    volumes: Vec<(String, bool)>,
    /// Whether those volumes were created and must exist.
    volumes_created: bool,
}

impl DiskSelection {
    /// Parses the properties. Malformed ones are errors, because ignoring them could destroy data.
    pub(super) fn from_node(node: &Map<String, Value>) -> Result<Self, String> {
        let mut selection = Self { root_hints: root_hints(node)?, ..Self::default() };
        selection.parse_skip_block_devices(node)?;
        let volumes_of = |name: &str| -> Vec<(String, bool)> {
            let config = node.get(name).map(raid::volumes).unwrap_or_default();
            config.into_iter().filter_map(|(name, is_root)| Some((name, is_root?))).collect()
        };
        selection.volumes = volumes_of("raid_config");
        selection.volumes_created = !selection.volumes.is_empty();
        if !selection.volumes_created {
            selection.volumes = volumes_of("target_raid_config");
        }
        Ok(selection)
    }

    fn parse_skip_block_devices(&mut self, node: &Map<String, Value>) -> Result<(), String> {
        let malformed = |reason: &str| {
            Err(format!(
                "invalid property skip_block_devices: {reason}; it must be a list of objects with hints, or with a volume_name, such as [{{\"serial\": \"X\"}}]"
            ))
        };
        let skipped = property(node, "skip_block_devices");
        let Some(skipped) = skipped.filter(|value| !value.is_null()) else { return Ok(()) };
        let Some(list) = skipped.as_array() else { return malformed("not a list") };
        for entry in list {
            let Some(hints) = entry.as_object() else {
                return malformed(&format!("{entry} is not an object"));
            };
            match hints.get("volume_name") {
                Some(Value::String(name)) => self.protected_volumes.push(name.clone()),
                Some(name) => return malformed(&format!("the volume_name {name} is not a string")),
                // It would match all disks.
                None if hints.is_empty() => return malformed("an entry has no hints"),
                None => match RootDeviceHints::parse(hints) {
                    Ok(hints) => self.protected_disks.push(hints),
                    Err(error) => return malformed(&error.to_string()),
                },
            }
        }
        Ok(())
    }

    /// Returns the names of protected RAID volumes.
    pub(super) fn protected_volumes(&self) -> &[String] {
        &self.protected_volumes
    }

    /// Returns the disks without protected ones.
    pub(super) fn usable_disks(
        &self,
        arrays: &[ExistingArray],
        disks: Vec<InventoryDisk>,
    ) -> Vec<InventoryDisk> {
        let protected = raid::devices_to_keep(arrays, &self.protected_volumes, &disks);
        let is_protected = |disk: &InventoryDisk| {
            if protected.iter().any(|device| device == Path::new(&disk.name)) {
                return true;
            }
            let fields = serde_json::to_value(disk).unwrap_or_default();
            let fields = fields.as_object();
            fields.is_some_and(|fields| {
                self.protected_disks.iter().any(|hints| hints.matches(fields))
            })
        };
        disks.into_iter().filter(|disk| !is_protected(disk)).collect()
    }

    /// Chooses the disk for the operating system: the root volume of the RAID configuration, else the
    /// first that matches the hints, or the smallest. Members of arrays are never chosen.
    pub(super) fn choose_root_disk(
        &self,
        arrays: &[ExistingArray],
        disks: Vec<InventoryDisk>,
    ) -> Result<InventoryDisk, String> {
        let disks = self.usable_disks(arrays, disks);
        let named = |name: &str| arrays.iter().find(|array| array.name.as_deref() == Some(name));
        let mut excluded: Vec<&Path> = Vec::new();
        for (name, is_root) in &self.volumes {
            let array = named(name);
            let device = array.map(|array| array.device.as_path());
            match (device, is_root) {
                (Some(device), true) => {
                    let disk = disks.iter().find(|disk| Path::new(&disk.name) == device);
                    return disk.cloned().ok_or_else(|| {
                        format!("the root volume {name} is protected by skip_block_devices")
                    });
                }
                (None, true) if self.volumes_created => {
                    return Err(format!(
                        "the root volume {name} of raid_config does not exist; check its disks, or create it again with delete_configuration and create_configuration"
                    ));
                }
                (Some(device), false) => excluded.push(device),
                (None, _) => {}
            }
        }
        let array_of = |disk: &InventoryDisk| {
            let path = Path::new(&disk.name);
            arrays.iter().find(|array| array.disks.iter().any(|member| member == path))
        };
        let free: Vec<InventoryDisk> = disks
            .iter()
            .filter(|disk| array_of(disk).is_none())
            .filter(|disk| !excluded.contains(&Path::new(&disk.name)))
            .cloned()
            .collect();
        let failure = match choose_root_device(&free, self.root_hints.as_ref()) {
            Ok(disk) => return Ok(disk.clone()),
            Err(failure) => error_chain(&failure),
        };
        let member = choose_root_device(&disks, self.root_hints.as_ref()).ok();
        match member.and_then(|disk| Some((disk, array_of(disk)?))) {
            Some((disk, array)) => Err(format!(
                "{} is part of the RAID array {}; give hints for the array, or delete it with delete_configuration",
                disk.name,
                array.device.display()
            )),
            None => Err(failure),
        }
    }
}

/// Whether both are the same disk, by name, size, serial number and WWN.
pub(super) fn is_same_disk(one: &InventoryDisk, other: &InventoryDisk) -> bool {
    let identity = |disk: &InventoryDisk| {
        (disk.name.clone(), disk.size, disk.serial.clone(), disk.wwn.clone())
    };
    identity(one) == identity(other)
}

fn property<'a>(node: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    node.get("properties")?.get(name)
}

fn root_hints(node: &Map<String, Value>) -> Result<Option<Map<String, Value>>, String> {
    for field in ["instance_info", "properties"] {
        match node.get(field).and_then(|field| field.get("root_device")) {
            None | Some(Value::Null) => {}
            Some(Value::Object(hints)) if hints.is_empty() => {}
            Some(Value::Object(hints)) => {
                RootDeviceHints::parse(hints).map_err(|error| {
                    format!("invalid root device hints in {field}/root_device: {error}")
                })?;
                return Ok(Some(hints.clone()));
            }
            Some(other) => {
                return Err(format!(
                    "{field}/root_device is {other}, but must be an object with hints, such as {{\"serial\": \"X\"}}"
                ));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::json;

    use super::*;

    fn disk_selection(node: Value) -> Result<DiskSelection, String> {
        DiskSelection::from_node(node.as_object().unwrap())
    }

    fn disk(name: &str, serial: &str, gib: u64) -> InventoryDisk {
        InventoryDisk {
            name: name.to_owned(),
            serial: Some(serial.to_owned()).filter(|serial| !serial.is_empty()),
            size: gib << 30,
            ..InventoryDisk::default()
        }
    }

    fn array(device: &str, name: &str, disks: &[&str]) -> ExistingArray {
        ExistingArray {
            device: device.into(),
            level: "raid1".to_owned(),
            name: Some(name.to_owned()),
            members: Vec::new(),
            disks: disks.iter().map(PathBuf::from).collect(),
        }
    }

    #[test]
    fn protected_disks_are_not_usable() {
        let disks = || {
            let names = [("/dev/sda", "A"), ("/dev/sdb", "B"), ("/dev/sdc", "C"), ("/dev/md0", "")];
            names.map(|(name, serial)| disk(name, serial, 10)).to_vec()
        };
        let arrays = [array("/dev/md0", "data", &["/dev/sdb", "/dev/sdc"])];
        let names = |skip: Value| {
            let selection =
                disk_selection(json!({"properties": {"skip_block_devices": skip}})).unwrap();
            let left = selection.usable_disks(&arrays, disks());
            left.into_iter().map(|disk| disk.name).collect::<Vec<_>>()
        };
        assert_eq!(names(json!([{"serial": "b"}])), ["/dev/sda", "/dev/sdc", "/dev/md0"]);
        assert_eq!(names(json!([{"volume_name": "data"}])), ["/dev/sda"]);
        assert_eq!(names(json!([{"volume_name": "x"}])).len(), 4);
        assert_eq!(names(Value::Null).len(), 4);
        assert_eq!(names(json!([])).len(), 4);
    }

    #[test]
    fn rejects_malformed_properties() {
        for skip in [
            json!("[{\"serial\": \"X\"}]"),
            json!({"serial": "X"}),
            json!(["X"]),
            json!([{}]),
            json!([{"volume_name": 1}]),
            json!([{"colour": "x"}]),
        ] {
            let error =
                disk_selection(json!({"properties": {"skip_block_devices": skip}})).unwrap_err();
            assert!(error.contains("must be a list of objects"), "{error}");
        }
        for root in [json!("{\"serial\": \"X\"}"), json!(["X"]), json!({"colour": "x"})] {
            let error = disk_selection(json!({"properties": {"root_device": root}})).unwrap_err();
            assert!(error.contains("root_device"), "{error}");
        }
        // Empty hints of the instance do not override those of the properties.
        let both = json!({
            "instance_info": {"root_device": {}}, "properties": {"root_device": {"serial": "A"}},
        });
        assert!(disk_selection(both).unwrap().root_hints.is_some());
    }

    #[test]
    fn array_members_are_not_chosen() {
        // The array is larger than its members.
        let arrays = [array("/dev/md0", "md0", &["/dev/sda", "/dev/sdb"])];
        let disks =
            || vec![disk("/dev/sda", "A", 10), disk("/dev/sdb", "B", 10), disk("/dev/md0", "", 20)];
        let none = disk_selection(json!({})).unwrap();
        assert_eq!(none.choose_root_disk(&arrays, disks()).unwrap().name, "/dev/md0");
        assert_eq!(none.choose_root_disk(&[], disks()).unwrap().name, "/dev/sda");
        let hinted =
            disk_selection(json!({"properties": {"root_device": {"serial": "B"}}})).unwrap();
        let error = hinted.choose_root_disk(&arrays, disks()).unwrap_err();
        assert!(error.contains("part of the RAID array /dev/md0"), "{error}");
        assert_eq!(hinted.choose_root_disk(&[], disks()).unwrap().name, "/dev/sdb");
    }

    #[test]
    fn chooses_root_volume() {
        let logical = |root: Value, data: Value| {
            json!({"logical_disks": [
                {"controller": "software", "size_gb": "MAX", "is_root_volume": root},
                {"controller": "software", "size_gb": 20, "volume_name": "data", "is_root_volume": data},
            ]})
        };
        // Device names after a reboot. The volume of size MAX is created last.
        let members = ["/dev/sda", "/dev/sdb"];
        let arrays = [array("/dev/md126", "data", &members), array("/dev/md127", "md1", &members)];
        let disks = || vec![disk("/dev/md126", "", 20), disk("/dev/md127", "", 80)];
        let chosen = |node: Value, arrays: &[ExistingArray]| {
            disk_selection(node).unwrap().choose_root_disk(arrays, disks()).map(|disk| disk.name)
        };
        let marked = || logical(json!(true), Value::Null);
        assert_eq!(chosen(json!({}), &arrays).unwrap(), "/dev/md126");
        assert_eq!(chosen(json!({"raid_config": marked()}), &arrays).unwrap(), "/dev/md127");
        assert_eq!(chosen(json!({"target_raid_config": marked()}), &arrays).unwrap(), "/dev/md127");
        let not_data = logical(Value::Null, json!(false));
        assert_eq!(chosen(json!({"raid_config": not_data}), &arrays).unwrap(), "/dev/md127");
        // A missing root volume is an error, unless it was never created.
        let error = chosen(json!({"raid_config": marked()}), &arrays[..1]).unwrap_err();
        assert!(error.contains("root volume md1"), "{error}");
        let not_created = chosen(json!({"target_raid_config": marked()}), &arrays[..1]);
        assert_eq!(not_created.unwrap(), "/dev/md126");
    }

    #[test]
    fn identifies_written_disk() {
        let written = disk("/dev/sda", "A", 10);
        assert!(is_same_disk(&written, &written.clone()));
        assert!(!is_same_disk(&written, &disk("/dev/sda", "B", 10)));
        assert!(!is_same_disk(&written, &disk("/dev/sdb", "A", 10)));
        assert!(!is_same_disk(&written, &disk("/dev/sda", "", 10)));
        assert!(is_same_disk(&disk("/dev/md0", "", 10), &disk("/dev/md0", "", 10)));
    }
}
