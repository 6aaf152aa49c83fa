// SPDX-License-Identifier: Apache-2.0
//! What a virtual CD or floppy brings beside the ramdisk: parameters, files, and how the network is
//! to be set up.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::init::Devices;
use crate::network::static_setup::StaticSetup;
use crate::parameters::Parameters;

const PARAMETERS_LABEL: &str = "ir-vfd-dev";
const LABELS: &[&str] = &["config-2", "vmedia_boot_iso"];
const PLACE: &str = "/run/virtual-media";
const PARAMETERS_FILE: &str = "parameters.txt";
const NETWORK_FILE: &str = "openstack/latest/network_data.json";
/// Files below these are taken over as they are.
const FOLDERS: &[&str] = &["etc/ironic-python-agent", "etc/ironic-python-agent.d", "etc/ferrite"];
/// How long a medium is waited for: BMCs plug them in over USB.
const PATIENCE: Duration = Duration::from_secs(20);
const QUIET: Duration = Duration::from_millis(1500);
/// BMCs show media as USB disks, too. A disk that is not smaller than this is none.
const LARGEST_MEDIUM: u64 = 4 << 30;
/// The kernel counts sizes in these.
const SECTOR: u64 = 512;
/// No file on a medium is larger.
const LARGEST: u64 = 16 << 20;

/// A medium.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Medium {
    device: PathBuf,
    kind: &'static str,
    label: String,
    publisher: String,
}

/// Takes over what the medium brings. Parameters are added to those there are.
pub async fn take_over(parameters: &mut Parameters, devices: &Devices) -> Option<StaticSetup> {
    let publisher = parameters.get("ir_pub_id").map(str::to_owned);
    let media = find(devices, publisher.as_deref()).await;
    if media.is_empty() {
        tracing::warn!(
            publisher,
            "there is no medium labelled config-2, VMEDIA_BOOT_ISO or ir-vfd-dev; going on with the kernel's parameters alone"
        );
    }
    let mut setup = None;
    for medium in media {
        tracing::info!(device = %medium.device.display(), label = medium.label, "reading virtual media");
        for module in match medium.kind {
            "vfat" => ["nls_cp437", "nls_iso8859_1", "nls_ascii", "vfat"].as_slice(),
            _ => &["isofs"],
        } {
            devices.load_module(module);
        }
        let place = Path::new(PLACE);
        let _ = fs::create_dir_all(place);
        let flags =
            MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        if let Err(error) =
            mount(&medium.device, place, medium.kind, flags, None::<&std::ffi::CStr>)
        {
            tracing::error!(device = %medium.device.display(), %error, "the medium could not be mounted");
            continue;
        }
        setup = read(place, Path::new("/"), parameters).or(setup);
        let _ = unmount(place, UnmountFlags::DETACH);
    }
    setup
}

/// Takes over what is below a folder.
fn read(medium: &Path, root: &Path, parameters: &mut Parameters) -> Option<StaticSetup> {
    if let Some(text) = text(&medium.join(PARAMETERS_FILE)) {
        parameters.merge_lines(&text);
    }
    for folder in FOLDERS {
        copy(&medium.join(folder), &root.join(folder));
    }
    let text = text(&medium.join(NETWORK_FILE))?;
    match StaticSetup::parse(&text) {
        Ok(setup) => setup,
        Err(error) => {
            tracing::error!(%error, "network_data.json cannot be read; DHCP is asked instead");
            None
        }
    }
}

fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(LARGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

fn copy(from: &Path, to: &Path) {
    let Ok(entries) = fs::read_dir(from) else { return };
    for entry in entries.flatten() {
        let target = to.join(entry.file_name());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => copy(&entry.path(), &target),
            Ok(kind)
                if kind.is_file() && entry.metadata().is_ok_and(|facts| facts.len() <= LARGEST) =>
            {
                let _ = fs::create_dir_all(to);
                if let Err(error) = fs::copy(entry.path(), &target) {
                    tracing::warn!(file = %target.display(), %error, "a file of the medium could not be copied");
                }
            }
            Ok(_) | Err(_) => {}
        }
    }
}

/// The media that are meant, waiting for them a while: the disks of a machine are there seconds before
/// a CD over USB is. The floppy with parameters comes last, so that it has the last word.
async fn find(devices: &Devices, publisher: Option<&str>) -> Vec<Medium> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let found = chosen(scan(Path::new("/sys/class/block"), Path::new("/dev")), publisher);
        if !found.is_empty() {
            return found;
        }
        let next = async {
            devices.next().await;
            devices.quiet_for(Duration::from_millis(100), QUIET).await;
        };
        tokio::select! {
            () = next => {}
            // Some drives report their medium long after themselves, and without an event.
            () = tokio::time::sleep(QUIET) => {}
        }
        if tokio::time::Instant::now() >= deadline {
            return Vec::new();
        }
    }
}

fn chosen(mut media: Vec<Medium>, publisher: Option<&str>) -> Vec<Medium> {
    media.retain(|medium| {
        let label = medium.label.to_ascii_lowercase();
        label == PARAMETERS_LABEL || LABELS.contains(&label.as_str())
    });
    // Somebody's CD may be in another drive; the publisher tells the right one, and nothing else
    // will do.
    if let Some(publisher) = publisher {
        let is_meant = |medium: &Medium| medium.publisher.eq_ignore_ascii_case(publisher);
        let is_there = media.iter().any(is_meant);
        media.retain(|medium| is_there && (medium.kind == "vfat" || is_meant(medium)));
    }
    media.sort_by_key(|medium| (medium.kind == "vfat", medium.device.clone()));
    media.dedup_by_key(|medium| medium.label.clone());
    media
}

fn scan(classes: &Path, devices: &Path) -> Vec<Medium> {
    let entries = fs::read_dir(classes).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let text = name.to_string_lossy();
            if !is_pluggable(&classes.join(&name), &text) {
                return None;
            }
            let device = devices.join(&name);
            let mut start = vec![0; 36 << 10];
            let mut file = File::open(&device).ok()?;
            let mut length = 0;
            while let Ok(more) = file.read(&mut start[length..]) {
                length += more;
                if more == 0 {
                    break;
                }
            }
            identify(device, &start[..length])
        })
        .collect()
}

/// Whether a BMC may have plugged it in: CDs, floppies and small USB disks. Never a partition: what a
/// system had on its disk, such as its config drive, must not tell the agent of the next what to do.
fn is_pluggable(class: &Path, name: &str) -> bool {
    if class.join("partition").exists() {
        return false;
    }
    let numbered = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    if numbered("sr") || numbered("fd") {
        return true;
    }
    let place = fs::canonicalize(class).unwrap_or_default();
    let is_usb = place.components().any(|part| {
        let part = part.as_os_str().to_string_lossy();
        part.strip_prefix("usb").is_some_and(|bus| bus.starts_with(|c: char| c.is_ascii_digit()))
    });
    let sectors = fs::read_to_string(class.join("size")).ok();
    let sectors = sectors.and_then(|sectors| sectors.trim().parse::<u64>().ok());
    is_usb && sectors.is_some_and(|sectors| sectors < LARGEST_MEDIUM / SECTOR)
}

/// What a medium is, by how it starts.
fn identify(device: PathBuf, start: &[u8]) -> Option<Medium> {
    const DESCRIPTOR: usize = 0x8000;
    let field = |from: usize, to: usize| {
        start
            .get(from..to)
            .map(|bytes| String::from_utf8_lossy(bytes).trim_matches([' ', '\0']).to_owned())
    };
    if start.get(DESCRIPTOR + 1..DESCRIPTOR + 6) == Some(b"CD001") {
        return Some(Medium {
            device,
            kind: "iso9660",
            label: field(DESCRIPTOR + 40, DESCRIPTOR + 72)?,
            publisher: field(DESCRIPTOR + 318, DESCRIPTOR + 446)?,
        });
    }
    if start.get(510..512) != Some(&[0x55, 0xaa]) {
        return None;
    }
    let label = if start[54..].starts_with(b"FAT") {
        field(43, 54)?
    } else if start[82..].starts_with(b"FAT32") {
        field(71, 82)?
    } else {
        return None;
    };
    Some(Medium { device, kind: "vfat", label, publisher: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iso(label: &str, publisher: &str) -> Vec<u8> {
        let mut start = vec![0; 36 << 10];
        start[0x8001..0x8006].copy_from_slice(b"CD001");
        start[0x8000 + 40..0x8000 + 40 + label.len()].copy_from_slice(label.as_bytes());
        start[0x8000 + 318..0x8000 + 318 + publisher.len()].copy_from_slice(publisher.as_bytes());
        start
    }

    #[test]
    fn the_right_medium_is_chosen() {
        let other = identify("/dev/sr1".into(), &iso("config-2", "nova")).unwrap();
        let cd = identify("/dev/sr0".into(), &iso("config-2", "ABC")).unwrap();
        let mut floppy = vec![0; 512];
        floppy[43..54].copy_from_slice(b"ir-vfd-dev ");
        floppy[54..59].copy_from_slice(b"FAT12");
        floppy[510..].copy_from_slice(&[0x55, 0xaa]);
        let floppy = identify("/dev/fd0".into(), &floppy).unwrap();
        assert_eq!(identify("/dev/sda".into(), &[0; 512]), None);
        let names = |media: Vec<Medium>| -> Vec<String> {
            media.iter().map(|medium| medium.device.display().to_string()).collect()
        };
        let all = vec![floppy.clone(), other.clone(), cd];
        assert_eq!(names(chosen(all.clone(), Some("abc"))), ["/dev/sr0", "/dev/fd0"]);
        assert_eq!(names(chosen(all, None)), ["/dev/sr0", "/dev/fd0"]);
        // The one that is meant is not there yet, so that nothing is taken.
        assert_eq!(names(chosen(vec![floppy, other], Some("abc"))), [""; 0]);
    }

    #[test]
    fn the_machines_own_disks_are_no_media() {
        let folder = tempfile::tempdir().unwrap();
        let (classes, devices) = (folder.path().join("class"), folder.path().join("dev"));
        fs::create_dir_all(&classes).unwrap();
        fs::create_dir_all(&devices).unwrap();
        // A name, where it is plugged in, its size in sectors, and whether it is a partition.
        for (name, place, sectors, partition) in [
            ("sda", "pci0/ata1/host0", 20_971_520, false),
            ("sda3", "pci0/ata1/host0", 131_072, true),
            ("nvme0n1p3", "pci0/nvme/nvme0", 131_072, true),
            ("vdb", "pci0/virtio1", 131_072, false),
            ("sdb", "pci0/usb1/1-1/host1", 8_388_608, false),
            ("sdc", "pci0/usb1/1-2/host2", 131_072, false),
            ("sdc1", "pci0/usb1/1-2/host2", 130_000, true),
            ("sr0", "pci0/usb1/1-3/host3", 131_072, false),
            ("fd0", "platform", 2880, false),
        ] {
            let real = folder.path().join("devices").join(place).join("block").join(name);
            fs::create_dir_all(&real).unwrap();
            fs::write(real.join("size"), format!("{sectors}\n")).unwrap();
            if partition {
                fs::write(real.join("partition"), "3\n").unwrap();
            }
            std::os::unix::fs::symlink(&real, classes.join(name)).unwrap();
            fs::write(devices.join(name), iso("config-2", "somebody")).unwrap();
        }
        let mut found: Vec<_> = scan(&classes, &devices)
            .into_iter()
            .map(|medium| medium.device.strip_prefix(&devices).unwrap().display().to_string())
            .collect();
        found.sort();
        assert_eq!(found, ["fd0", "sdc", "sr0"]);
    }

    #[test]
    fn a_medium_is_taken_over() {
        let (medium, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let put = |name: &str, text: &str| {
            let path = medium.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("parameters.txt", "ipa-api-url=http://192.0.2.1:6385\n");
        put("etc/ironic-python-agent.d/ca.pem", "x");
        put(NETWORK_FILE, r#"{"links": [], "networks": [{"link": "a", "type": "ipv4"}]}"#);
        let mut parameters = Parameters::default();
        let setup = read(medium.path(), root.path(), &mut parameters);
        assert!(setup.is_some());
        assert_eq!(parameters.get("ipa-api-url"), Some("http://192.0.2.1:6385"));
        assert!(root.path().join("etc/ironic-python-agent.d/ca.pem").exists());
    }
}
