// SPDX-License-Identifier: Apache-2.0
//! Creates file systems: FAT and swap directly, others with their programs.

use std::path::Path;
use std::process::Command;

use boot_media::fat::{self, FatSize};
use boot_media::{ContentSegment, FileTree};
use uuid::Uuid;

use super::{PartitionError, format_error};
use crate::device::Device;

const PAGE: u64 = 4096;

/// Creates an empty FAT file system.
pub(super) fn create_fat(partition: &Path, label: &str) -> Result<(), PartitionError> {
    let device = Device::exclusive(partition)?;
    if device.sector() != 512 {
        drop(device);
        return run("mkfs.vfat", &["-n", label], partition);
    }
    let size = device.size() / 512 * 512;
    let volume = fat::layout(label, &FileTree::default(), FatSize::Exact(size))
        .map_err(|error| format_error("the FAT writer", partition, error))?;
    let mut at = 0;
    for segment in volume.segments() {
        match segment {
            ContentSegment::Bytes(bytes) => device.write(at, bytes)?,
            // The data area needs no zeroing.
            ContentSegment::Zeros(length) => device.zero(at, (*length).min(1 << 20))?,
            ContentSegment::File { .. } => unreachable!("an empty volume has no files"),
        }
        at += segment.length();
    }
    Ok(device.sync()?)
}

/// Creates swap space.
pub(super) fn create_swap(partition: &Path, label: &str) -> Result<(), PartitionError> {
    let device = Device::exclusive(partition)?;
    device.zero(0, 16 * PAGE)?;
    device.write(0, &swap_header(device.size(), label, Uuid::new_v4()))?;
    Ok(device.sync()?)
}

fn swap_header(size: u64, label: &str, uuid: Uuid) -> Vec<u8> {
    let mut page = vec![0; 4096];
    let last = u32::try_from(size / PAGE).unwrap_or(u32::MAX).saturating_sub(1);
    page[1024..1028].copy_from_slice(&1_u32.to_ne_bytes());
    page[1028..1032].copy_from_slice(&last.to_ne_bytes());
    page[1036..1052].copy_from_slice(uuid.as_bytes());
    let length = label.len().min(15);
    page[1052..1052 + length].copy_from_slice(&label.as_bytes()[..length]);
    page[4086..].copy_from_slice(b"SWAPSPACE2");
    page
}

/// Creates a file system of a named type.
pub(super) fn create(fs_type: &str, partition: &Path, label: &str) -> Result<(), PartitionError> {
    match fs_type {
        "ext2" | "ext3" | "ext4" => {
            run("mke2fs", &["-q", "-F", "-t", fs_type, "-L", label], partition)
        }
        "vfat" | "fat32" => create_fat(partition, label),
        "swap" => create_swap(partition, label),
        // The name becomes part of a program name, so restrict its characters.
        _ if !fs_type.is_empty() && fs_type.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            run(&format!("mkfs.{fs_type}"), &["-f", "-L", label], partition)
        }
        _ => Err(format_error("mkfs", partition, format!("there is no file system {fs_type:?}"))),
    }
}

fn run(program: &str, arguments: &[&str], partition: &Path) -> Result<(), PartitionError> {
    match Command::new(program).args(arguments).arg(partition).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let output = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(format_error(program, partition, output))
        }
        Err(error) => {
            let output = format!("it cannot be started ({error}); check that it is in the ramdisk");
            Err(format_error(program, partition, output))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::identify;

    fn partition(size: u64) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(size).unwrap();
        file
    }

    #[test]
    fn creates_identifiable_filesystems() {
        let file = partition(64 << 20);
        let check = |fs_type: &str, label: &str| {
            let identity = identify(&Device::read_only(file.path()).unwrap()).unwrap().unwrap();
            assert_eq!((identity.fs_type, identity.label.as_deref()), (fs_type, Some(label)));
            assert!(identity.uuid.is_some());
        };
        create_fat(file.path(), "efi-part").unwrap();
        check("vfat", "efi-part");
        let fsck = Command::new("/usr/sbin/fsck.vfat").arg("-n").arg(file.path()).output().unwrap();
        assert!(fsck.status.success(), "{}", String::from_utf8_lossy(&fsck.stdout));
        create_swap(file.path(), "swap1").unwrap();
        check("swap", "swap1");
        assert!(create("x; rm", file.path(), "l").is_err());
    }
}
