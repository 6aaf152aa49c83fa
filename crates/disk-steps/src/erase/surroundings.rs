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

/// The label of the floppy that brings parameters by virtual media, and how large one is at most.
const VIRTUAL_FLOPPY: &str = "ir-vfd-dev";
const LARGEST_MEDIUM: u64 = 4 << 30;
/// File systems that several machines use at once.
const SHARED: &[&str] = &["gfs2", "ocfs2", "VMFS", "VMFS_volume_member"];
/// Partitions for such file systems.
const SHARED_PARTITIONS: &[(Uuid, &str)] = &[
    (uuid!("aa31e02a-400f-11db-9590-000c2911d1b8"), "a VMFS partition"),
    (uuid!("37affc90-ef7d-4e96-91c3-2d7ae055b174"), "a GPFS partition"),
];
const VMFS_IN_MBR: u8 = 0xfb;

/// Why a disk is left alone, if it is. What is on a disk is no reason by itself: whoever used the
/// machine before could have written it.
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
    if is_pluggable(disk, policy) {
        let identity = identify(&Device::read_only(Path::new(&disk.name))?)?;
        let label = identity.and_then(|identity| identity.label);
        if label.is_some_and(|label| label.eq_ignore_ascii_case(VIRTUAL_FLOPPY)) {
            return Ok(Some("it is virtual media"));
        }
    }
    let Some(folder) = sysfs(disk, policy) else { return Ok(None) };
    if is_in_array(&folder, policy) {
        return Ok(Some("it is part of a software RAID array"));
    }
    let in_array = known_partitions(disk, policy).iter().any(|it| it.in_array);
    Ok(in_array.then_some("a partition of it is part of a software RAID array"))
}

/// The parts of a disk that are in none of the arrays some of its partitions are in, each from a byte
/// on and so long: other partitions one by one, and what is between partitions. Not the table.
pub(super) fn parts_beside_arrays(
    disk: &Disk,
    policy: &ErasePolicy,
) -> Result<Vec<(u64, u64)>, DeviceError> {
    let mut known = known_partitions(disk, policy);
    if !known.iter().any(|it| it.in_array) {
        return Ok(Vec::new());
    }
    let device = Device::read_only(Path::new(&disk.name))?;
    let (first, end) = match (Gpt::read(&device)?, Mbr::read(&device)?) {
        (Some(table), _) => table.usable(),
        (None, Some(table)) => {
            // The tables of logical partitions are between them.
            known.extend(table.extended().map(|(start, length)| Known {
                number: 0,
                start,
                length,
                in_array: true,
            }));
            (device.sector(), device.size())
        }
        (None, None) => return Ok(Vec::new()),
    };
    known.sort_by_key(|it| (it.start, !it.in_array));
    let mut parts = Vec::new();
    let mut add = |from: u64, to: u64| {
        let (from, to) = (from.max(first), to.min(end));
        if from < to {
            parts.push((from, to - from));
        }
    };
    let mut at = first;
    for it in known {
        let stop = it.start.saturating_add(it.length);
        if it.start >= at {
            add(at, it.start);
        }
        if !it.in_array {
            add(it.start.max(at), stop);
        }
        at = at.max(stop);
    }
    add(at, end);
    Ok(parts)
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
    let mut numbers: Vec<u32> = known_partitions(disk, policy).iter().map(|it| it.number).collect();
    numbers.sort_unstable();
    numbers.into_iter().rev().map(|n| partition_path(Path::new(&disk.name), n)).collect()
}

/// A partition the kernel knows. Places are in bytes.
struct Known {
    number: u32,
    start: u64,
    length: u64,
    in_array: bool,
}

fn known_partitions(disk: &Disk, policy: &ErasePolicy) -> Vec<Known> {
    // The kernel counts in these whatever the disk's sectors are.
    const SECTOR: u64 = 512;
    let Some(folder) = sysfs(disk, policy) else { return Vec::new() };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let partition = |folder: PathBuf| {
        let sectors = |name: &str| number::<u64>(&folder.join(name)).unwrap_or(0);
        Some(Known {
            number: number(&folder.join("partition"))?,
            start: sectors("start").saturating_mul(SECTOR),
            length: sectors("size").saturating_mul(SECTOR),
            in_array: is_in_array(&folder, policy),
        })
    };
    entries.filter_map(|entry| partition(entry.path())).collect()
}

/// Whether the kernel has a disk or partition in an array that is shown as a disk, and so erased
/// itself or left alone by its owner's wish.
fn is_in_array(folder: &Path, policy: &ErasePolicy) -> bool {
    let holders = fs::read_dir(folder.join("holders")).into_iter().flatten().flatten();
    holders.into_iter().any(|holder| {
        let array = policy.sys.join("block").join(holder.file_name());
        let level = fs::read_to_string(array.join("md/level")).unwrap_or_default();
        level.contains("raid") && number::<u64>(&array.join("size")).is_some_and(|size| size > 0)
    })
}

fn is_read_only(disk: &Disk, policy: &ErasePolicy) -> bool {
    sysfs(disk, policy).and_then(|folder| number::<u8>(&folder.join("ro"))) == Some(1)
}

/// Whether it may be a medium that a BMC plugs in.
fn is_pluggable(disk: &Disk, policy: &ErasePolicy) -> bool {
    let removable = sysfs(disk, policy).and_then(|it| number::<u8>(&it.join("removable")));
    disk.size < LARGEST_MEDIUM && (disk.tran.as_deref() == Some("usb") || removable == Some(1))
}

fn number<T: std::str::FromStr>(file: &Path) -> Option<T> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Where the kernel tells about a disk.
pub(super) fn sysfs(disk: &Disk, policy: &ErasePolicy) -> Option<PathBuf> {
    let name = Path::new(&disk.name).file_name()?;
    Some(policy.sys.join("block").join(name))
}
