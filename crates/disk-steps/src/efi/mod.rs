// SPDX-License-Identifier: Apache-2.0
//! The firmware's boot entries, in efivarfs.
//!
//! After a deployment each boot loader on the EFI system partition gets a boot entry in front of all
//! others, labelled by the loader's CSV file, else `ironic1`, `ironic2`, … as in IPA. Existing entries
//! with the same label are removed.

mod device_path;
mod loaders;
mod variables;

use std::io;
use std::path::{Path, PathBuf};

use regex_lite::RegexBuilder;
use uuid::Uuid;

use crate::device::{Device, DeviceError, partition_path};
use crate::gpt::{self, Gpt};
use crate::mbr::Mbr;
use crate::mounts::{MountError, MountedFilesystem};
pub use variables::BootEntry;

/// Mount point of efivarfs.
pub const VARIABLES: &str = "/sys/firmware/efi/efivars";

/// Entries of local disks and common boot loaders, which `clean_uefi_nvram` removes by default.
const DEFAULT_PATTERNS: &[&str] = &[r"^HD\(", r"shim.*\.efi", r"grub.*\.efi"];

/// Reading or changing boot entries failed.
#[derive(Debug, thiserror::Error)]
pub enum EfiError {
    /// The machine did not boot in UEFI mode, or efivarfs is not mounted.
    #[error(
        "there are no EFI variables in {}: the machine did not boot in UEFI mode, or efivarfs is not mounted",
        path.display()
    )]
    NoVariables {
        /// Mount point of efivarfs.
        path: PathBuf,
    },
    /// Reading a variable failed.
    #[error("the EFI variable {name} cannot be read")]
    Read {
        /// Name of the variable.
        name: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// Writing a variable failed.
    #[error(
        "the EFI variable {name} cannot be written: the firmware's variable store may be full (run clean_uefi_nvram) or locked"
    )]
    Write {
        /// Name of the variable.
        name: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// All entry numbers are used.
    #[error("the firmware has all the boot entries it can have: remove some with clean_uefi_nvram")]
    Full,
    /// The disk has no EFI system partition.
    #[error("{device} has no EFI system partition: use an image for UEFI, or deploy in BIOS mode")]
    NoPartition {
        /// Path of the disk.
        device: String,
    },
    /// The EFI system partition has no boot loader.
    #[error("the EFI system partition of {device} has no boot loader for this machine")]
    NoLoader {
        /// Path of the disk.
        device: String,
    },
    /// A pattern is invalid.
    #[error("{pattern:?} is not a valid regular expression: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// Cause.
        reason: String,
    },
    /// Mounting failed.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// A disk operation failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// An EFI system partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EfiSystemPartition {
    /// Partition number.
    pub number: u32,
    /// First sector.
    pub first_lba: u64,
    /// Number of sectors.
    pub sectors: u64,
    /// Identity used in device paths.
    pub identity: PartitionIdentity,
}

/// Identity of a partition in device paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionIdentity {
    /// Partition GUID, in a GPT.
    Guid(Uuid),
    /// Disk signature, in an MBR.
    Signature(u32),
}

/// Adds boot entries for the loaders on a disk's EFI system partition. Returns them in boot order.
///
/// # Errors
/// Fails if there is no loader, or the entries cannot be written.
pub fn boot_from_disk(variables: &Path, device: &Path) -> Result<Vec<BootEntry>, EfiError> {
    let partition = system_partition(device)?
        .ok_or_else(|| EfiError::NoPartition { device: device.display().to_string() })?;
    let path = partition_path(device, partition.number);
    let mounted = MountedFilesystem::read_only(&path, Some("vfat"))?;
    let added = boot_from_files(variables, mounted.path(), &partition, None);
    mounted.unmount()?;
    let added = added?;
    if added.is_empty() {
        return Err(EfiError::NoLoader { device: device.display().to_string() });
    }
    Ok(added)
}

/// Adds boot entries for the loaders among `files`, which are on `partition`. `suffix` is appended to
/// the labels, for several partitions with the same files.
///
/// # Errors
/// Fails if the entries cannot be written.
pub fn boot_from_files(
    variables: &Path,
    files: &Path,
    partition: &EfiSystemPartition,
    suffix: Option<&str>,
) -> Result<Vec<BootEntry>, EfiError> {
    let mut variables_store = variables::BootVariables::open(variables)?;
    let mut added = Vec::new();
    for loader in loaders::find(files, std::env::consts::ARCH) {
        let label = match suffix {
            Some(suffix) => format!("{} {suffix}", loader.label),
            None => loader.label,
        };
        let path = device_path::file_path(partition, &loader.path);
        variables_store.remove_where(|entry| entry.label == label)?;
        added.push(variables_store.add(&label, &path)?);
    }
    variables_store.move_to_front(&added)?;
    Ok(added)
}

/// Returns the EFI system partition of a disk.
///
/// # Errors
/// Fails if the disk cannot be read.
pub fn system_partition(device: &Path) -> Result<Option<EfiSystemPartition>, EfiError> {
    let disk = Device::read_only(device)?;
    if let Some(table) = Gpt::read(&disk)? {
        let found =
            table.partitions.iter().find(|it| it.type_guid == gpt::partition_type::EFI_SYSTEM);
        return Ok(found.map(|partition| EfiSystemPartition {
            number: partition.number,
            first_lba: partition.first_lba,
            sectors: partition.last_lba.saturating_add(1).saturating_sub(partition.first_lba),
            identity: PartitionIdentity::Guid(partition.guid),
        }));
    }
    let Some(table) = Mbr::read(&disk)? else { return Ok(None) };
    let found = table.partitions().find(|(_, partition)| partition.type_code == 0xef);
    Ok(found.map(|(number, partition)| EfiSystemPartition {
        number,
        first_lba: partition.first_lba,
        sectors: partition.sectors,
        identity: PartitionIdentity::Signature(table.signature),
    }))
}

/// Removes the entries whose device path matches one of the patterns, ignoring case; without patterns,
/// those of local disks and common boot loaders. Returns the removed entries.
///
/// # Errors
/// Fails if a pattern is invalid, or an entry cannot be removed.
pub fn clean_nvram(
    variables: &Path,
    patterns: Option<&[String]>,
) -> Result<Vec<BootEntry>, EfiError> {
    let compile = |pattern: &str| {
        RegexBuilder::new(pattern).case_insensitive(true).build().map_err(|error| {
            EfiError::Pattern { pattern: pattern.to_owned(), reason: error.to_string() }
        })
    };
    let patterns: Vec<_> = match patterns {
        None => {
            DEFAULT_PATTERNS.iter().map(|pattern| compile(pattern)).collect::<Result<_, _>>()?
        }
        Some(given) => given.iter().map(|pattern| compile(pattern)).collect::<Result<_, _>>()?,
    };
    let mut variables_store = variables::BootVariables::open(variables)?;
    variables_store
        .remove_where(|entry| patterns.iter().any(|pattern| pattern.is_match(&entry.path)))
}

#[cfg(test)]
mod tests {
    use uuid::uuid;

    use super::*;

    fn partition() -> EfiSystemPartition {
        EfiSystemPartition {
            number: 1,
            first_lba: 2048,
            sectors: 102_400,
            identity: PartitionIdentity::Guid(uuid!("11223344-5566-7788-99aa-bbccddeeff00")),
        }
    }

    fn write_ubuntu_loaders(directory: &Path) {
        let shim = directory.join("EFI/ubuntu");
        std::fs::create_dir_all(&shim).unwrap();
        std::fs::create_dir_all(directory.join("EFI/BOOT")).unwrap();
        std::fs::write(directory.join("EFI/BOOT/BOOTX64.EFI"), b"MZ").unwrap();
        std::fs::write(shim.join("shimx64.efi"), b"MZ").unwrap();
        let csv = "shimx64.efi,ubuntu,,This is the boot entry for ubuntu\n";
        let utf16: Vec<u8> =
            [0xfeff].into_iter().chain(csv.encode_utf16()).flat_map(u16::to_le_bytes).collect();
        std::fs::write(shim.join("BOOTX64.CSV"), utf16).unwrap();
    }

    fn labels(variables: &Path) -> Vec<String> {
        let variables_store = variables::BootVariables::open(variables).unwrap();
        variables_store.entries().iter().map(|entry| entry.label.clone()).collect()
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn adds_loader_entry_first_and_once() {
        let (variables, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write_ubuntu_loaders(files.path());
        for _ in 0..2 {
            let added =
                boot_from_files(variables.path(), files.path(), &partition(), None).unwrap();
            assert_eq!(added.len(), 1);
            assert_eq!(added[0].label, "ubuntu");
            assert_eq!(
                added[0].path,
                r"HD(1,GPT,11223344-5566-7788-99aa-bbccddeeff00,0x800,0x19000)/File(\EFI\ubuntu\shimx64.efi)"
            );
            assert_eq!(labels(variables.path()), ["ubuntu"]);
        }
        std::fs::remove_dir_all(files.path().join("EFI/ubuntu")).unwrap();
        let added = boot_from_files(variables.path(), files.path(), &partition(), None).unwrap();
        assert_eq!(added[0].label, "ironic1");
        assert!(added[0].path.ends_with(r"/File(\EFI\BOOT\BOOTX64.EFI)"), "{}", added[0].path);
        assert_eq!(labels(variables.path()), ["ubuntu", "ironic1"]);
        let variables_store = variables::BootVariables::open(variables.path()).unwrap();
        assert_eq!(variables_store.order(), [1, 0]);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn removes_entries_matching_patterns() {
        let (variables, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write_ubuntu_loaders(files.path());
        boot_from_files(variables.path(), files.path(), &partition(), Some("(RAID, part0)"))
            .unwrap();
        let removed =
            clean_nvram(variables.path(), Some(&[r"File\(\\EFI\\windows".to_owned()])).unwrap();
        assert_eq!(removed, []);
        let removed = clean_nvram(variables.path(), None).unwrap();
        assert_eq!(removed[0].label, "ubuntu (RAID, part0)");
        assert_eq!(labels(variables.path()), [""; 0]);
        assert!(variables::BootVariables::open(variables.path()).unwrap().order().is_empty());
        assert!(matches!(
            clean_nvram(variables.path(), Some(&["(".to_owned()])),
            Err(EfiError::Pattern { .. })
        ));
        let missing = clean_nvram(Path::new("/nowhere"), None);
        assert!(matches!(missing, Err(EfiError::NoVariables { .. })));
    }
}
