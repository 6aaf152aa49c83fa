// SPDX-License-Identifier: Apache-2.0
//! Reads parameters, files and network configuration from a virtual CD or floppy.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::init::DeviceMonitor;
use crate::network::network_data::NetworkData;
use crate::parameters::BootParameters;

const PARAMETERS_LABEL: &str = "ir-vfd-dev";
const MEDIA_LABELS: &[&str] = &["config-2", "vmedia_boot_iso"];
const MOUNT_POINT: &str = "/run/virtual-media";
const PARAMETERS_FILE: &str = "parameters.txt";
const NETWORK_FILE: &str = "openstack/latest/network_data.json";
/// Files below these directories are copied.
const COPIED_DIRS: &[&str] =
    &["etc/ironic-python-agent", "etc/ironic-python-agent.d", "etc/ferrite"];
/// The maximum time to wait for media, which BMCs attach over USB.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(20);
const RETRY_INTERVAL: Duration = Duration::from_millis(1500);
/// BMCs may present media as USB disks. Larger USB disks are ignored.
const MAX_DEVICE_SIZE: u64 = 4 << 30;
/// The unit of sizes in sysfs.
const SECTOR_SIZE: u64 = 512;
/// The maximum size of a file on the media.
const MAX_FILE_SIZE: u64 = 16 << 20;

/// A block device with removable media.
#[derive(Clone, PartialEq, Eq, Debug)]
struct MediaDevice {
    device: PathBuf,
    file_system: &'static str,
    label: String,
    publisher: String,
}

/// Applies the content of the media: adds parameters, copies files, and returns the network data.
pub async fn apply_virtual_media(
    parameters: &mut BootParameters,
    devices: &DeviceMonitor,
) -> Option<NetworkData> {
    let publisher = parameters.get("ir_pub_id").map(str::to_owned);
    let media = find_media(devices, publisher.as_deref()).await;
    if media.is_empty() {
        tracing::warn!(
            publisher,
            "no media labelled config-2, VMEDIA_BOOT_ISO or ir-vfd-dev names, using kernel parameters only"
        );
    }
    let mut setup = None;
    for medium in media {
        tracing::info!(device = %medium.device.display(), label = medium.label, "virtual media names");
        for module in match medium.file_system {
            "vfat" => ["nls_cp437", "nls_iso8859_1", "nls_ascii", "vfat"].as_slice(),
            _ => &["isofs"],
        } {
            devices.load_module(module);
        }
        let mount_point = Path::new(MOUNT_POINT);
        let _ = fs::create_dir_all(mount_point);
        let flags =
            MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        if let Err(error) =
            mount(&medium.device, mount_point, medium.file_system, flags, None::<&std::ffi::CStr>)
        {
            tracing::error!(device = %medium.device.display(), %error, "failed to mount virtual media");
            continue;
        }
        setup = apply_content(mount_point, Path::new("/"), parameters).or(setup);
        let _ = unmount(mount_point, UnmountFlags::DETACH);
    }
    setup
}

/// Applies the content of a mounted medium.
fn apply_content(
    medium: &Path,
    root: &Path,
    parameters: &mut BootParameters,
) -> Option<NetworkData> {
    if let Some(text) = read_text(&medium.join(PARAMETERS_FILE)) {
        parameters.merge_lines(&text);
    }
    for folder in COPIED_DIRS {
        copy_tree(&medium.join(folder), &root.join(folder));
    }
    let text = read_text(&medium.join(NETWORK_FILE))?;
    match NetworkData::parse(&text) {
        Ok(setup) => setup,
        Err(error) => {
            tracing::error!(%error, "invalid network_data.json, using DHCP");
            None
        }
    }
}

fn read_text(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_FILE_SIZE).read_to_string(&mut text).ok()?;
    Some(text)
}

fn copy_tree(from: &Path, to: &Path) {
    let Ok(entries) = fs::read_dir(from) else { return };
    for entry in entries.flatten() {
        let target = to.join(entry.file_name());
        match entry.file_type() {
            Ok(file_type) if file_type.is_dir() => copy_tree(&entry.path(), &target),
            Ok(file_type)
                if file_type.is_file()
                    && entry.metadata().is_ok_and(|metadata| metadata.len() <= MAX_FILE_SIZE) =>
            {
                let _ = fs::create_dir_all(to);
                if let Err(error) = fs::copy(entry.path(), &target) {
                    tracing::warn!(path = %target.display(), %error, "failed to copy file from virtual media");
                }
            }
            Ok(_) | Err(_) => {}
        }
    }
}

/// Waits for matching media: a CD over USB appears seconds after the machine's disks. The floppy with
/// parameters comes last, so that its parameters take precedence.
async fn find_media(devices: &DeviceMonitor, publisher: Option<&str>) -> Vec<MediaDevice> {
    let deadline = tokio::time::Instant::now() + SEARCH_TIMEOUT;
    loop {
        let media = select_media(scan(Path::new("/sys/class/block"), Path::new("/dev")), publisher);
        if !media.is_empty() {
            return media;
        }
        let next = async {
            devices.next_device().await;
            devices.wait_quiet(Duration::from_millis(100), RETRY_INTERVAL).await;
        };
        tokio::select! {
            () = next => {}
            // Some drives report their media late and without an event.
            () = tokio::time::sleep(RETRY_INTERVAL) => {}
        }
        if tokio::time::Instant::now() >= deadline {
            return Vec::new();
        }
    }
}

fn select_media(mut media: Vec<MediaDevice>, publisher: Option<&str>) -> Vec<MediaDevice> {
    media.retain(|medium| {
        let label = medium.label.to_ascii_lowercase();
        label == PARAMETERS_LABEL || MEDIA_LABELS.contains(&label.as_str())
    });
    // Other drives may contain CDs with the same label, so the publisher must match if it is given.
    if let Some(publisher) = publisher {
        let matches = |medium: &MediaDevice| medium.publisher.eq_ignore_ascii_case(publisher);
        let is_present = media.iter().any(matches);
        media.retain(|medium| is_present && (medium.file_system == "vfat" || matches(medium)));
    }
    media.sort_by_key(|medium| (medium.file_system == "vfat", medium.device.clone()));
    media.dedup_by_key(|medium| medium.label.clone());
    media
}

fn scan(classes: &Path, devices: &Path) -> Vec<MediaDevice> {
    let entries = fs::read_dir(classes).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let text = name.to_string_lossy();
            if !is_removable(&classes.join(&name), &text) {
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

/// Whether a BMC may have attached the device: CDs, floppies and small USB disks. Partitions are
/// excluded, because the config drive of an installed system must not configure the agent.
fn is_removable(class: &Path, name: &str) -> bool {
    if class.join("partition").exists() {
        return false;
    }
    let numbered = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    if numbered("sr") || numbered("fd") {
        return true;
    }
    let path = fs::canonicalize(class).unwrap_or_default();
    let is_usb = path.components().any(|part| {
        let part = part.as_os_str().to_string_lossy();
        part.strip_prefix("usb").is_some_and(|bus| bus.starts_with(|c: char| c.is_ascii_digit()))
    });
    let sectors = fs::read_to_string(class.join("size")).ok();
    let sectors = sectors.and_then(|sectors| sectors.trim().parse::<u64>().ok());
    is_usb && sectors.is_some_and(|sectors| sectors < MAX_DEVICE_SIZE / SECTOR_SIZE)
}

/// Identifies the file system by the start of the device.
fn identify(device: PathBuf, start: &[u8]) -> Option<MediaDevice> {
    const DESCRIPTOR: usize = 0x8000;
    let field = |from: usize, to: usize| {
        start
            .get(from..to)
            .map(|bytes| String::from_utf8_lossy(bytes).trim_matches([' ', '\0']).to_owned())
    };
    if start.get(DESCRIPTOR + 1..DESCRIPTOR + 6) == Some(b"CD001") {
        return Some(MediaDevice {
            device,
            file_system: "iso9660",
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
    Some(MediaDevice { device, file_system: "vfat", label, publisher: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iso_image(label: &str, publisher: &str) -> Vec<u8> {
        let mut start = vec![0; 36 << 10];
        start[0x8001..0x8006].copy_from_slice(b"CD001");
        start[0x8000 + 40..0x8000 + 40 + label.len()].copy_from_slice(label.as_bytes());
        start[0x8000 + 318..0x8000 + 318 + publisher.len()].copy_from_slice(publisher.as_bytes());
        start
    }

    #[test]
    fn selects_media_by_label_and_publisher() {
        let other = identify("/dev/sr1".into(), &iso_image("config-2", "nova")).unwrap();
        let cd = identify("/dev/sr0".into(), &iso_image("config-2", "ABC")).unwrap();
        let mut floppy = vec![0; 512];
        floppy[43..54].copy_from_slice(b"ir-vfd-dev ");
        floppy[54..59].copy_from_slice(b"FAT12");
        floppy[510..].copy_from_slice(&[0x55, 0xaa]);
        let floppy = identify("/dev/fd0".into(), &floppy).unwrap();
        assert_eq!(identify("/dev/sda".into(), &[0; 512]), None);
        let names = |media: Vec<MediaDevice>| -> Vec<String> {
            media.iter().map(|medium| medium.device.display().to_string()).collect()
        };
        let all = vec![floppy.clone(), other.clone(), cd];
        assert_eq!(names(select_media(all.clone(), Some("abc"))), ["/dev/sr0", "/dev/fd0"]);
        assert_eq!(names(select_media(all, None)), ["/dev/sr0", "/dev/fd0"]);
        // The matching CD is missing, so nothing is selected.
        assert_eq!(names(select_media(vec![floppy, other], Some("abc"))), [""; 0]);
    }

    #[test]
    fn ignores_internal_disks_and_partitions() {
        let folder = tempfile::tempdir().unwrap();
        let (classes, devices) = (folder.path().join("class"), folder.path().join("dev"));
        fs::create_dir_all(&classes).unwrap();
        fs::create_dir_all(&devices).unwrap();
        // Name, device path, size in sectors, and whether it is a partition.
        for (name, mount_point, sectors, partition) in [
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
            let real = folder.path().join("devices").join(mount_point).join("block").join(name);
            fs::create_dir_all(&real).unwrap();
            fs::write(real.join("size"), format!("{sectors}\n")).unwrap();
            if partition {
                fs::write(real.join("partition"), "3\n").unwrap();
            }
            std::os::unix::fs::symlink(&real, classes.join(name)).unwrap();
            fs::write(devices.join(name), iso_image("config-2", "publisher")).unwrap();
        }
        let mut names: Vec<_> = scan(&classes, &devices)
            .into_iter()
            .map(|medium| medium.device.strip_prefix(&devices).unwrap().display().to_string())
            .collect();
        names.sort();
        assert_eq!(names, ["fd0", "sdc", "sr0"]);
    }

    #[test]
    fn applies_parameters_files_and_network_data() {
        let (medium, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let put = |name: &str, text: &str| {
            let path = medium.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("parameters.txt", "ipa-api-url=http://192.0.2.1:6385\n");
        put("etc/ironic-python-agent.d/ca.pem", "x");
        put(NETWORK_FILE, r#"{"links": [], "networks": [{"link": "a", "type": "ipv4"}]}"#);
        let mut parameters = BootParameters::default();
        let setup = apply_content(medium.path(), root.path(), &mut parameters);
        assert!(setup.is_some());
        assert_eq!(parameters.get("ipa-api-url"), Some("http://192.0.2.1:6385"));
        assert!(root.path().join("etc/ironic-python-agent.d/ca.pem").exists());
    }
}
