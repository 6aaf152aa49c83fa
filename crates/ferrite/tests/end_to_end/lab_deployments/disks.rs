// SPDX-License-Identifier: Apache-2.0
//! Machines with several disks: root device hints, and software RAID.

use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::lab_machine::{DeployedLabMachine, TestAgent, checksum, image, lock_machine};
use crate::real_bmcs::lab::{LabInventory, text};
use crate::test_process::output_of;

/// Offset of the first partition of the image.
const PARTITION_BYTE: u64 = 1 << 20;
const INJECTED: &str = "put there by a deploy step";

/// The hints select another disk than the default. A deploy step injects a file into the image.
#[test]
fn root_device_hints_select_the_disk() {
    let Some(lab) = LabInventory::find() else { return };
    let _lock = lock_machine("journey-disks");
    let machine = DeployedLabMachine::enrol(
        &lab,
        "journey-disks",
        TestAgent::Ferrite,
        "ipxe",
        &["--no-automated-clean"],
    );
    let Some(mut machine) = machine else { return };
    machine.run_verb("manage", &[]);
    machine.run_verb("provide", &[]);
    let disks = lab.disks("journey-disks");
    let magnetic =
        disks.iter().find(|disk| disk["rotational"] == true).expect("one disk is rotational");
    let hints = json!({ "rotational": true, "size": ">= 7" }).to_string();
    machine.set_property("root_device", &hints);
    let files = json!([{ "path": "/loader/note", "content": STANDARD.encode(INJECTED) }]);
    let steps = json!([{
        "interface": "deploy", "step": "inject_files", "priority": 70, "args": { "files": files },
    }]);
    machine.deploy_with("hinted", &["--deploy-steps", &steps.to_string()]);
    for disk in &disks {
        let is_meant = disk["serial"] == magnetic["serial"];
        assert_eq!(!DeployedLabMachine::is_disk_empty(disk), is_meant, "{disk}");
    }
    let partition = format!("{}@@{PARTITION_BYTE}", text(&magnetic["file"]));
    let note = output_of(Command::new("mtype").args(["-i", &partition, "::/loader/note"]));
    assert_eq!(String::from_utf8_lossy(&note.stdout), INJECTED, "{note:?}");

    // The error for a missing disk lists the hints.
    machine.run_verb("undeploy", &[]);
    machine.set_property("root_device", &json!({ "serial": "UNKNOWN" }).to_string());
    machine.set_image(&image(), &checksum(&image()));
    let error = machine.run_failing_verb("deploy", "deploy failed");
    assert!(error.contains("UNKNOWN"), "{error}");
    assert!(error.contains("serial"), "{error}");
}

/// Slow deployments; run by `cargo xtask test --all`.
mod matrix {
    use super::*;

    /// Cleaning creates a RAID 1 of two disks, an image is deployed on it, and cleaning deletes it, each in a
    /// separate boot. The third disk is overwritten completely, and no other.
    #[test]
    fn deploys_on_software_raid() {
        const MORE: [&str; 1] = ["--no-automated-clean"];
        let Some(lab) = LabInventory::find() else { return };
        let _lock = lock_machine("journey-raid");
        let machine =
            DeployedLabMachine::enrol(&lab, "journey-raid", TestAgent::Ferrite, "ipxe", &MORE);
        let Some(mut machine) = machine else { return };
        machine.run_verb("manage", &[]);
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
        machine.run_verb("clean", &["--clean-steps", &steps]);
        let made = machine.show()["raid_config"].clone();
        assert_eq!(made["logical_disks"][0]["raid_level"], json!("1"), "{made}");
        machine.run_verb("provide", &[]);
        let console = machine.deploy("mirrored");
        assert!(console.output().contains("FERRITE-MIRROR"), "{}", console.last_lines(40));
        for disk in &large {
            assert!(has_raid_metadata(Path::new(text(&disk["file"]))), "{disk}");
        }

        machine.run_verb("undeploy", &[]);
        machine.run_verb("manage", &[]);
        machine.set_property("skip_block_devices", &json!(hints).to_string());
        let steps = json!([
            { "interface": "raid", "step": "delete_configuration" },
            { "interface": "deploy", "step": "erase_devices" },
        ])
        .to_string();
        machine.run_verb("clean", &["--clean-steps", &steps]);
        for disk in &large {
            assert!(
                !has_raid_metadata(Path::new(text(&disk["file"]))),
                "{disk}: {}",
                machine.timeline_text()
            );
        }
        assert!(!has_anything_in_the_middle(small), "{}", machine.timeline_text());
        assert_eq!(machine.show()["raid_config"], json!({}));
    }
}

/// Whether a disk has RAID metadata in the first partition that `create_configuration` creates, behind the
/// space for an EFI system partition.
fn has_raid_metadata(disk: &Path) -> bool {
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
    file.write_all(b"confidential data").unwrap();
}

fn has_anything_in_the_middle(disk: &Path) -> bool {
    let mut found = [0; 17];
    let mut file = OpenOptions::new().read(true).open(disk).unwrap();
    file.seek(MIDDLE).unwrap();
    file.read_exact(&mut found).unwrap();
    found != [0; 17]
}
