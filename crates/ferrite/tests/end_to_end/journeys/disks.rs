// SPDX-License-Identifier: Apache-2.0
//! Machines with several disks: hints choose one, and two become a mirror.

use serde_json::json;

use super::traveller::{Agent, Traveller, checksum, image, turn_of};
use crate::real_bmcs::lab::Lab;

/// The disk that is meant is not the one that would be taken without hints.
#[test]
fn hints_choose_among_several_disks() {
    let Some(lab) = Lab::find() else { return };
    let _turn = turn_of("journey-disks");
    let machine = Traveller::enrol(&lab, "journey-disks", Agent::Ferrite, "ipxe", &[]);
    let Some(mut machine) = machine else { return };
    machine.go("manage", &[]);
    machine.go("provide", &[]);
    let disks = lab.disks("journey-disks");
    let magnetic = disks.iter().find(|disk| disk["rotational"] == true).expect("there is one");
    let hints = json!({ "rotational": true, "size": ">= 7" }).to_string();
    machine.set_property("root_device", &hints);
    machine.deploy("hinted", &[]);
    for disk in &disks {
        let is_meant = disk["serial"] == magnetic["serial"];
        assert_eq!(!Traveller::is_empty(disk), is_meant, "{disk}");
    }

    // A disk that is not there is said to be missing, with those that are.
    machine.go("undeploy", &[]);
    machine.set_property("root_device", &json!({ "serial": "NOBODYS" }).to_string());
    machine.set_image(&image(), &checksum(&image()), &[]);
    let said = machine.fails("deploy", "deploy failed");
    assert!(said.contains("NOBODYS"), "{said}");
    assert!(said.contains("serial"), "{said}");
}

/// A mirror of two disks is made in cleaning, deployed to, and taken apart again.
#[test]
fn two_disks_become_a_mirror() {
    let Some(lab) = Lab::find() else { return };
    let _turn = turn_of("journey-raid");
    let machine = Traveller::enrol(&lab, "journey-raid", Agent::Ferrite, "ipxe", &[]);
    let Some(mut machine) = machine else { return };
    machine.go("manage", &[]);
    let disks = lab.disks("journey-raid");
    let large = disks.iter().filter(|disk| disk["bytes"].as_u64() > Some(4 << 30));
    let hints: Vec<_> = large.map(|disk| json!({ "serial": disk["serial"] })).collect();
    assert_eq!(hints.len(), 2, "{disks:?}");
    let config = json!({ "logical_disks": [{
        "raid_level": "1", "size_gb": "MAX", "controller": "software", "physical_disks": hints,
    }] });
    let set = ["node", "set", &machine.node, "--target-raid-config", &config.to_string()];
    machine.client.run(&set);
    let steps = json!([
        { "interface": "raid", "step": "delete_configuration" },
        { "interface": "deploy", "step": "erase_devices_metadata" },
        { "interface": "raid", "step": "create_configuration" },
    ])
    .to_string();
    machine.go("clean", &["--clean-steps", &steps]);
    let made = machine.show()["raid_config"].clone();
    assert_eq!(made["logical_disks"][0]["raid_level"], json!("1"), "{made}");
    machine.go("provide", &[]);
    let console = machine.deploy("mirrored", &[]);
    assert!(console.said().contains("FERRITE-MIRROR"), "{}", console.last(40));
}
