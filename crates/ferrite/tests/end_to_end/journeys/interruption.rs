// SPDX-License-Identifier: Apache-2.0
//! The server is killed at every step of a deployment, which ends in `active` all the same.

use super::traveller::{Agent, Traveller, checksum, image, turn_of};
use crate::real_bmcs::lab::Lab;

/// Every step, and the states around them.
const MOMENTS: &[(&str, &str)] = &[
    ("deploying", ""),
    ("wait call-back", "deploy"),
    ("wait call-back", "write_image"),
    ("", "prepare_instance_boot"),
    ("", "tear_down_agent"),
    ("", "boot_instance"),
];

#[test]
fn a_deployment_survives_the_death_of_its_server_at_every_step() {
    let Some(lab) = Lab::find() else { return };
    let _turn = turn_of("journey-uefi");
    let machine =
        Traveller::enrol(&lab, "journey-uefi", Agent::Ferrite, "ipxe", &["--no-automated-clean"]);
    let Some(mut machine) = machine else { return };
    machine.go("manage", &[]);
    machine.go("provide", &[]);
    machine.set_image(&image(), &checksum(&image()));
    let console = machine.console();
    machine.ask_to_deploy("killed");
    let mut killed = 0;
    for (state, step) in MOMENTS {
        // A step that is over before anybody looked is no moment to kill at.
        let seen = machine.reaches(|node| {
            let is_there = (state.is_empty() || node["provision_state"] == *state)
                && (step.is_empty() || node["deploy_step"]["step"] == *step);
            is_there || node["provision_state"] == "active"
        });
        if seen["provision_state"] == "active" {
            break;
        }
        machine = machine.kill_server();
        killed += 1;
    }
    assert!(killed >= 4, "killed only {killed} times");
    machine.until("active", |node| node["provision_state"] == "active");
    machine.runs(&console, "killed");
    let story = machine.story();
    assert_eq!(
        story.matches("agent: deploy.execute_deploy_step (write_image)").count(),
        1,
        "the image was to be written once:\n{story}"
    );
}
