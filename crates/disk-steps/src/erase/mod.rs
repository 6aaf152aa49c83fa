// SPDX-License-Identifier: Apache-2.0
//! Erasing disks: by the drive itself where it can (NVMe, ATA), else by writing over everything;
//! or only what tells what is on a disk.
//!
//! A drive that cannot erase itself is written over. One that can and fails is an error, unless the
//! policy says that writing over is good enough then: whoever relies on a secure erase must learn
//! that there was none.

mod ata;
mod metadata;
mod nvme;
mod overwrite;
mod policy;
mod surroundings;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_protocol::Disk;

use crate::Tell;
use crate::device::{Device, DeviceError};
pub use policy::ErasePolicy;

/// What became of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Erased {
    /// It was left alone, and why.
    Skipped(&'static str),
    /// The drive erased itself, in this way.
    ByDrive(&'static str),
    /// It was written over so many times.
    Overwritten(u32),
    /// What tells what is on it is gone.
    Metadata,
}

/// How disks are erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Everything.
    Whole,
    /// Only what tells what is on them.
    Metadata,
    /// By NVMe drives themselves, else only what tells what is on them.
    Express,
}

/// Why a disk is not erased.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is write-protected.
    #[error(
        "{device} is read-only and cannot be erased: remove the protection, or allow it with agent_erase_skip_read_only"
    )]
    ReadOnly {
        /// Which.
        device: String,
    },
    /// Other machines may use it.
    #[error(
        "{device} has {what}, which other machines may share, so it is not erased: disconnect it, list it in skip_block_devices, or set wipe_special_filesystems"
    )]
    Shared {
        /// Which.
        device: String,
        /// What is on it.
        what: String,
    },
    /// The drive does not erase itself.
    #[error("{device} does not erase itself: {why}")]
    Drive {
        /// Which.
        device: String,
        /// What it says, and what to try.
        why: String,
    },
    /// The disk failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl Error {
    fn drive(disk: &Disk, why: impl Into<String>) -> Self {
        Self::Drive { device: disk.name.clone(), why: why.into() }
    }
}

/// Erases all of a disk.
///
/// # Errors
/// If it may not or cannot be erased.
pub fn erase_device(disk: &Disk, policy: &ErasePolicy, tell: Tell<'_>) -> Result<Erased, Error> {
    if let Some(why) = surroundings::reason_to_skip(disk, policy)? {
        return Ok(Erased::Skipped(why));
    }
    surroundings::guard(disk, policy)?;
    match by_drive(disk, policy) {
        Ok(Some(how)) => return Ok(Erased::ByDrive(how)),
        Ok(None) => {}
        Err(error) if policy.continue_if_secure_erase_failed => {
            tracing::warn!(%error, "secure erase failed; the disk is written over instead");
        }
        Err(error) => return Err(error),
    }
    overwrite::overwrite(Path::new(&disk.name), policy, tell)?;
    Ok(Erased::Overwritten(policy.iterations + u32::from(policy.zeroize)))
}

/// Erases what tells what is on a disk, on its partitions first.
///
/// # Errors
/// If it may not or cannot be erased.
pub fn erase_metadata(disk: &Disk, policy: &ErasePolicy) -> Result<Erased, Error> {
    if let Some(why) = surroundings::reason_to_skip(disk, policy)? {
        return Ok(Erased::Skipped(why));
    }
    surroundings::guard(disk, policy)?;
    metadata::erase(disk, policy)?;
    Ok(Erased::Metadata)
}

/// Erases a disk quickly: an NVMe drive erases itself, of any other the metadata go.
///
/// # Errors
/// If it may not or cannot be erased.
pub fn erase_express(disk: &Disk, policy: &ErasePolicy) -> Result<Erased, Error> {
    if let Some(why) = surroundings::reason_to_skip(disk, policy)? {
        return Ok(Erased::Skipped(why));
    }
    surroundings::guard(disk, policy)?;
    if is_nvme(disk) {
        match nvme::erase(disk, policy) {
            Ok(how) => return Ok(Erased::ByDrive(how)),
            Err(error) => tracing::warn!(%error, "only its metadata are erased"),
        }
    }
    metadata::erase(disk, policy)?;
    Ok(Erased::Metadata)
}

/// Erases disks, as many at once as the policy says. Answers what became of each, in their order.
pub fn all(
    disks: &[Disk],
    how: How,
    policy: &ErasePolicy,
    tell: Tell<'_>,
) -> Vec<(String, Result<Erased, Error>)> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let work = || {
        while let Some((index, disk)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            disks.get(index).map(|disk| (index, disk))
        } {
            let erased = match how {
                How::Whole => erase_device(disk, policy, tell),
                How::Metadata => erase_metadata(disk, policy),
                How::Express => erase_express(disk, policy),
            };
            results.lock().expect("nobody panics with it").push((index, disk.name.clone(), erased));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..policy.concurrency.min(disks.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut results = results.into_inner().expect("nobody panics with it");
    results.sort_by_key(|(index, ..)| *index);
    results.into_iter().map(|(_, name, erased)| (name, erased)).collect()
}

/// Lets the drive erase itself. None if it cannot, or shall not.
fn by_drive(disk: &Disk, policy: &ErasePolicy) -> Result<Option<&'static str>, Error> {
    if is_nvme(disk) {
        return if policy.nvme { nvme::erase(disk, policy).map(Some) } else { Ok(None) };
    }
    if policy.ata { ata::erase(disk) } else { Ok(None) }
}

fn is_nvme(disk: &Disk) -> bool {
    disk.name.starts_with("/dev/nvme")
}

fn open(disk: &Disk) -> Result<Device, Error> {
    Ok(Device::exclusive(Path::new(&disk.name))?)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn disk(content: &[u8]) -> (tempfile::NamedTempFile, Disk) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        let name = file.path().to_str().unwrap().to_owned();
        (file, Disk { name, size: content.len() as u64, ..Disk::default() })
    }

    #[test]
    fn everything_is_written_over() {
        let (file, disk) = disk(&vec![0xa5; (3 << 20) + 1024]);
        let policy = ErasePolicy { iterations: 1, zeroize: false, ..ErasePolicy::default() };
        assert_eq!(erase_device(&disk, &policy, &|_| {}).unwrap(), Erased::Overwritten(1));
        let bytes = std::fs::read(file.path()).unwrap();
        assert_eq!(bytes.len(), (3 << 20) + 1024);
        let same = bytes.iter().filter(|byte| **byte == 0xa5).count();
        assert!(same < bytes.len() / 100, "{same} bytes are as they were");
        let policy = ErasePolicy { zeroize: true, ..policy };
        let told = AtomicUsize::new(0);
        let count = |_| {
            told.fetch_add(1, Ordering::Relaxed);
        };
        assert_eq!(erase_device(&disk, &policy, &count).unwrap(), Erased::Overwritten(2));
        assert!(std::fs::read(file.path()).unwrap().iter().all(|byte| *byte == 0));
        assert!(told.into_inner() >= 2);
    }

    #[test]
    fn metadata_go_and_data_stay() {
        let (file, disk) = disk(&vec![0xa5; 8 << 20]);
        assert_eq!(erase_metadata(&disk, &ErasePolicy::default()).unwrap(), Erased::Metadata);
        let bytes = std::fs::read(file.path()).unwrap();
        let (sectors, end) = (33 * 512, bytes.len() - 33 * 512);
        assert!(bytes[..sectors].iter().chain(&bytes[end..]).all(|byte| *byte == 0));
        assert!(bytes[4 << 20..5 << 20].iter().all(|byte| *byte == 0xa5));
    }

    #[test]
    fn shared_disks_are_guarded() {
        let mut content = vec![0; 8 << 20];
        content[0x1_0000..0x1_0004].copy_from_slice(&[0x01, 0x16, 0x19, 0x70]);
        let (_file, disk) = disk(&content);
        let policy = ErasePolicy::default();
        let error = erase_metadata(&disk, &policy).unwrap_err();
        assert!(error.to_string().contains("gfs2"), "{error}");
        assert!(matches!(erase_device(&disk, &policy, &|_| {}), Err(Error::Shared { .. })));
        let policy = ErasePolicy { guard: false, ..policy };
        assert_eq!(erase_metadata(&disk, &policy).unwrap(), Erased::Metadata);
    }

    #[test]
    fn members_of_arrays_and_virtual_media_are_skipped() {
        let mut content = vec![0; 2 << 20];
        content[4096..4100].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9]);
        let (_member, member) = disk(&content);
        let mut fat = vec![0; 2 << 20];
        fat[54..62].copy_from_slice(b"FAT12   ");
        fat[43..54].copy_from_slice(b"IR-VFD-DEV ");
        let (_floppy, floppy) = disk(&fat);
        let (_plain, plain) = disk(&vec![1; 2 << 20]);
        let policy = ErasePolicy { concurrency: 3, ..ErasePolicy::default() };
        let results = all(&[member, floppy, plain], How::Whole, &policy, &|_| {});
        let results: Vec<_> = results.into_iter().map(|(_, result)| result.unwrap()).collect();
        assert!(matches!(results[0], Erased::Skipped(why) if why.contains("array")));
        assert!(matches!(results[1], Erased::Skipped(why) if why.contains("virtual")));
        assert_eq!(results[2], Erased::Overwritten(2));
    }
}
