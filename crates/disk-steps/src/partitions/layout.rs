// SPDX-License-Identifier: Apache-2.0
//! Order and sizes of the partitions for a partition image.

use agent_protocol::ImageInfo;
use uuid::Uuid;

use crate::device::{Device, DeviceError};
use crate::gpt::{Gpt, partition_type};
use crate::mbr::Mbr;

const MIB: u64 = 1 << 20;
const EFI_SYSTEM_MIB: u64 = 550;
const BIOS_BOOT_MIB: u64 = 1;
/// Space for partition tables and alignment.
const OVERHEAD_MIB: u64 = 2;

/// A partition to be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedPartition {
    /// Purpose.
    pub role: PartitionRole,
    /// Size in MiB.
    pub mib: u64,
}

/// Purpose of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionRole {
    /// UEFI boot loaders.
    EfiSystem,
    /// GRUB core image for BIOS on a disk with a GPT.
    BiosBoot,
    /// Ephemeral storage of the instance.
    Ephemeral,
    /// Swap.
    Swap,
    /// The config drive.
    ConfigDrive,
    /// The image.
    Root,
}

/// The partitions cannot be laid out.
#[derive(Debug, thiserror::Error)]
pub enum PartitionLayoutError {
    /// The size of the root partition is missing.
    #[error("a partition image needs the size of its root partition: set root_gb in instance_info")]
    NoRootSize,
    /// The partitions are larger than the disk.
    #[error(
        "the partitions need {needed} MiB and the disk has {available}: choose a larger disk, or smaller root_gb, swap_mb or ephemeral_gb"
    )]
    TooLarge {
        /// Needed MiB.
        needed: u64,
        /// Available MiB.
        available: u64,
    },
    /// More partitions than an MBR can have.
    #[error("an MBR has room for four partitions and {count} are needed: use disk_label gpt")]
    TooMany {
        /// Number of partitions.
        count: usize,
    },
    /// A disk operation failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl PartitionRole {
    /// Returns the name used in the agent's result.
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

    fn gpt_type(self) -> Uuid {
        match self {
            Self::EfiSystem => partition_type::EFI_SYSTEM,
            Self::BiosBoot => partition_type::BIOS_BOOT,
            Self::Swap => partition_type::SWAP,
            Self::Ephemeral | Self::ConfigDrive | Self::Root => partition_type::LINUX,
        }
    }

    fn mbr_type(self) -> u8 {
        match self {
            Self::EfiSystem => 0xef,
            Self::Swap => 0x82,
            Self::BiosBoot | Self::Ephemeral | Self::ConfigDrive | Self::Root => 0x83,
        }
    }
}

/// Returns the partitions for an image, in order. `config_drive` is its size in bytes.
///
/// # Errors
/// Fails if the size of the root partition is missing, or an MBR cannot have that many partitions.
pub fn layout(
    image: &ImageInfo,
    uefi: bool,
    gpt: bool,
    config_drive: Option<u64>,
) -> Result<Vec<PlannedPartition>, PartitionLayoutError> {
    let root = image.root_mb.filter(|mib| *mib > 0).ok_or(PartitionLayoutError::NoRootSize)?;
    let config_drive = config_drive.map_or(0, |bytes| bytes.div_ceil(MIB).max(1));
    let sizes = [
        (PartitionRole::EfiSystem, if uefi { EFI_SYSTEM_MIB } else { 0 }),
        (PartitionRole::BiosBoot, if !uefi && gpt { BIOS_BOOT_MIB } else { 0 }),
        (PartitionRole::Ephemeral, image.ephemeral_mb.unwrap_or(0)),
        (PartitionRole::Swap, image.swap_mb.unwrap_or(0)),
        (PartitionRole::ConfigDrive, config_drive),
        (PartitionRole::Root, root),
    ];
    let planned: Vec<PlannedPartition> = sizes
        .into_iter()
        .filter(|(_, mib)| *mib > 0)
        .map(|(role, mib)| PlannedPartition { role, mib })
        .collect();
    if !gpt && planned.len() > 4 {
        return Err(PartitionLayoutError::TooMany { count: planned.len() });
    }
    Ok(planned)
}

/// Fails if the partitions do not fit a disk of this size in bytes.
pub(super) fn check_size(
    planned: &[PlannedPartition],
    disk: u64,
) -> Result<(), PartitionLayoutError> {
    let needed = planned.iter().map(|part| part.mib).sum::<u64>() + OVERHEAD_MIB;
    let available = disk / MIB;
    if needed > available {
        return Err(PartitionLayoutError::TooLarge { needed, available });
    }
    Ok(())
}

/// Writes the partition table. Returns offset and length of each partition in bytes.
pub(super) fn write_table(
    disk: &Device,
    planned: &[PlannedPartition],
    gpt: bool,
) -> Result<Vec<(u64, u64)>, PartitionLayoutError> {
    let too_large = |_| PartitionLayoutError::TooLarge {
        needed: planned.iter().map(|part| part.mib).sum(),
        available: disk.size() / MIB,
    };
    if gpt {
        let mut table = Gpt::new(disk, Uuid::new_v4());
        for part in planned {
            let length = Some(part.mib * MIB);
            table
                .add(length, part.role.gpt_type(), Uuid::new_v4(), part.role.name())
                .map_err(too_large)?;
        }
        table.write(disk)?;
        return Ok(table.partitions.iter().map(|partition| table.range(partition)).collect());
    }
    let signature = Uuid::new_v4().as_fields().0;
    let mut table = Mbr::new(disk, signature);
    for part in planned {
        let active = part.role == PartitionRole::Root;
        let added = table.add(Some(part.mib * MIB), part.role.mbr_type(), active);
        added
            .ok_or(())
            .map_err(|()| too_large(crate::NoFreeSpace { requested: part.mib * MIB }))?;
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

    fn summary(planned: &[PlannedPartition]) -> String {
        let one = |part: &PlannedPartition| format!("{} {}", part.role.name(), part.mib);
        planned.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn lays_out_partitions() {
        let check = |image: &ImageInfo, uefi, gpt, drive, expected: &str| {
            assert_eq!(summary(&layout(image, uefi, gpt, drive).unwrap()), expected);
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
            Err(PartitionLayoutError::TooMany { count: 5 })
        ));
        let without_root_size = layout(&ImageInfo::default(), true, true, None);
        assert!(matches!(without_root_size, Err(PartitionLayoutError::NoRootSize)));
    }

    #[test]
    fn writes_gpt_and_mbr() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(200 * MIB).unwrap();
        let disk = Device::writable(file.path()).unwrap();
        let planned = layout(&image(10, 20), false, true, None).unwrap();
        let ranges = write_table(&disk, &planned, true).unwrap();
        assert_eq!(ranges[0], (MIB, MIB));
        assert_eq!(ranges[3], (32 * MIB, 100 * MIB));
        let planned = layout(&image(10, 20), false, false, None).unwrap();
        disk.zero(0, MIB).unwrap();
        write_table(&disk, &planned, false).unwrap();
        let table = Mbr::read(&disk).unwrap().unwrap();
        let types: Vec<_> =
            table.partitions().map(|(n, it)| (n, it.type_code, it.active)).collect();
        assert_eq!(types, [(1, 0x83, false), (2, 0x82, false), (3, 0x83, true)]);
        assert!(check_size(&planned, 132 * MIB).is_ok());
        assert!(matches!(
            check_size(&planned, 131 * MIB),
            Err(PartitionLayoutError::TooLarge { needed: 132, available: 131 })
        ));
    }
}
