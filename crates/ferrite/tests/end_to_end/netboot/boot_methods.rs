// SPDX-License-Identifier: Apache-2.0
//! Network boot methods with each kind of firmware.

use serde_json::json;

use super::boot_site::{BootSite, REPORT_ENTRY, lock_boot_bios};
use crate::real_bmcs::lab::LabInventory;

/// Timeline entry of the DHCP request of the running ramdisk.
const SYSTEM_DHCP_ENTRY: &str = "dhcp: REQUEST from a running system … leased 10.77.";

/// iPXE in the NIC of a BIOS machine loads the script of its MAC address.
#[test]
fn bios_boots_with_ipxe() {
    let Some(lab) = LabInventory::find() else { return };
    let _lock = lock_boot_bios();
    let seen = boot_and_undeploy(&lab, "boot-bios", "ipxe", IPXE);
    assert!(!seen.iter().any(|line| line.starts_with("tftp")), "{seen:?}");
}

/// A UEFI machine loads iPXE over TFTP and the rest over HTTP; or Debian's signed boot loaders, which use
/// only TFTP.
#[test]
fn uefi_boots_with_ipxe_and_grub() {
    let Some(lab) = LabInventory::find() else { return };
    let steps = [
        "dhcp: DISCOVER from PXE firmware (x86-64 UEFI) on boot1: offered … boot file snponly.efi",
        "dhcp: REQUEST from PXE firmware (x86-64 UEFI) on boot1: leased … boot file snponly.efi",
        "tftp: snponly.efi: sent",
        "dhcp: REQUEST from iPXE",
        "http: iPXE script of 52-54-00-1a-b0-11: 200 (iPXE",
        "http: kernel of the instance: 200 (iPXE",
        "http: ramdisk of the instance: 200 (iPXE",
        SYSTEM_DHCP_ENTRY,
    ];
    boot_and_undeploy(&lab, "boot-uefi", "ipxe", &steps);
    let steps = [
        "dhcp: REQUEST from PXE firmware (x86-64 UEFI) on boot1: leased … boot file bootx64.efi",
        "tftp: bootx64.efi: sent",
        "tftp: grubx64.efi: sent",
        "tftp: … grub.cfg: sent",
        "tftp: /52:54:00:1a:b0:11.conf: sent",
        "tftp: /…/kernel: sent",
        "tftp: /…/ramdisk: sent",
        SYSTEM_DHCP_ENTRY,
    ];
    let seen = boot_and_undeploy(&lab, "boot-uefi", "pxe", &steps);
    assert!(!seen.iter().any(|line| is_http(line)), "{seen:?}");
}

/// The activity of iPXE in a NIC.
const IPXE: &[&str] = &[
    "dhcp: DISCOVER from iPXE (x86 BIOS) on boot0: offered 10.77.0.",
    "dhcp: REQUEST from iPXE (x86 BIOS) on boot0: leased 10.77.0. … pxelinux.cfg/52-54-00-1a-b0-10",
    "http: iPXE script of 52-54-00-1a-b0-10: 200 (iPXE",
    "http: kernel of the instance: 200 (iPXE",
    "http: ramdisk of the instance: 200 (iPXE",
    SYSTEM_DHCP_ENTRY,
];

/// Further boot methods; run by `cargo xtask test --all`.
mod matrix {
    use super::*;

    /// PXELINUX, its configuration, kernel and ramdisk, all over TFTP.
    #[test]
    fn bios_boots_with_pxelinux() {
        let Some(lab) = LabInventory::find() else { return };
        let steps = [
            "dhcp: REQUEST from iPXE (x86 BIOS) on boot4: leased 10.77.4.",
            "tftp: pxelinux.0: sent",
            "tftp: ldlinux.c32: sent",
            "tftp: pxelinux.cfg/01-52-54-00-1a-b0-14: sent",
            "tftp: /…/kernel: sent",
            "tftp: /…/ramdisk: sent",
            SYSTEM_DHCP_ENTRY,
        ];
        let seen = boot_and_undeploy(&lab, "boot-pxelinux", "pxe", &steps);
        assert!(!seen.iter().any(|line| is_http(line)), "{seen:?}");
    }

    /// One unified kernel image over HTTP; or iPXE over HTTP. No TFTP.
    #[test]
    fn uefi_boots_over_http() {
        let Some(lab) = LabInventory::find() else { return };
        let steps = [
            "dhcp: REQUEST from UEFI HTTP firmware (x86-64 UEFI) on boot2: leased … boot.efi",
            "http: boot.efi of the instance: 200 (UefiHttpBoot",
            SYSTEM_DHCP_ENTRY,
        ];
        let seen = boot_and_undeploy(&lab, "boot-http", "http", &steps);
        // The timeline also contains requests of the booted system.
        let by_firmware = |line: &&String| line.starts_with("http") && !line.ends_with("(Wget)");
        let by_http = seen.iter().filter(by_firmware);
        assert!(by_http.clone().all(|line| line.contains("boot.efi")), "{seen:?}");
        assert!(!seen.iter().any(|line| line.starts_with("tftp")), "{seen:?}");

        let steps = [
            "dhcp: REQUEST from UEFI HTTP firmware (x86-64 UEFI) on boot2: leased … snponly.efi",
            "dhcp: REQUEST from iPXE",
            "http: iPXE script of 52-54-00-1a-b0-12: 200 (iPXE",
            "http: kernel of the instance: 200 (iPXE",
            "http: ramdisk of the instance: 200 (iPXE",
            SYSTEM_DHCP_ENTRY,
        ];
        let seen = boot_and_undeploy(&lab, "boot-http", "http-ipxe", &steps);
        assert!(!seen.iter().any(|line| line.starts_with("tftp")), "{seen:?}");
    }
}

/// Boots a machine with a boot method and undeploys it. Returns its activity, which contains `steps`.
fn boot_and_undeploy(
    lab: &LabInventory,
    machine: &'static str,
    boot_interface: &str,
    steps: &[&str],
) -> Vec<String> {
    let mut site = BootSite::start(lab, machine, "reserve", "");
    let node = site.enrol(boot_interface, json!({}));
    let instance = site.instance(boot_interface, "ferrite.dhcp=1");
    let boot = site.deploy(node, &instance);

    let plan = site.operator.get(&format!("/v1/ferrite/nodes/{}/boot", boot.node));
    assert_eq!(plan["boots"], "instance", "{plan}");
    assert_eq!(plan["method"], boot_interface, "{plan}");
    assert_eq!(plan["kernel"]["source"], instance["kernel"], "{plan}");
    assert_eq!(plan["ramdisk"]["source"], instance["ramdisk"], "{plan}");
    assert!(
        plan["kernel_parameters"].to_string().contains(&format!("test.word={boot_interface}")),
        "{plan}"
    );
    assert!(!plan.to_string().contains(boot.files.rsplit('/').next().unwrap()), "{plan}");

    site.wait_until_up(&boot.console, boot_interface);
    let firmware = boot.console.ramdisk_value("FIRMWARE").unwrap();
    assert_eq!(
        firmware,
        if matches!(machine, "boot-bios" | "boot-pxelinux") { "bios" } else { "uefi" }
    );
    let seen = site.wait_for_activity(&boot.node, steps);
    site.undeploy(&boot);
    seen
}

/// Whether the line is an HTTP request of the boot; the final report is not.
fn is_http(line: &str) -> bool {
    line.starts_with("http") && !line.starts_with(REPORT_ENTRY)
}
