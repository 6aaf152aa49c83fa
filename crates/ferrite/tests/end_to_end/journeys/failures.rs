// SPDX-License-Identifier: Apache-2.0
//! What goes wrong on a journey is explained, and trying again works.

use std::time::Duration;

use super::traveller::{Agent, Traveller, checksum, image, turn_of};
use crate::real_bmcs::lab::Lab;

#[test]
fn failures_are_explained_and_trying_again_works() {
    let Some(lab) = Lab::find() else { return };
    let _turn = turn_of("journey-bios");
    let more = ["--no-automated-clean", "--property", "capabilities=boot_mode:bios"];
    let machine = Traveller::enrol(&lab, "journey-bios", Agent::Ferrite, "ipxe", &more);
    let Some(mut machine) = machine else { return };
    machine.go("manage", &[]);
    machine.go("provide", &[]);

    // A wrong checksum is found before the machine is touched.
    machine.set_image(&image(), &"0".repeat(64));
    let said = machine.fails("deploy", "deploy failed");
    assert!(said.contains("checksum"), "{said}");
    assert_eq!(lab.power("journey-bios"), "shut off");
    assert!(machine.disk_is_empty());

    // An image that is larger than the disk.
    let large = machine.site.path("large.raw");
    std::fs::File::create(&large).and_then(|file| file.set_len(7 << 30)).unwrap();
    machine.set_image(&large, &checksum(&large));
    let said = machine.fails("deploy", "deploy failed");
    assert!(said.contains("write_image") && said.contains("larger"), "{said}");
    // It says that it failed before it tidies up, and the logs are fetched then.
    let logs = format!("/v1/ferrite/nodes/{}/logs", machine.node);
    assert_eq!(machine.site.operator.until_listed(&logs, "logs").len(), 1);
    std::fs::remove_file(&large).unwrap();

    // The power is cut while the image is written.
    machine.set_image(&image(), &checksum(&image()));
    machine.ask("active");
    machine.until("writing", |node| node["deploy_step"]["step"] == "write_image");
    lab.virsh(&["destroy", "journey-bios"]);
    let said = machine.failed_within("deploy failed", Duration::from_secs(120));
    assert!(said.contains("the machine is off"), "{said}");

    machine.deploy("in-the-end");
}
