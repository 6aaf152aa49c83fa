// SPDX-License-Identifier: Apache-2.0
//! Existing arrays: assembles them and reads their properties from sysfs.

use std::fs;
use std::path::{Path, PathBuf};

use agent_protocol::InventoryDisk;

use super::{ESP_NAME, run};
use crate::device::Device;
use crate::filesystem::{FilesystemIdentity, identify};
use crate::partitions;

/// An existing array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExistingArray {
    /// Device file.
    pub device: PathBuf,
    /// Level as in sysfs: `raid1`.
    pub level: String,
    /// Volume name.
    pub name: Option<String>,
    /// Its partitions or disks.
    pub members: Vec<PathBuf>,
    /// The disks of its members.
    pub disks: Vec<PathBuf>,
}

/// Assembles the arrays whose members are present. Inactive arrays are stopped again, so that their disks
/// are not held.
pub fn assemble(sys: &Path) {
    // Start arrays read-only, so that assembly alone changes nothing: a resync starts, and metadata is
    // updated, with the first write.
    let _ = fs::write(sys.join("module/md_mod/parameters/start_ro"), "1");
    // mdadm also fails if there is nothing to assemble.
    match run("mdadm", &["--assemble".to_owned(), "--scan".to_owned()]) {
        Ok(_) => tracing::info!(arrays = list_arrays(sys).len(), "RAID arrays assembled"),
        Err(error) => tracing::info!(%error, "no further RAID arrays assembled"),
    }
    for name in list_names(&sys.join("block")) {
        let state = fs::read_to_string(sys.join("block").join(&name).join("md/array_state"));
        if state.is_ok_and(|state| state.trim() == "inactive") {
            tracing::warn!(array = name, "RAID array is inactive, stopping it");
            if let Err(error) = run("mdadm", &["--stop".to_owned(), format!("/dev/{name}")]) {
                tracing::warn!(array = name, %error, "RAID array cannot be stopped");
            }
        }
    }
}

/// Returns the devices that must not be changed in order to keep the volumes with these names: the
/// arrays, their disks, the array of EFI system partitions on these disks, and disks with members of
/// such a volume that is not assembled.
#[must_use]
pub fn devices_to_keep(
    arrays: &[ExistingArray],
    keep: &[String],
    disks: &[InventoryDisk],
) -> Vec<PathBuf> {
    if keep.is_empty() {
        return Vec::new();
    }
    let matches_name =
        |name: &Option<String>| name.as_ref().is_some_and(|name| keep.contains(name));
    let mut devices: Vec<PathBuf> = Vec::new();
    for array in arrays.iter().filter(|array| matches_name(&array.name)) {
        devices.push(array.device.clone());
        devices.extend(array.disks.iter().cloned());
    }
    let on_kept_disk = |array: &&ExistingArray| array.disks.iter().any(|it| devices.contains(it));
    let is_esp = |array: &&ExistingArray| array.name.as_deref() == Some(ESP_NAME);
    let esp_arrays: Vec<PathBuf> = arrays
        .iter()
        .filter(is_esp)
        .filter(on_kept_disk)
        .map(|array| array.device.clone())
        .collect();
    devices.extend(esp_arrays);
    for disk in disks {
        let path = Path::new(&disk.name);
        let whole =
            Device::read_only(path).ok().and_then(|device| identify(&device).ok().flatten());
        let parts = partitions::list(path).unwrap_or_default().into_iter().map(|it| it.identity);
        let mut found = std::iter::once(whole).chain(parts).flatten();
        if found.any(|identity| matches_name(&array_name(&identity))) {
            devices.push(path.to_owned());
        }
    }
    devices
}

/// Lists the assembled arrays.
#[must_use]
pub fn list_arrays(sys: &Path) -> Vec<ExistingArray> {
    let mut arrays = Vec::new();
    for name in list_names(&sys.join("block")) {
        let directory = sys.join("block").join(&name);
        let Ok(level) = fs::read_to_string(directory.join("md/level")) else { continue };
        let members = list_names(&directory.join("slaves"));
        if members.is_empty() {
            continue;
        }
        let mut disks: Vec<PathBuf> =
            members.iter().map(|member| Path::new("/dev").join(parent_disk(sys, member))).collect();
        disks.sort();
        disks.dedup();
        let members: Vec<PathBuf> =
            members.iter().map(|member| Path::new("/dev").join(member)).collect();
        arrays.push(ExistingArray {
            device: Path::new("/dev").join(&name),
            level: level.trim().to_owned(),
            name: members.iter().find_map(|member| volume_name(member)),
            members,
            disks,
        });
    }
    arrays
}

/// Returns the volume name in a member's superblock; `None` if it cannot be read.
fn volume_name(member: &Path) -> Option<String> {
    let device = Device::read_only(member).ok()?;
    array_name(&identify(&device).ok()??)
}

/// Returns the name of the array that a member belongs to, without the host name.
fn array_name(identity: &FilesystemIdentity) -> Option<String> {
    let label = identity.label.as_ref().filter(|_| identity.fs_type == "linux_raid_member")?;
    Some(label.rsplit(':').next().unwrap_or_default().to_owned())
}

/// Returns the disk of a partition; a disk is returned itself.
fn parent_disk(sys: &Path, name: &str) -> String {
    let disks = list_names(&sys.join("block"));
    let is_on = |disk: &String| sys.join("block").join(disk).join(name).is_dir();
    disks.into_iter().find(is_on).unwrap_or_else(|| name.to_owned())
}

fn list_names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_arrays_from_sysfs() {
        let sys = tempfile::tempdir().unwrap();
        let directory =
            |path: &str| fs::create_dir_all(sys.path().join("block").join(path)).unwrap();
        for path in [
            "nosda/nosda1",
            "nosdb/nosdb1",
            "md0/md",
            "md0/slaves/nosda1",
            "md0/slaves/nosdb1",
            "md1/md",
        ] {
            directory(path);
        }
        fs::write(sys.path().join("block/md0/md/level"), "raid1\n").unwrap();
        let arrays = list_arrays(sys.path());
        assert_eq!(arrays.len(), 1);
        assert_eq!(arrays[0].device, Path::new("/dev/md0"));
        assert_eq!(arrays[0].level, "raid1");
        assert_eq!(arrays[0].members, [Path::new("/dev/nosda1"), Path::new("/dev/nosdb1")]);
        assert_eq!(arrays[0].disks, [Path::new("/dev/nosda"), Path::new("/dev/nosdb")]);
        assert_eq!(arrays[0].name, None);
    }

    #[test]
    fn finds_devices_of_volumes_to_keep() {
        let array = |device: &str, name: &str, disks: [&str; 2]| ExistingArray {
            device: device.into(),
            level: "raid1".to_owned(),
            name: Some(name.to_owned()),
            members: Vec::new(),
            disks: disks.iter().map(PathBuf::from).collect(),
        };
        let arrays = [
            array("/dev/md0", "data", ["/dev/nosda", "/dev/nosdb"]),
            array("/dev/md1", ESP_NAME, ["/dev/nosda", "/dev/nosdb"]),
            array("/dev/md2", "root", ["/dev/nosda", "/dev/nosdb"]),
            array("/dev/md3", ESP_NAME, ["/dev/nosdc", "/dev/nosdd"]),
        ];
        // A member of an array that is not assembled.
        let member = tempfile::NamedTempFile::new().unwrap();
        let mut superblock = vec![0; 1 << 20];
        superblock[4096..4100].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9]);
        superblock[4128..4137].copy_from_slice(b"host:data");
        fs::write(member.path(), superblock).unwrap();
        let name = member.path().to_str().unwrap().to_owned();
        let disks = [InventoryDisk { name: name.clone(), ..InventoryDisk::default() }];
        let to_keep = |list_names: &[&str]| -> Vec<String> {
            let list_names: Vec<String> =
                list_names.iter().map(|name| (*name).to_owned()).collect();
            let devices = devices_to_keep(&arrays, &list_names, &disks);
            devices.iter().map(|device| device.display().to_string()).collect()
        };
        assert_eq!(to_keep(&["data"]), ["/dev/md0", "/dev/nosda", "/dev/nosdb", "/dev/md1", &name]);
        assert!(to_keep(&["other"]).is_empty());
        assert!(to_keep(&[]).is_empty());
    }
}
