// SPDX-License-Identifier: Apache-2.0
//! A machine that nobody enrolled boots the agent, hears the switch it is plugged into, reports
//! itself, and is a node.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::traveller::{Agent, Traveller, turn_of};
use crate::real_bmcs::lab::Lab;

#[test]
fn a_machine_that_nobody_enrolled_is_discovered() {
    const MACHINE: &str = "journey-bios";
    let Some(lab) = Lab::find() else { return };
    let _turn = turn_of(MACHINE);
    let more = "[auto_discovery]\nenabled = true\ndriver = \"redfish\"";
    let mut site =
        Traveller::site(&lab, MACHINE, Agent::Ferrite, "discover", "ipa-lldp-timeout=20", more);
    let _switch = Switch::at(lab.bridge(MACHINE).0, &site.path("switch"));
    let console = site.switch_on();
    let nodes = site.operator.until_listed("/v1/nodes", "nodes");
    let node = site.operator.node(nodes[0]["uuid"].as_str().expect("a node has one"));
    assert_eq!(node["provision_state"], json!("enroll"), "{}", console.last(30));
    assert_eq!(node["properties"]["cpu_arch"], json!("x86_64"));
    let ports = site.operator.get("/v1/ports");
    assert_eq!(ports["ports"][0]["address"], json!(lab.mac(MACHINE)), "{ports}");
    let topology = site.operator.get("/v1/ferrite/topology");
    let switch = &topology["switches"][0];
    assert_eq!(switch["name"], json!(SWITCH), "{topology}");
    assert_eq!(switch["ports"][0]["node_uuid"], node["uuid"], "{topology}");
    site.switch_off();
}

const SWITCH: &str = "switch-of-the-lab";

/// A neighbour that speaks LLDP on one end of the machine's cable: lldpd, as Debian has it.
struct Switch(Child);

impl Switch {
    fn at(interface: &str, folder: &Path) -> Self {
        // Where it locks itself in.
        std::fs::create_dir_all("/run/lldpd").unwrap();
        std::fs::create_dir_all(folder).unwrap();
        let config = folder.join("lldpd.conf");
        let words = format!("configure lldp tx-interval 1\nconfigure system hostname {SWITCH}\n");
        std::fs::write(&config, words).unwrap();
        let mut lldpd = Command::new("lldpd");
        lldpd.args(["-d", "-I", interface]).arg("-O").arg(config);
        lldpd.arg("-u").arg(folder.join("socket")).stdout(Stdio::null()).stderr(Stdio::null());
        Self(lldpd.spawn().unwrap())
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        // Asked, so that it takes the processes along that work for it.
        let asked = Command::new("kill").arg(self.0.id().to_string()).status();
        if asked.is_ok_and(|status| status.success()) {
            self.0.wait().ok();
        }
    }
}
