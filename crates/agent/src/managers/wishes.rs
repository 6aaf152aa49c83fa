// SPDX-License-Identifier: Apache-2.0
//! What a node says about its disks: which are left alone, and which one a system goes on.

use std::path::Path;

use agent_protocol::{Disk, Hints, choose_root_device};
use disk_steps::raid::{self, ExistingArray};
use serde_json::{Map, Value};

use crate::logs::causes;

/// The wishes of a node.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    /// Hints for the disk a system goes on.
    root: Option<Map<String, Value>>,
    /// Hints for disks that are left alone.
    left_alone: Vec<Hints>,
    /// Names of RAID volumes that are left alone.
    kept: Vec<String>,
    /// RAID volumes by name that a system goes on, or must not go on.
    volumes: Vec<(String, bool)>,
    /// Whether those volumes were made, so that they must be there.
    were_made: bool,
}

impl Wishes {
    /// Reads them. What cannot be understood is an error: a wish that is passed over loses data.
    pub(super) fn of(node: &Map<String, Value>) -> Result<Self, String> {
        let mut wishes = Self { root: root_hints(node)?, ..Self::default() };
        wishes.read_skipped(node)?;
        let of_config = |name: &str| -> Vec<(String, bool)> {
            let config = node.get(name).map(raid::volumes).unwrap_or_default();
            config.into_iter().filter_map(|(name, is_root)| Some((name, is_root?))).collect()
        };
        wishes.volumes = of_config("raid_config");
        wishes.were_made = !wishes.volumes.is_empty();
        if !wishes.were_made {
            wishes.volumes = of_config("target_raid_config");
        }
        Ok(wishes)
    }

    fn read_skipped(&mut self, node: &Map<String, Value>) -> Result<(), String> {
        let wrong = |why: &str| {
            Err(format!(
                "the property skip_block_devices cannot be used: {why}; it must be a list of objects with hints, or with a volume_name, such as [{{\"serial\": \"X\"}}]"
            ))
        };
        let skipped = property(node, "skip_block_devices");
        let Some(skipped) = skipped.filter(|value| !value.is_null()) else { return Ok(()) };
        let Some(list) = skipped.as_array() else { return wrong("it is no list") };
        for entry in list {
            let Some(hints) = entry.as_object() else {
                return wrong(&format!("{entry} is no object"));
            };
            match hints.get("volume_name") {
                Some(Value::String(name)) => self.kept.push(name.clone()),
                Some(name) => return wrong(&format!("the volume_name {name} is no text")),
                // It would be all disks.
                None if hints.is_empty() => return wrong("an entry has no hints"),
                None => match Hints::parse(hints) {
                    Ok(hints) => self.left_alone.push(hints),
                    Err(error) => return wrong(&error.to_string()),
                },
            }
        }
        Ok(())
    }

    /// The names of RAID volumes that are left alone.
    pub(super) fn kept(&self) -> &[String] {
        &self.kept
    }

    /// The disks without those that are left alone.
    pub(super) fn usable(&self, arrays: &[ExistingArray], disks: Vec<Disk>) -> Vec<Disk> {
        let kept = raid::kept_devices(arrays, &self.kept, &disks);
        let is_left_alone = |disk: &Disk| {
            if kept.iter().any(|device| device == Path::new(&disk.name)) {
                return true;
            }
            let fields = serde_json::to_value(disk).unwrap_or_default();
            let fields = fields.as_object();
            fields.is_some_and(|fields| self.left_alone.iter().any(|hints| hints.matches(fields)))
        };
        disks.into_iter().filter(|disk| !is_left_alone(disk)).collect()
    }

    /// The disk a system goes on: the RAID volume that is marked so, else the first that matches the
    /// hints or the smallest. Disks that are in an array are none of these.
    pub(super) fn choose(
        &self,
        arrays: &[ExistingArray],
        disks: Vec<Disk>,
    ) -> Result<Disk, String> {
        let disks = self.usable(arrays, disks);
        let named = |name: &str| arrays.iter().find(|array| array.name.as_deref() == Some(name));
        let mut excluded: Vec<&Path> = Vec::new();
        for (name, is_root) in &self.volumes {
            let array = named(name);
            let device = array.map(|array| array.device.as_path());
            match (device, is_root) {
                (Some(device), true) => {
                    let disk = disks.iter().find(|disk| Path::new(&disk.name) == device);
                    return disk.cloned().ok_or_else(|| {
                        format!("the root volume {name} is to be left alone (skip_block_devices)")
                    });
                }
                (None, true) if self.were_made => {
                    return Err(format!(
                        "the root volume {name} of raid_config is not there: look at its disks, or make it again with delete_configuration and create_configuration"
                    ));
                }
                (Some(device), false) => excluded.push(device),
                (None, _) => {}
            }
        }
        let array_of = |disk: &Disk| {
            let path = Path::new(&disk.name);
            arrays.iter().find(|array| array.disks.iter().any(|member| member == path))
        };
        let free: Vec<Disk> = disks
            .iter()
            .filter(|disk| array_of(disk).is_none())
            .filter(|disk| !excluded.contains(&Path::new(&disk.name)))
            .cloned()
            .collect();
        let failure = match choose_root_device(&free, self.root.as_ref()) {
            Ok(disk) => return Ok(disk.clone()),
            Err(failure) => causes(&failure),
        };
        let member = choose_root_device(&disks, self.root.as_ref()).ok();
        match member.and_then(|disk| Some((disk, array_of(disk)?))) {
            Some((disk, array)) => Err(format!(
                "{} is part of the RAID array {}: give hints for that, or take it apart with delete_configuration",
                disk.name,
                array.device.display()
            )),
            None => Err(failure),
        }
    }
}

/// Whether both are the same disk.
pub(super) fn is_same(one: &Disk, other: &Disk) -> bool {
    let identity =
        |disk: &Disk| (disk.name.clone(), disk.size, disk.serial.clone(), disk.wwn.clone());
    identity(one) == identity(other)
}

fn property<'a>(node: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    node.get("properties")?.get(name)
}

fn root_hints(node: &Map<String, Value>) -> Result<Option<Map<String, Value>>, String> {
    for place in ["instance_info", "properties"] {
        match node.get(place).and_then(|place| place.get("root_device")) {
            None | Some(Value::Null) => {}
            Some(Value::Object(hints)) if hints.is_empty() => {}
            Some(Value::Object(hints)) => {
                Hints::parse(hints).map_err(|error| {
                    format!("the hints in {place}/root_device cannot be used: {error}")
                })?;
                return Ok(Some(hints.clone()));
            }
            Some(other) => {
                return Err(format!(
                    "{place}/root_device is {other} and must be an object with hints, such as {{\"serial\": \"X\"}}"
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

    fn wishes(node: Value) -> Result<Wishes, String> {
        Wishes::of(node.as_object().unwrap())
    }

    fn disk(name: &str, serial: &str, gib: u64) -> Disk {
        Disk {
            name: name.to_owned(),
            serial: Some(serial.to_owned()).filter(|serial| !serial.is_empty()),
            size: gib << 30,
            ..Disk::default()
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
    fn disks_can_be_left_alone() {
        let disks = || {
            let names = [("/dev/sda", "A"), ("/dev/sdb", "B"), ("/dev/sdc", "C"), ("/dev/md0", "")];
            names.map(|(name, serial)| disk(name, serial, 10)).to_vec()
        };
        let arrays = [array("/dev/md0", "data", &["/dev/sdb", "/dev/sdc"])];
        let names = |skip: Value| {
            let wishes = wishes(json!({"properties": {"skip_block_devices": skip}})).unwrap();
            let left = wishes.usable(&arrays, disks());
            left.into_iter().map(|disk| disk.name).collect::<Vec<_>>()
        };
        assert_eq!(names(json!([{"serial": "b"}])), ["/dev/sda", "/dev/sdc", "/dev/md0"]);
        assert_eq!(names(json!([{"volume_name": "data"}])), ["/dev/sda"]);
        assert_eq!(names(json!([{"volume_name": "x"}])).len(), 4);
        assert_eq!(names(Value::Null).len(), 4);
        assert_eq!(names(json!([])).len(), 4);
    }

    #[test]
    fn wishes_that_make_no_sense_are_no_wishes_granted() {
        for skip in [
            json!("[{\"serial\": \"X\"}]"),
            json!({"serial": "X"}),
            json!(["X"]),
            json!([{}]),
            json!([{"volume_name": 1}]),
            json!([{"colour": "x"}]),
        ] {
            let error = wishes(json!({"properties": {"skip_block_devices": skip}})).unwrap_err();
            assert!(error.contains("must be a list of objects"), "{error}");
        }
        for root in [json!("{\"serial\": \"X\"}"), json!(["X"]), json!({"colour": "x"})] {
            let error = wishes(json!({"properties": {"root_device": root}})).unwrap_err();
            assert!(error.contains("root_device"), "{error}");
        }
        // Those of the instance come first, wherever they are.
        let both = json!({
            "instance_info": {"root_device": {}}, "properties": {"root_device": {"serial": "A"}},
        });
        assert!(wishes(both).unwrap().root.is_some());
    }

    #[test]
    fn members_of_arrays_are_not_chosen() {
        // The array is larger than its members.
        let arrays = [array("/dev/md0", "md0", &["/dev/sda", "/dev/sdb"])];
        let disks =
            || vec![disk("/dev/sda", "A", 10), disk("/dev/sdb", "B", 10), disk("/dev/md0", "", 20)];
        let none = wishes(json!({})).unwrap();
        assert_eq!(none.choose(&arrays, disks()).unwrap().name, "/dev/md0");
        assert_eq!(none.choose(&[], disks()).unwrap().name, "/dev/sda");
        let hinted = wishes(json!({"properties": {"root_device": {"serial": "B"}}})).unwrap();
        let error = hinted.choose(&arrays, disks()).unwrap_err();
        assert!(error.contains("part of the RAID array /dev/md0"), "{error}");
        assert_eq!(hinted.choose(&[], disks()).unwrap().name, "/dev/sdb");
    }

    #[test]
    fn the_root_volume_is_chosen() {
        let logical = |root: Value, data: Value| {
            json!({"logical_disks": [
                {"controller": "software", "size_gb": "MAX", "is_root_volume": root},
                {"controller": "software", "size_gb": 20, "volume_name": "data", "is_root_volume": data},
            ]})
        };
        // As they are called after a boot; the one that takes the rest was made last.
        let members = ["/dev/sda", "/dev/sdb"];
        let arrays = [array("/dev/md126", "data", &members), array("/dev/md127", "md1", &members)];
        let disks = || vec![disk("/dev/md126", "", 20), disk("/dev/md127", "", 80)];
        let chosen = |node: Value, arrays: &[ExistingArray]| {
            wishes(node).unwrap().choose(arrays, disks()).map(|disk| disk.name)
        };
        let marked = || logical(json!(true), Value::Null);
        assert_eq!(chosen(json!({}), &arrays).unwrap(), "/dev/md126");
        assert_eq!(chosen(json!({"raid_config": marked()}), &arrays).unwrap(), "/dev/md127");
        assert_eq!(chosen(json!({"target_raid_config": marked()}), &arrays).unwrap(), "/dev/md127");
        let not_data = logical(Value::Null, json!(false));
        assert_eq!(chosen(json!({"raid_config": not_data}), &arrays).unwrap(), "/dev/md127");
        // Never another one in its place, unless it was never made.
        let error = chosen(json!({"raid_config": marked()}), &arrays[..1]).unwrap_err();
        assert!(error.contains("root volume md1"), "{error}");
        let unmade = chosen(json!({"target_raid_config": marked()}), &arrays[..1]);
        assert_eq!(unmade.unwrap(), "/dev/md126");
    }

    #[test]
    fn the_written_disk_is_known_again() {
        let written = disk("/dev/sda", "A", 10);
        assert!(is_same(&written, &written.clone()));
        assert!(!is_same(&written, &disk("/dev/sda", "B", 10)));
        assert!(!is_same(&written, &disk("/dev/sdb", "A", 10)));
        assert!(!is_same(&written, &disk("/dev/sda", "", 10)));
        assert!(is_same(&disk("/dev/md0", "", 10), &disk("/dev/md0", "", 10)));
    }
}
