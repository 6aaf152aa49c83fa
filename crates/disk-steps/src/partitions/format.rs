// SPDX-License-Identifier: Apache-2.0
//! Makes file systems: FAT and swap by ourselves, all others by their own programs.

use std::path::Path;
use std::process::Command;

use boot_media::fat::{self, Size};
use boot_media::{FileTree, Segment};
use uuid::Uuid;

use super::{Error, format_error};
use crate::device::Device;

const PAGE: u64 = 4096;

/// Makes an empty FAT file system.
pub(super) fn fat(partition: &Path, label: &str) -> Result<(), Error> {
    let device = Device::exclusive(partition)?;
    if device.sector() != 512 {
        drop(device);
        return run("mkfs.vfat", &["-n", label], partition);
    }
    let size = device.size() / 512 * 512;
    let volume = fat::layout(label, &FileTree::default(), Size::Exactly(size))
        .map_err(|error| format_error("our FAT builder", partition, error))?;
    let mut at = 0;
    for segment in volume.segments() {
        match segment {
            Segment::Bytes(bytes) => device.write(at, bytes)?,
            // What is behind the folders is nobody's until a file is put there.
            Segment::Zeros(length) => device.zero(at, (*length).min(1 << 20))?,
            Segment::File { .. } => unreachable!("an empty volume has no files"),
        }
        at += segment.length();
    }
    Ok(device.sync()?)
}

/// Makes swap space.
pub(super) fn swap(partition: &Path, label: &str) -> Result<(), Error> {
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

/// Makes any other file system with the program for it.
pub(super) fn make(kind: &str, partition: &Path, label: &str) -> Result<(), Error> {
    match kind {
        "ext2" | "ext3" | "ext4" => {
            run("mke2fs", &["-q", "-F", "-t", kind, "-L", label], partition)
        }
        "vfat" | "fat32" => fat(partition, label),
        "swap" => swap(partition, label),
        // The name becomes part of a program's, so it must be one.
        _ if !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            run(&format!("mkfs.{kind}"), &["-f", "-L", label], partition)
        }
        _ => Err(format_error("mkfs", partition, format!("there is no file system {kind:?}"))),
    }
}

fn run(program: &str, arguments: &[&str], partition: &Path) -> Result<(), Error> {
    match Command::new(program).args(arguments).arg(partition).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(format_error(program, partition, said))
        }
        Err(error) => {
            let why = format!("it does not start ({error}); is it in the ramdisk?");
            Err(format_error(program, partition, why))
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
    fn file_systems_are_what_they_should_be() {
        let file = partition(64 << 20);
        let check = |kind: &str, label: &str| {
            let identity = identify(&Device::read_only(file.path()).unwrap()).unwrap().unwrap();
            assert_eq!((identity.kind, identity.label.as_deref()), (kind, Some(label)));
            assert!(identity.uuid.is_some());
        };
        fat(file.path(), "efi-part").unwrap();
        check("vfat", "efi-part");
        let fsck = Command::new("/usr/sbin/fsck.vfat").arg("-n").arg(file.path()).output().unwrap();
        assert!(fsck.status.success(), "{}", String::from_utf8_lossy(&fsck.stdout));
        swap(file.path(), "swap1").unwrap();
        check("swap", "swap1");
        assert!(make("x; rm", file.path(), "l").is_err());
    }
}
