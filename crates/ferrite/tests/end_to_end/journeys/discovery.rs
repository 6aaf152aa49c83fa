// SPDX-License-Identifier: Apache-2.0
//! A machine that nobody enrolled boots the agent, reports itself, and is a node.

use serde_json::json;

use super::traveller::{Agent, Traveller, turn_of};
use crate::real_bmcs::lab::Lab;

#[test]
fn a_machine_that_nobody_enrolled_is_discovered() {
    const MACHINE: &str = "journey-bios";
    let Some(lab) = Lab::find() else { return };
    let _turn = turn_of(MACHINE);
    let more = "[auto_discovery]\nenabled = true\ndriver = \"redfish\"";
    let mut site = Traveller::site(&lab, MACHINE, Agent::Ferrite, "discover", more);
    let console = site.switch_on();
    let nodes = site.operator.until_listed("/v1/nodes", "nodes");
    let node = site.operator.node(nodes[0]["uuid"].as_str().expect("a node has one"));
    assert_eq!(node["provision_state"], json!("enroll"), "{}", console.last(30));
    assert_eq!(node["properties"]["cpu_arch"], json!("x86_64"));
    let ports = site.operator.get("/v1/ports");
    assert_eq!(ports["ports"][0]["address"], json!(lab.mac(MACHINE)), "{ports}");
    site.switch_off();
}
