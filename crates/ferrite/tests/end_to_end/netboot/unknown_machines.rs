// SPDX-License-Identifier: Apache-2.0
//! Unknown machines: depending on the network's mode they get no reply or boot the agent. A sighting is
//! recorded in both cases.

use serde_json::{Value, json};

use super::boot_site::{BootSite, file_url, kernel, lock_boot_bios, ramdisk};
use crate::real_bmcs::lab::{LabInventory, text};

const MACHINE: &str = "boot-bios";

#[test]
fn unknown_machines_boot_the_agent_only_in_discover_mode() {
    let Some(lab) = LabInventory::find() else { return };
    let _lock = lock_boot_bios();
    gets_no_reply(&lab);
    boots_the_agent(&lab);
}

fn gets_no_reply(lab: &LabInventory) {
    let mut site = BootSite::start(lab, MACHINE, "reserve", &agent_settings(lab));
    let console = site.power_on();
    let seen = site.wait_for_sighting(|_| true);
    assert_eq!(seen["interface"], "boot0", "{seen}");
    assert_eq!(seen["architecture"], "x86 BIOS", "{seen}");
    assert_eq!(seen["ip_address"], Value::Null, "{seen}");
    let last = text(&seen["last_activity"]);
    assert!(last.contains("DISCOVER from iPXE") && last.contains("not enrolled"), "{last}");
    site.power_off();
    assert!(!console.output().contains("net0: 10.77."), "{}", console.last_lines(20));
}

fn boots_the_agent(lab: &LabInventory) {
    let mut site = BootSite::start(lab, MACHINE, "discover", &agent_settings(lab));
    let console = site.power_on();
    site.wait_until_up(&console, "unknown");
    let parameters = console.ramdisk_value("PARAMETERS").unwrap();
    let home = format!("https://{}:6385", site.address());
    for parameter in [
        format!("ipa-api-url={home}"),
        format!("ipa-inspection-callback-url={home}/v1/continue_inspection"),
        format!("BOOTIF={}", site.mac()),
        "of.inspection=1".to_owned(),
    ] {
        assert!(parameters.split(' ').any(|found| found == parameter), "{parameters}");
    }
    let address = console.ramdisk_value("ADDRESS").unwrap();
    // Only the last activity is kept: its DHCP request, or the download that follows.
    let seen = site.wait_for_sighting(|seen| {
        let last = text(&seen["last_activity"]);
        last.contains("a running system") || last.contains("(Wget)")
    });
    assert_eq!(format!("{}/24", text(&seen["ip_address"])), address, "{seen}");
    assert_eq!(seen["architecture"], "x86 BIOS", "{seen}");
    site.power_off();

    // After enrolment it gets replies only when it should boot from the network.
    let node = site.enrol("ipxe", json!({}));
    let console = site.power_on();
    let no_reply = "dhcp: DISCOVER from iPXE (x86 BIOS) on boot0: no reply: boots from disk";
    site.wait_for_activity(&node, &[no_reply]);
    site.power_off();
    assert!(!console.output().contains("net0: 10.77."), "{}", console.last_lines(20));
}

/// Settings with which unknown machines boot the test ramdisk as agent.
fn agent_settings(lab: &LabInventory) -> String {
    let (_, address) = lab.bridge(MACHINE);
    let report = format!("http://{address}:6180/boot.ipxe");
    format!(
        "deploy_kernel = \"{}\"
deploy_ramdisk = \"{}\"
kernel_append_params = \"console=ttyS0 no_timer_check ferrite.dhcp=1 ferrite.report={report} test.word=unknown\"
inspection_kernel_params = \"of.inspection=1\"",
        file_url(&kernel()),
        file_url(&ramdisk())
    )
}
