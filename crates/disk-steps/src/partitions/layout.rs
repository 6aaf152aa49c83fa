// SPDX-License-Identifier: Apache-2.0
//! Which partitions a partition image needs, how large, and in which order.

use agent_protocol::ImageInfo;
use uuid::Uuid;

use crate::device::{Device, DeviceError};
use crate::gpt::{Gpt, kind};
use crate::mbr::Mbr;

const MIB: u64 = 1 << 20;
const EFI_SYSTEM_MIB: u64 = 550;
const BIOS_BOOT_MIB: u64 = 1;
/// What partition tables and alignment take.
const OVERHEAD_MIB: u64 = 2;

/// A partition to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// What it is for.
    pub role: Role,
    /// Its size.
    pub mib: u64,
}

/// What a partition is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Boot loaders for UEFI.
    EfiSystem,
    /// The part of GRUB that BIOS starts, on a disk with a GPT.
    BiosBoot,
    /// Room of the instance's own.
    Ephemeral,
    /// Swap.
    Swap,
    /// The config drive.
    ConfigDrive,
    /// The image.
    Root,
}

/// Why partitions cannot be laid out.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// Nobody said how large the root partition is.
    #[error("a partition image needs the size of its root partition: set root_gb in instance_info")]
    NoRootSize,
    /// They are larger than the disk.
    #[error(
        "the partitions need {needed} MiB and the disk has {there}: choose a larger disk, or smaller root_gb, swap_mb or ephemeral_gb"
    )]
    TooLarge {
        /// MiB that are needed.
        needed: u64,
        /// MiB that are there.
        there: u64,
    },
    /// An MBR has no more places.
    #[error("an MBR has room for four partitions and {count} are needed: use disk_label gpt")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// The disk failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl Role {
    /// Its name in what the agent answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::EfiSystem => "efi system partition",
            Self::BiosBoot => "BIOS Boot partition",
            Self::Ephemeral => "ephemeral",
            Self::Swap => "swap",
            Self::ConfigDrive => "configdrive",
            Self::Root => "root",
        }
    }

    fn gpt_kind(self) -> Uuid {
        match self {
            Self::EfiSystem => kind::EFI_SYSTEM,
            Self::BiosBoot => kind::BIOS_BOOT,
            Self::Swap => kind::SWAP,
            Self::Ephemeral | Self::ConfigDrive | Self::Root => kind::LINUX,
        }
    }

    fn mbr_kind(self) -> u8 {
        match self {
            Self::EfiSystem => 0xef,
            Self::Swap => 0x82,
            Self::BiosBoot | Self::Ephemeral | Self::ConfigDrive | Self::Root => 0x83,
        }
    }
}

/// The partitions for an image, in their order.
///
/// # Errors
/// If the image does not say how large its root partition is, or they are too many.
pub fn layout(
    image: &ImageInfo,
    uefi: bool,
    gpt: bool,
    config_drive: Option<u64>,
) -> Result<Vec<Part>, LayoutError> {
    let root = image.root_mb.filter(|mib| *mib > 0).ok_or(LayoutError::NoRootSize)?;
    let config_drive = config_drive.map_or(0, |bytes| bytes.div_ceil(MIB).max(1));
    let wanted = [
        (Role::EfiSystem, if uefi { EFI_SYSTEM_MIB } else { 0 }),
        (Role::BiosBoot, if !uefi && gpt { BIOS_BOOT_MIB } else { 0 }),
        (Role::Ephemeral, image.ephemeral_mb.unwrap_or(0)),
        (Role::Swap, image.swap_mb.unwrap_or(0)),
        (Role::ConfigDrive, config_drive),
        (Role::Root, root),
    ];
    let parts: Vec<Part> = wanted
        .into_iter()
        .filter(|(_, mib)| *mib > 0)
        .map(|(role, mib)| Part { role, mib })
        .collect();
    if !gpt && parts.len() > 4 {
        return Err(LayoutError::TooMany { count: parts.len() });
    }
    Ok(parts)
}

/// Refuses what does not fit a disk of so many bytes.
pub(super) fn check_size(parts: &[Part], disk: u64) -> Result<(), LayoutError> {
    let needed = parts.iter().map(|part| part.mib).sum::<u64>() + OVERHEAD_MIB;
    let there = disk / MIB;
    if needed > there {
        return Err(LayoutError::TooLarge { needed, there });
    }
    Ok(())
}

/// Writes the partition table. Answers where each partition is, in bytes.
pub(super) fn write_table(
    disk: &Device,
    parts: &[Part],
    gpt: bool,
) -> Result<Vec<(u64, u64)>, LayoutError> {
    let full = |_| LayoutError::TooLarge {
        needed: parts.iter().map(|part| part.mib).sum(),
        there: disk.size() / MIB,
    };
    if gpt {
        let mut table = Gpt::new(disk, Uuid::new_v4());
        for part in parts {
            let length = Some(part.mib * MIB);
            table
                .add(length, part.role.gpt_kind(), Uuid::new_v4(), part.role.name())
                .map_err(full)?;
        }
        table.write(disk)?;
        return Ok(table.partitions.iter().map(|partition| table.range(partition)).collect());
    }
    let signature = Uuid::new_v4().as_fields().0;
    let mut table = Mbr::new(disk, signature);
    for part in parts {
        let active = part.role == Role::Root;
        let added = table.add(Some(part.mib * MIB), part.role.mbr_kind(), active);
        added.ok_or(()).map_err(|()| full(crate::NoRoom { wanted: part.mib * MIB }))?;
    }
    table.write(disk)?;
    Ok(table.partitions().map(|(_, partition)| table.range(partition)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(ephemeral: u64, swap: u64) -> ImageInfo {
        let (ephemeral_mb, swap_mb) = (Some(ephemeral), Some(swap));
        ImageInfo { root_mb: Some(100), ephemeral_mb, swap_mb, ..ImageInfo::default() }
    }

    fn in_words(parts: &[Part]) -> String {
        let one = |part: &Part| format!("{} {}", part.role.name(), part.mib);
        parts.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn layouts() {
        let check = |image: &ImageInfo, uefi, gpt, drive, expected: &str| {
            assert_eq!(in_words(&layout(image, uefi, gpt, drive).unwrap()), expected);
        };
        check(&image(0, 0), true, true, None, "efi system partition 550, root 100");
        check(&image(0, 0), false, false, None, "root 100");
        check(&image(0, 0), false, true, None, "BIOS Boot partition 1, root 100");
        check(
            &image(10, 20),
            true,
            true,
            Some(400_000),
            "efi system partition 550, ephemeral 10, swap 20, configdrive 1, root 100",
        );
        assert!(matches!(
            layout(&image(10, 20), true, false, Some(1)),
            Err(LayoutError::TooMany { count: 5 })
        ));
        let none = layout(&ImageInfo::default(), true, true, None);
        assert!(matches!(none, Err(LayoutError::NoRootSize)));
    }

    #[test]
    fn tables_of_both_kinds() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(200 * MIB).unwrap();
        let disk = Device::writable(file.path()).unwrap();
        let parts = layout(&image(10, 20), false, true, None).unwrap();
        let ranges = write_table(&disk, &parts, true).unwrap();
        assert_eq!(ranges[0], (MIB, MIB));
        assert_eq!(ranges[3], (32 * MIB, 100 * MIB));
        let parts = layout(&image(10, 20), false, false, None).unwrap();
        disk.zero(0, MIB).unwrap();
        write_table(&disk, &parts, false).unwrap();
        let table = Mbr::read(&disk).unwrap().unwrap();
        let kinds: Vec<_> = table.partitions().map(|(n, it)| (n, it.kind, it.active)).collect();
        assert_eq!(kinds, [(1, 0x83, false), (2, 0x82, false), (3, 0x83, true)]);
        assert!(check_size(&parts, 132 * MIB).is_ok());
        assert!(matches!(
            check_size(&parts, 131 * MIB),
            Err(LayoutError::TooLarge { needed: 132, there: 131 })
        ));
    }
}
