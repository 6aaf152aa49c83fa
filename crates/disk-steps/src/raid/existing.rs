// SPDX-License-Identifier: Apache-2.0
//! The arrays there are, as the kernel tells.

use std::fs;
use std::path::{Path, PathBuf};

use super::Error;
use crate::device::{Device, DeviceError};
use crate::filesystem::identify;

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

/// The arrays there are.
///
/// # Errors
/// If a member cannot be read.
pub fn existing(sys: &Path) -> Result<Vec<ExistingArray>, Error> {
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
            name: volume_name(&members[0])?,
            members,
            disks,
        });
    }
    Ok(arrays)
}

/// The name in a member's superblock, without the name of the host that made it.
fn volume_name(member: &Path) -> Result<Option<String>, DeviceError> {
    let device = match Device::read_only(member) {
        Ok(device) => device,
        Err(DeviceError::Open { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let label = identify(&device)?.and_then(|identity| identity.label);
    Ok(label.map(|label| label.rsplit(':').next().unwrap_or_default().to_owned()))
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
        let arrays = existing(sys.path()).unwrap();
        assert_eq!(arrays.len(), 1);
        assert_eq!(arrays[0].device, Path::new("/dev/md0"));
        assert_eq!(arrays[0].level, "raid1");
        assert_eq!(arrays[0].members, [Path::new("/dev/nosda1"), Path::new("/dev/nosdb1")]);
        assert_eq!(arrays[0].disks, [Path::new("/dev/nosda"), Path::new("/dev/nosdb")]);
        assert_eq!(arrays[0].name, None);
    }
}
