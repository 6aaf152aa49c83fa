// SPDX-License-Identifier: Apache-2.0
//! The image for QEMU machines: a disk with one EFI system partition that holds a unified kernel image.
//!
//! It uses the kernel and the ramdisk of the agent, so that nothing has to be downloaded, but starts a
//! shell on the console instead of the agent.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use boot_media::uki::{UkiParts, UkiStub};
use boot_media::{Content, ContentSegment, boot_iso};
use sha2::{Digest as _, Sha256};

use super::{KERNEL_PARAMETERS, MEBIBYTE};

/// From Debian's package `systemd-boot-efi`.
pub(super) const STUB: &str = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub";
/// Console output of the deployed system.
pub(super) const GREETING: &str = "This system was deployed by Ferrite and booted from its disk";

/// Offset of the partition: the usual alignment of 1 MiB.
const PARTITION_BYTE: u64 = MEBIBYTE;
const SECTOR: u64 = 512;
/// Non-zero: firmware identifies the disk by it.
const DISK_SIGNATURE: [u8; 4] = *b"FeDe";
const EFI_SYSTEM_PARTITION: u8 = 0xef;

/// A raw disk image in a file.
#[derive(Debug)]
pub(super) struct DiskImage {
    pub(super) path: PathBuf,
    /// Hexadecimal.
    pub(super) sha256: String,
}

impl DiskImage {
    /// Builds the image from the agent's kernel and ramdisk.
    pub(super) fn build(path: PathBuf, found: &ramdisk::BuiltRamdisk) -> anyhow::Result<Self> {
        if found
            .manifest
            .as_ref()
            .is_some_and(|manifest| !manifest.programs.contains_key("busybox"))
        {
            bail!(
                "{} has no busybox, which the deployed system needs; install it and run \
                 `ferrite ramdisk build` again",
                found.ramdisk.display()
            );
        }
        let open = |path: &Path| {
            Content::open(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let stub = std::fs::read(STUB).with_context(|| format!("cannot read {STUB}"))?;
        let stub = UkiStub::parse(&stub.into()).with_context(|| format!("cannot use {STUB}"))?;
        let system = stub
            .build(&UkiParts {
                kernel: open(&found.kernel)?,
                ramdisks: vec![open(&found.ramdisk)?],
                command_line: command_line(),
                ..UkiParts::default()
            })
            .context("cannot build the unified kernel image")?;
        let mut partition = boot_iso::system_partition(&system, stub.architecture())
            .context("cannot build the disk image")?;
        partition.pad_to_multiple(MEBIBYTE);
        let mut disk = Content::new();
        disk.push(ContentSegment::Bytes(master_boot_record(partition.length())?.to_vec().into()));
        disk.push(ContentSegment::Zeros(PARTITION_BYTE - SECTOR));
        disk.append(&partition);

        let mut bytes = Vec::new();
        disk.write_to(&mut bytes)
            .and_then(|_| std::fs::write(&path, &bytes))
            .with_context(|| format!("cannot write {}", path.display()))?;
        let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { path, sha256 })
    }
}

/// The kernel passes everything after `--` to the init process, here a shell with its script.
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

/// Builds an MBR with one EFI system partition, which is enough for UEFI firmware.
fn master_boot_record(partition_bytes: u64) -> anyhow::Result<[u8; SECTOR as usize]> {
    let sectors = |bytes: u64| u32::try_from(bytes / SECTOR).context("the image is too large");
    let mut sector = [0; SECTOR as usize];
    sector[0x1b8..0x1bc].copy_from_slice(&DISK_SIGNATURE);
    let entry = &mut sector[0x1be..0x1ce];
    // These CHS values mean that the LBA fields apply.
    entry[1..4].copy_from_slice(&[0xfe, 0xff, 0xff]);
    entry[4] = EFI_SYSTEM_PARTITION;
    entry[5..8].copy_from_slice(&[0xfe, 0xff, 0xff]);
    entry[8..12].copy_from_slice(&sectors(PARTITION_BYTE)?.to_le_bytes());
    entry[12..16].copy_from_slice(&sectors(partition_bytes)?.to_le_bytes());
    sector[0x1fe..].copy_from_slice(&[0x55, 0xaa]);
    Ok(sector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_partition_offset_and_size() {
        let sector = master_boot_record(24 * MEBIBYTE).unwrap();
        assert_eq!(sector[0x1be + 4], EFI_SYSTEM_PARTITION);
        assert_eq!(sector[0x1be + 8..0x1be + 12], 2048_u32.to_le_bytes());
        assert_eq!(sector[0x1be + 12..0x1be + 16], (24 * 2048_u32).to_le_bytes());
        assert_eq!(sector[510..], [0x55, 0xaa]);
    }

    /// The kernel treats words with "=" as parameters, and quotes group words, so the script must
    /// contain neither.
    #[test]
    fn kernel_passes_the_script_as_one_argument() {
        let line = command_line();
        let (_, init) = line.split_once(" -- ").unwrap();
        let script = init.strip_prefix("sh -c \"").unwrap().strip_suffix('"').unwrap();
        assert!(!script.contains(['"', '=']), "{script}");
        assert!(script.contains(GREETING), "{script}");
    }
}
