// SPDX-License-Identifier: Apache-2.0
//! Decides which disks are skipped or refused when erasing.

use std::fs;
use std::path::{Path, PathBuf};

use agent_protocol::InventoryDisk;
use uuid::{Uuid, uuid};

use super::{EraseError, ErasePolicy};
use crate::device::{Device, DeviceError, partition_path};
use crate::filesystem::identify;
use crate::gpt::Gpt;
use crate::mbr::Mbr;

/// Label and maximum size of the virtual floppy with the agent's parameters.
const VIRTUAL_FLOPPY_LABEL: &str = "ir-vfd-dev";
const MAX_VIRTUAL_MEDIUM_SIZE: u64 = 4 << 30;
/// Cluster file systems.
const SHARED_FILESYSTEMS: &[&str] = &["gfs2", "ocfs2", "VMFS", "VMFS_volume_member"];
/// Partition types of cluster file systems.
const SHARED_PARTITION_TYPES: &[(Uuid, &str)] = &[
    (uuid!("aa31e02a-400f-11db-9590-000c2911d1b8"), "a VMFS partition"),
    (uuid!("37affc90-ef7d-4e96-91c3-2d7ae055b174"), "a GPFS partition"),
];
const VMFS_MBR_TYPE: u8 = 0xfb;

/// Returns why a disk is skipped, if it is. The content of a fixed disk is never a reason, because the
/// previous user of the machine could have written it.
pub(super) fn skip_reason(
    disk: &InventoryDisk,
    policy: &ErasePolicy,
) -> Result<Option<&'static str>, EraseError> {
    if is_read_only(disk, policy) {
        return match policy.skip_read_only {
            true => Ok(Some("it is read-only")),
            false => Err(EraseError::ReadOnly { device: disk.name.clone() }),
        };
    }
    if may_be_virtual_media(disk, policy) {
        let identity = identify(&Device::read_only(Path::new(&disk.name))?)?;
        let label = identity.and_then(|identity| identity.label);
        if label.is_some_and(|label| label.eq_ignore_ascii_case(VIRTUAL_FLOPPY_LABEL)) {
            return Ok(Some("it is virtual media"));
        }
    }
    let Some(directory) = sysfs_directory(disk, policy) else { return Ok(None) };
    if is_in_array(&directory, policy) {
        return Ok(Some("it is part of a software RAID array"));
    }
    let in_array = kernel_partitions(disk, policy).iter().any(|it| it.in_array);
    Ok(in_array.then_some("a partition of it is part of a software RAID array"))
}

/// Returns the ranges (offset and length in bytes) of a disk outside the arrays that some of its
/// partitions belong to: other partitions, and gaps between partitions, without the partition table.
pub(super) fn ranges_outside_arrays(
    disk: &InventoryDisk,
    policy: &ErasePolicy,
) -> Result<Vec<(u64, u64)>, DeviceError> {
    let mut partitions = kernel_partitions(disk, policy);
    if !partitions.iter().any(|it| it.in_array) {
        return Ok(Vec::new());
    }
    let device = Device::read_only(Path::new(&disk.name))?;
    let (first, end) = match (Gpt::read(&device)?, Mbr::read(&device)?) {
        (Some(table), _) => table.usable_range(),
        (None, Some(table)) => {
            // The boot records of logical partitions are in the gaps between them.
            partitions.extend(table.extended_range().map(|(start, length)| KernelPartition {
                number: 0,
                start,
                length,
                in_array: true,
            }));
            (device.sector(), device.size())
        }
        (None, None) => return Ok(Vec::new()),
    };
    partitions.sort_by_key(|it| (it.start, !it.in_array));
    let mut parts = Vec::new();
    let mut add = |from: u64, to: u64| {
        let (from, to) = (from.max(first), to.min(end));
        if from < to {
            parts.push((from, to - from));
        }
    };
    let mut at = first;
    for it in partitions {
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

/// Fails if other machines may use the disk.
pub(super) fn check_not_shared(
    disk: &InventoryDisk,
    policy: &ErasePolicy,
) -> Result<(), EraseError> {
    if !policy.protect_shared {
        return Ok(());
    }
    let device = Device::read_only(Path::new(&disk.name))?;
    let mut found = shared_partition(&device)?.map(str::to_owned);
    let parts = partitions(disk, policy);
    for part in std::iter::once(PathBuf::from(&disk.name)).chain(parts) {
        let Ok(device) = Device::read_only(&part) else { continue };
        let identity = identify(&device)?.filter(|it| SHARED_FILESYSTEMS.contains(&it.fs_type));
        if let Some(identity) = identity {
            found = Some(format!("a {} file system (on {})", identity.fs_type, part.display()));
        }
    }
    match found {
        Some(what) => Err(EraseError::Shared { device: disk.name.clone(), what }),
        None => Ok(()),
    }
}

fn shared_partition(device: &Device) -> Result<Option<&'static str>, DeviceError> {
    if let Some(table) = Gpt::read(device)? {
        let kinds = table.partitions.iter().map(|partition| partition.type_guid);
        let shared =
            |kind| SHARED_PARTITION_TYPES.iter().find(|(partitions, _)| *partitions == kind);
        return Ok(kinds.filter_map(shared).map(|(_, what)| *what).next());
    }
    let table = Mbr::read(device)?;
    let vmfs =
        table.is_some_and(|table| table.partitions().any(|(_, it)| it.type_code == VMFS_MBR_TYPE));
    Ok(vmfs.then_some("a VMFS partition"))
}

/// Returns the partitions known to the kernel, the last one first.
pub(super) fn partitions(disk: &InventoryDisk, policy: &ErasePolicy) -> Vec<PathBuf> {
    let mut numbers: Vec<u32> =
        kernel_partitions(disk, policy).iter().map(|it| it.number).collect();
    numbers.sort_unstable();
    numbers.into_iter().rev().map(|n| partition_path(Path::new(&disk.name), n)).collect()
}

/// A partition known to the kernel. Start and length are in bytes.
struct KernelPartition {
    number: u32,
    start: u64,
    length: u64,
    in_array: bool,
}

fn kernel_partitions(disk: &InventoryDisk, policy: &ErasePolicy) -> Vec<KernelPartition> {
    // Unit of `start` and `size` in sysfs, independent of the sector size.
    const SECTOR: u64 = 512;
    let Some(directory) = sysfs_directory(disk, policy) else { return Vec::new() };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let partition = |directory: PathBuf| {
        let sectors = |name: &str| read_number::<u64>(&directory.join(name)).unwrap_or(0);
        Some(KernelPartition {
            number: read_number(&directory.join("partition"))?,
            start: sectors("start").saturating_mul(SECTOR),
            length: sectors("size").saturating_mul(SECTOR),
            in_array: is_in_array(&directory, policy),
        })
    };
    entries.filter_map(|entry| partition(entry.path())).collect()
}

/// Whether a disk or partition belongs to a RAID array that is reported as a disk, and so is erased or
/// skipped on its own.
fn is_in_array(directory: &Path, policy: &ErasePolicy) -> bool {
    let holders = fs::read_dir(directory.join("holders")).into_iter().flatten().flatten();
    holders.into_iter().any(|holder| {
        let array = policy.sys.join("block").join(holder.file_name());
        let level = fs::read_to_string(array.join("md/level")).unwrap_or_default();
        level.contains("raid")
            && read_number::<u64>(&array.join("size")).is_some_and(|size| size > 0)
    })
}

fn is_read_only(disk: &InventoryDisk, policy: &ErasePolicy) -> bool {
    sysfs_directory(disk, policy).and_then(|directory| read_number::<u8>(&directory.join("ro")))
        == Some(1)
}

/// Whether the disk may be virtual media of a BMC.
fn may_be_virtual_media(disk: &InventoryDisk, policy: &ErasePolicy) -> bool {
    let removable =
        sysfs_directory(disk, policy).and_then(|it| read_number::<u8>(&it.join("removable")));
    disk.size < MAX_VIRTUAL_MEDIUM_SIZE
        && (disk.tran.as_deref() == Some("usb") || removable == Some(1))
}

fn read_number<T: std::str::FromStr>(file: &Path) -> Option<T> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Returns the sysfs directory of a disk.
pub(super) fn sysfs_directory(disk: &InventoryDisk, policy: &ErasePolicy) -> Option<PathBuf> {
    let name = Path::new(&disk.name).file_name()?;
    Some(policy.sys.join("block").join(name))
}
