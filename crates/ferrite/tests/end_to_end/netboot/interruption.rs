// SPDX-License-Identifier: Apache-2.0
//! Ferrite is killed and restarted while a machine boots.

use serde_json::json;

use super::boot_site::{BootSite, lock_boot_bios};
use crate::real_bmcs::lab::LabInventory;

const MACHINE: &str = "boot-bios";

#[test]
fn boots_although_the_server_is_killed() {
    let Some(lab) = LabInventory::find() else { return };
    let _lock = lock_boot_bios();
    let mut site = BootSite::start(&lab, MACHINE, "reserve", "");
    let node = site.enrol("ipxe", json!({}));
    let instance = site.instance("killed", "ferrite.dhcp=1");
    let boot = site.deploy(node, &instance);
    // The machine has its address and script, and loads the kernel next.
    boot.console.wait_for("Booting the instance by ipxe", || site.operator.log());
    let home = site.operator.kill();

    // A lost lease would be replaced by another address of this range.
    let mut site = BootSite::start_with_range(home, &lab, MACHINE, "reserve", 50, "");
    site.wait_until_up(&boot.console, "killed");
    let output = boot.console.output();
    assert!(output.contains("Loading failed; retrying"), "the boot was not interrupted:\n{output}");
    let first = output.split("net0: ").find(|part| part.starts_with("10.77.")).unwrap();
    let first = first.split('/').next().unwrap();
    let now = boot.console.ramdisk_value("ADDRESS").unwrap();
    assert_eq!(now, format!("{first}/24"), "another lease");
    let steps = [
        "http: kernel of the instance: 200 (iPXE",
        "http: ramdisk of the instance: 200 (iPXE",
        "dhcp: REQUEST from a running system on boot0: leased",
    ];
    site.wait_for_activity(&boot.node, &steps);
    site.undeploy(&boot);
}
