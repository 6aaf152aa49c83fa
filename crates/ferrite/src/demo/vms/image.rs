// SPDX-License-Identifier: Apache-2.0
//! What is deployed to QEMU machines: a disk with one EFI system partition, on which a unified kernel
//! image is all there is.
//!
//! Its kernel and its ramdisk are those of the agent, so nothing has to be downloaded; but what runs
//! there is not the agent but a shell, which says on the console where it is and takes commands.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use boot_media::uki::{Parts, Stub};
use boot_media::{Content, Segment, boot_iso};
use sha2::{Digest as _, Sha256};

use super::{KERNEL_PARAMETERS, MEBIBYTE};

/// Of Debian's package `systemd-boot-efi`.
pub(super) const STUB: &str = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub";
/// What the deployed system says on its console.
pub(super) const GREETING: &str = "This system was deployed by Ferrite and booted from its disk";

/// Where the partition begins, as everywhere.
const PARTITION_BYTE: u64 = MEBIBYTE;
const SECTOR: u64 = 512;
/// Whatever is not nothing: firmware knows the disk by it.
const DISK_SIGNATURE: [u8; 4] = *b"FeDe";
const EFI_SYSTEM_PARTITION: u8 = 0xef;

/// The image.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) path: PathBuf,
    /// In hexadecimal.
    pub(super) sha256: String,
}

impl Image {
    /// Makes it of the agent's kernel and ramdisk.
    pub(super) fn make(path: PathBuf, found: &ramdisk::Found) -> anyhow::Result<Self> {
        if found.manifest.as_ref().is_some_and(|about| !about.programs.contains_key("busybox")) {
            bail!(
                "{} has no busybox, which is what runs on the machines in the end; install it and \
                 run `ferrite ramdisk build` again",
                found.ramdisk.display()
            );
        }
        let opened = |path: &Path| {
            Content::open(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let stub = std::fs::read(STUB).with_context(|| format!("cannot read {STUB}"))?;
        let stub = Stub::parse(&stub.into()).with_context(|| format!("cannot use {STUB}"))?;
        let system = stub
            .build(&Parts {
                kernel: opened(&found.kernel)?,
                ramdisks: vec![opened(&found.ramdisk)?],
                command_line: command_line(),
                ..Parts::default()
            })
            .context("cannot make the system that is to be deployed")?;
        let mut partition = boot_iso::system_partition(&system, stub.architecture())
            .context("cannot make the disk that is to be deployed")?;
        partition.pad_to_multiple(MEBIBYTE);
        let mut disk = Content::new();
        disk.push(Segment::Bytes(first_sector(partition.length())?.to_vec().into()));
        disk.push(Segment::Zeros(PARTITION_BYTE - SECTOR));
        disk.append(&partition);

        let mut bytes = Vec::new();
        disk.write_to(&mut bytes)
            .and_then(|_| std::fs::write(&path, &bytes))
            .with_context(|| format!("cannot write {}", path.display()))?;
        let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { path, sha256 })
    }
}

/// The kernel hands what comes after the dashes to the first process: a shell, and what it is to do.
fn command_line() -> String {
    let busybox = "/usr/bin/busybox";
    format!(
        "{KERNEL_PARAMETERS} rdinit={busybox} -- sh -c \"\
         {busybox} mkdir -p /proc; {busybox} mount -t proc proc /proc; \
         {busybox} --install -s /usr/bin; {busybox} echo; \
         {busybox} echo '{GREETING}: Linux '$({busybox} uname -r); \
         while true; do {busybox} sh; done\""
    )
}

/// A partition table in the old style, with one partition of so many bytes: all that firmware needs.
fn first_sector(partition_bytes: u64) -> anyhow::Result<[u8; SECTOR as usize]> {
    let in_sectors = |bytes: u64| u32::try_from(bytes / SECTOR).context("the image is too large");
    let mut sector = [0; SECTOR as usize];
    sector[0x1b8..0x1bc].copy_from_slice(&DISK_SIGNATURE);
    let entry = &mut sector[0x1be..0x1ce];
    // Cylinders and heads that say: look at the numbers of the sectors instead.
    entry[1..4].copy_from_slice(&[0xfe, 0xff, 0xff]);
    entry[4] = EFI_SYSTEM_PARTITION;
    entry[5..8].copy_from_slice(&[0xfe, 0xff, 0xff]);
    entry[8..12].copy_from_slice(&in_sectors(PARTITION_BYTE)?.to_le_bytes());
    entry[12..16].copy_from_slice(&in_sectors(partition_bytes)?.to_le_bytes());
    sector[0x1fe..].copy_from_slice(&[0x55, 0xaa]);
    Ok(sector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partition_is_found_where_it_is() {
        let sector = first_sector(24 * MEBIBYTE).unwrap();
        assert_eq!(sector[0x1be + 4], EFI_SYSTEM_PARTITION);
        assert_eq!(sector[0x1be + 8..0x1be + 12], 2048_u32.to_le_bytes());
        assert_eq!(sector[0x1be + 12..0x1be + 16], (24 * 2048_u32).to_le_bytes());
        assert_eq!(sector[510..], [0x55, 0xaa]);
    }

    /// Where the kernel cuts its line up there must be no "=" but in parameters of its own, and
    /// quotes only around all that the shell is told.
    #[test]
    fn the_kernel_hands_the_shell_one_argument() {
        let line = command_line();
        let (_, init) = line.split_once(" -- ").unwrap();
        let script = init.strip_prefix("sh -c \"").unwrap().strip_suffix('"').unwrap();
        assert!(!script.contains(['"', '=']), "{script}");
        assert!(script.contains(GREETING), "{script}");
    }
}
