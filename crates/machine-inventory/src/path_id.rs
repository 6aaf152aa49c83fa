// SPDX-License-Identifier: Apache-2.0
//! The link below `/dev/disk/by-path` that tells where a disk is plugged in.
//!
//! Where udev runs, its links are read. Where it does not (in our own ramdisk) the name is put together
//! from the disk's place in sysfs as udev would: exact for NVMe, AHCI, virtio, plain SCSI and USB; for
//! SAS by the phy of the expander or else by the address; for Fibre Channel by the port's name. Disks on
//! other buses (S/390, Hyper-V, iSCSI in software) get none. Of the two names udev gives a disk at an
//! ATA port, `ata-1` and since version 247 `ata-1.0`, the one that all versions know is used.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::tree::Tree;

const FOLDER: &str = "dev/disk/by-path";

/// The links that are there, by device file.
pub(crate) fn links(tree: &Tree) -> BTreeMap<String, String> {
    let mut links = BTreeMap::new();
    for name in tree.names(FOLDER) {
        let Ok(target) = fs::read_link(tree.path(FOLDER).join(&name)) else { continue };
        let Some(device) = target.file_name().and_then(|name| name.to_str()) else { continue };
        // In order of names, so that of several the shortest stays: `ata-1` before `ata-1.0`.
        links.entry(format!("/dev/{device}")).or_insert(format!("/{FOLDER}/{name}"));
    }
    links
}

/// The link for a disk, from its place: `sys/devices/pci0000:00/0000:00:1f.2/ata1/host0/…`.
pub(crate) fn by_path(tree: &Tree, name: &str, place: &str) -> Option<String> {
    let path = shared_namespace_path(tree, name, place);
    let place = path.as_deref().unwrap_or(place);
    let parts: Vec<&str> = place.split('/').collect();
    // The last PCI device on the way is the controller; boards may have it, or no PCI at all, on
    // devices that are wired to the processor.
    let platform = platform(&parts);
    let pci = parts.iter().rposition(|part| is_pci_address(part));
    let below = parts.get(platform.max(pci)? + 1..)?;
    let platform = platform.map(|at| format!("platform-{}", parts[at]));
    let pci = pci.map(|at| format!("pci-{}", parts[at]));

    let tail = if name.starts_with("nvme") {
        Some(format!("nvme-{}", namespace(tree, name)?))
    } else if name.starts_with("vd") || name.starts_with("mmcblk") {
        // There is but one on its controller.
        None
    } else {
        Some(scsi(tree, place, below)?)
    };
    let names: Vec<String> = [platform, pci, tail].into_iter().flatten().collect();
    Some(format!("/{FOLDER}/{}", names.join("-")))
}

/// The place of the first path to an NVMe namespace that the kernel keeps apart from its controllers,
/// because it may have several: `nvme0n1` has `nvme0c0n1`, which has no device file.
fn shared_namespace_path(tree: &Tree, name: &str, place: &str) -> Option<String> {
    if !place.contains("/nvme-subsystem/") {
        return None;
    }
    let (subsystem, namespace) = name.rsplit_once('n')?;
    let (start, end) = (format!("{subsystem}c"), format!("n{namespace}"));
    let names = tree.names("sys/block");
    let path = names.iter().find(|name| name.starts_with(&start) && name.ends_with(&end))?;
    Some(tree.resolved(format!("sys/block/{path}"))?.to_str()?.to_owned())
}

/// The part of a place that is this word and a number: `host0`.
pub(crate) fn part_with_number<'p>(place: &'p str, word: &str) -> Option<&'p str> {
    place.split('/').find(|part| {
        part.strip_prefix(word)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// `0000:00:1f.2`
fn is_pci_address(part: &str) -> bool {
    let shape = |c: char| if c.is_ascii_hexdigit() { 'x' } else { c };
    let shape: String = part.chars().map(shape).collect();
    matches!(shape.as_str(), "xxxx:xx:xx.x" | "xxxxx:xx:xx.x")
}

/// Where among the parts of a place the last device below `platform` is: what follows it is a bus.
fn platform(parts: &[&str]) -> Option<usize> {
    const BUSES: [&str; 7] = ["ata", "host", "mmc_host", "nvme", "pci", "usb", "virtio"];
    let at = parts.iter().position(|part| *part == "platform")?;
    let is_bus = |part: &&str| {
        let number = |bus: &&str| {
            part.strip_prefix(bus)
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphabetic()))
        };
        BUSES.iter().any(number)
    };
    let bus = parts.iter().skip(at + 1).position(is_bus)?;
    (bus > 0).then_some(at + bus)
}

/// The number of the namespace; of shared ones the kernel's own number in the name may differ.
fn namespace(tree: &Tree, name: &str) -> Option<String> {
    tree.text(format!("sys/block/{name}/nsid"))
        .or_else(|| name.rsplit_once('n').map(|(_, number)| number.to_owned()))
}

/// What follows the controller for all that the kernel shows as SCSI.
fn scsi(tree: &Tree, place: &str, below: &[&str]) -> Option<String> {
    let (_, address) = below.iter().enumerate().find(|(_, part)| is_scsi_address(part))?;
    let mut numbers = address.split(':');
    let (_, channel, target, lun) =
        (numbers.next()?, numbers.next()?, numbers.next()?, numbers.next()?);
    let host = part_with_number(place, "host")?;

    if let Some(port) = part_with_number(place, "ata") {
        let port = tree.text(format!("sys/class/ata_port/{port}/port_no"))?;
        return Some(format!("ata-{port}"));
    }
    if let Some(phy) = sas(tree, place, below) {
        return Some(format!("{phy}-lun-{lun}"));
    }
    if let Some(port) = below.iter().find(|part| part.starts_with("rport-")) {
        let name = tree.text(format!("sys/class/fc_remote_ports/{port}/port_name"))?;
        return Some(format!("fc-{name}-lun-{lun}"));
    }
    let plain = format!("{}:{channel}:{target}:{lun}", host_offset(tree, place, host)?);
    // A disk in a USB box: the ports on the way and the interface of the device.
    let interface = below.iter().rfind(|part| part.contains('-') && part.contains(':'));
    match interface.and_then(|interface| interface.split_once('-')) {
        Some((_, ports)) if place.contains("/usb") => Some(format!("usb-0:{ports}-scsi-{plain}")),
        Some(_) | None => Some(format!("scsi-{plain}")),
    }
}

/// `0:0:0:0`
fn is_scsi_address(part: &str) -> bool {
    let mut numbers = 0;
    part.split(':').all(|number| {
        numbers += 1;
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    }) && numbers == 4
}

/// Hosts are numbered over all controllers, so udev counts them from the controller's first.
fn host_offset(tree: &Tree, place: &str, host: &str) -> Option<u32> {
    let parts: Vec<&str> = place.split('/').collect();
    let host_at = parts.iter().position(|part| *part == host)?;
    let parent = parts.get(..host_at)?.join("/");
    let number = |name: &str| name.strip_prefix("host")?.parse::<u32>().ok();
    let first = tree.names(Path::new(&parent)).iter().filter_map(|name| number(name)).min()?;
    number(host)?.checked_sub(first)
}

/// A disk at a phy: of the controller itself or of an expander, or by its own address.
fn sas(tree: &Tree, place: &str, below: &[&str]) -> Option<String> {
    let device = below.iter().rev().find(|part| part.starts_with("end_device-"))?;
    let folder = format!("sys/class/sas_device/{device}");
    let phy = tree.text(format!("{folder}/phy_identifier"));
    // A wide port has more than one phy, so no one of them names it.
    let port = below.iter().rev().find(|part| part.starts_with("port-"))?;
    let port_folder = format!("{}/{port}", place.split(&format!("/{port}/")).next()?);
    let phys = tree.names(&port_folder).iter().filter(|name| name.starts_with("phy-")).count();
    match (phy, phys) {
        (Some(phy), 1) => {
            let expander = below.iter().rev().find(|part| part.starts_with("expander-"));
            let expander = expander.and_then(|expander| {
                tree.text(format!("sys/class/sas_device/{expander}/sas_address"))
            });
            Some(match expander {
                Some(address) => format!("sas-exp{address}-phy{phy}"),
                None => format!("sas-phy{phy}"),
            })
        }
        (Some(_) | None, _) => {
            let address = tree.text(format!("{folder}/sas_address"))?;
            Some(format!("sas-{address}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boards_name_what_is_wired_to_the_processor() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::at(folder.path());
        let check = |name: &str, place: &str, expected: Option<&str>| {
            let expected = expected.map(|expected| format!("/{FOLDER}/{expected}"));
            assert_eq!(by_path(&tree, name, place), expected, "{place}");
        };
        check(
            "vda",
            "sys/devices/platform/a003e00.virtio_mmio/virtio0/block/vda",
            Some("platform-a003e00.virtio_mmio"),
        );
        check(
            "nvme0n1",
            "sys/devices/platform/soc/1c20000.pcie/pci0002:00/0002:00:00.0/0002:01:00.0/nvme/nvme0/nvme0n1",
            Some("platform-1c20000.pcie-pci-0002:01:00.0-nvme-1"),
        );
        check("md0", "sys/devices/virtual/block/md0", None);
        check("sda", "sys/devices/pci0000:00/0000:00:05.0/nothing/block/sda", None);
    }

    proptest::proptest! {
        #[test]
        fn no_place_makes_it_panic(name in "(nvme|sd|vd|mmcblk)[n0-9a-z]{0,4}", place in "(/|platform|pci|0000:00:1f.2|ata1|host0|0:0:0:0|usb1|1-1:1.0|port-0:0|end_device-0:0|[a-z0-9:.-]){0,12}") {
            let tree = Tree::at(Path::new("nowhere"));
            let _ = by_path(&tree, &name, &place);
        }
    }
}
