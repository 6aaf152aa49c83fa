// SPDX-License-Identifier: Apache-2.0
//! Partitions of a disk: what an image brought, and what a partition image needs.
//!
//! A partition image is one file system. Around it go, in this order: an EFI system partition (for
//! UEFI) or a BIOS boot partition (for BIOS with a GPT), an ephemeral partition, swap, the config
//! drive, and last the root partition with the image, so that it can grow to the disk's end.

mod format;
mod layout;

use std::path::{Path, PathBuf};

use agent_protocol::{ImageInfo, PartitionUuids};

use crate::device::{Device, DeviceError, partition_path, wait_for};
use crate::filesystem::{Identity, identify, identify_at};
use crate::gpt::Gpt;
use crate::image::{self, WriteOptions};
use crate::mbr::Mbr;
use crate::{Tell, config_drive};
pub use layout::{LayoutError, Part, Role, layout};

/// How a partition image is put on a disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct PartitionOptions<'a> {
    /// Whether the machine boots by UEFI.
    pub uefi: bool,
    /// Whether the disk gets a GPT; if nobody says, only for UEFI.
    pub gpt: Option<bool>,
    /// The ISO of a config drive.
    pub config_drive: Option<&'a [u8]>,
}

/// Why a partition image is not on the disk.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The partitions do not fit together.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The disk's partitions are others than those to be kept.
    #[error(
        "the ephemeral partition cannot be kept: {device} has no partition {number} for {role}; deploy without preserve_ephemeral"
    )]
    NothingToKeep {
        /// The disk.
        device: String,
        /// The missing partition.
        number: u32,
        /// What it would be for.
        role: &'static str,
    },
    /// A file system cannot be made.
    #[error("{program} does not make a file system on {partition}: {why}")]
    Format {
        /// What should make it.
        program: String,
        /// Where.
        partition: String,
        /// What it says.
        why: String,
    },
    /// The image cannot be written.
    #[error(transparent)]
    Image(#[from] image::Error),
    /// The config drive cannot be written.
    #[error(transparent)]
    ConfigDrive(#[from] config_drive::Error),
    /// The disk failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// A partition that is on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) number: u32,
    pub(crate) path: PathBuf,
    /// The GUID of its entry in the table, if it has one.
    pub(crate) guid: Option<String>,
    /// What is in it.
    pub(crate) identity: Option<Identity>,
}

/// Makes partitions for an image of a file system, and writes it to the last of them.
///
/// # Errors
/// If they do not fit the disk, the image cannot be had, or the disk fails.
pub async fn write_partition_image(
    image: &ImageInfo,
    device: &Path,
    options: &PartitionOptions<'_>,
    write: &WriteOptions,
    tell: Tell<'_>,
) -> Result<PartitionUuids, Error> {
    let gpt = options.gpt.unwrap_or(options.uefi);
    let config_drive = options.config_drive.map(|iso| iso.len() as u64);
    let parts = layout(image, options.uefi, gpt, config_drive)?;
    let keep = image.preserve_ephemeral.unwrap_or(false);
    if keep {
        check_kept(device, &parts)?;
    } else {
        make(device, &parts, gpt)?;
    }
    let paths: Vec<(Role, PathBuf)> = (1..)
        .zip(&parts)
        .map(|(number, part)| (part.role, partition_path(device, number)))
        .collect();
    for (role, path) in &paths {
        wait_for(path)?;
        match role {
            Role::EfiSystem => format::fat(path, "efi-part")?,
            Role::Swap => format::swap(path, "swap1")?,
            Role::Ephemeral if !keep => {
                let kind = image.ephemeral_format.as_deref().unwrap_or("ext4");
                format::make(kind, path, "ephemeral0")?;
            }
            Role::ConfigDrive => {
                config_drive::write_partition(path, options.config_drive.unwrap_or_default())?;
            }
            Role::Root => {
                image::write(image, path, write, tell).await?;
            }
            Role::Ephemeral | Role::BiosBoot => {}
        }
    }
    let uuid = |wanted: Role| -> Result<Option<String>, DeviceError> {
        let Some((_, path)) = paths.iter().find(|(role, _)| *role == wanted) else {
            return Ok(None);
        };
        let identity = identify(&Device::read_only(path)?)?;
        Ok(identity.and_then(|identity| identity.uuid))
    };
    Ok(PartitionUuids {
        root: uuid(Role::Root)?,
        efi_system_partition: uuid(Role::EfiSystem)?,
        prep: None,
        partitions: paths
            .iter()
            .map(|(role, path)| (role.name().to_owned(), path.display().to_string()))
            .collect(),
    })
}

/// What is known after a whole-disk image was written: the disk's identifier.
///
/// # Errors
/// If the disk cannot be read.
pub fn uuids(device: &Path) -> Result<PartitionUuids, DeviceError> {
    let disk = Device::read_only(device)?;
    let bytes = disk.read(440, 4)?;
    let identifier = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    Ok(PartitionUuids { root: Some(format!("{identifier:#010x}")), ..PartitionUuids::default() })
}

/// The partitions of a disk, and what is in them.
pub(crate) fn list(device: &Path) -> Result<Vec<Found>, DeviceError> {
    let disk = Device::read_only(device)?;
    let entries: Vec<(u32, Option<String>, (u64, u64))> = match Gpt::read(&disk)? {
        Some(table) => {
            let entry = |it: &crate::gpt::Partition| {
                (it.number, Some(it.guid.to_string()), table.range(it))
            };
            table.partitions.iter().map(entry).collect()
        }
        None => Mbr::read(&disk)?.map_or_else(Vec::new, |table| {
            let guid = |number: u32| Some(format!("{:08x}-{number:02x}", table.signature));
            table.partitions().map(|(n, it)| (n, guid(n), table.range(it))).collect()
        }),
    };
    let mut found = Vec::new();
    for (number, guid, (offset, length)) in entries {
        let identity = identify_at(&disk, offset, length)?;
        found.push(Found { number, path: partition_path(device, number), guid, identity });
    }
    Ok(found)
}

/// The partition with this UUID: of its file system, of its entry, or its label.
pub(crate) fn find(device: &Path, uuid: &str) -> Result<Option<Found>, DeviceError> {
    let is =
        |text: &Option<String>| text.as_deref().is_some_and(|it| it.eq_ignore_ascii_case(uuid));
    Ok(list(device)?.into_iter().find(|found| {
        is(&found.guid) || found.identity.as_ref().is_some_and(|it| is(&it.uuid) || is(&it.label))
    }))
}

/// Puts the partition table right after an image was written: the second copy of a GPT goes to the
/// disk's end, and the kernel learns of the partitions.
pub(crate) fn mend(device: &Device) -> Result<(), DeviceError> {
    if let Some(table) = Gpt::read(device)?.filter(Gpt::is_short) {
        table.write(device)?;
        device.sync()?;
    }
    device.reread_partitions()
}

/// Writes a new partition table.
fn make(device: &Path, parts: &[Part], gpt: bool) -> Result<(), Error> {
    let disk = Device::exclusive(device)?;
    layout::check_size(parts, disk.size())?;
    // What was there must not shine through, at the beginning, at the end, or in a partition.
    let ends = 1 << 20;
    disk.zero(0, ends)?;
    disk.zero(disk.size().saturating_sub(ends), ends)?;
    let ranges = layout::write_table(&disk, parts, gpt)?;
    for (offset, length) in ranges {
        disk.zero(offset, length.min(ends))?;
    }
    disk.sync()?;
    Ok(disk.reread_partitions()?)
}

fn check_kept(device: &Path, parts: &[Part]) -> Result<(), Error> {
    let there = list(device)?;
    for (number, part) in (1..).zip(parts) {
        if there.iter().all(|found| found.number != number) {
            let device = device.display().to_string();
            return Err(Error::NothingToKeep { device, number, role: part.role.name() });
        }
    }
    Ok(())
}

fn format_error(program: &str, partition: &Path, why: impl ToString) -> Error {
    Error::Format {
        program: program.to_owned(),
        partition: partition.display().to_string(),
        why: why.to_string(),
    }
}
