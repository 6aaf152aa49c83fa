// SPDX-License-Identifier: Apache-2.0
//! All stages with every boot method, with Ferrite's agent and with ironic-python-agent.
//!
//! Some machines boot the agent for every stage, others keep it running from inspection to deployment.

use serde_json::{Value, json};

use super::lab_machine::{DeployedLabMachine, TestAgent, lock_machine, run_over_ssh};
use crate::real_bmcs::lab::LabInventory;

const PASSWORD: &str = "rescue-password";
/// Options of a node whose agent keeps running.
const FAST_TRACK_OPTIONS: [&str; 2] = ["--driver-info", "fast_track=true"];

/// Firmware loads iPXE over TFTP, which loads the rest over HTTP.
#[test]
fn uefi_with_ipxe() {
    let Some(lab) = LabInventory::find() else { return };
    let _lock = lock_machine("journey-uefi");
    let machine = DeployedLabMachine::enrol(&lab, "journey-uefi", TestAgent::Ferrite, "ipxe", &[]);
    let Some(mut machine) = machine else { return };
    run_all_stages(&mut machine, "uefi", PowerBetweenStages::Off, RescueAddress::FromDhcp);
}

/// With unmodified ironic-python-agent, whose ramdisk has no rescue system.
#[test]
fn uefi_with_ironic_python_agent() {
    let Some(lab) = LabInventory::find() else { return };
    let _lock = lock_machine("journey-uefi");
    let machine = DeployedLabMachine::enrol(
        &lab,
        "journey-uefi",
        TestAgent::Stock,
        "ipxe",
        &FAST_TRACK_OPTIONS,
    );
    let Some(mut machine) = machine else { return };
    run_all_stages(&mut machine, "uefi", PowerBetweenStages::On, RescueAddress::None);
}

/// The BMC presents a CD; there is no DHCP.
#[test]
fn virtual_media_without_dhcp() {
    const ADDRESS: &str = "10.77.19.42";
    let Some(lab) = LabInventory::find() else { return };
    let _lock = lock_machine("journey-media");
    let network = network_data(lab.mac("journey-media"), ADDRESS).to_string();
    let more = ["--network-data", &network, FAST_TRACK_OPTIONS[0], FAST_TRACK_OPTIONS[1]];
    let machine = DeployedLabMachine::enrol(
        &lab,
        "journey-media",
        TestAgent::Ferrite,
        "redfish-virtual-media",
        &more,
    );
    let Some(mut machine) = machine else { return };
    run_all_stages(&mut machine, "uefi", PowerBetweenStages::On, RescueAddress::At(ADDRESS));
}

/// Further combinations of boot method and BMC; run by `cargo xtask test --all`.
mod matrix {
    use super::*;

    /// iPXE in the NIC; the BMC uses IPMI.
    #[test]
    fn bios_with_ipxe_and_ipmi() {
        let Some(lab) = LabInventory::find() else { return };
        let _lock = lock_machine("journey-bios");
        let bmc = ("ipmi", lab.ipmi_info("journey-bios"));
        let more = ["--property", "capabilities=boot_mode:bios"];
        let machine = DeployedLabMachine::enrol_with(
            &lab,
            "journey-bios",
            TestAgent::Ferrite,
            bmc,
            "ipxe",
            &more,
        );
        let Some(mut machine) = machine else { return };
        run_all_stages(&mut machine, "bios", PowerBetweenStages::Off, RescueAddress::FromDhcp);
    }

    /// Firmware loads one image over HTTP.
    #[test]
    fn uefi_over_http() {
        let Some(lab) = LabInventory::find() else { return };
        let _lock = lock_machine("journey-http");
        let machine = DeployedLabMachine::enrol(
            &lab,
            "journey-http",
            TestAgent::Ferrite,
            "http",
            &FAST_TRACK_OPTIONS,
        );
        let Some(mut machine) = machine else { return };
        run_all_stages(&mut machine, "uefi", PowerBetweenStages::On, RescueAddress::FromDhcp);
    }
}

/// Power state between the stages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PowerBetweenStages {
    Off,
    On,
}

/// Address of the rescue system.
enum RescueAddress {
    None,
    FromDhcp,
    At(&'static str),
}

fn run_all_stages(
    machine: &mut DeployedLabMachine<'_>,
    firmware: &str,
    between: PowerBetweenStages,
    rescue: RescueAddress,
) {
    let power = if between == PowerBetweenStages::On { "power on" } else { "power off" };
    machine.run_verb("manage", &[]);
    machine.run_verb("inspect", &[]);
    let node = machine.show();
    assert_eq!(node["properties"]["cpu_arch"], json!("x86_64"), "{node}");
    assert_eq!(node["power_state"], json!(power));
    machine.run_verb("provide", &[]);
    assert_eq!(machine.show()["power_state"], json!(power));

    let console = machine.deploy("deployed-once");
    assert!(console.output().contains(&format!("FERRITE-FIRMWARE {firmware}")));
    assert!(!machine.disk_is_empty());

    let address = match rescue {
        RescueAddress::None => None,
        RescueAddress::FromDhcp => Some(String::new()),
        RescueAddress::At(address) => Some(address.to_owned()),
    };
    if let Some(address) = address {
        machine.run_verb("rescue", &["--rescue-password", PASSWORD]);
        let address = if address.is_empty() { machine.dhcp_address() } else { address };
        let console = machine.console_so_far();
        let login = run_over_ssh(&address, PASSWORD, "echo in");
        assert_eq!(login.as_deref(), Ok("in\n"), "{}", console.last_lines(40));
        assert!(run_over_ssh(&address, "something else", "echo in").is_err());
        let console = machine.console();
        machine.run_verb("unrescue", &[]);
        machine.wait_until_deployed(&console, "deployed-once");
    }

    machine.run_verb("undeploy", &[]);
    assert!(machine.disk_is_empty(), "the disk was not erased:\n{}", machine.timeline_text());
    assert_eq!(machine.show()["power_state"], json!(power));
    println!("{}", machine.timeline_text());
}

/// One static address in OpenStack's network_data format.
pub(super) fn network_data(mac: &str, address: &str) -> Value {
    json!({
        "links": [{ "id": "port0", "type": "phy", "ethernet_mac_address": mac }],
        "networks": [{
            "id": "network0",
            "type": "ipv4",
            "link": "port0",
            "network_id": "provisioning",
            "ip_address": address,
            "netmask": "255.255.255.0",
            "routes": [],
        }],
        "services": [],
    })
}
