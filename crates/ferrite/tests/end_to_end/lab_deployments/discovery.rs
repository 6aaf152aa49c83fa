// SPDX-License-Identifier: Apache-2.0
//! An unknown machine boots the agent, receives LLDP from its switch, and is enrolled automatically.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::lab_machine::{DeployedLabMachine, TestAgent, lock_machine};
use crate::real_bmcs::lab::LabInventory;

#[test]
fn discovers_an_unknown_machine() {
    const MACHINE: &str = "journey-bios";
    let Some(lab) = LabInventory::find() else { return };
    let _lock = lock_machine(MACHINE);
    let more = "[auto_discovery]\nenabled = true\ndriver = \"redfish\"";
    let mut site = DeployedLabMachine::start_site(
        &lab,
        MACHINE,
        TestAgent::Ferrite,
        "discover",
        "ipa-lldp-timeout=20",
        more,
    );
    let _switch = LldpSwitch::start(lab.bridge(MACHINE).0, &site.path("switch"));
    let console = site.power_on();
    let nodes = site.operator.wait_for_list("/v1/nodes", "nodes");
    let node = site.operator.node(nodes[0]["uuid"].as_str().expect("a node has a UUID"));
    assert_eq!(node["provision_state"], json!("enroll"), "{}", console.last_lines(30));
    assert_eq!(node["properties"]["cpu_arch"], json!("x86_64"));
    let ports = site.operator.get("/v1/ports");
    assert_eq!(ports["ports"][0]["address"], json!(lab.mac(MACHINE)), "{ports}");
    let topology = site.operator.get("/v1/ferrite/topology");
    let switch = &topology["switches"][0];
    assert_eq!(switch["name"], json!(SWITCH), "{topology}");
    assert_eq!(switch["ports"][0]["node_uuid"], node["uuid"], "{topology}");
    site.power_off();
}

const SWITCH: &str = "switch-of-the-lab";

/// An LLDP neighbour on the machine's bridge: Debian's lldpd.
struct LldpSwitch(Child);

impl LldpSwitch {
    fn start(interface: &str, folder: &Path) -> Self {
        // lldpd changes its root to this folder.
        std::fs::create_dir_all("/run/lldpd").unwrap();
        std::fs::create_dir_all(folder).unwrap();
        let config = folder.join("lldpd.conf");
        let commands =
            format!("configure lldp tx-interval 1\nconfigure system hostname {SWITCH}\n");
        std::fs::write(&config, commands).unwrap();
        let mut lldpd = Command::new("lldpd");
        lldpd.args(["-d", "-I", interface]).arg("-O").arg(config);
        lldpd.arg("-u").arg(folder.join("socket")).stdout(Stdio::null()).stderr(Stdio::null());
        Self(lldpd.spawn().unwrap())
    }
}

impl Drop for LldpSwitch {
    fn drop(&mut self) {
        // SIGTERM, so that it also ends its child processes.
        let terminated = Command::new("kill").arg(self.0.id().to_string()).status();
        if terminated.is_ok_and(|status| status.success()) {
            self.0.wait().ok();
        }
    }
}
