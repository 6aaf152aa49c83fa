// SPDX-License-Identifier: Apache-2.0
//! Erases metadata: partition tables, and signatures of file systems, RAID and LVM.
//!
//! All of it is in the first and last MiB of a disk or partition, except the mirror superblocks of btrfs.

use std::path::Path;

use agent_protocol::InventoryDisk;

use super::{EraseError, ErasePolicy, exclusions, open};
use crate::device::{Device, DeviceError};

/// Covers the first and last 33 sectors (5 of 4096 bytes) and all known signatures; ZFS labels are in
/// the first and last 512 KiB.
const END_SIZE: u64 = 1 << 20;
/// Offsets of the mirror superblocks of btrfs.
const BTRFS_MIRRORS: &[u64] = &[64 << 20, 256 << 30];
const BTRFS_MAGIC: &[u8] = b"_BHRfS_M";

/// Erases the metadata of the partitions of a disk, then of the disk itself.
pub(super) fn erase(disk: &InventoryDisk, policy: &ErasePolicy) -> Result<(), EraseError> {
    for partition in exclusions::partitions(disk, policy) {
        wipe(&Device::exclusive(Path::new(&partition))?)?;
    }
    let device = open(disk)?;
    wipe(&device)?;
    device.reread_partitions()?;
    Ok(())
}

/// Erases the metadata in ranges (offset and length) of a device. The rest may be in use.
pub(super) fn erase_ranges(path: &Path, ranges: &[(u64, u64)]) -> Result<(), DeviceError> {
    let device = Device::writable(path)?;
    for (start, length) in ranges {
        device.zero(*start, END_SIZE.min(*length))?;
        let end = start + length.saturating_sub(END_SIZE);
        device.zero(end, END_SIZE.min(*length))?;
    }
    device.sync()
}

/// Erases the metadata of one device.
pub(crate) fn wipe(device: &Device) -> Result<(), DeviceError> {
    for mirror in BTRFS_MIRRORS {
        let there = mirror + 4096 <= device.size();
        if there && device.read(mirror + 0x40, BTRFS_MAGIC.len())? == BTRFS_MAGIC {
            device.zero(*mirror, 4096)?;
        }
    }
    device.zero(0, END_SIZE)?;
    let sector = device.sector();
    let end = device.size().saturating_sub(END_SIZE) / sector * sector;
    device.zero(end, device.size() - end)?;
    device.sync()
}
