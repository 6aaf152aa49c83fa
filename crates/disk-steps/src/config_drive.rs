// SPDX-License-Identifier: Apache-2.0
//! The config drive: a small ISO from which the deployed system learns who it is, in a partition
//! that is the image's own for it, or one made at the disk's end.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use uuid::Uuid;

use crate::device::{Device, DeviceError, partition_path, wait_for};
use crate::filesystem::identify_at;
use crate::gpt::{Gpt, kind};
use crate::http::{Http, HttpError};
use crate::mbr::Mbr;
use crate::mounts::{MountError, Mounted};

/// The label of a config drive.
pub const LABEL: &str = "config-2";
/// The largest config drive, and the size of the partition that is made for it.
pub const LARGEST: u64 = 64 << 20;
/// The most that text of such a drive can have.
const LONGEST_TEXT: usize = 2 * LARGEST as usize;
/// Linux reads an ISO only from devices with sectors of at most this many bytes.
const ISO_SECTOR: u64 = 2048;

/// Why there is no config drive.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It did not come.
    #[error("the config drive cannot be downloaded")]
    Http(#[from] HttpError),
    /// It is nothing that could be one.
    #[error("the config drive is not an ISO, compressed with gzip, in base64: make it again")]
    Malformed,
    /// It is too large.
    #[error("the config drive has more than {LARGEST} bytes (64 MiB): put less in it")]
    TooLarge,
    /// The image's own partition is too small for it.
    #[error(
        "the config drive has {size} bytes and the image's partition for it only {room}: make the partition larger, or put less in it"
    )]
    DoesNotFit {
        /// Its bytes.
        size: u64,
        /// The partition's.
        room: u64,
    },
    /// There is no room for a partition.
    #[error(
        "there is no room for a partition of 64 MiB at the end of {device}: make the image smaller than the disk, or give it a partition labelled config-2"
    )]
    NoRoom {
        /// The disk.
        device: String,
    },
    /// All places in the MBR are taken.
    #[error(
        "{device} has an MBR with {taken} primary partitions, and no place for another: use an image with a GPT, or one with a partition labelled config-2"
    )]
    NoPlace {
        /// The disk.
        device: String,
        /// How many it has.
        taken: usize,
    },
    /// There is no partition table.
    #[error("{device} has no partition table, so a config drive cannot be put on it")]
    NoTable {
        /// The disk.
        device: String,
    },
    /// It cannot be copied to FAT.
    #[error("the config drive cannot be copied to a FAT file system on {partition}: {why}")]
    Copy {
        /// The partition.
        partition: String,
        /// What failed.
        why: String,
    },
    /// The disk failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// It cannot be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
}

/// The ISO of a config drive: from its text, or from the text at an address.
///
/// # Errors
/// If it does not come, or is no config drive.
pub async fn fetch(text_or_url: &str, http: &Http) -> Result<Vec<u8>, Error> {
    let text = text_or_url.trim();
    if text.starts_with("http://") || text.starts_with("https://") {
        return decode(&http.remote(text, None)?.bytes(LONGEST_TEXT).await?);
    }
    decode(text.as_bytes())
}

/// The ISO in base64 of gzip, or in only one of them, or as it is.
///
/// # Errors
/// If it is none of that, or too large.
pub fn decode(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let is_iso = |bytes: &[u8]| bytes.get(0x8001..).is_some_and(|rest| rest.starts_with(b"CD001"));
    let mut bytes = bytes.to_vec();
    if !is_iso(&bytes) && !bytes.starts_with(&[0x1f, 0x8b]) {
        bytes.retain(|byte| !byte.is_ascii_whitespace());
        bytes = STANDARD.decode(&bytes).map_err(|_| Error::Malformed)?;
    }
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut unpacked = Vec::new();
        let mut decoder = GzDecoder::new(bytes.as_slice()).take(LARGEST + 1);
        decoder.read_to_end(&mut unpacked).map_err(|_| Error::Malformed)?;
        bytes = unpacked;
    }
    if bytes.len() as u64 > LARGEST {
        return Err(Error::TooLarge);
    }
    // Most are ISOs; FAT ones exist too.
    let is_fat = bytes.get(510..512) == Some(&[0x55, 0xaa]);
    if is_iso(&bytes) || is_fat { Ok(bytes) } else { Err(Error::Malformed) }
}

/// Where a config drive goes.
struct Place {
    number: u32,
    offset: u64,
    length: u64,
}

/// Writes a config drive to the partition for it. Answers the partition.
///
/// # Errors
/// If there is no room for it, or the disk fails.
pub fn write(device: &Path, iso: &[u8]) -> Result<PathBuf, Error> {
    if iso.len() as u64 > LARGEST {
        return Err(Error::TooLarge);
    }
    let disk = Device::writable(device)?;
    let place = place(&disk)?;
    disk.sync()?;
    disk.reread_partitions()?;
    if iso.len() as u64 > place.length {
        return Err(Error::DoesNotFit { size: iso.len() as u64, room: place.length });
    }
    let partition = partition_path(device, place.number);
    if disk.is_block() {
        wait_for(&partition)?;
        write_partition(&partition, iso)?;
    } else {
        disk.write(place.offset, iso)?;
        disk.sync()?;
    }
    Ok(partition)
}

/// Writes a config drive over a whole partition: as FAT where Linux could not read the ISO.
pub(crate) fn write_partition(partition: &Path, iso: &[u8]) -> Result<(), Error> {
    let target = Device::exclusive(partition)?;
    if target.sector() > ISO_SECTOR {
        drop(target);
        return copy_to_fat(partition, iso);
    }
    target.write(0, iso)?;
    Ok(target.sync()?)
}

/// The image's own partition for it, or a new one.
fn place(disk: &Device) -> Result<Place, Error> {
    let device = disk.path().display().to_string();
    if let Some(mut table) = Gpt::read(disk)? {
        for partition in &table.partitions {
            let (offset, length) = table.range(partition);
            let number = partition.number;
            if partition.name.eq_ignore_ascii_case(LABEL) || is_labelled(disk, offset, length)? {
                let found = Place { number, offset, length };
                if table.is_short() {
                    table.write(disk)?;
                }
                return Ok(found);
            }
        }
        let added = table.add_at_end(LARGEST, kind::LINUX, Uuid::new_v4(), LABEL);
        let number = added.map_err(|_| Error::NoRoom { device })?;
        table.write(disk)?;
        let partition = table.partitions.iter().find(|it| it.number == number);
        let (offset, length) = table.range(partition.expect("it was just added"));
        return Ok(Place { number, offset, length });
    }
    let Some(mut table) = Mbr::read(disk)? else { return Err(Error::NoTable { device }) };
    for (number, partition) in table.partitions() {
        let (offset, length) = table.range(partition);
        if is_labelled(disk, offset, length)? {
            return Ok(Place { number, offset, length });
        }
    }
    let taken = table.taken();
    if taken > 3 {
        return Err(Error::NoPlace { device, taken });
    }
    let number = table.add_at_end(LARGEST, 0x0c).ok_or(Error::NoRoom { device })?;
    table.write(disk)?;
    let partition = table.primary[number as usize - 1].expect("it was just added");
    let (offset, length) = table.range(&partition);
    Ok(Place { number, offset, length })
}

fn is_labelled(disk: &Device, offset: u64, length: u64) -> Result<bool, DeviceError> {
    let identity = identify_at(disk, offset, length)?;
    let label = identity.and_then(|identity| identity.label);
    Ok(label.is_some_and(|label| label.eq_ignore_ascii_case(LABEL)))
}

/// Makes a FAT file system with what is in the ISO. Its tools know sectors of 4096 bytes.
fn copy_to_fat(partition: &Path, iso: &[u8]) -> Result<(), Error> {
    let failed = |why: String| Error::Copy { partition: partition.display().to_string(), why };
    let made = Command::new("mkfs.vfat").args(["-n", "CONFIG-2"]).arg(partition).output();
    match made {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        Err(error) => return Err(failed(format!("mkfs.vfat does not start ({error})"))),
    }
    let target = Mounted::read_write(partition, "vfat")?;
    for (name, content) in
        boot_media::iso_reader::files(iso).map_err(|why| failed(why.to_string()))?
    {
        let path = target.path().join(name);
        let folder = path.parent().unwrap_or(target.path());
        fs::create_dir_all(folder)
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
    fn config_drives_are_decoded() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&iso()).unwrap();
        let packed = gzip.finish().unwrap();
        let wrapped =
            STANDARD.encode(&packed).into_bytes().chunks(76).collect::<Vec<_>>().join(&b'\n');
        for form in [iso(), packed.clone(), STANDARD.encode(&packed).into_bytes(), wrapped] {
            assert!(decode(&form).unwrap() == iso());
        }
        assert!(matches!(decode(b"no drive"), Err(Error::Malformed)));
        assert!(matches!(decode(b"bm8gZHJpdmU="), Err(Error::Malformed)));
        let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        bomb.write_all(&vec![0; (LARGEST + 1) as usize]).unwrap();
        assert!(matches!(decode(&bomb.finish().unwrap()), Err(Error::TooLarge)));
    }

    #[test]
    fn at_the_end_of_a_gpt_and_again_in_the_same_place() {
        let file = disk(200 << 20);
        let device = Device::writable(file.path()).unwrap();
        let mut table = Gpt::new(&device, Uuid::from_u128(1));
        table.add(Some(100 << 20), kind::LINUX, Uuid::from_u128(2), "root").unwrap();
        table.write(&device).unwrap();
        for _ in 0..2 {
            let partition = write(file.path(), &iso()).unwrap();
            assert_eq!(partition, partition_path(file.path(), 2));
            let table = Gpt::read(&device).unwrap().unwrap();
            assert_eq!(table.partitions.len(), 2);
            let (offset, length) = table.range(&table.partitions[1]);
            assert!(length >= LARGEST && offset + length > 199 << 20);
            assert!(device.read(offset, iso().len()).unwrap() == iso());
        }
        // A larger image leaves no room.
        let file = disk(100 << 20);
        let device = Device::writable(file.path()).unwrap();
        let mut table = Gpt::new(&device, Uuid::from_u128(1));
        table.add(Some(60 << 20), kind::LINUX, Uuid::from_u128(2), "root").unwrap();
        table.write(&device).unwrap();
        assert!(matches!(write(file.path(), &iso()), Err(Error::NoRoom { .. })));
    }

    #[test]
    fn at_the_end_of_an_mbr_unless_it_is_full() {
        let file = disk(200 << 20);
        assert!(matches!(write(file.path(), &iso()), Err(Error::NoTable { .. })));
        let device = Device::writable(file.path()).unwrap();
        let mut table = Mbr::new(&device, 7);
        for _ in 0..3 {
            table.add(Some(10 << 20), 0x83, false).unwrap();
        }
        table.write(&device).unwrap();
        let partition = write(file.path(), &iso()).unwrap();
        assert_eq!(partition, partition_path(file.path(), 4));
        // Now that all are taken, it is only found again by its label.
        assert_eq!(write(file.path(), &iso()).unwrap(), partition);
        device.zero(136 << 20, 64 << 20).unwrap();
        let full = write(file.path(), &iso());
        assert!(matches!(full, Err(Error::NoPlace { taken: 4, .. })), "{full:?}");
    }
}
