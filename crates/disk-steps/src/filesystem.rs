// SPDX-License-Identifier: Apache-2.0
//! Detects file system type, label and UUID of a disk or partition by its superblocks, named as by
//! `blkid`.

use uuid::Uuid;

use crate::device::{Device, DeviceError};

/// Type, UUID and label.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FilesystemIdentity {
    /// `ext4`, `vfat`, `linux_raid_member`, …
    pub(crate) fs_type: &'static str,
    /// UUID or serial number, formatted as for this type.
    pub(crate) uuid: Option<String>,
    /// Label.
    pub(crate) label: Option<String>,
}

/// Bytes read at the beginning; contains the superblocks of all types except VMFS.
const HEAD_LENGTH: usize = 128 * 1024;

/// Magic numbers: offset, bytes and type.
const MAGIC_NUMBERS: &[(u64, &[u8], &str)] = &[
    (0x438, &[0x53, 0xef], "ext4"),
    (0, b"XFSB", "xfs"),
    (0x1_0040, b"_BHRfS_M", "btrfs"),
    (82, b"FAT32   ", "vfat"),
    (54, b"FAT16   ", "vfat"),
    (54, b"FAT12   ", "vfat"),
    (3, b"NTFS    ", "ntfs"),
    (4086, b"SWAPSPACE2", "swap"),
    (0x8001, b"CD001", "iso9660"),
    (0x8001, b"BEA01", "udf"),
    (0, b"LUKS\xba\xbe", "crypto_LUKS"),
    (0, b"hsqs", "squashfs"),
    (0x1000, &[0xfc, 0x4e, 0x2b, 0xa9], "linux_raid_member"),
    (0, &[0xfc, 0x4e, 0x2b, 0xa9], "linux_raid_member"),
    (0x400, &[0x10, 0x20, 0xf5, 0xf2], "f2fs"),
    (0, b"\x4c\x41\x42\x45\x4c\x4f\x4e\x45", "LVM2_member"),
    (512, b"LABELONE", "LVM2_member"),
    (1024, b"LABELONE", "LVM2_member"),
    (1536, b"LABELONE", "LVM2_member"),
    (0x1_0000, &[0x01, 0x16, 0x19, 0x70], "gfs2"),
    (0x400, b"OCFSV2", "ocfs2"),
    (0x800, b"OCFSV2", "ocfs2"),
    (0x1000, b"OCFSV2", "ocfs2"),
    (0x10_0000, &[0x0d, 0xd0, 0x01, 0xc0], "VMFS_volume_member"),
    (0x20_0000, &[0x5e, 0xf1, 0xab, 0x2f], "VMFS"),
    (0x130_0000, &[0x5e, 0xf1, 0xab, 0x2f], "VMFS"),
];

/// Identifies the content of a device; `None` if it is unknown.
pub(crate) fn identify(device: &Device) -> Result<Option<FilesystemIdentity>, DeviceError> {
    identify_at(device, 0, device.size())
}

/// Identifies the content of a range of a device.
pub(crate) fn identify_at(
    device: &Device,
    start: u64,
    length: u64,
) -> Result<Option<FilesystemIdentity>, DeviceError> {
    let end = start.saturating_add(length).min(device.size());
    let available =
        usize::try_from(end.saturating_sub(start)).unwrap_or(HEAD_LENGTH).min(HEAD_LENGTH);
    let mut head = device.read(start, available)?;
    head.resize(HEAD_LENGTH, 0);
    // A RAID superblock at the end takes precedence, because the array's content starts at the member's.
    let length = end.saturating_sub(start);
    let raid_superblocks = [
        (length / 512).saturating_sub(16) / 8 * 8 * 512,
        (length / 65536).saturating_sub(1) * 65536,
    ];
    for at in raid_superblocks {
        if length < 65536 {
            break;
        }
        let superblock = device.read(start + at, 64)?;
        if superblock.starts_with(&[0xfc, 0x4e, 0x2b, 0xa9]) {
            // Version 0.90 has no name and other fields.
            let version_1 = superblock[4] == 1;
            let identity = parse_identity("linux_raid_member", 0, &superblock);
            let type_only =
                FilesystemIdentity { fs_type: identity.fs_type, ..FilesystemIdentity::default() };
            return Ok(Some(if version_1 { identity } else { type_only }));
        }
    }
    for (offset, magic, fs_type) in MAGIC_NUMBERS {
        let found = match usize::try_from(*offset) {
            Ok(at) if at + magic.len() <= HEAD_LENGTH => head[at..].starts_with(magic),
            Ok(_) | Err(_) => {
                start + offset + 4 <= end
                    && device.read(start + offset, magic.len())?.as_slice() == *magic
            }
        };
        if found {
            return Ok(Some(parse_identity(fs_type, *offset, &head)));
        }
    }
    Ok(None)
}

fn parse_identity(fs_type: &'static str, offset: u64, head: &[u8]) -> FilesystemIdentity {
    let uuid = |at: usize| {
        let bytes = <[u8; 16]>::try_from(&head[at..at + 16]).expect("sixteen bytes");
        Some(Uuid::from_bytes(bytes)).filter(|uuid| !uuid.is_nil()).map(|uuid| uuid.to_string())
    };
    let text = |at: usize, length: usize| {
        let bytes = head[at..at + length].split(|byte| *byte == 0).next().unwrap_or_default();
        let text = String::from_utf8_lossy(bytes).trim_end().to_owned();
        Some(text).filter(|text| !text.is_empty())
    };
    let (uuid, label) = match fs_type {
        "ext4" => (uuid(0x468), text(0x478, 16)),
        "xfs" => (uuid(32), text(108, 12)),
        "btrfs" => (uuid(0x1_0020), text(0x1_012b, 256)),
        "swap" => (uuid(0x40c), text(0x41c, 16)),
        "vfat" => {
            let (serial, label) = if offset == 82 { (67, 71) } else { (39, 43) };
            let low = u16::from_le_bytes([head[serial], head[serial + 1]]);
            let high = u16::from_le_bytes([head[serial + 2], head[serial + 3]]);
            let label = text(label, 11).filter(|label| label != "NO NAME");
            (Some(format!("{high:04X}-{low:04X}")), label)
        }
        "iso9660" => (iso_uuid(&head[0x8000 + 813..0x8000 + 847]), text(0x8028, 32)),
        "crypto_LUKS" => (text(168, 40), None),
        "LVM2_member" => {
            let at = usize::try_from(offset).expect("in the first sectors") + 32;
            (text(at, 32).map(|id| lvm_uuid(&id)), None)
        }
        "linux_raid_member" => {
            let at = usize::try_from(offset).expect("in the first sectors");
            (uuid(at + 16), text(at + 32, 32))
        }
        _ => (None, None),
    };
    FilesystemIdentity { fs_type, uuid, label }
}

/// Returns the UUID of an ISO: its modification date, else its creation date.
fn iso_uuid(dates: &[u8]) -> Option<String> {
    [&dates[17..33], &dates[..16]].into_iter().find_map(|date| {
        let digits = date.iter().all(u8::is_ascii_digit) && date.iter().any(|digit| *digit != b'0');
        let text = std::str::from_utf8(date).ok().filter(|_| digits)?;
        let parts = [&text[..4], &text[4..6], &text[6..8], &text[8..10]];
        let rest = [&text[10..12], &text[12..14], &text[14..16]];
        Some([&parts[..], &rest].concat().join("-"))
    })
}

fn lvm_uuid(id: &str) -> String {
    let mut rest = id;
    let mut parts = Vec::new();
    for length in [6, 4, 4, 4, 4, 4, 6] {
        let (part, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
        parts.push(part);
        rest = after;
    }
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn identify_output_of(
        size: u64,
        program: &str,
        arguments: &[&str],
    ) -> Option<FilesystemIdentity> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(size).unwrap();
        let mut command = Command::new(program);
        command.args(arguments).arg(file.path()).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let output = command.output().expect("the program is installed");
        assert!(output.status.success(), "{output:?}");
        identify(&Device::read_only(file.path()).unwrap()).unwrap()
    }

    #[test]
    fn identifies_filesystems_made_by_their_tools() {
        let uuid = "0b4a7e8e-3c5f-4a86-9f62-8d6f2f0a3c11";
        let identity = |fs_type, uuid: &str, label: &str| {
            Some(FilesystemIdentity {
                fs_type,
                uuid: Some(uuid.to_owned()),
                label: Some(label.to_owned()),
            })
        };
        let ext4 =
            identify_output_of(8 << 20, "mke2fs", &["-q", "-t", "ext4", "-L", "root", "-U", uuid]);
        assert_eq!(ext4, identity("ext4", uuid, "root"));
        let swap = identify_output_of(8 << 20, "mkswap", &["-L", "swap1", "-U", uuid]);
        assert_eq!(swap, identity("swap", uuid, "swap1"));
        let fat =
            identify_output_of(64 << 20, "mkfs.vfat", &["-F", "32", "-n", "ESP", "-i", "1234abcd"]);
        assert_eq!(fat, identity("vfat", "1234-ABCD", "ESP"));
        let fat =
            identify_output_of(16 << 20, "mkfs.vfat", &["-F", "16", "-n", "ESP", "-i", "1234abcd"]);
        assert_eq!(fat, identity("vfat", "1234-ABCD", "ESP"));
    }

    #[test]
    fn identifies_raid_members() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len((10 << 20) + 5 * 512).unwrap();
        let device = Device::writable(file.path()).unwrap();
        assert_eq!(identify(&device).unwrap(), None);
        let identify_with_superblock_at = |at: u64| {
            device.write(at, &[0xfc, 0x4e, 0x2b, 0xa9]).unwrap();
            let found = identify(&device).unwrap().map(|it| it.fs_type);
            device.zero(at, 4).unwrap();
            found
        };
        for at in [0, 4096, (20480 + 5 - 16) / 8 * 8 * 512, (10 << 20) - 65536] {
            assert_eq!(identify_with_superblock_at(at), Some("linux_raid_member"), "{at}");
        }
        assert_eq!(identify_with_superblock_at(300_000), None);
        // A member of a mirrored EFI system partition has both signatures.
        device.write(54, b"FAT16   ").unwrap();
        assert_eq!(
            identify_with_superblock_at((20480 + 5 - 16) / 8 * 8 * 512),
            Some("linux_raid_member")
        );
        assert_eq!(identify(&device).unwrap().unwrap().fs_type, "vfat");
    }
}
