// SPDX-License-Identifier: Apache-2.0
//! Boots from virtual media without DHCP: the network configuration is on the CD.

use std::net::SocketAddr;

use http_probe::ProbeClient;
use serde_json::{Value, json};

use super::boot_site::{BootSite, REPORT_ENTRY, StartedBoot, file_url};
use crate::real_bmcs::lab::LabInventory;
use crate::test_process::TestHome;

const MACHINE: &str = "boot-media";
const ADDRESS: &str = "10.77.3.42";

/// Boots from a CD that Ferrite builds of kernel and ramdisk, then from a prebuilt ISO image, for which the
/// first one is used.
#[test]
fn boots_from_virtual_media_without_dhcp() {
    let Some(lab) = LabInventory::find() else { return };
    let iso = boot_from_kernel_and_ramdisk(&lab);
    boot_from_iso(&lab, &iso);
}

/// Returns the CD.
fn boot_from_kernel_and_ramdisk(lab: &LabInventory) -> Vec<u8> {
    let mut site = BootSite::start(lab, MACHINE, "off", "");
    let network_data = network_data(site.mac());
    let node = site.enrol("redfish-virtual-media", network_data);
    let instance = site.instance("built", "");
    let boot = site.deploy(node, &instance);
    let plan = site.operator.get(&format!("/v1/ferrite/nodes/{}/boot", boot.node));
    assert_eq!(
        (&plan["boots"], &plan["method"], &plan["network_data"]),
        (&json!("instance"), &json!("virtual media"), &json!(true)),
        "{plan}"
    );
    // Only the BMC gets the CD.
    site.assert_boots_disk();
    let iso = fetch(&format!("{}/boot.iso", boot.files));
    check_and_undeploy(&mut site, &boot);
    iso
}

fn boot_from_iso(lab: &LabInventory, iso: &[u8]) {
    let home = TestHome::new();
    let file = home.path("prebuilt.iso");
    std::fs::write(&file, iso).unwrap();
    let mut site = BootSite::start_in(home, lab, MACHINE, "off", "");
    let node = site.enrol("redfish-virtual-media", json!({}));
    let prebuilt = json!({ "boot_iso": file_url(&file) });
    let boot = site.deploy(node, &prebuilt);
    let plan = site.operator.get(&format!("/v1/ferrite/nodes/{}/boot", boot.node));
    assert_eq!(plan["iso"]["source"], prebuilt["boot_iso"], "{plan}");
    check_and_undeploy(&mut site, &boot);
}

fn check_and_undeploy(site: &mut BootSite<'_>, boot: &StartedBoot) {
    site.wait_until_up(&boot.console, "built");
    let address = boot.console.ramdisk_value("ADDRESS").unwrap();
    assert_eq!(address, format!("{ADDRESS}/24"));
    assert_eq!(boot.console.ramdisk_value("FIRMWARE").as_deref(), Some("uefi"));
    let seen = site.wait_for_activity(&boot.node, &["http: boot.iso of the instance: 200"]);
    // The script request is the test's own.
    let expected = ["http: boot.iso", "http: iPXE script of", REPORT_ENTRY];
    let is_expected = |line: &String| expected.iter().any(|start| line.starts_with(start));
    assert!(seen.iter().all(is_expected), "{seen:?}");
    assert_eq!(site.inserted_cd()["Inserted"], true);
    site.undeploy(boot);
    let cd = site.inserted_cd();
    assert_eq!(cd["Inserted"], false, "{cd}");
}

/// One static address in OpenStack's network_data format.
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
    let response = ProbeClient::new(address).send("GET", &format!("/{path}"), None).unwrap();
    assert_eq!(response.status, 200);
    response.body
}
