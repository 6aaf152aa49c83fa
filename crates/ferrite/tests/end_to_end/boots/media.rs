// SPDX-License-Identifier: Apache-2.0
//! Booting from a virtual CD, where nobody answers DHCP: the machine's network is on the CD.

use std::net::SocketAddr;

use http_probe::Client;
use serde_json::{Value, json};

use super::site::{Boot, REPORT, Site, url_of};
use crate::ferrite::Home;
use crate::real_bmcs::lab::Lab;

const MACHINE: &str = "boot-media";
const ADDRESS: &str = "10.77.3.42";

/// From a CD that Ferrite lays out of kernel and ramdisk; then from an ISO image that is there
/// already, for which the first one is taken.
#[test]
fn a_machine_without_dhcp_boots_from_a_virtual_cd() {
    let Some(lab) = Lab::find() else { return };
    let iso = from_kernel_and_ramdisk(&lab);
    from_an_image(&lab, &iso);
}

/// Returns the CD.
fn from_kernel_and_ramdisk(lab: &Lab) -> Vec<u8> {
    let mut site = Site::open(lab, MACHINE, "off", "");
    let network_data = network_data(site.mac());
    let node = site.enrol("redfish-virtual-media", network_data);
    let instance = site.instance("built", "");
    let boot = site.deploy(node, &instance);
    let plan = site.operator.get(&format!("/v1/ferrite/nodes/{}/boot", boot.node));
    assert_eq!(
        (&plan["boots"], &plan["way"], &plan["network_data"]),
        (&json!("instance"), &json!("virtual media"), &json!(true)),
        "{plan}"
    );
    // What is on the CD is for the BMC only.
    site.boots_disk();
    let iso = fetch(&format!("{}/boot.iso", boot.files));
    finish(&mut site, &boot);
    iso
}

fn from_an_image(lab: &Lab, iso: &[u8]) {
    let home = Home::new();
    let file = home.path("prebuilt.iso");
    std::fs::write(&file, iso).unwrap();
    let mut site = Site::open_in(home, lab, MACHINE, "off", "");
    let node = site.enrol("redfish-virtual-media", json!({}));
    let prebuilt = json!({ "boot_iso": url_of(&file) });
    let boot = site.deploy(node, &prebuilt);
    let plan = site.operator.get(&format!("/v1/ferrite/nodes/{}/boot", boot.node));
    assert_eq!(plan["iso"]["source"], prebuilt["boot_iso"], "{plan}");
    finish(&mut site, &boot);
}

fn finish(site: &mut Site<'_>, boot: &Boot) {
    site.comes_up(&boot.console, "built");
    let address = boot.console.ramdisk_said("ADDRESS").unwrap();
    assert_eq!(address, format!("{ADDRESS}/24"));
    assert_eq!(boot.console.ramdisk_said("FIRMWARE").as_deref(), Some("uefi"));
    let seen = site.seen(&boot.node, &["http: boot.iso of the instance: 200"]);
    // The script of its card is what we asked for ourselves, to see that it tells nothing of the CD.
    let expected = ["http: boot.iso", "http: the script of", REPORT];
    let is_expected = |line: &String| expected.iter().any(|start| line.starts_with(start));
    assert!(seen.iter().all(is_expected), "{seen:?}");
    assert_eq!(site.inserted_cd()["Inserted"], true);
    site.undeploy(boot);
    let cd = site.inserted_cd();
    assert_eq!(cd["Inserted"], false, "{cd}");
}

/// One address on the machine's card, as OpenStack says it.
fn network_data(mac: &str) -> Value {
    json!({
        "links": [{ "id": "port0", "type": "phy", "ethernet_mac_address": mac }],
        "networks": [{
            "id": "network0",
            "type": "ipv4",
            "link": "port0",
            "network_id": "provisioning",
            "ip_address": ADDRESS,
            "netmask": "255.255.255.0",
            "routes": [],
        }],
        "services": [],
    })
}

fn fetch(url: &str) -> Vec<u8> {
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let address: SocketAddr = address.parse().unwrap();
    let answer = Client::new(address).send("GET", &format!("/{path}"), None).unwrap();
    assert_eq!(answer.status, 200);
    answer.body
}
