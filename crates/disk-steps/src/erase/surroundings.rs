// SPDX-License-Identifier: Apache-2.0
//! What a disk is part of: reasons to leave it alone, and reasons to refuse.

use std::fs;
use std::path::{Path, PathBuf};

use agent_protocol::Disk;
use uuid::{Uuid, uuid};

use super::{ErasePolicy, Error};
use crate::device::{Device, DeviceError, partition_path};
use crate::filesystem::identify;
use crate::gpt::Gpt;
use crate::mbr::Mbr;

/// The label of the floppy that brings parameters by virtual media.
const VIRTUAL_FLOPPY: &str = "ir-vfd-dev";
/// File systems that several machines use at once.
const SHARED: &[&str] = &["gfs2", "ocfs2", "VMFS", "VMFS_volume_member"];
/// Partitions for such file systems.
const SHARED_PARTITIONS: &[(Uuid, &str)] = &[
    (uuid!("aa31e02a-400f-11db-9590-000c2911d1b8"), "a VMFS partition"),
    (uuid!("37affc90-ef7d-4e96-91c3-2d7ae055b174"), "a GPFS partition"),
];
const VMFS_IN_MBR: u8 = 0xfb;

/// Why a disk is left alone, if it is.
pub(super) fn reason_to_skip(
    disk: &Disk,
    policy: &ErasePolicy,
) -> Result<Option<&'static str>, Error> {
    if is_read_only(disk, policy) {
        return match policy.skip_read_only {
            true => Ok(Some("it is read-only")),
            false => Err(Error::ReadOnly { device: disk.name.clone() }),
        };
    }
    let device = Device::read_only(Path::new(&disk.name))?;
    let identity = identify(&device)?;
    let label = identity.as_ref().and_then(|identity| identity.label.as_deref());
    if label.is_some_and(|label| label.eq_ignore_ascii_case(VIRTUAL_FLOPPY)) {
        return Ok(Some("it is virtual media"));
    }
    if identity.is_some_and(|identity| identity.kind == "linux_raid_member") {
        return Ok(Some("it is part of a software RAID array"));
    }
    for partition in partitions(disk, policy) {
        // A partition that cannot be read is erased with its disk, or fails then.
        let Ok(device) = Device::read_only(&partition) else { continue };
        if identify(&device)?.is_some_and(|identity| identity.kind == "linux_raid_member") {
            return Ok(Some("a partition of it is part of a software RAID array"));
        }
    }
    Ok(None)
}

/// Refuses what other machines may use, too.
pub(super) fn guard(disk: &Disk, policy: &ErasePolicy) -> Result<(), Error> {
    if !policy.guard {
        return Ok(());
    }
    let device = Device::read_only(Path::new(&disk.name))?;
    let mut found = shared_partition(&device)?.map(str::to_owned);
    let parts = partitions(disk, policy);
    for part in std::iter::once(PathBuf::from(&disk.name)).chain(parts) {
        let Ok(device) = Device::read_only(&part) else { continue };
        let identity = identify(&device)?.filter(|it| SHARED.contains(&it.kind));
        if let Some(identity) = identity {
            found = Some(format!("a {} file system (on {})", identity.kind, part.display()));
        }
    }
    match found {
        Some(what) => Err(Error::Shared { device: disk.name.clone(), what }),
        None => Ok(()),
    }
}

fn shared_partition(device: &Device) -> Result<Option<&'static str>, DeviceError> {
    if let Some(table) = Gpt::read(device)? {
        let kinds = table.partitions.iter().map(|partition| partition.kind);
        let shared = |kind| SHARED_PARTITIONS.iter().find(|(known, _)| *known == kind);
        return Ok(kinds.filter_map(shared).map(|(_, what)| *what).next());
    }
    let table = Mbr::read(device)?;
    let vmfs = table.is_some_and(|table| table.partitions().any(|(_, it)| it.kind == VMFS_IN_MBR));
    Ok(vmfs.then_some("a VMFS partition"))
}

/// The partitions the kernel knows, the last first.
pub(super) fn partitions(disk: &Disk, policy: &ErasePolicy) -> Vec<PathBuf> {
    let Some(folder) = sysfs(disk, policy) else { return Vec::new() };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |path: PathBuf| -> Option<u32> {
        fs::read_to_string(path.join("partition")).ok()?.trim().parse().ok()
    };
    let mut numbers: Vec<u32> = entries.filter_map(|entry| number(entry.path())).collect();
    numbers.sort_unstable();
    numbers.into_iter().rev().map(|n| partition_path(Path::new(&disk.name), n)).collect()
}

fn is_read_only(disk: &Disk, policy: &ErasePolicy) -> bool {
    let flag = sysfs(disk, policy).and_then(|folder| fs::read_to_string(folder.join("ro")).ok());
    flag.is_some_and(|flag| flag.trim() == "1")
}

/// Where the kernel tells about a disk.
pub(super) fn sysfs(disk: &Disk, policy: &ErasePolicy) -> Option<PathBuf> {
    let name = Path::new(&disk.name).file_name()?;
    Some(policy.sys.join("block").join(name))
}
