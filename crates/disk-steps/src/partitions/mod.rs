// SPDX-License-Identifier: Apache-2.0
//! Partitions of a disk: those of a whole-disk image, and those created for a partition image.
//!
//! A partition image contains one file system. These partitions are created, in this order: an EFI
//! system partition (UEFI) or a BIOS boot partition (BIOS with GPT), an ephemeral partition, swap, the
//! config drive, and last the root partition with the image, so that it can grow to the end of the disk.

mod format;
mod layout;

use std::path::{Path, PathBuf};

use agent_protocol::{ImageInfo, PartitionUuids};

use crate::device::{Device, DeviceError, partition_path, wait_for_device};
use crate::filesystem::{FilesystemIdentity, identify, identify_at};
use crate::gpt::Gpt;
use crate::image::{self, ImageWriteOptions};
use crate::mbr::Mbr;
use crate::{ReportProgress, config_drive};
pub use layout::{PartitionLayoutError, PartitionRole, PlannedPartition, layout};

/// Options of [`write_partition_image`].
#[derive(Debug, Clone, Copy, Default)]
pub struct PartitionOptions<'a> {
    /// Whether the machine boots in UEFI mode.
    pub uefi: bool,
    /// Whether to create a GPT; by default only for UEFI.
    pub gpt: Option<bool>,
    /// ISO of the config drive.
    pub config_drive: Option<&'a [u8]>,
}

/// The partition image was not written.
#[derive(Debug, thiserror::Error)]
pub enum PartitionError {
    /// The partitions do not fit.
    #[error(transparent)]
    Layout(#[from] PartitionLayoutError),
    /// A partition to be preserved is missing.
    #[error(
        "the ephemeral partition cannot be preserved: {device} has no partition {number} for {role}; deploy without preserve_ephemeral"
    )]
    MissingPartition {
        /// Path of the disk.
        device: String,
        /// Number of the missing partition.
        number: u32,
        /// Role of the missing partition.
        role: &'static str,
    },
    /// Creating a file system failed.
    #[error("{program} cannot create a file system on {partition}: {output}")]
    Format {
        /// The program.
        program: String,
        /// Path of the partition.
        partition: String,
        /// Error output of the program.
        output: String,
    },
    /// Writing the image failed.
    #[error(transparent)]
    Image(#[from] image::ImageWriteError),
    /// Writing the config drive failed.
    #[error(transparent)]
    ConfigDrive(#[from] config_drive::ConfigDriveError),
    /// A disk operation failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// An existing partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionInfo {
    pub(crate) number: u32,
    pub(crate) path: PathBuf,
    /// Partition GUID, or `signature-number` in an MBR.
    pub(crate) guid: Option<String>,
    /// Its content, if known.
    pub(crate) identity: Option<FilesystemIdentity>,
}

/// Creates partitions for a partition image, and writes the image to the root partition.
///
/// # Errors
/// Fails if the partitions do not fit the disk, the image cannot be downloaded, or the disk fails.
pub async fn write_partition_image(
    image: &ImageInfo,
    device: &Path,
    options: &PartitionOptions<'_>,
    write: &ImageWriteOptions,
    report: ReportProgress<'_>,
) -> Result<PartitionUuids, PartitionError> {
    let gpt = options.gpt.unwrap_or(options.uefi);
    let config_drive = options.config_drive.map(|iso| iso.len() as u64);
    let planned = layout(image, options.uefi, gpt, config_drive)?;
    let preserve_ephemeral = image.preserve_ephemeral.unwrap_or(false);
    if preserve_ephemeral {
        check_existing_partitions(device, &planned)?;
    } else {
        create_partitions(device, &planned, gpt)?;
    }
    let partition_paths: Vec<(PartitionRole, PathBuf)> = (1..)
        .zip(&planned)
        .map(|(number, part)| (part.role, partition_path(device, number)))
        .collect();
    for (role, path) in &partition_paths {
        wait_for_device(path)?;
        match role {
            PartitionRole::EfiSystem => format::create_fat(path, "efi-part")?,
            PartitionRole::Swap => format::create_swap(path, "swap1")?,
            PartitionRole::Ephemeral if !preserve_ephemeral => {
                let fs_type = image.ephemeral_format.as_deref().unwrap_or("ext4");
                format::create(fs_type, path, "ephemeral0")?;
            }
            PartitionRole::ConfigDrive => {
                config_drive::write_partition(path, options.config_drive.unwrap_or_default())?;
            }
            PartitionRole::Root => {
                image::write(image, path, write, report).await?;
            }
            PartitionRole::Ephemeral | PartitionRole::BiosBoot => {}
        }
    }
    let uuid = |requested: PartitionRole| -> Result<Option<String>, DeviceError> {
        let Some((_, path)) = partition_paths.iter().find(|(role, _)| *role == requested) else {
            return Ok(None);
        };
        let identity = identify(&Device::read_only(path)?)?;
        Ok(identity.and_then(|identity| identity.uuid))
    };
    Ok(PartitionUuids {
        root: uuid(PartitionRole::Root)?,
        efi_system_partition: uuid(PartitionRole::EfiSystem)?,
        prep: None,
        partitions: partition_paths
            .iter()
            .map(|(role, path)| (role.name().to_owned(), path.display().to_string()))
            .collect(),
    })
}

/// Returns the identifier of a disk after a whole-disk image was written, as `root`.
///
/// # Errors
/// Fails if the disk cannot be read.
pub fn disk_identifier(device: &Path) -> Result<PartitionUuids, DeviceError> {
    let disk = Device::read_only(device)?;
    let bytes = disk.read(440, 4)?;
    let identifier = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    Ok(PartitionUuids { root: Some(format!("{identifier:#010x}")), ..PartitionUuids::default() })
}

/// Lists the partitions of a disk and identifies their contents.
pub(crate) fn list(device: &Path) -> Result<Vec<PartitionInfo>, DeviceError> {
    let disk = Device::read_only(device)?;
    let entries: Vec<(u32, Option<String>, (u64, u64))> = match Gpt::read(&disk)? {
        Some(table) => {
            let entry = |it: &crate::gpt::GptPartition| {
                (it.number, Some(it.guid.to_string()), table.range(it))
            };
            table.partitions.iter().map(entry).collect()
        }
        None => Mbr::read(&disk)?.map_or_else(Vec::new, |table| {
            let guid = |number: u32| Some(format!("{:08x}-{number:02x}", table.signature));
            table.partitions().map(|(n, it)| (n, guid(n), table.range(it))).collect()
        }),
    };
    let mut partitions = Vec::new();
    for (number, guid, (offset, length)) in entries {
        let identity = identify_at(&disk, offset, length)?;
        partitions.push(PartitionInfo {
            number,
            path: partition_path(device, number),
            guid,
            identity,
        });
    }
    Ok(partitions)
}

/// Finds a partition by the UUID of its file system, its partition GUID, or its label.
pub(crate) fn find(device: &Path, uuid: &str) -> Result<Option<PartitionInfo>, DeviceError> {
    let equals =
        |text: &Option<String>| text.as_deref().is_some_and(|it| it.eq_ignore_ascii_case(uuid));
    Ok(list(device)?.into_iter().find(|partitions| {
        equals(&partitions.guid)
            || partitions.identity.as_ref().is_some_and(|it| equals(&it.uuid) || equals(&it.label))
    }))
}

/// Moves the backup of a GPT to the end of the disk after an image was written, and makes the kernel
/// reread the partitions.
pub(crate) fn repair_table(device: &Device) -> Result<(), DeviceError> {
    if let Some(table) = Gpt::read(device)?.filter(Gpt::has_misplaced_backup) {
        table.write(device)?;
        device.sync()?;
    }
    device.reread_partitions()
}

/// Writes a new partition table.
fn create_partitions(
    device: &Path,
    planned: &[PlannedPartition],
    gpt: bool,
) -> Result<(), PartitionError> {
    let disk = Device::exclusive(device)?;
    layout::check_size(planned, disk.size())?;
    // Wipe old signatures at both ends of the disk and in the new partitions.
    const END_SIZE: u64 = 1 << 20;
    disk.zero(0, END_SIZE)?;
    disk.zero(disk.size().saturating_sub(END_SIZE), END_SIZE)?;
    let ranges = layout::write_table(&disk, planned, gpt)?;
    for (offset, length) in ranges {
        disk.zero(offset, length.min(END_SIZE))?;
    }
    disk.sync()?;
    Ok(disk.reread_partitions()?)
}

fn check_existing_partitions(
    device: &Path,
    planned: &[PlannedPartition],
) -> Result<(), PartitionError> {
    let existing = list(device)?;
    for (number, part) in (1..).zip(planned) {
        if existing.iter().all(|partitions| partitions.number != number) {
            let device = device.display().to_string();
            return Err(PartitionError::MissingPartition {
                device,
                number,
                role: part.role.name(),
            });
        }
    }
    Ok(())
}

fn format_error(program: &str, partition: &Path, output: impl ToString) -> PartitionError {
    PartitionError::Format {
        program: program.to_owned(),
        partition: partition.display().to_string(),
        output: output.to_string(),
    }
}
