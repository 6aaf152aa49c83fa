// SPDX-License-Identifier: Apache-2.0
//! Machines with several disks: hints choose one, and two become a mirror.

use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::traveller::{Agent, Traveller, checksum, image, turn_of};
use crate::ferrite::output_of;
use crate::real_bmcs::lab::{Lab, text};

/// Where the first partition of the image begins.
const PARTITION_BYTE: u64 = 1 << 20;
const INJECTED: &str = "put there by a deploy step";

/// The disk that is meant is not the one that would be taken without hints. A file is put into the
/// system on its way.
#[test]
fn hints_choose_among_several_disks() {
    let Some(lab) = Lab::find() else { return };
    let _turn = turn_of("journey-disks");
    let machine =
        Traveller::enrol(&lab, "journey-disks", Agent::Ferrite, "ipxe", &["--no-automated-clean"]);
    let Some(mut machine) = machine else { return };
    machine.go("manage", &[]);
    machine.go("provide", &[]);
    let disks = lab.disks("journey-disks");
    let magnetic = disks.iter().find(|disk| disk["rotational"] == true).expect("there is one");
    let hints = json!({ "rotational": true, "size": ">= 7" }).to_string();
    machine.set_property("root_device", &hints);
    let files = json!([{ "path": "/loader/note", "content": STANDARD.encode(INJECTED) }]);
    let steps = json!([{
        "interface": "deploy", "step": "inject_files", "priority": 70, "args": { "files": files },
    }]);
    machine.deploy_with("hinted", &["--deploy-steps", &steps.to_string()]);
    for disk in &disks {
        let is_meant = disk["serial"] == magnetic["serial"];
        assert_eq!(!Traveller::is_empty(disk), is_meant, "{disk}");
    }
    let partition = format!("{}@@{PARTITION_BYTE}", text(&magnetic["file"]));
    let note = output_of(Command::new("mtype").args(["-i", &partition, "::/loader/note"]));
    assert_eq!(String::from_utf8_lossy(&note.stdout), INJECTED, "{note:?}");

    // A disk that is not there is said to be missing, with those that are.
    machine.go("undeploy", &[]);
    machine.set_property("root_device", &json!({ "serial": "NOBODYS" }).to_string());
    machine.set_image(&image(), &checksum(&image()));
    let said = machine.fails("deploy", "deploy failed");
    assert!(said.contains("NOBODYS"), "{said}");
    assert!(said.contains("serial"), "{said}");
}

/// A mirror of two disks is made in cleaning, deployed to, and taken apart again, each in a boot of
/// its own that has to find it on the disks. The disk beside it is overwritten from end to end, and
/// nothing else is.
#[test]
fn two_disks_become_a_mirror() {
    const MORE: [&str; 1] = ["--no-automated-clean"];
    let Some(lab) = Lab::find() else { return };
    let _turn = turn_of("journey-raid");
    let machine = Traveller::enrol(&lab, "journey-raid", Agent::Ferrite, "ipxe", &MORE);
    let Some(mut machine) = machine else { return };
    machine.go("manage", &[]);
    let disks = lab.disks("journey-raid");
    let (large, small): (Vec<_>, Vec<_>) =
        disks.iter().partition(|disk| disk["bytes"].as_u64() > Some(4 << 30));
    let hints: Vec<_> = large.iter().map(|disk| json!({ "serial": disk["serial"] })).collect();
    assert_eq!((hints.len(), small.len()), (2, 1), "{disks:?}");
    let small = Path::new(text(&small[0]["file"]));
    write_in_the_middle(small);
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
    let console = machine.deploy("mirrored");
    assert!(console.said().contains("FERRITE-MIRROR"), "{}", console.last(40));
    for disk in &large {
        assert!(is_member(Path::new(text(&disk["file"]))), "{disk}");
    }

    machine.go("undeploy", &[]);
    machine.go("manage", &[]);
    machine.set_property("skip_block_devices", &json!(hints).to_string());
    let steps = json!([
        { "interface": "raid", "step": "delete_configuration" },
        { "interface": "deploy", "step": "erase_devices" },
    ])
    .to_string();
    machine.go("clean", &["--clean-steps", &steps]);
    for disk in &large {
        assert!(!is_member(Path::new(text(&disk["file"]))), "{disk}: {}", machine.story());
    }
    assert!(!has_anything_in_the_middle(small), "{}", machine.story());
    assert_eq!(machine.show()["raid_config"], json!({}));
}

/// Whether a disk has RAID metadata where `create_configuration` makes its first partition: behind the
/// room for an EFI system partition.
fn is_member(disk: &Path) -> bool {
    const SUPERBLOCK: u64 = (551 << 20) + 4096;
    let mut found = [0; 4];
    let mut file = OpenOptions::new().read(true).open(disk).unwrap();
    file.seek(SeekFrom::Start(SUPERBLOCK)).unwrap();
    file.read_exact(&mut found).unwrap();
    found == [0xfc, 0x4e, 0x2b, 0xa9]
}

const MIDDLE: SeekFrom = SeekFrom::Start(512 << 20);

fn write_in_the_middle(disk: &Path) {
    let mut file = OpenOptions::new().write(true).open(disk).unwrap();
    file.seek(MIDDLE).unwrap();
    file.write_all(b"somebody's secret").unwrap();
}

fn has_anything_in_the_middle(disk: &Path) -> bool {
    let mut found = [0; 17];
    let mut file = OpenOptions::new().read(true).open(disk).unwrap();
    file.seek(MIDDLE).unwrap();
    file.read_exact(&mut found).unwrap();
    found != [0; 17]
}
