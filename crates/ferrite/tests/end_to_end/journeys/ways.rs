// SPDX-License-Identifier: Apache-2.0
//! The whole journey by every way of booting, with our agent; and with the stock one.
//!
//! Some machines boot the agent anew for every stage, others keep it from inspection to deployment.

use serde_json::{Value, json};

use super::traveller::{Agent, Traveller, log_in, turn_of};
use crate::real_bmcs::lab::Lab;

const PASSWORD: &str = "let-me-in-once";
/// What the node is told if its agent is to be kept.
const KEPT: [&str; 2] = ["--driver-info", "fast_track=true"];

/// Firmware loads iPXE by TFTP, which loads the rest by HTTP.
#[test]
fn a_uefi_machine_travels_by_ipxe() {
    let Some(lab) = Lab::find() else { return };
    let _turn = turn_of("journey-uefi");
    let machine = Traveller::enrol(&lab, "journey-uefi", Agent::Ferrite, "ipxe", &[]);
    let Some(mut machine) = machine else { return };
    whole_journey(&mut machine, "uefi", Stays::Off, Rescue::ByAddressOfDhcp);
}

/// The same with ironic-python-agent as it is. Its ramdisk has no rescue system.
#[test]
fn a_uefi_machine_travels_with_the_stock_agent() {
    let Some(lab) = Lab::find() else { return };
    let _turn = turn_of("journey-uefi");
    let machine = Traveller::enrol(&lab, "journey-uefi", Agent::Stock, "ipxe", &KEPT);
    let Some(mut machine) = machine else { return };
    whole_journey(&mut machine, "uefi", Stays::On, Rescue::None);
}

/// The card's own iPXE; the BMC speaks IPMI.
#[test]
fn a_bios_machine_travels_by_ipxe_and_ipmi() {
    let Some(lab) = Lab::find() else { return };
    let _turn = turn_of("journey-bios");
    let bmc = ("ipmi", lab.ipmi_info("journey-bios"));
    let more = ["--property", "capabilities=boot_mode:bios"];
    let machine = Traveller::enrol_with(&lab, "journey-bios", Agent::Ferrite, bmc, "ipxe", &more);
    let Some(mut machine) = machine else { return };
    whole_journey(&mut machine, "bios", Stays::Off, Rescue::ByAddressOfDhcp);
}

/// Firmware loads one image by HTTP.
#[test]
fn a_uefi_machine_travels_by_http() {
    let Some(lab) = Lab::find() else { return };
    let _turn = turn_of("journey-http");
    let machine = Traveller::enrol(&lab, "journey-http", Agent::Ferrite, "http", &KEPT);
    let Some(mut machine) = machine else { return };
    whole_journey(&mut machine, "uefi", Stays::On, Rescue::ByAddressOfDhcp);
}

/// The BMC presents a CD, and nobody answers DHCP.
#[test]
fn a_machine_travels_by_virtual_media_without_dhcp() {
    const ADDRESS: &str = "10.77.19.42";
    let Some(lab) = Lab::find() else { return };
    let _turn = turn_of("journey-media");
    let network = network_data(lab.mac("journey-media"), ADDRESS).to_string();
    let more = ["--network-data", &network, KEPT[0], KEPT[1]];
    let machine =
        Traveller::enrol(&lab, "journey-media", Agent::Ferrite, "redfish-virtual-media", &more);
    let Some(mut machine) = machine else { return };
    whole_journey(&mut machine, "uefi", Stays::On, Rescue::At(ADDRESS));
}

/// What a machine does between the stages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stays {
    Off,
    On,
}

/// Where the rescue system is found.
enum Rescue {
    None,
    ByAddressOfDhcp,
    At(&'static str),
}

fn whole_journey(machine: &mut Traveller<'_>, firmware: &str, stays: Stays, rescue: Rescue) {
    let power = if stays == Stays::On { "power on" } else { "power off" };
    machine.go("manage", &[]);
    machine.go("inspect", &[]);
    let node = machine.show();
    assert_eq!(node["properties"]["cpu_arch"], json!("x86_64"), "{node}");
    assert_eq!(node["power_state"], json!(power));
    machine.go("provide", &[]);
    assert_eq!(machine.show()["power_state"], json!(power));

    let console = machine.deploy("journey-one");
    assert!(console.said().contains(&format!("FERRITE-FIRMWARE {firmware}")));
    assert!(!machine.disk_is_empty());

    let address = match rescue {
        Rescue::None => None,
        Rescue::ByAddressOfDhcp => Some(String::new()),
        Rescue::At(address) => Some(address.to_owned()),
    };
    if let Some(address) = address {
        machine.go("rescue", &["--rescue-password", PASSWORD]);
        let address = if address.is_empty() { machine.address() } else { address };
        let seen = machine.console_so_far();
        let let_in = log_in(&address, PASSWORD, "echo in");
        assert_eq!(let_in.as_deref(), Ok("in\n"), "{}", seen.last(40));
        assert!(log_in(&address, "something else", "echo in").is_err());
        let console = machine.console();
        machine.go("unrescue", &[]);
        machine.runs(&console, "journey-one");
    }

    machine.go("undeploy", &[]);
    assert!(machine.disk_is_empty(), "the disk was not erased:\n{}", machine.story());
    assert_eq!(machine.show()["power_state"], json!(power));
    println!("{}", machine.story());
}

/// One address on the machine's card, as OpenStack says it.
fn network_data(mac: &str, address: &str) -> Value {
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
