// SPDX-License-Identifier: Apache-2.0
//! The config drive: a small ISO with instance metadata, in the partition that the image has for it, or
//! in one added at the end of the disk.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use uuid::Uuid;

use crate::device::{Device, DeviceError, partition_path, wait_for_device};
use crate::filesystem::identify_at;
use crate::gpt::{Gpt, partition_type};
use crate::http::{DownloadError, DownloadSettings};
use crate::mbr::Mbr;
use crate::mounts::{MountError, MountedFilesystem};

/// Label of a config drive.
pub const LABEL: &str = "config-2";
/// Maximum size of a config drive, and size of the partition added for it.
pub const MAX_SIZE: u64 = 64 << 20;
/// Maximum length of the encoded config drive.
const MAX_TEXT_LENGTH: usize = 2 * MAX_SIZE as usize;
/// Linux reads an ISO only from devices with sectors of at most this size.
const MAX_ISO_SECTOR_SIZE: u64 = 2048;

/// The config drive was not written.
#[derive(Debug, thiserror::Error)]
pub enum ConfigDriveError {
    /// The download failed.
    #[error("the config drive cannot be downloaded")]
    Download(#[from] DownloadError),
    /// The content is not a config drive.
    #[error("the config drive is not a base64-encoded gzip-compressed ISO: create it again")]
    Malformed,
    /// It exceeds [`MAX_SIZE`].
    #[error("the config drive has more than {MAX_SIZE} bytes (64 MiB): reduce its content")]
    TooLarge,
    /// The image's partition is too small.
    #[error(
        "the config drive has {size} bytes and the image's partition for it only {available}: enlarge the partition, or reduce the content"
    )]
    DoesNotFit {
        /// Size of the config drive in bytes.
        size: u64,
        /// Size of the partition in bytes.
        available: u64,
    },
    /// There is no free space for a partition.
    #[error(
        "there is no free space for a partition of 64 MiB at the end of {device}: use an image smaller than the disk, or one with a partition labelled config-2"
    )]
    NoFreeSpace {
        /// Path of the disk.
        device: String,
    },
    /// All entries of the MBR are used.
    #[error(
        "{device} has an MBR with {used} primary partitions and no free entry: use an image with a GPT, or one with a partition labelled config-2"
    )]
    NoFreeEntry {
        /// Path of the disk.
        device: String,
        /// Number of primary partitions.
        used: usize,
    },
    /// The disk has no partition table.
    #[error("{device} has no partition table, so a config drive cannot be added")]
    NoPartitionTable {
        /// Path of the disk.
        device: String,
    },
    /// Copying to FAT failed.
    #[error("the config drive cannot be copied to a FAT file system on {partition}: {reason}")]
    Copy {
        /// Path of the partition.
        partition: String,
        /// Cause.
        reason: String,
    },
    /// A disk operation failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Mounting failed.
    #[error(transparent)]
    Mount(#[from] MountError),
}

/// Returns the ISO of a config drive, given as encoded text or as URL of such a text.
///
/// # Errors
/// Fails if the download fails, or the content is not a config drive.
pub async fn fetch(
    text_or_url: &str,
    http: &DownloadSettings,
) -> Result<Vec<u8>, ConfigDriveError> {
    let text = text_or_url.trim();
    if text.starts_with("http://") || text.starts_with("https://") {
        return decode(&http.remote_file(text, None)?.bytes(MAX_TEXT_LENGTH).await?);
    }
    decode(text.as_bytes())
}

/// Decodes a config drive: base64 of gzip, only one of both, or a plain image.
///
/// # Errors
/// Fails if it is none of these, or too large.
pub fn decode(bytes: &[u8]) -> Result<Vec<u8>, ConfigDriveError> {
    let is_iso = |bytes: &[u8]| bytes.get(0x8001..).is_some_and(|rest| rest.starts_with(b"CD001"));
    let mut bytes = bytes.to_vec();
    if !is_iso(&bytes) && !bytes.starts_with(&[0x1f, 0x8b]) {
        bytes.retain(|byte| !byte.is_ascii_whitespace());
        bytes = STANDARD.decode(&bytes).map_err(|_| ConfigDriveError::Malformed)?;
    }
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut unpacked = Vec::new();
        let mut decoder = GzDecoder::new(bytes.as_slice()).take(MAX_SIZE + 1);
        decoder.read_to_end(&mut unpacked).map_err(|_| ConfigDriveError::Malformed)?;
        bytes = unpacked;
    }
    if bytes.len() as u64 > MAX_SIZE {
        return Err(ConfigDriveError::TooLarge);
    }
    // Besides ISO, FAT images are accepted.
    let is_fat = bytes.get(510..512) == Some(&[0x55, 0xaa]);
    if is_iso(&bytes) || is_fat { Ok(bytes) } else { Err(ConfigDriveError::Malformed) }
}

/// Partition for a config drive; offset and length are in bytes.
struct ConfigDrivePartition {
    number: u32,
    offset: u64,
    length: u64,
}

/// Writes a config drive to its partition, which is added if missing. Returns the partition's path.
///
/// # Errors
/// Fails if there is no space for it, or the disk fails.
pub fn write(device: &Path, iso: &[u8]) -> Result<PathBuf, ConfigDriveError> {
    if iso.len() as u64 > MAX_SIZE {
        return Err(ConfigDriveError::TooLarge);
    }
    let disk = Device::writable(device)?;
    let target = find_or_create_partition(&disk)?;
    disk.sync()?;
    disk.reread_partitions()?;
    if iso.len() as u64 > target.length {
        return Err(ConfigDriveError::DoesNotFit {
            size: iso.len() as u64,
            available: target.length,
        });
    }
    let partition = partition_path(device, target.number);
    if disk.is_block() {
        wait_for_device(&partition)?;
        write_partition(&partition, iso)?;
    } else {
        disk.write(target.offset, iso)?;
        disk.sync()?;
    }
    Ok(partition)
}

/// Writes a config drive to a whole partition, as FAT if Linux could not read the ISO from it.
pub(crate) fn write_partition(partition: &Path, iso: &[u8]) -> Result<(), ConfigDriveError> {
    let target = Device::exclusive(partition)?;
    if target.sector() > MAX_ISO_SECTOR_SIZE {
        drop(target);
        return copy_to_fat(partition, iso);
    }
    target.write(0, iso)?;
    Ok(target.sync()?)
}

/// Returns the image's partition for a config drive, or adds one.
fn find_or_create_partition(disk: &Device) -> Result<ConfigDrivePartition, ConfigDriveError> {
    let device = disk.path().display().to_string();
    if let Some(mut table) = Gpt::read(disk)? {
        for partition in &table.partitions {
            let (offset, length) = table.range(partition);
            let number = partition.number;
            if partition.name.eq_ignore_ascii_case(LABEL) || is_labelled(disk, offset, length)? {
                let found = ConfigDrivePartition { number, offset, length };
                if table.has_misplaced_backup() {
                    table.write(disk)?;
                }
                return Ok(found);
            }
        }
        let added = table.add_at_end(MAX_SIZE, partition_type::LINUX, Uuid::new_v4(), LABEL);
        let number = added.map_err(|_| ConfigDriveError::NoFreeSpace { device })?;
        table.write(disk)?;
        let partition = table.partitions.iter().find(|it| it.number == number);
        let (offset, length) = table.range(partition.expect("it was just added"));
        return Ok(ConfigDrivePartition { number, offset, length });
    }
    let Some(mut table) = Mbr::read(disk)? else {
        return Err(ConfigDriveError::NoPartitionTable { device });
    };
    for (number, partition) in table.partitions() {
        let (offset, length) = table.range(partition);
        if is_labelled(disk, offset, length)? {
            return Ok(ConfigDrivePartition { number, offset, length });
        }
    }
    let used = table.used_entries();
    if used > 3 {
        return Err(ConfigDriveError::NoFreeEntry { device, used });
    }
    let number =
        table.add_at_end(MAX_SIZE, 0x0c).ok_or(ConfigDriveError::NoFreeSpace { device })?;
    table.write(disk)?;
    let partition = table.primary[number as usize - 1].expect("it was just added");
    let (offset, length) = table.range(&partition);
    Ok(ConfigDrivePartition { number, offset, length })
}

fn is_labelled(disk: &Device, offset: u64, length: u64) -> Result<bool, DeviceError> {
    let identity = identify_at(disk, offset, length)?;
    let label = identity.and_then(|identity| identity.label);
    Ok(label.is_some_and(|label| label.eq_ignore_ascii_case(LABEL)))
}

/// Creates a FAT file system with the files of the ISO; `mkfs.vfat` supports sectors of 4096 bytes.
fn copy_to_fat(partition: &Path, iso: &[u8]) -> Result<(), ConfigDriveError> {
    let failed = |reason: String| ConfigDriveError::Copy {
        partition: partition.display().to_string(),
        reason,
    };
    let output = Command::new("mkfs.vfat").args(["-n", "CONFIG-2"]).arg(partition).output();
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        Err(error) => return Err(failed(format!("mkfs.vfat cannot be started ({error})"))),
    }
    let target = MountedFilesystem::read_write(partition, "vfat")?;
    for (name, content) in
        boot_media::iso_reader::files(iso).map_err(|reason| failed(reason.to_string()))?
    {
        let path = target.path().join(name);
        let directory = path.parent().unwrap_or(target.path());
        fs::create_dir_all(directory)
            .and_then(|()| fs::write(&path, content))
            .map_err(|error| failed(error.to_string()))?;
    }
    Ok(target.unmount()?)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn iso() -> Vec<u8> {
        let mut iso = vec![1; 400 << 10];
        iso[0x8000..0x8006].copy_from_slice(b"\x01CD001");
        iso[0x8028..0x8028 + 32].copy_from_slice(b"config-2                        ");
        iso
    }

    fn disk(size: u64) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(size).unwrap();
        file
    }

    #[test]
    fn decodes_config_drives() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&iso()).unwrap();
        let packed = gzip.finish().unwrap();
        let wrapped_lines =
            STANDARD.encode(&packed).into_bytes().chunks(76).collect::<Vec<_>>().join(&b'\n');
        for form in [iso(), packed.clone(), STANDARD.encode(&packed).into_bytes(), wrapped_lines] {
            assert!(decode(&form).unwrap() == iso());
        }
        assert!(matches!(decode(b"no drive"), Err(ConfigDriveError::Malformed)));
        assert!(matches!(decode(b"bm8gZHJpdmU="), Err(ConfigDriveError::Malformed)));
        let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        bomb.write_all(&vec![0; (MAX_SIZE + 1) as usize]).unwrap();
        assert!(matches!(decode(&bomb.finish().unwrap()), Err(ConfigDriveError::TooLarge)));
    }

    #[test]
    fn reuses_partition_at_end_of_gpt() {
        let file = disk(200 << 20);
        let device = Device::writable(file.path()).unwrap();
        let mut table = Gpt::new(&device, Uuid::from_u128(1));
        table.add(Some(100 << 20), partition_type::LINUX, Uuid::from_u128(2), "root").unwrap();
        table.write(&device).unwrap();
        for _ in 0..2 {
            let partition = write(file.path(), &iso()).unwrap();
            assert_eq!(partition, partition_path(file.path(), 2));
            let table = Gpt::read(&device).unwrap().unwrap();
            assert_eq!(table.partitions.len(), 2);
            let (offset, length) = table.range(&table.partitions[1]);
            assert!(length >= MAX_SIZE && offset + length > 199 << 20);
            assert!(device.read(offset, iso().len()).unwrap() == iso());
        }
        // A larger image leaves no space.
        let file = disk(100 << 20);
        let device = Device::writable(file.path()).unwrap();
        let mut table = Gpt::new(&device, Uuid::from_u128(1));
        table.add(Some(60 << 20), partition_type::LINUX, Uuid::from_u128(2), "root").unwrap();
        table.write(&device).unwrap();
        assert!(matches!(write(file.path(), &iso()), Err(ConfigDriveError::NoFreeSpace { .. })));
    }

    #[test]
    fn adds_partition_at_end_of_mbr_unless_full() {
        let file = disk(200 << 20);
        assert!(matches!(
            write(file.path(), &iso()),
            Err(ConfigDriveError::NoPartitionTable { .. })
        ));
        let device = Device::writable(file.path()).unwrap();
        let mut table = Mbr::new(&device, 7);
        for _ in 0..3 {
            table.add(Some(10 << 20), 0x83, false).unwrap();
        }
        table.write(&device).unwrap();
        let partition = write(file.path(), &iso()).unwrap();
        assert_eq!(partition, partition_path(file.path(), 4));
        // With all entries used, the partition is found by its label.
        assert_eq!(write(file.path(), &iso()).unwrap(), partition);
        device.zero(136 << 20, 64 << 20).unwrap();
        let result = write(file.path(), &iso());
        assert!(matches!(result, Err(ConfigDriveError::NoFreeEntry { used: 4, .. })), "{result:?}");
    }
}
