// SPDX-License-Identifier: Apache-2.0
//! Failed deployments have a clear error, and a retry succeeds.

use std::time::Duration;

use super::lab_machine::{DeployedLabMachine, TestAgent, checksum, image, lock_machine};
use crate::real_bmcs::lab::LabInventory;

#[test]
fn reports_deploy_failures_and_recovers() {
    let Some(lab) = LabInventory::find() else { return };
    let _lock = lock_machine("journey-bios");
    let more = ["--no-automated-clean", "--property", "capabilities=boot_mode:bios"];
    let machine =
        DeployedLabMachine::enrol(&lab, "journey-bios", TestAgent::Ferrite, "ipxe", &more);
    let Some(mut machine) = machine else { return };
    machine.run_verb("manage", &[]);
    machine.run_verb("provide", &[]);

    // A wrong checksum is found before the machine is powered on.
    machine.set_image(&image(), &"0".repeat(64));
    let error = machine.run_failing_verb("deploy", "deploy failed");
    assert!(error.contains("checksum"), "{error}");
    assert_eq!(lab.power("journey-bios"), "shut off");
    assert!(machine.disk_is_empty());

    // An image that is larger than the disk.
    let large = machine.site.path("large.raw");
    std::fs::File::create(&large).and_then(|file| file.set_len(7 << 30)).unwrap();
    machine.set_image(&large, &checksum(&large));
    let error = machine.run_failing_verb("deploy", "deploy failed");
    assert!(error.contains("write_image") && error.contains("larger"), "{error}");
    // Logs are collected after the state change.
    let logs = format!("/v1/ferrite/nodes/{}/logs", machine.node);
    assert_eq!(machine.site.operator.wait_for_list(&logs, "logs").len(), 1);
    std::fs::remove_file(&large).unwrap();

    // The power is cut while the image is written.
    machine.set_image(&image(), &checksum(&image()));
    machine.request("active");
    machine.wait_until("writing", |node| node["deploy_step"]["step"] == "write_image");
    lab.virsh(&["destroy", "journey-bios"]);
    let error = machine.wait_for_failure("deploy failed", Duration::from_secs(120));
    assert!(error.contains("the machine is off"), "{error}");

    machine.deploy("recovered");
}
