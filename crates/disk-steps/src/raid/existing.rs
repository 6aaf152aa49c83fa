// SPDX-License-Identifier: Apache-2.0
//! The arrays there are: put together from what their disks say, and then as the kernel tells.

use std::fs;
use std::path::{Path, PathBuf};

use agent_protocol::Disk;

use super::{ESP_NAME, run};
use crate::device::Device;
use crate::filesystem::{Identity, identify};
use crate::partitions;

/// An array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExistingArray {
    /// Its device file.
    pub device: PathBuf,
    /// Its level, as the kernel says it: `raid1`.
    pub level: String,
    /// Its volume name.
    pub name: Option<String>,
    /// Its partitions or disks.
    pub members: Vec<PathBuf>,
    /// The disks they are on.
    pub disks: Vec<PathBuf>,
}

/// Puts together the arrays whose members are there. Those that do not run are let go again, so that
/// nothing holds their disks.
pub fn assemble(sys: &Path) {
    // An array that is only looked at stays as it is: the first write to it starts a resync and
    // changes its metadata, not its assembly.
    let _ = fs::write(sys.join("module/md_mod/parameters/start_ro"), "1");
    // mdadm fails, too, if there is nothing to put together.
    match run("mdadm", &["--assemble".to_owned(), "--scan".to_owned()]) {
        Ok(_) => tracing::info!(arrays = existing(sys).len(), "RAID arrays were put together"),
        Err(error) => tracing::info!(%error, "no more RAID arrays were put together"),
    }
    for name in names(&sys.join("block")) {
        let state = fs::read_to_string(sys.join("block").join(&name).join("md/array_state"));
        if state.is_ok_and(|state| state.trim() == "inactive") {
            tracing::warn!(array = name, "the array does not run and is let go");
            if let Err(error) = run("mdadm", &["--stop".to_owned(), format!("/dev/{name}")]) {
                tracing::warn!(%error, "it stays");
            }
        }
    }
}

/// The devices that are left alone so that the volumes with these names stay: the arrays, the one with
/// the EFI system partitions on their disks, these disks, and disks with members of such an array that
/// does not run.
#[must_use]
pub fn kept_devices(arrays: &[ExistingArray], keep: &[String], disks: &[Disk]) -> Vec<PathBuf> {
    if keep.is_empty() {
        return Vec::new();
    }
    let is_kept = |name: &Option<String>| name.as_ref().is_some_and(|name| keep.contains(name));
    let mut devices: Vec<PathBuf> = Vec::new();
    for array in arrays.iter().filter(|array| is_kept(&array.name)) {
        devices.push(array.device.clone());
        devices.extend(array.disks.iter().cloned());
    }
    let on_kept_disk = |array: &&ExistingArray| array.disks.iter().any(|it| devices.contains(it));
    let is_esp = |array: &&ExistingArray| array.name.as_deref() == Some(ESP_NAME);
    let more: Vec<PathBuf> = arrays
        .iter()
        .filter(is_esp)
        .filter(on_kept_disk)
        .map(|array| array.device.clone())
        .collect();
    devices.extend(more);
    for disk in disks {
        let path = Path::new(&disk.name);
        let whole =
            Device::read_only(path).ok().and_then(|device| identify(&device).ok().flatten());
        let parts = partitions::list(path).unwrap_or_default().into_iter().map(|it| it.identity);
        let mut found = std::iter::once(whole).chain(parts).flatten();
        if found.any(|identity| is_kept(&name_of_array(&identity))) {
            devices.push(path.to_owned());
        }
    }
    devices
}

/// The arrays there are.
#[must_use]
pub fn existing(sys: &Path) -> Vec<ExistingArray> {
    let mut arrays = Vec::new();
    for name in names(&sys.join("block")) {
        let folder = sys.join("block").join(&name);
        let Ok(level) = fs::read_to_string(folder.join("md/level")) else { continue };
        let members = names(&folder.join("slaves"));
        if members.is_empty() {
            continue;
        }
        let mut disks: Vec<PathBuf> =
            members.iter().map(|member| Path::new("/dev").join(disk_of(sys, member))).collect();
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

/// The name in a member's superblock. One that cannot be read tells none; another may.
fn volume_name(member: &Path) -> Option<String> {
    let device = Device::read_only(member).ok()?;
    name_of_array(&identify(&device).ok()??)
}

/// The name of the array that something is a member of, without that of the host that made it.
fn name_of_array(identity: &Identity) -> Option<String> {
    let label = identity.label.as_ref().filter(|_| identity.kind == "linux_raid_member")?;
    Some(label.rsplit(':').next().unwrap_or_default().to_owned())
}

/// The disk that a partition is on; a disk is on itself.
fn disk_of(sys: &Path, name: &str) -> String {
    let disks = names(&sys.join("block"));
    let is_on = |disk: &String| sys.join("block").join(disk).join(name).is_dir();
    disks.into_iter().find(is_on).unwrap_or_else(|| name.to_owned())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_from_sysfs() {
        let sys = tempfile::tempdir().unwrap();
        let folder = |path: &str| fs::create_dir_all(sys.path().join("block").join(path)).unwrap();
        for path in [
            "nosda/nosda1",
            "nosdb/nosdb1",
            "md0/md",
            "md0/slaves/nosda1",
            "md0/slaves/nosdb1",
            "md1/md",
        ] {
            folder(path);
        }
        fs::write(sys.path().join("block/md0/md/level"), "raid1\n").unwrap();
        let arrays = existing(sys.path());
        assert_eq!(arrays.len(), 1);
        assert_eq!(arrays[0].device, Path::new("/dev/md0"));
        assert_eq!(arrays[0].level, "raid1");
        assert_eq!(arrays[0].members, [Path::new("/dev/nosda1"), Path::new("/dev/nosdb1")]);
        assert_eq!(arrays[0].disks, [Path::new("/dev/nosda"), Path::new("/dev/nosdb")]);
        assert_eq!(arrays[0].name, None);
    }

    #[test]
    fn what_belongs_to_a_kept_volume_is_found() {
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
        // A member of an array that does not run.
        let member = tempfile::NamedTempFile::new().unwrap();
        let mut superblock = vec![0; 1 << 20];
        superblock[4096..4100].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9]);
        superblock[4128..4137].copy_from_slice(b"host:data");
        fs::write(member.path(), superblock).unwrap();
        let name = member.path().to_str().unwrap().to_owned();
        let disks = [Disk { name: name.clone(), ..Disk::default() }];
        let kept = |names: &[&str]| -> Vec<String> {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let devices = kept_devices(&arrays, &names, &disks);
            devices.iter().map(|device| device.display().to_string()).collect()
        };
        assert_eq!(kept(&["data"]), ["/dev/md0", "/dev/nosda", "/dev/nosdb", "/dev/md1", &name]);
        assert!(kept(&["other"]).is_empty());
        assert!(kept(&[]).is_empty());
    }
}
