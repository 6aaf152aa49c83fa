// SPDX-License-Identifier: Apache-2.0
//! The firmware's boot entries, in efivarfs.
//!
//! After a deployment the firmware gets one entry for each boot loader on the EFI system partition,
//! ahead of all others: named as the loader's own CSV file says, else `ironic1`, `ironic2`, … as
//! ironic-python-agent names them. Entries of the same name are removed.

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
use crate::mounts::{MountError, Mounted};
pub use variables::BootEntry;

/// Where the kernel shows the firmware's variables.
pub const VARIABLES: &str = "/sys/firmware/efi/efivars";

/// Entries of local disks and of the usual boot loaders, which `clean_uefi_nvram` removes unasked.
const USUAL_PATTERNS: &[&str] = &[r"^HD\(", r"shim.*\.efi", r"grub.*\.efi"];

/// Why boot entries are not as they should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine did not boot by UEFI, or efivarfs is not mounted.
    #[error(
        "there are no EFI variables in {}: the machine did not boot by UEFI, or efivarfs is not mounted",
        path.display()
    )]
    NoVariables {
        /// Where they should be.
        path: PathBuf,
    },
    /// A variable cannot be read.
    #[error("the EFI variable {name} cannot be read")]
    Read {
        /// Which.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A variable cannot be written.
    #[error(
        "the EFI variable {name} cannot be written: the firmware's store may be full (clean_uefi_nvram) or locked"
    )]
    Write {
        /// Which.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// All numbers are taken.
    #[error("the firmware has all the boot entries it can have: remove some with clean_uefi_nvram")]
    Full,
    /// The image has nothing to boot from.
    #[error(
        "{device} has no EFI system partition: is this an image for UEFI? Choose one, or deploy in BIOS mode"
    )]
    NoPartition {
        /// The disk.
        device: String,
    },
    /// The image's EFI system partition is empty.
    #[error("the EFI system partition of {device} has no boot loader for this machine")]
    NoLoader {
        /// The disk.
        device: String,
    },
    /// A pattern is no regular expression.
    #[error("{pattern:?} is no regular expression that can be used here: {why}")]
    Pattern {
        /// What was given.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
    /// The partition cannot be read.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The disk failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// An EFI system partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemPartition {
    /// Its number.
    pub number: u32,
    /// Its first sector.
    pub first: u64,
    /// How many it has.
    pub sectors: u64,
    /// How firmware recognises it.
    pub identity: PartitionIdentity,
}

/// How firmware recognises a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionIdentity {
    /// By its GUID, in a GPT.
    Guid(Uuid),
    /// By the disk's identifier, in an MBR.
    Signature(u32),
}

/// Makes the machine boot from the loaders on a disk's EFI system partition. Answers the entries
/// that were made, in the order they are tried.
///
/// # Errors
/// If there is nothing to boot from, or the firmware does not take the entries.
pub fn boot_from_disk(variables: &Path, device: &Path) -> Result<Vec<BootEntry>, Error> {
    let partition = system_partition(device)?
        .ok_or_else(|| Error::NoPartition { device: device.display().to_string() })?;
    let path = partition_path(device, partition.number);
    let mounted = Mounted::read_only(&path, Some("vfat"))?;
    let made = boot_from_files(variables, mounted.path(), &partition, None);
    mounted.unmount()?;
    let made = made?;
    if made.is_empty() {
        return Err(Error::NoLoader { device: device.display().to_string() });
    }
    Ok(made)
}

/// Makes entries for the loaders among `files`, which are on `partition`. `suffix` goes behind
/// their names, for several partitions with the same files.
///
/// # Errors
/// If the firmware does not take them.
pub fn boot_from_files(
    variables: &Path,
    files: &Path,
    partition: &SystemPartition,
    suffix: Option<&str>,
) -> Result<Vec<BootEntry>, Error> {
    let mut store = variables::Store::open(variables)?;
    let mut made = Vec::new();
    for loader in loaders::find(files, std::env::consts::ARCH) {
        let label = match suffix {
            Some(suffix) => format!("{} {suffix}", loader.label),
            None => loader.label,
        };
        let path = device_path::of_file(partition, &loader.path);
        store.remove_where(|entry| entry.label == label)?;
        made.push(store.add(&label, &path)?);
    }
    store.put_first(&made)?;
    Ok(made)
}

/// The EFI system partition of a disk.
///
/// # Errors
/// If the disk cannot be read.
pub fn system_partition(device: &Path) -> Result<Option<SystemPartition>, Error> {
    let disk = Device::read_only(device)?;
    if let Some(table) = Gpt::read(&disk)? {
        let found = table.partitions.iter().find(|it| it.kind == gpt::kind::EFI_SYSTEM);
        return Ok(found.map(|partition| SystemPartition {
            number: partition.number,
            first: partition.first,
            sectors: partition.last + 1 - partition.first,
            identity: PartitionIdentity::Guid(partition.guid),
        }));
    }
    let Some(table) = Mbr::read(&disk)? else { return Ok(None) };
    let found = table.partitions().find(|(_, partition)| partition.kind == 0xef);
    Ok(found.map(|(number, partition)| SystemPartition {
        number,
        first: partition.first,
        sectors: partition.sectors,
        identity: PartitionIdentity::Signature(table.signature),
    }))
}

/// Removes the entries whose device path matches one of the patterns, whatever the case of letters;
/// without patterns those of local disks and usual boot loaders. Answers what was removed.
///
/// # Errors
/// If a pattern makes no sense, or an entry stays.
pub fn clean_nvram(variables: &Path, patterns: Option<&[String]>) -> Result<Vec<BootEntry>, Error> {
    let compile = |pattern: &str| {
        RegexBuilder::new(pattern)
            .case_insensitive(true)
            .build()
            .map_err(|error| Error::Pattern { pattern: pattern.to_owned(), why: error.to_string() })
    };
    let patterns: Vec<_> = match patterns {
        None => USUAL_PATTERNS.iter().map(|pattern| compile(pattern)).collect::<Result<_, _>>()?,
        Some(given) => given.iter().map(|pattern| compile(pattern)).collect::<Result<_, _>>()?,
    };
    let mut store = variables::Store::open(variables)?;
    store.remove_where(|entry| patterns.iter().any(|pattern| pattern.is_match(&entry.path)))
}

#[cfg(test)]
mod tests {
    use uuid::uuid;

    use super::*;

    fn partition() -> SystemPartition {
        SystemPartition {
            number: 1,
            first: 2048,
            sectors: 102_400,
            identity: PartitionIdentity::Guid(uuid!("11223344-5566-7788-99aa-bbccddeeff00")),
        }
    }

    fn ubuntu(folder: &Path) {
        let shim = folder.join("EFI/ubuntu");
        std::fs::create_dir_all(&shim).unwrap();
        std::fs::create_dir_all(folder.join("EFI/BOOT")).unwrap();
        std::fs::write(folder.join("EFI/BOOT/BOOTX64.EFI"), b"MZ").unwrap();
        std::fs::write(shim.join("shimx64.efi"), b"MZ").unwrap();
        let csv = "shimx64.efi,ubuntu,,This is the boot entry for ubuntu\n";
        let utf16: Vec<u8> =
            [0xfeff].into_iter().chain(csv.encode_utf16()).flat_map(u16::to_le_bytes).collect();
        std::fs::write(shim.join("BOOTX64.CSV"), utf16).unwrap();
    }

    fn labels(variables: &Path) -> Vec<String> {
        let store = variables::Store::open(variables).unwrap();
        store.entries().iter().map(|entry| entry.label.clone()).collect()
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_loaders_own_name_goes_first_and_only_once() {
        let (variables, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        ubuntu(files.path());
        for _ in 0..2 {
            let made = boot_from_files(variables.path(), files.path(), &partition(), None).unwrap();
            assert_eq!(made.len(), 1);
            assert_eq!(made[0].label, "ubuntu");
            assert_eq!(
                made[0].path,
                r"HD(1,GPT,11223344-5566-7788-99aa-bbccddeeff00,0x800,0x19000)/File(\EFI\ubuntu\shimx64.efi)"
            );
            assert_eq!(labels(variables.path()), ["ubuntu"]);
        }
        std::fs::remove_dir_all(files.path().join("EFI/ubuntu")).unwrap();
        let made = boot_from_files(variables.path(), files.path(), &partition(), None).unwrap();
        assert_eq!(made[0].label, "ironic1");
        assert!(made[0].path.ends_with(r"/File(\EFI\BOOT\BOOTX64.EFI)"), "{}", made[0].path);
        assert_eq!(labels(variables.path()), ["ubuntu", "ironic1"]);
        let store = variables::Store::open(variables.path()).unwrap();
        assert_eq!(store.order(), [1, 0]);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn patterns_remove_entries() {
        let (variables, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        ubuntu(files.path());
        boot_from_files(variables.path(), files.path(), &partition(), Some("(RAID, part0)"))
            .unwrap();
        let kept =
            clean_nvram(variables.path(), Some(&[r"File\(\\EFI\\windows".to_owned()])).unwrap();
        assert_eq!(kept, []);
        let removed = clean_nvram(variables.path(), None).unwrap();
        assert_eq!(removed[0].label, "ubuntu (RAID, part0)");
        assert_eq!(labels(variables.path()), [""; 0]);
        assert!(variables::Store::open(variables.path()).unwrap().order().is_empty());
        assert!(matches!(
            clean_nvram(variables.path(), Some(&["(".to_owned()])),
            Err(Error::Pattern { .. })
        ));
        let nowhere = clean_nvram(Path::new("/nowhere"), None);
        assert!(matches!(nowhere, Err(Error::NoVariables { .. })));
    }
}
