// SPDX-License-Identifier: Apache-2.0
//! Machines that nobody enrolled: left alone, or had a look at, as the network's mode says; seen in
//! any case.

use serde_json::{Value, json};

use super::site::{Site, kernel, ramdisk, turn_of_boot_bios, url_of};
use crate::real_bmcs::lab::{Lab, text};

const MACHINE: &str = "boot-bios";

#[test]
fn a_stranger_is_seen_and_inspected_only_where_that_is_wanted() {
    let Some(lab) = Lab::find() else { return };
    let _turn = turn_of_boot_bios();
    is_left_alone(&lab);
    gets_the_agent(&lab);
}

fn is_left_alone(lab: &Lab) {
    let mut site = Site::open(lab, MACHINE, "reserve", &agent(lab));
    let console = site.switch_on();
    let seen = site.sighting(|_| true);
    assert_eq!(seen["interface"], "boot0", "{seen}");
    assert_eq!(seen["architecture"], "x86 BIOS", "{seen}");
    assert_eq!(seen["ip_address"], Value::Null, "{seen}");
    let last = text(&seen["last"]);
    assert!(last.contains("DISCOVER by iPXE") && last.contains("nobody enrolled it"), "{last}");
    site.switch_off();
    assert!(!console.said().contains("net0: 10.77."), "{}", console.last(20));
}

fn gets_the_agent(lab: &Lab) {
    let mut site = Site::open(lab, MACHINE, "discover", &agent(lab));
    let console = site.switch_on();
    site.comes_up(&console, "stranger");
    let parameters = console.ramdisk_said("PARAMETERS").unwrap();
    let home = format!("http://{}:6385", site.address());
    for parameter in [
        format!("ipa-api-url={home}"),
        format!("ipa-inspection-callback-url={home}/v1/continue_inspection"),
        format!("BOOTIF={}", site.mac()),
        "of.inspection=1".to_owned(),
    ] {
        assert!(parameters.split(' ').any(|found| found == parameter), "{parameters}");
    }
    let address = console.ramdisk_said("ADDRESS").unwrap();
    let seen = site.sighting(|seen| text(&seen["last"]).contains("a running system"));
    assert_eq!(format!("{}/24", text(&seen["ip_address"])), address, "{seen}");
    assert_eq!(seen["architecture"], "x86 BIOS", "{seen}");
    site.switch_off();

    // Enrolled, it is none of the network's business any more until it is to boot from there.
    let node = site.enrol("ipxe", json!({}));
    let console = site.switch_on();
    let left_alone =
        "dhcp: DISCOVER by iPXE (x86 BIOS) on boot0: not answered: it should boot its disk";
    site.seen(&node, &[left_alone]);
    site.switch_off();
    assert!(!console.said().contains("net0: 10.77."), "{}", console.last(20));
}

/// The settings by which strangers get our ramdisk for the agent.
fn agent(lab: &Lab) -> String {
    let (_, address) = lab.bridge(MACHINE);
    let report = format!("http://{address}:6385/v1/boot/{}/boot.ipxe", lab.mac(MACHINE));
    format!(
        "deploy_kernel = \"{}\"
deploy_ramdisk = \"{}\"
kernel_append_params = \"console=ttyS0 ferrite.dhcp=1 ferrite.report={report} test.word=stranger\"
inspection_kernel_params = \"of.inspection=1\"",
        url_of(&kernel()),
        url_of(&ramdisk())
    )
}
