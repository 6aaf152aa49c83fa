// SPDX-License-Identifier: Apache-2.0
//! Erases what tells what is on a disk: partition tables, file systems, RAID and LVM labels.
//!
//! All of it is in the first and the last megabyte of a disk or partition, but for the spare
//! superblocks of btrfs.

use std::path::Path;

use agent_protocol::Disk;

use super::{ErasePolicy, Error, open, surroundings};
use crate::device::{Device, DeviceError};

/// Holds the first and last 33 sectors (5 of 4096 bytes) and every known signature: ZFS has labels
/// in the first and last 512 KiB.
const ENDS: u64 = 1 << 20;
/// The spare superblocks of btrfs.
const BTRFS_SPARES: &[u64] = &[64 << 20, 256 << 30];
const BTRFS_MAGIC: &[u8] = b"_BHRfS_M";

/// Erases the metadata on the partitions of a disk, then those of the disk itself.
pub(super) fn erase(disk: &Disk, policy: &ErasePolicy) -> Result<(), Error> {
    for partition in surroundings::partitions(disk, policy) {
        wipe(&Device::exclusive(Path::new(&partition))?)?;
    }
    let device = open(disk)?;
    wipe(&device)?;
    device.reread_partitions()?;
    Ok(())
}

/// Erases the metadata in parts of a device, each from a byte on and so long. The rest may be in use.
pub(super) fn erase_parts(path: &Path, parts: &[(u64, u64)]) -> Result<(), DeviceError> {
    let device = Device::writable(path)?;
    for (start, length) in parts {
        device.zero(*start, ENDS.min(*length))?;
        let end = start + length.saturating_sub(ENDS);
        device.zero(end, ENDS.min(*length))?;
    }
    device.sync()
}

/// Erases the metadata of one device.
pub(crate) fn wipe(device: &Device) -> Result<(), DeviceError> {
    for spare in BTRFS_SPARES {
        let there = spare + 4096 <= device.size();
        if there && device.read(spare + 0x40, BTRFS_MAGIC.len())? == BTRFS_MAGIC {
            device.zero(*spare, 4096)?;
        }
    }
    device.zero(0, ENDS)?;
    let sector = device.sector();
    let end = device.size().saturating_sub(ENDS) / sector * sector;
    device.zero(end, device.size() - end)?;
    device.sync()
}
