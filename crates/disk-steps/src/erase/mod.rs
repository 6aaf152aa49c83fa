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
    /// What is in no array was erased. The arrays are erased themselves.
    BesideArrays,
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

/// Erases disks, as many at once as the policy says. Answers what became of each, in their order.
/// `among` are all disks that are or were to be erased: a drive that can only erase itself as a whole
/// does so only if all of it is among them.
pub fn all(
    disks: &[Disk],
    among: &[Disk],
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
            let erased = erase(disk, among, how, policy, tell);
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

/// Why a disk is not to be written over, if that is no failure.
///
/// # Errors
/// If it must not be written over, which is one.
pub(crate) fn reason_to_leave_alone(
    disk: &Disk,
    policy: &ErasePolicy,
) -> Result<Option<&'static str>, Error> {
    let reason = surroundings::reason_to_skip(disk, policy)?;
    if reason.is_none() {
        surroundings::guard(disk, policy)?;
    }
    Ok(reason)
}

/// Erases one disk.
fn erase(
    disk: &Disk,
    among: &[Disk],
    how: How,
    policy: &ErasePolicy,
    tell: Tell<'_>,
) -> Result<Erased, Error> {
    // Only who wants everything gone must learn of what cannot go.
    let lenient = ErasePolicy { skip_read_only: true, ..policy.clone() };
    let policy = if how == How::Whole { policy } else { &lenient };
    if let Some(why) = surroundings::reason_to_skip(disk, policy)? {
        return beside_arrays(disk, how, policy, tell, why);
    }
    surroundings::guard(disk, policy)?;
    match how {
        How::Whole => {
            match by_drive(disk, among, policy) {
                Ok(Some(how)) => return Ok(Erased::ByDrive(how)),
                Ok(None) => {}
                Err(error) if policy.continue_if_secure_erase_failed => {
                    tracing::warn!(%error, "secure erase failed; the disk is written over instead");
                }
                Err(error) => return Err(error),
            }
            overwrite::overwrite(Path::new(&disk.name), policy, tell)?;
            return Ok(Erased::Overwritten(policy.iterations + u32::from(policy.zeroize)));
        }
        How::Express if is_nvme(disk) && policy.nvme => match nvme::erase(disk, among, policy) {
            Ok(how) => return Ok(Erased::ByDrive(how)),
            Err(error) => tracing::warn!(%error, "only its metadata are erased"),
        },
        How::Express | How::Metadata => {}
    }
    metadata::erase(disk, policy)?;
    Ok(Erased::Metadata)
}

/// Erases what of a disk is in no array, if it has such parts; the arrays are erased themselves.
fn beside_arrays(
    disk: &Disk,
    how: How,
    policy: &ErasePolicy,
    tell: Tell<'_>,
    why: &'static str,
) -> Result<Erased, Error> {
    let parts = surroundings::parts_beside_arrays(disk, policy)?;
    if parts.is_empty() {
        return Ok(Erased::Skipped(why));
    }
    surroundings::guard(disk, policy)?;
    let path = Path::new(&disk.name);
    match how {
        How::Whole => overwrite::overwrite_parts(path, &parts, policy, tell)?,
        How::Metadata | How::Express => metadata::erase_parts(path, &parts)?,
    }
    Ok(Erased::BesideArrays)
}

/// Lets the drive erase itself. None if it cannot, or shall not.
fn by_drive(
    disk: &Disk,
    among: &[Disk],
    policy: &ErasePolicy,
) -> Result<Option<&'static str>, Error> {
    if is_nvme(disk) {
        return if policy.nvme { nvme::erase(disk, among, policy).map(Some) } else { Ok(None) };
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

    fn erase_one(disk: &Disk, how: How, policy: &ErasePolicy) -> Result<Erased, Error> {
        erase(disk, std::slice::from_ref(disk), how, policy, &|_| {})
    }

    #[test]
    fn everything_is_written_over() {
        let (file, disk) = disk(&vec![0xa5; (3 << 20) + 1024]);
        let policy = ErasePolicy { iterations: 1, zeroize: false, ..ErasePolicy::default() };
        assert_eq!(erase_one(&disk, How::Whole, &policy).unwrap(), Erased::Overwritten(1));
        let bytes = std::fs::read(file.path()).unwrap();
        assert_eq!(bytes.len(), (3 << 20) + 1024);
        let same = bytes.iter().filter(|byte| **byte == 0xa5).count();
        assert!(same < bytes.len() / 100, "{same} bytes are as they were");
        let policy = ErasePolicy { zeroize: true, ..policy };
        let told = AtomicUsize::new(0);
        let count = |_| {
            told.fetch_add(1, Ordering::Relaxed);
        };
        let erased = erase(&disk, &[], How::Whole, &policy, &count);
        assert_eq!(erased.unwrap(), Erased::Overwritten(2));
        assert!(std::fs::read(file.path()).unwrap().iter().all(|byte| *byte == 0));
        assert!(told.into_inner() >= 2);
    }

    #[test]
    fn metadata_go_and_data_stay() {
        let (file, disk) = disk(&vec![0xa5; 8 << 20]);
        let policy = ErasePolicy::default();
        assert_eq!(erase_one(&disk, How::Metadata, &policy).unwrap(), Erased::Metadata);
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
        let error = erase_one(&disk, How::Metadata, &policy).unwrap_err();
        assert!(error.to_string().contains("gfs2"), "{error}");
        assert!(matches!(erase_one(&disk, How::Whole, &policy), Err(Error::Shared { .. })));
        let policy = ErasePolicy { guard: false, ..policy };
        assert_eq!(erase_one(&disk, How::Metadata, &policy).unwrap(), Erased::Metadata);
    }

    /// What the kernel tells, made of files: paths below `block` and their content.
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

    fn block_name(disk: &Disk) -> String {
        Path::new(&disk.name).file_name().unwrap().to_str().unwrap().to_owned()
    }

    const ARRAY: [(&str, &str); 2] = [("md0/md/level", "raid1\n"), ("md0/size", "4096\n")];

    fn array() -> impl Iterator<Item = (String, &'static str)> {
        ARRAY.into_iter().map(|(path, content)| (path.to_owned(), content))
    }

    #[test]
    fn what_only_looks_like_a_reason_is_erased() {
        // RAID metadata without an array, and the label of a floppy on a disk that is none.
        let mut content = vec![1; 2 << 20];
        content[4096..4100].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9]);
        let (_stale, stale) = disk(&content);
        let mut fat = vec![1; 2 << 20];
        fat[54..62].copy_from_slice(b"FAT12   ");
        fat[43..54].copy_from_slice(b"IR-VFD-DEV ");
        let (_fixed, fixed) = disk(&fat);
        let (_floppy, floppy) = disk(&fat);
        let floppy = Disk { tran: Some("usb".to_owned()), ..floppy };
        let (_large, large) = disk(&fat);
        let large = Disk { size: 8 << 30, ..Disk { tran: Some("usb".to_owned()), ..large } };
        let disks = [stale, fixed, large, floppy];
        let policy = ErasePolicy { concurrency: 3, ..ErasePolicy::default() };
        let results = all(&disks, &disks, How::Whole, &policy, &|_| {});
        let results: Vec<_> = results.into_iter().map(|(_, result)| result.unwrap()).collect();
        assert_eq!(results[..3], [const { Erased::Overwritten(2) }; 3]);
        assert!(matches!(results[3], Erased::Skipped(why) if why.contains("virtual")));
    }

    #[test]
    fn members_of_running_arrays_are_left_to_them() {
        let (file, disk) = disk(&vec![0xa5; 8 << 20]);
        let name = block_name(&disk);
        let held = (format!("{name}/holders/md0/x"), "");
        let files: Vec<_> = array().chain([held.clone()]).collect();
        let (_sys, policy) = sysfs(&files);
        let skipped = erase_one(&disk, How::Whole, &policy).unwrap();
        assert!(matches!(skipped, Erased::Skipped(why) if why.contains("array")), "{skipped:?}");
        assert!(std::fs::read(file.path()).unwrap().iter().all(|byte| *byte == 0xa5));
        // An array that is not shown as a disk is not erased, so that its members are not skipped.
        let linear = [("md0/md/level".to_owned(), "linear\n"), held];
        let (_sys, policy) = sysfs(&linear);
        assert_eq!(erase_one(&disk, How::Whole, &policy).unwrap(), Erased::Overwritten(2));
    }

    #[test]
    fn what_is_beside_an_array_is_erased() {
        use crate::gpt::{Gpt, kind};
        for how in [How::Whole, How::Metadata] {
            let (file, disk) = disk(&vec![0xa5; 16 << 20]);
            let device = Device::writable(file.path()).unwrap();
            let mut table = Gpt::new(&device, uuid::Uuid::from_u128(1));
            for (number, mebibytes) in [(2, 4), (3, 2)] {
                let id = uuid::Uuid::from_u128(number);
                table.add(Some(mebibytes << 20), kind::LINUX, id, "").unwrap();
            }
            table.write(&device).unwrap();
            let name = block_name(&disk);
            // The first is the last tenant's, the second is in an array.
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
            assert_eq!(erase_one(&disk, how, &policy).unwrap(), Erased::BesideArrays);
            assert_eq!(Gpt::read(&device).unwrap().as_ref(), Some(&table), "the table stays");
            let bytes = std::fs::read(file.path()).unwrap();
            let left = |from: usize, to: usize| bytes[from..to].iter().any(|byte| *byte != 0);
            assert!(bytes[5 << 20..7 << 20].iter().all(|byte| *byte == 0xa5), "the member stays");
            assert!(!left(34 * 512, 2 << 20) && !left(4 << 20, 5 << 20), "{how:?}");
            assert!(!left(7 << 20, 8 << 20) && !left(15 << 20, (16 << 20) - 33 * 512));
            assert_eq!(left(2 << 20, 4 << 20), how == How::Metadata);
        }
    }

    #[test]
    fn only_who_wants_everything_gone_stumbles_over_write_protection() {
        let (_file, disk) = disk(&[0; 4096]);
        let (_sys, policy) = sysfs(&[(format!("{}/ro", block_name(&disk)), "1\n")]);
        assert!(matches!(erase_one(&disk, How::Whole, &policy), Err(Error::ReadOnly { .. })));
        for how in [How::Metadata, How::Express] {
            assert!(matches!(erase_one(&disk, how, &policy), Ok(Erased::Skipped(_))));
        }
    }
}
