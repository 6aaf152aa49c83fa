// SPDX-License-Identifier: Apache-2.0
//! Fast track with kexec: the agent keeps running after cleaning, and the deployed system starts without a
//! firmware boot.

use serde_json::json;

use super::lab_machine::{DeployedLabMachine, TestAgent, lock_machine};
use crate::real_bmcs::lab::{LabInventory, text};

#[test]
fn deploys_without_a_firmware_boot() {
    let Some(lab) = LabInventory::find() else { return };
    let _lock = lock_machine("journey-http");
    let more = ["--driver-info", "fast_track=true", "--driver-info", "kexec=true"];
    let machine =
        DeployedLabMachine::enrol(&lab, "journey-http", TestAgent::Ferrite, "http", &more);
    let Some(mut machine) = machine else { return };
    machine.run_verb("manage", &[]);
    // The agent keeps running after cleaning.
    machine.run_verb("provide", &[]);
    assert_eq!(machine.show()["power_state"], json!("power on"));
    let before = machine.site.operator.timeline(&machine.node).len();

    let console = machine.deploy("warm");
    let output = console.output();
    assert!(output.contains("FERRITE-STARTED-BY kexec"), "{}", console.last_lines(60));
    let timeline = machine.site.operator.timeline(&machine.node);
    let resets: Vec<String> = timeline[before..]
        .iter()
        .filter(|entry| entry["event"]["kind"] == "bmc_calls")
        .flat_map(|entry| entry["event"]["calls"].as_array().cloned().unwrap_or_default())
        .map(|call| text(&call["request"]).to_owned())
        .filter(|what| what.contains("Reset"))
        .collect();
    assert_eq!(resets, Vec::<String>::new(), "{}", machine.timeline_text());

    // After undeploying, the agent is booted on request.
    machine.run_verb("undeploy", &[]);
    machine.site.operator.expect(
        202,
        "POST",
        &format!("/v1/ferrite/nodes/{}/warm", machine.node),
        None,
    );
    let node = machine.node.clone();
    machine.site.operator.wait_until(&node, "an agent heartbeat", |node| {
        !node["driver_internal_info"]["agent_url"].is_null()
    });
}
