// SPDX-License-Identifier: Apache-2.0
//! Burn-in: writes and verifies a whole disk. Its content is lost.
//!
//! The disk is written region by region with a pattern that differs at every position and in every
//! round, and read back past the page cache.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use agent_protocol::InventoryDisk;
use rustix::fs::{Advice, fadvise};

use crate::device::{AlignedBuffer, Device, DeviceError};
use crate::erase::{self, ErasePolicy};
use crate::{DiskProgress, ReportProgress};

const BLOCK_SIZE: usize = 1 << 20;
/// Bytes written before they are read back: more than drives cache.
const REGION_SIZE: u64 = 4 << 30;

/// Amount of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BurnInLoad {
    /// Number of rounds over the whole disk.
    pub loops: u32,
    /// Ends the burn-in after this time, even if it is not complete.
    pub max_duration: Option<Duration>,
}

/// Result of [`burn_in`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BurnInOutcome {
    /// The disk was skipped for this reason.
    Skipped(&'static str),
    /// This many bytes were written and read back correctly.
    Verified(u64),
}

/// The burn-in failed.
#[derive(Debug, thiserror::Error)]
pub enum BurnInError {
    /// The disk must not be overwritten.
    #[error(transparent)]
    Erase(#[from] erase::EraseError),
    /// A disk operation failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The data read back differs.
    #[error("{device} returned other data than was written at byte {offset}: replace the disk")]
    Differs {
        /// Path of the disk.
        device: String,
        /// Byte offset.
        offset: u64,
    },
}

/// Writes and verifies a disk. Disks that would not be erased are skipped as well.
///
/// # Errors
/// Fails if the disk must not be overwritten, has an I/O error, or returns other data than was written.
pub fn burn_in(
    disk: &InventoryDisk,
    policy: &ErasePolicy,
    load: BurnInLoad,
    report: ReportProgress<'_>,
) -> Result<BurnInOutcome, BurnInError> {
    if let Some(reason) = erase::skip_reason(disk, policy)? {
        return Ok(BurnInOutcome::Skipped(reason));
    }
    let device = Device::exclusive(Path::new(&disk.name))?;
    let started = Instant::now();
    let is_time_up =
        || load.max_duration.is_some_and(|max_duration| started.elapsed() >= max_duration);
    let mut run = BurnInRun { device: &device, direct: device.direct(), written: 0, verified: 0 };
    let total = Some(device.size().saturating_mul(load.loops.into()));
    'all: for round in 0..u64::from(load.loops) {
        let mut start = 0;
        while start < device.size() {
            let end = device.size().min(start + REGION_SIZE);
            let report_written = |done| report(DiskProgress { step: "burnin_disk", done, total });
            let reached = run.write(start..end, round, &is_time_up, &report_written)?;
            // The last region is verified even if the time is up.
            run.verify(start..reached, round)?;
            if is_time_up() {
                break 'all;
            }
            start = end;
        }
    }
    device.reread_partitions()?;
    Ok(BurnInOutcome::Verified(run.verified))
}

struct BurnInRun<'a> {
    device: &'a Device,
    /// `None` if `O_DIRECT` is not supported.
    direct: Option<File>,
    written: u64,
    verified: u64,
}

impl BurnInRun<'_> {
    /// Writes a region as far as time allows; returns the end of the written part.
    fn write(
        &mut self,
        region: std::ops::Range<u64>,
        round: u64,
        is_time_up: &dyn Fn() -> bool,
        report_written: &dyn Fn(u64),
    ) -> Result<u64, DeviceError> {
        let mut buffer = AlignedBuffer::new(BLOCK_SIZE);
        let mut offset = region.start;
        while offset < region.end && !(is_time_up() && offset > region.start) {
            fill_pattern(buffer.bytes_mut(), offset, round);
            let length = block_length(offset, region.end);
            let block = &buffer.bytes()[..length];
            let file = self.direct.as_ref().unwrap_or(self.device.file());
            match file.write_all_at(block, offset) {
                Ok(()) => {
                    offset += length as u64;
                    self.written += length as u64;
                    report_written(self.written);
                }
                // Some device drivers reject O_DIRECT; use the page cache then.
                Err(error)
                    if self.direct.is_some() && error.raw_os_error() == Some(libc::EINVAL) =>
                {
                    self.direct = None;
                }
                Err(error) => return Err(self.device.write_error(offset, error)),
            }
        }
        self.device.sync()?;
        Ok(offset)
    }

    fn verify(&mut self, region: std::ops::Range<u64>, round: u64) -> Result<(), BurnInError> {
        // Drop cached pages to read from the disk. If that fails, the cache is verified instead.
        let _ = fadvise(self.device.file(), 0, None, Advice::DontNeed);
        let mut expected = AlignedBuffer::new(BLOCK_SIZE);
        let mut actual = AlignedBuffer::new(BLOCK_SIZE);
        let mut offset = region.start;
        while offset < region.end {
            let length = block_length(offset, region.end);
            let block = &mut actual.bytes_mut()[..length];
            self.device.file().read_exact_at(block, offset).map_err(|source| {
                DeviceError::Read { device: self.device.path().to_owned(), offset, source }
            })?;
            fill_pattern(expected.bytes_mut(), offset, round);
            let pairs = block.iter().zip(expected.bytes());
            if let Some(index) = pairs.into_iter().position(|(one, other)| one != other) {
                let device = self.device.path().display().to_string();
                return Err(BurnInError::Differs { device, offset: offset + index as u64 });
            }
            offset += length as u64;
            self.verified += length as u64;
        }
        Ok(())
    }
}

fn block_length(offset: u64, end: u64) -> usize {
    usize::try_from(end - offset).map_or(BLOCK_SIZE, |left| left.min(BLOCK_SIZE))
}

/// Fills a block with the pattern of an offset and round (splitmix64). No two words of a disk are equal,
/// so that misplaced writes are detected.
fn fill_pattern(block: &mut [u8], offset: u64, round: u64) {
    let mut state = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (round << 56) ^ round;
    for word in block.chunks_exact_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(directory: &Path, size: u64) -> InventoryDisk {
        let path = directory.join("disk");
        File::create(&path).unwrap().set_len(size).unwrap();
        InventoryDisk { name: path.display().to_string(), size, ..InventoryDisk::default() }
    }

    #[test]
    fn passes_working_disk() {
        let directory = tempfile::tempdir().unwrap();
        let size = 3 * BLOCK_SIZE as u64 + 4096;
        let disk = disk(directory.path(), size);
        let policy = ErasePolicy::default();
        let load = BurnInLoad { loops: 2, max_duration: None };
        assert_eq!(
            burn_in(&disk, &policy, load, &|_| ()).unwrap(),
            BurnInOutcome::Verified(2 * size)
        );
        let first = std::fs::read(&disk.name).unwrap();
        assert!(first.chunks(8).all(|word| word != [0; 8]), "all of it was written");
        // Without time, at least one block is tested.
        let load = BurnInLoad { loops: 9, max_duration: Some(Duration::ZERO) };
        let done = burn_in(&disk, &policy, load, &|_| ()).unwrap();
        assert_eq!(done, BurnInOutcome::Verified(BLOCK_SIZE as u64));
    }

    #[test]
    fn detects_changed_blocks() {
        let directory = tempfile::tempdir().unwrap();
        let disk = disk(directory.path(), 2 * BLOCK_SIZE as u64);
        let device = Device::exclusive(Path::new(&disk.name)).unwrap();
        let mut run = BurnInRun { device: &device, direct: None, written: 0, verified: 0 };
        let end = device.size();
        assert_eq!(run.write(0..end, 3, &|| false, &|_| ()).unwrap(), end);
        run.verify(0..end, 3).unwrap();
        // A block written to the wrong position is detected.
        let block = device.read(0, BLOCK_SIZE).unwrap();
        device.write(BLOCK_SIZE as u64, &block).unwrap();
        let error = run.verify(0..end, 3).unwrap_err();
        assert!(
            matches!(error, BurnInError::Differs { offset, .. } if offset >= BLOCK_SIZE as u64),
            "{error}"
        );
        assert!(run.verify(0..end, 4).is_err(), "every round has another pattern");
    }
}
