// SPDX-License-Identifier: Apache-2.0
//! Erases disks: with the drive's own secure erase where available (NVMe, ATA), else by overwriting; or
//! only their metadata.
//!
//! A drive without secure erase is overwritten. If secure erase fails, the disk is not erased unless the
//! policy accepts overwriting instead: an operator who relies on secure erase must see that it failed.

mod ata;
mod exclusions;
mod metadata;
mod nvme;
mod overwrite;
mod policy;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_protocol::InventoryDisk;

use crate::ReportProgress;
use crate::device::{Device, DeviceError};
pub use policy::ErasePolicy;

/// Result of erasing a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EraseOutcome {
    /// Skipped for this reason.
    Skipped(&'static str),
    /// Erased by the drive with this command.
    ByDrive(&'static str),
    /// Overwritten this many times.
    Overwritten(u32),
    /// Only metadata was erased.
    Metadata,
    /// The ranges that belong to no RAID array were erased. Arrays are erased as disks of their own.
    OutsideArrays,
}

/// Method of erasing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EraseMethod {
    /// Erases everything.
    Full,
    /// Erases partition tables and signatures only.
    Metadata,
    /// Uses secure erase on NVMe drives, else erases metadata only.
    Express,
}

/// The disk was not erased.
#[derive(Debug, thiserror::Error)]
pub enum EraseError {
    /// The disk is read-only.
    #[error(
        "{device} is read-only and cannot be erased: remove the write protection, or skip it with agent_erase_skip_read_only"
    )]
    ReadOnly {
        /// Path of the disk.
        device: String,
    },
    /// Other machines may use the disk.
    #[error(
        "{device} has {what}, which other machines may share, so it is not erased: disconnect it, list it in skip_block_devices, or set wipe_special_filesystems"
    )]
    Shared {
        /// Path of the disk.
        device: String,
        /// Its shared content.
        what: String,
    },
    /// Secure erase failed.
    #[error("{device} cannot be erased by its secure erase: {reason}")]
    Drive {
        /// Path of the disk.
        device: String,
        /// Cause, and what to try.
        reason: String,
    },
    /// A disk operation failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl EraseError {
    fn drive(disk: &InventoryDisk, reason: impl Into<String>) -> Self {
        Self::Drive { device: disk.name.clone(), reason: reason.into() }
    }
}

/// Erases disks, concurrently as far as the policy allows. Returns the results in the order of `disks`.
/// `selected` contains all disks that are or were to be erased: a drive that can only erase all of its
/// namespaces does so only if all are selected.
pub fn erase_disks(
    disks: &[InventoryDisk],
    selected: &[InventoryDisk],
    method: EraseMethod,
    policy: &ErasePolicy,
    report: ReportProgress<'_>,
) -> Vec<(String, Result<EraseOutcome, EraseError>)> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let work = || {
        while let Some((index, disk)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            disks.get(index).map(|disk| (index, disk))
        } {
            let erased = erase(disk, selected, method, policy, report);
            results.lock().expect("no thread panics while holding it").push((
                index,
                disk.name.clone(),
                erased,
            ));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..policy.concurrency.min(disks.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut results = results.into_inner().expect("no thread panics while holding it");
    results.sort_by_key(|(index, ..)| *index);
    results.into_iter().map(|(_, name, erased)| (name, erased)).collect()
}

/// Returns why a disk must be skipped when it is overwritten.
///
/// # Errors
/// Fails if the disk must not be overwritten and that is an error.
pub(crate) fn skip_reason(
    disk: &InventoryDisk,
    policy: &ErasePolicy,
) -> Result<Option<&'static str>, EraseError> {
    let reason = exclusions::skip_reason(disk, policy)?;
    if reason.is_none() {
        exclusions::check_not_shared(disk, policy)?;
    }
    Ok(reason)
}

/// Erases one disk.
fn erase(
    disk: &InventoryDisk,
    selected: &[InventoryDisk],
    method: EraseMethod,
    policy: &ErasePolicy,
    report: ReportProgress<'_>,
) -> Result<EraseOutcome, EraseError> {
    // Read-only disks are an error only for a full erase.
    let lenient = ErasePolicy { skip_read_only: true, ..policy.clone() };
    let policy = if method == EraseMethod::Full { policy } else { &lenient };
    if let Some(reason) = exclusions::skip_reason(disk, policy)? {
        return erase_outside_arrays(disk, method, policy, report, reason);
    }
    exclusions::check_not_shared(disk, policy)?;
    match method {
        EraseMethod::Full => {
            match secure_erase(disk, selected, policy) {
                Ok(Some(method)) => return Ok(EraseOutcome::ByDrive(method)),
                Ok(None) => {}
                Err(error) if policy.continue_if_secure_erase_failed => {
                    tracing::warn!(device = disk.name, %error, "secure erase failed, overwriting the disk instead");
                }
                Err(error) => return Err(error),
            }
            overwrite::overwrite(Path::new(&disk.name), policy, report)?;
            return Ok(EraseOutcome::Overwritten(policy.iterations + u32::from(policy.zeroize)));
        }
        EraseMethod::Express if is_nvme(disk) && policy.nvme => {
            match nvme::erase(disk, selected, policy) {
                Ok(method) => return Ok(EraseOutcome::ByDrive(method)),
                Err(error) => {
                    tracing::warn!(device = disk.name, %error, "NVMe erase failed, erasing metadata only")
                }
            }
        }
        EraseMethod::Express | EraseMethod::Metadata => {}
    }
    metadata::erase(disk, policy)?;
    Ok(EraseOutcome::Metadata)
}

/// Erases the ranges of a disk outside RAID arrays, if there are any.
fn erase_outside_arrays(
    disk: &InventoryDisk,
    method: EraseMethod,
    policy: &ErasePolicy,
    report: ReportProgress<'_>,
    reason: &'static str,
) -> Result<EraseOutcome, EraseError> {
    let ranges = exclusions::ranges_outside_arrays(disk, policy)?;
    if ranges.is_empty() {
        return Ok(EraseOutcome::Skipped(reason));
    }
    exclusions::check_not_shared(disk, policy)?;
    let path = Path::new(&disk.name);
    match method {
        EraseMethod::Full => overwrite::overwrite_ranges(path, &ranges, policy, report)?,
        EraseMethod::Metadata | EraseMethod::Express => metadata::erase_ranges(path, &ranges)?,
    }
    Ok(EraseOutcome::OutsideArrays)
}

/// Uses the drive's secure erase; returns `None` if unsupported or disabled.
fn secure_erase(
    disk: &InventoryDisk,
    selected: &[InventoryDisk],
    policy: &ErasePolicy,
) -> Result<Option<&'static str>, EraseError> {
    if is_nvme(disk) {
        return if policy.nvme { nvme::erase(disk, selected, policy).map(Some) } else { Ok(None) };
    }
    if policy.ata { ata::erase(disk) } else { Ok(None) }
}

fn is_nvme(disk: &InventoryDisk) -> bool {
    disk.name.starts_with("/dev/nvme")
}

fn open(disk: &InventoryDisk) -> Result<Device, EraseError> {
    Ok(Device::exclusive(Path::new(&disk.name))?)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn disk(content: &[u8]) -> (tempfile::NamedTempFile, InventoryDisk) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        let name = file.path().to_str().unwrap().to_owned();
        (file, InventoryDisk { name, size: content.len() as u64, ..InventoryDisk::default() })
    }

    fn erase_one(
        disk: &InventoryDisk,
        method: EraseMethod,
        policy: &ErasePolicy,
    ) -> Result<EraseOutcome, EraseError> {
        erase(disk, std::slice::from_ref(disk), method, policy, &|_| {})
    }

    #[test]
    fn overwrites_everything() {
        let (file, disk) = disk(&vec![0xa5; (3 << 20) + 1024]);
        let policy = ErasePolicy { iterations: 1, zeroize: false, ..ErasePolicy::default() };
        assert_eq!(
            erase_one(&disk, EraseMethod::Full, &policy).unwrap(),
            EraseOutcome::Overwritten(1)
        );
        let bytes = std::fs::read(file.path()).unwrap();
        assert_eq!(bytes.len(), (3 << 20) + 1024);
        let same = bytes.iter().filter(|byte| **byte == 0xa5).count();
        assert!(same < bytes.len() / 100, "{same} bytes are unchanged");
        let policy = ErasePolicy { zeroize: true, ..policy };
        let reports = AtomicUsize::new(0);
        let count = |_| {
            reports.fetch_add(1, Ordering::Relaxed);
        };
        let erased = erase(&disk, &[], EraseMethod::Full, &policy, &count);
        assert_eq!(erased.unwrap(), EraseOutcome::Overwritten(2));
        assert!(std::fs::read(file.path()).unwrap().iter().all(|byte| *byte == 0));
        assert!(reports.into_inner() >= 2);
    }

    #[test]
    fn erases_metadata_and_keeps_data() {
        let (file, disk) = disk(&vec![0xa5; 8 << 20]);
        let policy = ErasePolicy::default();
        assert_eq!(
            erase_one(&disk, EraseMethod::Metadata, &policy).unwrap(),
            EraseOutcome::Metadata
        );
        let bytes = std::fs::read(file.path()).unwrap();
        let (sectors, end) = (33 * 512, bytes.len() - 33 * 512);
        assert!(bytes[..sectors].iter().chain(&bytes[end..]).all(|byte| *byte == 0));
        assert!(bytes[4 << 20..5 << 20].iter().all(|byte| *byte == 0xa5));
    }

    #[test]
    fn refuses_shared_disks() {
        let mut content = vec![0; 8 << 20];
        content[0x1_0000..0x1_0004].copy_from_slice(&[0x01, 0x16, 0x19, 0x70]);
        let (_file, disk) = disk(&content);
        let policy = ErasePolicy::default();
        let error = erase_one(&disk, EraseMethod::Metadata, &policy).unwrap_err();
        assert!(error.to_string().contains("gfs2"), "{error}");
        assert!(matches!(
            erase_one(&disk, EraseMethod::Full, &policy),
            Err(EraseError::Shared { .. })
        ));
        let policy = ErasePolicy { protect_shared: false, ..policy };
        assert_eq!(
            erase_one(&disk, EraseMethod::Metadata, &policy).unwrap(),
            EraseOutcome::Metadata
        );
    }

    /// Creates a sysfs with these files below `block`.
    fn sysfs(files: &[(String, &str)]) -> (tempfile::TempDir, ErasePolicy) {
        let sys = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = sys.path().join("block").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let policy = ErasePolicy { sys: sys.path().to_owned(), ..ErasePolicy::default() };
        (sys, policy)
    }

    fn block_name(disk: &InventoryDisk) -> String {
        Path::new(&disk.name).file_name().unwrap().to_str().unwrap().to_owned()
    }

    const ARRAY: [(&str, &str); 2] = [("md0/md/level", "raid1\n"), ("md0/size", "4096\n")];

    fn array() -> impl Iterator<Item = (String, &'static str)> {
        ARRAY.into_iter().map(|(path, content)| (path.to_owned(), content))
    }

    #[test]
    fn erases_disks_with_stale_metadata() {
        // RAID metadata without an array, and the label of virtual media on a fixed disk.
        let mut content = vec![1; 2 << 20];
        content[4096..4100].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9]);
        let (_stale, stale) = disk(&content);
        let mut fat = vec![1; 2 << 20];
        fat[54..62].copy_from_slice(b"FAT12   ");
        fat[43..54].copy_from_slice(b"IR-VFD-DEV ");
        let (_fixed, fixed) = disk(&fat);
        let (_floppy, floppy) = disk(&fat);
        let floppy = InventoryDisk { tran: Some("usb".to_owned()), ..floppy };
        let (_large, large) = disk(&fat);
        let large = InventoryDisk {
            size: 8 << 30,
            ..InventoryDisk { tran: Some("usb".to_owned()), ..large }
        };
        let disks = [stale, fixed, large, floppy];
        let policy = ErasePolicy { concurrency: 3, ..ErasePolicy::default() };
        let results = erase_disks(&disks, &disks, EraseMethod::Full, &policy, &|_| {});
        let results: Vec<_> = results.into_iter().map(|(_, result)| result.unwrap()).collect();
        assert_eq!(results[..3], [const { EraseOutcome::Overwritten(2) }; 3]);
        assert!(matches!(results[3], EraseOutcome::Skipped(reason) if reason.contains("virtual")));
    }

    #[test]
    fn skips_members_of_running_arrays() {
        let (file, disk) = disk(&vec![0xa5; 8 << 20]);
        let name = block_name(&disk);
        let holder = (format!("{name}/holders/md0/x"), "");
        let files: Vec<_> = array().chain([holder.clone()]).collect();
        let (_sys, policy) = sysfs(&files);
        let skipped = erase_one(&disk, EraseMethod::Full, &policy).unwrap();
        assert!(
            matches!(skipped, EraseOutcome::Skipped(reason) if reason.contains("array")),
            "{skipped:?}"
        );
        assert!(std::fs::read(file.path()).unwrap().iter().all(|byte| *byte == 0xa5));
        // An array that is not reported as a disk is not erased, so its members are not skipped.
        let linear = [("md0/md/level".to_owned(), "linear\n"), holder];
        let (_sys, policy) = sysfs(&linear);
        assert_eq!(
            erase_one(&disk, EraseMethod::Full, &policy).unwrap(),
            EraseOutcome::Overwritten(2)
        );
    }

    #[test]
    fn erases_ranges_outside_arrays() {
        use crate::gpt::{Gpt, partition_type};
        for method in [EraseMethod::Full, EraseMethod::Metadata] {
            let (file, disk) = disk(&vec![0xa5; 16 << 20]);
            let device = Device::writable(file.path()).unwrap();
            let mut table = Gpt::new(&device, uuid::Uuid::from_u128(1));
            for (number, mebibytes) in [(2, 4), (3, 2)] {
                let id = uuid::Uuid::from_u128(number);
                table.add(Some(mebibytes << 20), partition_type::LINUX, id, "").unwrap();
            }
            table.write(&device).unwrap();
            let name = block_name(&disk);
            // The first partition is free, the second is in an array.
            let files: Vec<_> = array()
                .chain([
                    (format!("{name}/{name}1/partition"), "1\n"),
                    (format!("{name}/{name}1/start"), "2048\n"),
                    (format!("{name}/{name}1/size"), "8192\n"),
                    (format!("{name}/{name}2/partition"), "2\n"),
                    (format!("{name}/{name}2/start"), "10240\n"),
                    (format!("{name}/{name}2/size"), "4096\n"),
                    (format!("{name}/{name}2/holders/md0/x"), ""),
                ])
                .collect();
            let (_sys, policy) = sysfs(&files);
            assert_eq!(erase_one(&disk, method, &policy).unwrap(), EraseOutcome::OutsideArrays);
            assert_eq!(Gpt::read(&device).unwrap().as_ref(), Some(&table), "the table is kept");
            let bytes = std::fs::read(file.path()).unwrap();
            let has_data = |from: usize, to: usize| bytes[from..to].iter().any(|byte| *byte != 0);
            assert!(bytes[5 << 20..7 << 20].iter().all(|byte| *byte == 0xa5), "the member is kept");
            assert!(!has_data(34 * 512, 2 << 20) && !has_data(4 << 20, 5 << 20), "{method:?}");
            assert!(!has_data(7 << 20, 8 << 20) && !has_data(15 << 20, (16 << 20) - 33 * 512));
            assert_eq!(has_data(2 << 20, 4 << 20), method == EraseMethod::Metadata);
        }
    }

    #[test]
    fn only_full_erase_fails_on_read_only_disk() {
        let (_file, disk) = disk(&[0; 4096]);
        let (_sys, policy) = sysfs(&[(format!("{}/ro", block_name(&disk)), "1\n")]);
        assert!(matches!(
            erase_one(&disk, EraseMethod::Full, &policy),
            Err(EraseError::ReadOnly { .. })
        ));
        for method in [EraseMethod::Metadata, EraseMethod::Express] {
            assert!(matches!(erase_one(&disk, method, &policy), Ok(EraseOutcome::Skipped(_))));
        }
    }
}
