// SPDX-License-Identifier: Apache-2.0
//! Volumes: created at once, by tasks or with a reboot, depending on the controller.

use fleet_sim::Personality;
use fleet_sim::machine::RaidKind;
use node_model::InterfaceKind;
use serde_json::{Value, json};

use crate::rig::RedfishRig;
use crate::steps::ConductorBehaviour;

/// The personalities whose controllers support RAID.
const KINDS: [&str; 4] = ["generic", "dell-like", "lenovo-like", "supermicro-like"];

const CREATE: &str = "create_configuration";
const DELETE: &str = "delete_configuration";

/// A mirror for the root volume, and a stripe over one more drive.
fn two_disks() -> Value {
    json!({"logical_disks": [
        {"raid_level": "1", "size_gb": 100, "is_root_volume": true, "volume_name": "root"},
        {"raid_level": "0", "size_gb": "MAX", "volume_name": "data"},
    ]})
}

fn rig(kind: &str) -> RedfishRig {
    let mut rig = RedfishRig::named(kind);
    let config = two_disks();
    rig.node.target_raid_config = config.as_object().cloned().expect("an object").into();
    rig
}

#[tokio::test]
async fn creates_and_deletes_volumes_on_every_personality() {
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
        rig.writes();
        rig.run_step(InterfaceKind::Raid, DELETE, json!({})).await.unwrap();
        assert_eq!(rig.writes(), [""; 0], "{kind}: expected no write");
    }
}

#[tokio::test]
async fn keeps_or_deletes_existing_volumes() {
    let mut rig = rig("dell-like");
    rig.run_step(InterfaceKind::Raid, CREATE, json!({})).await.unwrap();
    rig.writes();
    rig.run_step(InterfaceKind::Raid, CREATE, json!({})).await.unwrap();
    assert_eq!(rig.writes(), [""; 0], "both volumes existed");
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
async fn creates_only_selected_volumes() {
    let mut rig = rig("generic");
    let arguments = json!({"create_root_volume": false});
    rig.run_step(InterfaceKind::Raid, CREATE, arguments).await.unwrap();
    let volumes = rig.machine().volumes();
    assert_eq!((volumes.len(), &*volumes[0].name), (1, "data"));
    let arguments = json!({"create_root_volume": false, "create_nonroot_volumes": false});
    let error = rig.run_step(InterfaceKind::Raid, CREATE, arguments).await.unwrap_err();
    assert!(error.to_string().contains("no logical disk is left to create"), "{error}");
}

#[tokio::test]
async fn rejects_impossible_requests_before_any_write() {
    for (kind, disk, text) in [
        ("generic", json!({"raid_level": "1", "size_gb": 5000}), "no drives for logical disk 0"),
        (
            "generic",
            json!({"raid_level": "1", "size_gb": 1, "disk_type": "hdd"}),
            "no drive of that kind",
        ),
        ("generic", json!({"raid_level": "JBOD", "size_gb": 1}), "'JBOD'"),
        ("generic", json!({"raid_level": "1", "size_gb": 1, "interface_type": "scsi"}), "'scsi'"),
        ("lenovo-like", json!({"raid_level": "6+0", "size_gb": 1}), "RAID_Slot4 supports RAID0"),
        ("hpe-like", json!({"raid_level": "1", "size_gb": 1}), "DE00A000"),
        (
            "generic",
            json!({"raid_level": "1", "size_gb": 1, "controller": "raid", "physical_disks": ["disk1", "disk9"]}),
            "'disk9'",
        ),
    ] {
        let mut rig = RedfishRig::named(kind);
        let config = json!({ "logical_disks": [disk] });
        rig.node.target_raid_config = config.as_object().cloned().expect("an object").into();
        let arguments = json!({"delete_existing": true});
        let error = rig.run_step(InterfaceKind::Raid, CREATE, arguments).await.unwrap_err();
        assert!(error.to_string().contains(text), "{kind}: {error}");
        assert_eq!(rig.writes(), [""; 0]);
    }
    let mut rig = RedfishRig::named("generic");
    let error = rig.run_step(InterfaceKind::Raid, CREATE, json!({})).await.unwrap_err();
    assert!(error.to_string().contains("target_raid_config"), "{error}");
}

#[tokio::test]
async fn creates_no_duplicates_with_a_conductor_that_loses_outcomes() {
    for kind in KINDS {
        let mut rig = rig(kind);
        rig.run_step_by(
            ConductorBehaviour::LosesEveryOtherOutcome,
            InterfaceKind::Raid,
            CREATE,
            json!({}),
        )
        .await
        .unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(rig.machine().volumes().len(), 2, "{kind}");
        rig.run_step_by(
            ConductorBehaviour::LosesEveryOtherOutcome,
            InterfaceKind::Raid,
            DELETE,
            json!({}),
        )
        .await
        .unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert!(rig.machine().volumes().is_empty(), "{kind}");
    }
}

#[tokio::test]
async fn uses_named_drives() {
    let mut rig = RedfishRig::with_personality(Personality::built_in("generic").unwrap());
    let config = json!({"logical_disks": [{
        "raid_level": "1+0", "size_gb": "MAX", "controller": "RAID Controller",
        "physical_disks": ["disk1", "disk3", "disk5", "disk7"],
    }]});
    rig.node.target_raid_config = config.as_object().cloned().expect("an object").into();
    rig.run_step(InterfaceKind::Raid, CREATE, json!({})).await.unwrap();
    let volumes = rig.machine().volumes();
    assert_eq!((&*volumes[0].drives, volumes[0].raid), (&[1, 3, 5, 7][..], RaidKind::Raid10));
}
