// SPDX-License-Identifier: Apache-2.0
//! Tests of placements, as tables.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::requested_disks::VolumeSelection;
use super::super::storage::{RedfishRaidVolume, VolumeCollection};
use super::*;

fn drive(id: &str, gib: u64, kind: &str) -> RaidDrive {
    let (protocol, media) = kind.split_once(' ').unwrap_or((kind, ""));
    RaidDrive {
        id: id.to_owned(),
        path: format!("/d/{id}"),
        bytes: gib * GIB,
        media: media.to_owned(),
        protocol: protocol.to_owned(),
        ..RaidDrive::default()
    }
}

fn controller(id: &str, drives: Vec<RaidDrive>) -> RaidController {
    let collection = VolumeCollection {
        controller: id.to_owned(),
        path: format!("/{id}/Volumes"),
        apply_times: Vec::new(),
    };
    RaidController {
        id: id.to_owned(),
        drives,
        volume_collection: Some(collection),
        ..RaidController::default()
    }
}

/// Two controllers: four small and three large hard disks, and two SSDs.
fn machine() -> Vec<RaidController> {
    let disks =
        [("a0", 100), ("a1", 100), ("a2", 100), ("a3", 100), ("a4", 200), ("a5", 200), ("a6", 200)];
    let disks = disks.map(|(id, gib)| drive(id, gib, "sas hdd"));
    let flash = ["b0", "b1"].map(|id| drive(id, 400, "sata ssd"));
    vec![controller("A", disks.to_vec()), controller("B", flash.to_vec())]
}

fn requested(disks: Value) -> Vec<RequestedLogicalDisk> {
    let config = json!({ "logical_disks": disks });
    let all = VolumeSelection { root: true, others: true };
    RequestedLogicalDisk::read(config.as_object().unwrap(), all).unwrap()
}

fn plan_text(
    controllers: &[RaidController],
    disks: Value,
    existing: ExistingVolumes,
) -> Result<String, String> {
    let plan = plan(controllers, &requested(disks), existing)?;
    let texts = plan.iter().map(|planned| {
        let drives: Vec<_> =
            planned.drives.iter().map(|path| path.trim_start_matches("/d/")).collect();
        format!("{}:{}:{}", planned.controller, planned.level, drives.join("+"))
    });
    Ok(texts.collect::<Vec<_>>().join(" "))
}

#[test]
fn places_disks_on_suitable_drives() {
    for (disks, expected) in [
        (json!([{"raid_level": "1", "size_gb": 50}]), "A:1:a0+a1"),
        (json!([{"raid_level": "1", "size_gb": 150}]), "A:1:a4+a5"),
        (json!([{"raid_level": "1", "size_gb": 300}]), "B:1:b0+b1"),
        (json!([{"raid_level": "5", "size_gb": 250}]), "A:5:a0+a1+a2+a3"),
        (json!([{"raid_level": "5", "size_gb": 350}]), "A:5:a4+a5+a6"),
        (json!([{"raid_level": "1+0", "size_gb": "MAX"}]), "A:1+0:a0+a1+a2+a3"),
        (
            json!([{"raid_level": "0", "size_gb": 10, "number_of_physical_disks": 3}]),
            "A:0:a0+a1+a2",
        ),
        (json!([{"raid_level": "0", "size_gb": 10, "disk_type": "ssd"}]), "B:0:b0"),
        (json!([{"raid_level": "0", "size_gb": 10, "interface_type": "sata"}]), "B:0:b0"),
        (json!([{"raid_level": "0", "size_gb": 10, "controller": "B"}]), "B:0:b0"),
        (
            json!([{"raid_level": "1", "size_gb": 10}, {"raid_level": "1", "size_gb": 10},
                   {"raid_level": "5", "size_gb": "MAX"}]),
            "A:1:a0+a1 A:1:a2+a3 A:5:a4+a5+a6",
        ),
        // The second disk needs the drives that are the first choice of the first disk.
        (
            json!([{"raid_level": "0", "size_gb": 10}, {"raid_level": "6", "size_gb": 200}]),
            "A:0:a4 A:6:a0+a1+a2+a3",
        ),
        (
            json!([{"raid_level": "1", "size_gb": 10},
                   {"raid_level": "1", "size_gb": "MAX", "controller": "A", "physical_disks": ["a0", "a1"]}]),
            "A:1:a2+a3 A:1:a0+a1",
        ),
        (
            json!([{"raid_level": "1", "size_gb": 60, "share_physical_disks": true},
                   {"raid_level": "0", "size_gb": 80, "share_physical_disks": true},
                   {"raid_level": "1", "size_gb": 60}]),
            "A:1:a0+a1 A:0:a0+a1 A:1:a2+a3",
        ),
        (
            json!([{"raid_level": "1", "size_gb": 10, "controller": "A",
                    "physical_disks": [{"size": ">= 200"}, {"size": ">= 200"}]}]),
            "A:1:a4+a5",
        ),
    ] {
        let found = plan_text(&machine(), disks.clone(), ExistingVolumes::Keep);
        assert_eq!(found.as_deref(), Ok(expected), "{disks}");
    }
}

#[test]
fn explains_missing_placements() {
    for (disks, text) in [
        (
            json!([{"raid_level": "6", "size_gb": 500}]),
            "logical disk 0 (RAID 6, 500 GiB), which needs at least 4",
        ),
        (
            json!([{"raid_level": "6", "size_gb": 500}]),
            "controller A has 3 free sas hdd drive(s) of 200 GiB",
        ),
        (
            json!([{"raid_level": "1", "size_gb": 10, "controller": "C", "physical_disks": ["a0"]}]),
            "existing controllers: A, B",
        ),
        (
            json!([{"raid_level": "1", "size_gb": 10, "controller": "B", "physical_disks": ["a0", "b0"]}]),
            "'a0', which controller B does not have; it has b0, b1",
        ),
        (
            json!([{"raid_level": "1", "size_gb": 10, "controller": "A", "physical_disks": ["a0"]}]),
            "names 1 drive(s) and needs exactly 2",
        ),
        (
            json!([{"raid_level": "1", "size_gb": 150, "controller": "A", "physical_disks": ["a0", "a1"]}]),
            "a0, a1 have 100 GiB",
        ),
        (
            json!([{"raid_level": "0", "size_gb": 1, "disk_type": "ssd", "interface_type": "sas"}]),
            "no drive of that kind",
        ),
        (
            json!([{"raid_level": "1", "size_gb": 10, "controller": "A", "physical_disks": ["a0", "a1"]},
                   {"raid_level": "1", "size_gb": 10, "controller": "A", "physical_disks": ["a1", "a2"]}]),
            "share_physical_disks",
        ),
        (
            json!([{"raid_level": "1", "size_gb": 10, "controller": "A", "physical_disks": [{"size": 7}, {"size": 7}]}]),
            r#"no drive like {"size":7}"#,
        ),
    ] {
        let why = plan_text(&machine(), disks.clone(), ExistingVolumes::Keep).unwrap_err();
        assert!(why.contains(text), "{disks}: {why}");
    }
    let mut machine = machine();
    machine[0].raid_types = Some(vec!["RAID0".to_owned(), "RAID1".to_owned()]);
    machine[1].volume_collection = None;
    let why =
        plan_text(&machine, json!([{"raid_level": "5", "size_gb": 1}]), ExistingVolumes::Keep)
            .unwrap_err();
    assert!(why.contains("controller A supports RAID0, RAID1"), "{why}");
    assert!(why.contains("controller B does not support volumes"), "{why}");
    machine[0].drives[0].problem = Some("its health is Critical".to_owned());
    let many = json!([{"raid_level": "0", "size_gb": 1, "number_of_physical_disks": 9}]);
    let why = plan_text(&machine, many, ExistingVolumes::Keep).unwrap_err();
    assert!(why.contains("drive a0 cannot be used: its health is Critical"), "{why}");
    assert!(why.contains("requested on 9"), "{why}");
    let named =
        json!([{"raid_level": "0", "size_gb": 1, "controller": "A", "physical_disks": ["a0"]}]);
    let why = plan_text(&machine, named, ExistingVolumes::Keep).unwrap_err();
    assert!(why.contains("'a0': its health is Critical"), "{why}");
}

#[test]
fn spare_drives_are_used_last() {
    let mut machine = machine();
    for drive in &mut machine[0].drives[..4] {
        drive.spare = true;
    }
    let one = json!({"raid_level": "1", "size_gb": 10});
    assert_eq!(
        plan_text(&machine, json!([one]), ExistingVolumes::Keep).as_deref(),
        Ok("A:1:a4+a5")
    );
    assert_eq!(
        plan_text(&machine, json!([one, one, one]), ExistingVolumes::Keep).as_deref(),
        Ok("A:1:a4+a5 B:1:b0+b1 A:1:a0+a1")
    );
}

#[test]
fn kept_volumes_reserve_their_drives() {
    let mut machine = machine();
    machine[0].volumes.push(RedfishRaidVolume {
        id: "1".to_owned(),
        path: "/v/1".to_owned(),
        name: String::new(),
        level: RaidLevel::named("1"),
        bytes: 60 * GIB,
        drives: vec!["/d/a0/".to_owned(), "/d/a1".to_owned()],
        wwn: None,
    });
    let small = json!([{"raid_level": "1", "size_gb": 30}]);
    assert_eq!(
        plan_text(&machine, small.clone(), ExistingVolumes::Keep).as_deref(),
        Ok("A:1:a2+a3")
    );
    assert_eq!(plan_text(&machine, small, ExistingVolumes::Delete).as_deref(), Ok("A:1:a0+a1"));
    let shared = json!([{"raid_level": "1", "size_gb": 30, "share_physical_disks": true}]);
    assert_eq!(plan_text(&machine, shared, ExistingVolumes::Keep).as_deref(), Ok("A:1:a0+a1"));
    let named = json!([{"raid_level": "1", "size_gb": 30, "controller": "A", "physical_disks": ["a0", "a2"]}]);
    let why = plan_text(&machine, named, ExistingVolumes::Keep).unwrap_err();
    assert!(why.contains("not all of the drives a0, a2 are free"), "{why}");
}

proptest! {
    /// For any request: drives are only shared between disks that allow it, levels get a valid number
    /// of drives, and the volumes fit.
    #[test]
    fn plans_are_valid(
        disks in prop::collection::vec((0..7_usize, 0..400_u64, any::<bool>(), any::<bool>()), 1..6),
    ) {
        let machine = machine();
        let config: Vec<Value> = disks
            .iter()
            .map(|(level, gib, max, share)| json!({
                "raid_level": super::super::levels::LEVELS[*level].name,
                "size_gb": if *max { json!("MAX") } else { json!(gib) },
                "share_physical_disks": share,
            }))
            .collect();
        let wanted = requested(Value::from(config));
        let Ok(plan) = plan(&machine, &wanted, ExistingVolumes::Keep) else { return Ok(()) };
        prop_assert_eq!(plan.len(), wanted.len());
        for (planned, disk) in plan.iter().zip(&wanted) {
            prop_assert!(disk.level.accepts_drive_count(planned.drives.len()));
            for (other, other_disk) in plan.iter().zip(&wanted) {
                let shares = planned.drives.iter().any(|drive| other.drives.contains(drive));
                prop_assert!(std::ptr::eq(planned, other) || !shares || (disk.share && other_disk.share));
            }
        }
        for controller in &machine {
            for drive in &controller.drives {
                let used: u64 = plan
                    .iter()
                    .zip(&wanted)
                    .filter(|(planned, _)| planned.drives.contains(&drive.path))
                    .map(|(planned, disk)| {
                        let data = disk.level.data_drives(planned.drives.len());
                        planned.bytes.unwrap_or(0).div_ceil(data)
                    })
                    .sum();
                prop_assert!(used <= drive.bytes);
            }
        }
    }
}
