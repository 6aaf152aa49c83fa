// SPDX-License-Identifier: Apache-2.0
//! The ways over the network: each kind of firmware boots by each of its own.

use serde_json::json;

use super::site::{REPORT, Site, turn_of_boot_bios};
use crate::real_bmcs::lab::Lab;

/// What the timeline tells of a ramdisk that is up and asks for an address.
const SYSTEM: &str = "dhcp: REQUEST by a running system … given 10.77.";

/// iPXE in the card of a BIOS machine takes the script for its card.
#[test]
fn a_bios_machine_boots_by_ipxe() {
    let Some(lab) = Lab::find() else { return };
    let _turn = turn_of_boot_bios();
    let seen = boots(&lab, "boot-bios", "ipxe", IPXE);
    assert!(!seen.iter().any(|line| line.starts_with("tftp")), "{seen:?}");
}

/// PXELINUX by TFTP, its configuration for the card, kernel and ramdisk, all by TFTP.
#[test]
fn a_bios_machine_boots_by_pxelinux() {
    let Some(lab) = Lab::find() else { return };
    let steps = [
        "dhcp: REQUEST by iPXE (x86 BIOS) on boot4: given 10.77.4.",
        "tftp: pxelinux.0: sent",
        "tftp: ldlinux.c32: sent",
        "tftp: pxelinux.cfg/01-52-54-00-1a-b0-14: sent",
        "tftp: /…/kernel: sent",
        "tftp: /…/ramdisk: sent",
        SYSTEM,
    ];
    let seen = boots(&lab, "boot-pxelinux", "pxe", &steps);
    assert!(!seen.iter().any(|line| is_http(line)), "{seen:?}");
}

/// A UEFI machine loads iPXE by TFTP and the rest by HTTP; or the signed boot loaders of Debian,
/// which need nothing but TFTP.
#[test]
fn a_uefi_machine_boots_by_ipxe_and_by_grub() {
    let Some(lab) = Lab::find() else { return };
    let steps = [
        "dhcp: DISCOVER by firmware, by PXE (x86-64 UEFI) on boot1: offered … to load snponly.efi",
        "dhcp: REQUEST by firmware, by PXE (x86-64 UEFI) on boot1: given … to load snponly.efi",
        "tftp: snponly.efi: sent",
        "dhcp: REQUEST by iPXE",
        "http: the script of 52-54-00-1a-b0-11: 200 (iPXE",
        "http: kernel of the instance: 200 (iPXE",
        "http: ramdisk of the instance: 200 (iPXE",
        SYSTEM,
    ];
    boots(&lab, "boot-uefi", "ipxe", &steps);
    let steps = [
        "dhcp: REQUEST by firmware, by PXE (x86-64 UEFI) on boot1: given … to load bootx64.efi",
        "tftp: bootx64.efi: sent",
        "tftp: grubx64.efi: sent",
        "tftp: … grub.cfg: sent",
        "tftp: /52:54:00:1a:b0:11.conf: sent",
        "tftp: /…/kernel: sent",
        "tftp: /…/ramdisk: sent",
        SYSTEM,
    ];
    let seen = boots(&lab, "boot-uefi", "pxe", &steps);
    assert!(!seen.iter().any(|line| is_http(line)), "{seen:?}");
}

/// One image by HTTP with everything in it; or iPXE by HTTP. Nothing by TFTP.
#[test]
fn a_uefi_machine_boots_by_http() {
    let Some(lab) = Lab::find() else { return };
    let steps = [
        "dhcp: REQUEST by firmware, by HTTP (x86-64 UEFI) on boot2: given … boot.efi",
        "http: boot.efi of the instance: 200 (UefiHttpBoot",
        SYSTEM,
    ];
    let seen = boots(&lab, "boot-http", "http", &steps);
    // What the booted system fetches for itself is told as well.
    let by_firmware = |line: &&String| line.starts_with("http") && !line.ends_with("(Wget)");
    let by_http = seen.iter().filter(by_firmware);
    assert!(by_http.clone().all(|line| line.contains("boot.efi")), "{seen:?}");
    assert!(!seen.iter().any(|line| line.starts_with("tftp")), "{seen:?}");

    let steps = [
        "dhcp: REQUEST by firmware, by HTTP (x86-64 UEFI) on boot2: given … snponly.efi",
        "dhcp: REQUEST by iPXE",
        "http: the script of 52-54-00-1a-b0-12: 200 (iPXE",
        "http: kernel of the instance: 200 (iPXE",
        "http: ramdisk of the instance: 200 (iPXE",
        SYSTEM,
    ];
    let seen = boots(&lab, "boot-http", "http-ipxe", &steps);
    assert!(!seen.iter().any(|line| line.starts_with("tftp")), "{seen:?}");
}

/// What iPXE in a card does.
const IPXE: &[&str] = &[
    "dhcp: DISCOVER by iPXE (x86 BIOS) on boot0: offered 10.77.0.",
    "dhcp: REQUEST by iPXE (x86 BIOS) on boot0: given 10.77.0. … pxelinux.cfg/52-54-00-1a-b0-10",
    "http: the script of 52-54-00-1a-b0-10: 200 (iPXE",
    "http: kernel of the instance: 200 (iPXE",
    "http: ramdisk of the instance: 200 (iPXE",
    SYSTEM,
];

/// Boots a machine by a way and takes it back; what was seen meanwhile, with `steps` in it.
fn boots(lab: &Lab, machine: &'static str, way: &str, steps: &[&str]) -> Vec<String> {
    let mut site = Site::open(lab, machine, "reserve", "");
    let node = site.enrol(way, json!({}));
    let instance = site.instance(way, "ferrite.dhcp=1");
    let boot = site.deploy(node, &instance);

    let plan = site.operator.get(&format!("/v1/ferrite/nodes/{}/boot", boot.node));
    assert_eq!(plan["boots"], "instance", "{plan}");
    assert_eq!(plan["way"], way, "{plan}");
    assert_eq!(plan["kernel"]["source"], instance["kernel"], "{plan}");
    assert_eq!(plan["ramdisk"]["source"], instance["ramdisk"], "{plan}");
    assert!(plan["kernel_parameters"].to_string().contains(&format!("test.word={way}")), "{plan}");
    assert!(!plan.to_string().contains(boot.files.rsplit('/').next().unwrap()), "{plan}");

    site.comes_up(&boot.console, way);
    let firmware = boot.console.ramdisk_said("FIRMWARE").unwrap();
    assert_eq!(
        firmware,
        if matches!(machine, "boot-bios" | "boot-pxelinux") { "bios" } else { "uefi" }
    );
    let seen = site.seen(&boot.node, steps);
    site.undeploy(&boot);
    seen
}

/// Whether the machine loaded something by HTTP; its report at the end is none of its boot.
fn is_http(line: &str) -> bool {
    line.starts_with("http") && !line.starts_with(REPORT)
}
