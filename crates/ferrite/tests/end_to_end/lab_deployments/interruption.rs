// SPDX-License-Identifier: Apache-2.0
//! The server is killed at every step of a deployment, which still ends in `active`.

use super::lab_machine::{DeployedLabMachine, TestAgent, checksum, image, lock_machine};
use crate::real_bmcs::lab::LabInventory;

/// Provision states and deploy steps at which the server is killed.
const KILL_POINTS: &[(&str, &str)] = &[
    ("deploying", ""),
    ("wait call-back", "deploy"),
    ("wait call-back", "write_image"),
    ("", "prepare_instance_boot"),
    ("", "tear_down_agent"),
    ("", "boot_instance"),
];

#[test]
fn deployment_survives_kills_of_the_server_at_every_step() {
    let Some(lab) = LabInventory::find() else { return };
    let _lock = lock_machine("journey-uefi");
    let machine = DeployedLabMachine::enrol(
        &lab,
        "journey-uefi",
        TestAgent::Ferrite,
        "ipxe",
        &["--no-automated-clean"],
    );
    let Some(mut machine) = machine else { return };
    machine.run_verb("manage", &[]);
    machine.run_verb("provide", &[]);
    machine.set_image(&image(), &checksum(&image()));
    let console = machine.console();
    machine.request_deployment("killed");
    let mut killed = 0;
    for (state, step) in KILL_POINTS {
        // A step may be over before it is observed.
        let node = machine.wait_for_node(|node| {
            let is_there = (state.is_empty() || node["provision_state"] == *state)
                && (step.is_empty() || node["deploy_step"]["step"] == *step);
            is_there || node["provision_state"] == "active"
        });
        if node["provision_state"] == "active" {
            break;
        }
        machine = machine.kill_and_restart_server();
        killed += 1;
    }
    assert!(killed >= 4, "killed only {killed} times");
    machine.wait_until("active", |node| node["provision_state"] == "active");
    machine.wait_until_deployed(&console, "killed");
    let timeline = machine.timeline_text();
    assert_eq!(
        timeline.matches("agent: deploy.execute_deploy_step (write_image)").count(),
        1,
        "the image must be written once:\n{timeline}"
    );
}
