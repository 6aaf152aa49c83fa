// SPDX-License-Identifier: Apache-2.0
//! Ferrite is killed while a machine boots, and started again: the machine comes up all the same.

use serde_json::json;

use super::site::{Site, turn_of_boot_bios};
use crate::real_bmcs::lab::Lab;

const MACHINE: &str = "boot-bios";

#[test]
fn a_machine_comes_up_though_ferrite_is_killed_in_the_middle() {
    let Some(lab) = Lab::find() else { return };
    let _turn = turn_of_boot_bios();
    let mut site = Site::open(&lab, MACHINE, "reserve", "");
    let node = site.enrol("ipxe", json!({}));
    let instance = site.instance("killed", "ferrite.dhcp=1");
    let boot = site.deploy(node, &instance);
    // It has its address and its script, and is about to load the kernel.
    boot.console.until("Booting the instance by ipxe", || site.operator.log());
    let home = site.operator.kill();

    // A lease that is lost would be made anew at another address of this range.
    let mut site = Site::open_with(home, &lab, MACHINE, "reserve", 50, "");
    site.comes_up(&boot.console, "killed");
    let said = boot.console.said();
    assert!(said.contains("That did not work; trying again"), "it was not interrupted:\n{said}");
    let first = said.split("net0: ").find(|part| part.starts_with("10.77.")).unwrap();
    let first = first.split('/').next().unwrap();
    let now = boot.console.ramdisk_said("ADDRESS").unwrap();
    assert_eq!(now, format!("{first}/24"), "another lease");
    let steps = [
        "http: kernel of the instance: 200 (iPXE",
        "http: ramdisk of the instance: 200 (iPXE",
        "dhcp: REQUEST by a running system on boot0: given",
    ];
    site.seen(&boot.node, &steps);
    site.undeploy(&boot);
}
