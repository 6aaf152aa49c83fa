// SPDX-License-Identifier: Apache-2.0
//! Volumes: made at once, by tasks or by a reboot, as the controllers have it.

use fleet_sim::Personality;
use fleet_sim::machine::RaidKind;
use node_model::InterfaceKind;
use serde_json::{Value, json};

use crate::rig::Rig;
use crate::steps::Conductor;

/// The kinds of machines whose controllers can do RAID.
const KINDS: [&str; 4] = ["generic", "dell-like", "lenovo-like", "supermicro-like"];

const CREATE: &str = "create_configuration";
const DELETE: &str = "delete_configuration";

/// A mirror for the operating system, and a stripe over one more drive.
fn two_disks() -> Value {
    json!({"logical_disks": [
        {"raid_level": "1", "size_gb": 100, "is_root_volume": true, "volume_name": "root"},
        {"raid_level": "0", "size_gb": "MAX", "volume_name": "data"},
    ]})
}

fn rig(kind: &str) -> Rig {
    let mut rig = Rig::named(kind);
    let config = two_disks();
    rig.node.target_raid_config = config.as_object().cloned().expect("an object").into();
    rig
}

#[tokio::test]
async fn volumes_are_created_and_deleted_on_every_kind_of_machine() {
    for kind in KINDS {
        let mut rig = rig(kind);
        let changes = rig.run_step(InterfaceKind::Raid, CREATE, json!({})).await;
        changes.unwrap_or_else(|error| panic!("{kind}: {error}"));
        let volumes = rig.machine().volumes();
        let kinds: Vec<_> = volumes.iter().map(|volume| volume.raid).collect();
        assert_eq!(kinds, [RaidKind::Raid1, RaidKind::Raid0], "{kind}");
        assert_eq!(volumes[0].capacity_bytes, 100 << 30, "{kind}");
        assert!(!volumes[0].drives.iter().any(|drive| volumes[1].drives.contains(drive)));
        let config = rig.node.raid_config.parse();
        let disks = config["logical_disks"].as_array().expect("a list");
        assert!(config.contains_key("last_updated"));
        assert_eq!(
            (disks[0]["raid_level"].as_str(), disks[0]["size_gb"].as_u64()),
            (Some("1"), Some(100))
        );
        assert_eq!(disks[0]["is_root_volume"], true, "{kind}");
        let properties = rig.node.properties.parse();
        assert_eq!(properties["local_gb"], 100, "{kind}");
        assert_eq!(properties["capabilities"], "raid_level:1", "{kind}");
        assert!(
            properties["root_device"]["wwn_with_extension"].is_string(),
            "{kind}: {properties:?}"
        );
        rig.run_step(InterfaceKind::Raid, DELETE, json!({})).await.unwrap();
        assert!(rig.machine().volumes().is_empty(), "{kind}");
        assert!(rig.node.raid_config.is_empty(), "{kind}");
        assert!(rig.node.properties.get("root_device").is_none(), "{kind}");
        rig.deeds();
        rig.run_step(InterfaceKind::Raid, DELETE, json!({})).await.unwrap();
        assert_eq!(rig.deeds(), [""; 0], "{kind}: there was nothing left to delete");
    }
}

#[tokio::test]
async fn what_is_there_stays_or_goes_as_asked() {
    let mut rig = rig("dell-like");
    rig.run_step(InterfaceKind::Raid, CREATE, json!({})).await.unwrap();
    rig.deeds();
    rig.run_step(InterfaceKind::Raid, CREATE, json!({})).await.unwrap();
    assert_eq!(rig.deeds(), [""; 0], "both volumes were there");
    let five =
        json!({"logical_disks": [{"raid_level": "5", "size_gb": 50, "is_root_volume": true}]});
    let apply = json!({ "raid_config": five });
    rig.run_step(InterfaceKind::Raid, "apply_configuration", apply).await.unwrap();
    assert_eq!(rig.machine().volumes().len(), 3);
    let apply = json!({"raid_config": five, "delete_existing": true});
    rig.run_step(InterfaceKind::Raid, "apply_configuration", apply).await.unwrap();
    let volumes = rig.machine().volumes();
    assert_eq!((volumes.len(), volumes[0].raid), (1, RaidKind::Raid5));
}

#[tokio::test]
async fn only_what_is_asked_for_is_created() {
    let mut rig = rig("generic");
    let arguments = json!({"create_root_volume": false});
    rig.run_step(InterfaceKind::Raid, CREATE, arguments).await.unwrap();
    let volumes = rig.machine().volumes();
    assert_eq!((volumes.len(), &*volumes[0].name), (1, "data"));
    let arguments = json!({"create_root_volume": false, "create_nonroot_volumes": false});
    let error = rig.run_step(InterfaceKind::Raid, CREATE, arguments).await.unwrap_err();
    assert!(error.to_string().contains("none is left to create"), "{error}");
}

#[tokio::test]
async fn what_cannot_be_is_told_before_anything_is_done() {
    for (kind, disk, words) in [
        ("generic", json!({"raid_level": "1", "size_gb": 5000}), "no drives for logical disk 0"),
        (
            "generic",
            json!({"raid_level": "1", "size_gb": 1, "disk_type": "hdd"}),
            "no drive of that kind",
        ),
        ("generic", json!({"raid_level": "JBOD", "size_gb": 1}), "'JBOD'"),
        ("generic", json!({"raid_level": "1", "size_gb": 1, "interface_type": "scsi"}), "'scsi'"),
        ("lenovo-like", json!({"raid_level": "6+0", "size_gb": 1}), "RAID_Slot4 can do RAID0"),
        ("hpe-like", json!({"raid_level": "1", "size_gb": 1}), "DE00A000"),
        (
            "generic",
            json!({"raid_level": "1", "size_gb": 1, "controller": "raid", "physical_disks": ["disk1", "disk9"]}),
            "'disk9'",
        ),
    ] {
        let mut rig = Rig::named(kind);
        let config = json!({ "logical_disks": [disk] });
        rig.node.target_raid_config = config.as_object().cloned().expect("an object").into();
        let arguments = json!({"delete_existing": true});
        let error = rig.run_step(InterfaceKind::Raid, CREATE, arguments).await.unwrap_err();
        assert!(error.to_string().contains(words), "{kind}: {error}");
        assert_eq!(rig.deeds(), [""; 0]);
    }
    let mut rig = Rig::named("generic");
    let error = rig.run_step(InterfaceKind::Raid, CREATE, json!({})).await.unwrap_err();
    assert!(error.to_string().contains("target_raid_config"), "{error}");
}

#[tokio::test]
async fn a_conductor_that_dies_after_every_call_makes_no_volume_twice() {
    for kind in KINDS {
        let mut rig = rig(kind);
        rig.run_step_by(Conductor::Dying, InterfaceKind::Raid, CREATE, json!({}))
            .await
            .unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(rig.machine().volumes().len(), 2, "{kind}");
        rig.run_step_by(Conductor::Dying, InterfaceKind::Raid, DELETE, json!({}))
            .await
            .unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert!(rig.machine().volumes().is_empty(), "{kind}");
    }
}

#[tokio::test]
async fn drives_can_be_named() {
    let mut rig = Rig::of(Personality::named("generic").unwrap());
    let config = json!({"logical_disks": [{
        "raid_level": "1+0", "size_gb": "MAX", "controller": "RAID Controller",
        "physical_disks": ["disk1", "disk3", "disk5", "disk7"],
    }]});
    rig.node.target_raid_config = config.as_object().cloned().expect("an object").into();
    rig.run_step(InterfaceKind::Raid, CREATE, json!({})).await.unwrap();
    let volumes = rig.machine().volumes();
    assert_eq!((&*volumes[0].drives, volumes[0].raid), (&[1, 3, 5, 7][..], RaidKind::Raid10));
}
