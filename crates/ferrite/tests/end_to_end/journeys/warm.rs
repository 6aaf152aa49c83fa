// SPDX-License-Identifier: Apache-2.0
//! A warm machine: the agent stays after cleaning, and the deployed system starts without a boot of
//! the firmware.

use serde_json::json;

use super::traveller::{Agent, Traveller, turn_of};
use crate::real_bmcs::lab::{Lab, text};

#[test]
fn a_warm_machine_is_deployed_without_a_boot_of_the_firmware() {
    let Some(lab) = Lab::find() else { return };
    let _turn = turn_of("journey-http");
    let more = ["--driver-info", "fast_track=true", "--driver-info", "kexec=true"];
    let machine = Traveller::enrol(&lab, "journey-http", Agent::Ferrite, "http", &more);
    let Some(mut machine) = machine else { return };
    machine.go("manage", &[]);
    // Cleaned, and the agent stays.
    machine.go("provide", &[]);
    assert_eq!(machine.show()["power_state"], json!("power on"));
    let before = machine.site.operator.timeline(&machine.node).len();

    let console = machine.deploy("warm");
    let said = console.said();
    assert!(said.contains("FERRITE-STARTED-BY kexec"), "{}", console.last(60));
    let timeline = machine.site.operator.timeline(&machine.node);
    let resets: Vec<String> = timeline[before..]
        .iter()
        .filter(|entry| entry["what"]["kind"] == "bmc_calls")
        .flat_map(|entry| entry["what"]["calls"].as_array().cloned().unwrap_or_default())
        .map(|call| text(&call["what"]).to_owned())
        .filter(|what| what.contains("Reset"))
        .collect();
    assert_eq!(resets, Vec::<String>::new(), "{}", machine.story());

    // Whoever takes it back and wants it warm asks for it.
    machine.go("undeploy", &[]);
    machine.site.operator.expect(
        202,
        "POST",
        &format!("/v1/ferrite/nodes/{}/warm", machine.node),
        None,
    );
    let node = machine.node.clone();
    machine.site.operator.until(&node, "an agent that has called", |node| {
        !node["driver_internal_info"]["agent_url"].is_null()
    });
}
