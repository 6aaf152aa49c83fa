// SPDX-License-Identifier: Apache-2.0
//! The `/dev/disk/by-path` link of a disk.
//!
//! Where udev runs, its links are read. Where it does not (in our ramdisk), the name is composed from
//! the disk's sysfs path by udev's rules: exact for NVMe, AHCI, virtio, plain SCSI and USB; for SAS by
//! the expander phy or else the SAS address; for Fibre Channel by the remote port name. Disks on other
//! buses (S/390, Hyper-V, software iSCSI) get none. udev has two names for a disk at an ATA port,
//! `ata-1` and, since version 247, `ata-1.0`; the one known to all versions is used.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::kernel_files::KernelFiles;

const BY_PATH: &str = "dev/disk/by-path";

/// Returns udev's links by device file.
pub(crate) fn udev_links(files: &KernelFiles) -> BTreeMap<String, String> {
    let mut links = BTreeMap::new();
    for name in files.file_names(BY_PATH) {
        let Ok(target) = fs::read_link(files.absolute(BY_PATH).join(&name)) else { continue };
        let Some(device) = target.file_name().and_then(|name| name.to_str()) else { continue };
        // Names are sorted, so the shortest wins: `ata-1` before `ata-1.0`.
        links.entry(format!("/dev/{device}")).or_insert(format!("/{BY_PATH}/{name}"));
    }
    links
}

/// Composes the link of a disk from its sysfs path: `sys/devices/pci0000:00/0000:00:1f.2/ata1/host0/…`.
pub(crate) fn by_path(files: &KernelFiles, name: &str, device_path: &str) -> Option<String> {
    let path = shared_namespace_device_path(files, name, device_path);
    let device_path = path.as_deref().unwrap_or(device_path);
    let parts: Vec<&str> = device_path.split('/').collect();
    // The last PCI device of the path is the controller. On some boards it is below a platform device,
    // or there is only a platform device.
    let platform_index = platform_index(&parts);
    let pci = parts.iter().rposition(|part| is_pci_address(part));
    let after_controller = parts.get(platform_index.max(pci)? + 1..)?;
    let platform = platform_index.map(|at| format!("platform-{}", parts[at]));
    let pci = pci.map(|at| format!("pci-{}", parts[at]));

    let tail = if name.starts_with("nvme") {
        Some(format!("nvme-{}", namespace_id(files, name)?))
    } else if name.starts_with("vd") || name.starts_with("mmcblk") {
        // One device per controller.
        None
    } else {
        Some(scsi_suffix(files, device_path, after_controller)?)
    };
    let names: Vec<String> = [platform, pci, tail].into_iter().flatten().collect();
    Some(format!("/{BY_PATH}/{}", names.join("-")))
}

/// Returns the sysfs path of the first path to a multipath NVMe namespace: `nvme0n1` is below
/// `nvme-subsystem` and has `nvme0c0n1`, which has no device file.
fn shared_namespace_device_path(
    files: &KernelFiles,
    name: &str,
    device_path: &str,
) -> Option<String> {
    if !device_path.contains("/nvme-subsystem/") {
        return None;
    }
    let (subsystem, number) = name.rsplit_once('n')?;
    let (start, end) = (format!("{subsystem}c"), format!("n{number}"));
    let names = files.file_names("sys/block");
    let path = names.iter().find(|name| name.starts_with(&start) && name.ends_with(&end))?;
    Some(files.canonical(format!("sys/block/{path}"))?.to_str()?.to_owned())
}

/// Returns the path component that is this word followed by a number: `host0`.
pub(crate) fn numbered_component<'p>(device_path: &'p str, word: &str) -> Option<&'p str> {
    device_path.split('/').find(|part| {
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

/// Returns the index of the last device below `platform`: the component before the first bus.
fn platform_index(parts: &[&str]) -> Option<usize> {
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

/// Returns the namespace ID; in shared namespaces the number in the device name may differ from it.
fn namespace_id(files: &KernelFiles, name: &str) -> Option<String> {
    files
        .text(format!("sys/block/{name}/nsid"))
        .or_else(|| name.rsplit_once('n').map(|(_, number)| number.to_owned()))
}

/// Returns the part after the controller for disks of the SCSI layer, including ATA and USB.
fn scsi_suffix(
    files: &KernelFiles,
    device_path: &str,
    after_controller: &[&str],
) -> Option<String> {
    let (_, address) =
        after_controller.iter().enumerate().find(|(_, part)| is_scsi_address(part))?;
    let mut numbers = address.split(':');
    let (_, channel, target, lun) =
        (numbers.next()?, numbers.next()?, numbers.next()?, numbers.next()?);
    let host = numbered_component(device_path, "host")?;

    if let Some(port) = numbered_component(device_path, "ata") {
        let port = files.text(format!("sys/class/ata_port/{port}/port_no"))?;
        return Some(format!("ata-{port}"));
    }
    if let Some(phy) = sas_suffix(files, device_path, after_controller) {
        return Some(format!("{phy}-lun-{lun}"));
    }
    if let Some(port) = after_controller.iter().find(|part| part.starts_with("rport-")) {
        let name = files.text(format!("sys/class/fc_remote_ports/{port}/port_name"))?;
        return Some(format!("fc-{name}-lun-{lun}"));
    }
    let plain = format!("{}:{channel}:{target}:{lun}", host_offset(files, device_path, host)?);
    // A USB disk: port numbers and interface of the USB device.
    let interface = after_controller.iter().rfind(|part| part.contains('-') && part.contains(':'));
    match interface.and_then(|interface| interface.split_once('-')) {
        Some((_, ports)) if device_path.contains("/usb") => {
            Some(format!("usb-0:{ports}-scsi-{plain}"))
        }
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

/// Host numbers are global, so udev counts from the first host of the controller.
fn host_offset(files: &KernelFiles, device_path: &str, host: &str) -> Option<u32> {
    let parts: Vec<&str> = device_path.split('/').collect();
    let host_at = parts.iter().position(|part| *part == host)?;
    let parent = parts.get(..host_at)?.join("/");
    let number = |name: &str| name.strip_prefix("host")?.parse::<u32>().ok();
    let first =
        files.file_names(Path::new(&parent)).iter().filter_map(|name| number(name)).min()?;
    number(host)?.checked_sub(first)
}

/// Returns the SAS part of the name: phy of the controller or of an expander, else the SAS address.
fn sas_suffix(files: &KernelFiles, device_path: &str, after_controller: &[&str]) -> Option<String> {
    let device = after_controller.iter().rev().find(|part| part.starts_with("end_device-"))?;
    let directory = format!("sys/class/sas_device/{device}");
    let phy = files.text(format!("{directory}/phy_identifier"));
    // A wide port has several phys, so the phy does not identify it.
    let port = after_controller.iter().rev().find(|part| part.starts_with("port-"))?;
    let port_directory = format!("{}/{port}", device_path.split(&format!("/{port}/")).next()?);
    let phys =
        files.file_names(&port_directory).iter().filter(|name| name.starts_with("phy-")).count();
    match (phy, phys) {
        (Some(phy), 1) => {
            let expander = after_controller.iter().rev().find(|part| part.starts_with("expander-"));
            let expander = expander.and_then(|expander| {
                files.text(format!("sys/class/sas_device/{expander}/sas_address"))
            });
            Some(match expander {
                Some(address) => format!("sas-exp{address}-phy{phy}"),
                None => format!("sas-phy{phy}"),
            })
        }
        (Some(_) | None, _) => {
            let address = files.text(format!("{directory}/sas_address"))?;
            Some(format!("sas-{address}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_disks_on_platform_devices() {
        let directory = tempfile::tempdir().unwrap();
        let files = KernelFiles::with_root(directory.path());
        let check = |name: &str, device_path: &str, expected: Option<&str>| {
            let expected = expected.map(|expected| format!("/{BY_PATH}/{expected}"));
            assert_eq!(by_path(&files, name, device_path), expected, "{device_path}");
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
        fn never_panics(name in "(nvme|sd|vd|mmcblk)[n0-9a-z]{0,4}", device_path in "(/|platform|pci|0000:00:1f.2|ata1|host0|0:0:0:0|usb1|1-1:1.0|port-0:0|end_device-0:0|[a-z0-9:.-]){0,12}") {
            let files = KernelFiles::with_root(Path::new("nowhere"));
            let _ = by_path(&files, &name, &device_path);
        }
    }
}
