// SPDX-License-Identifier: Apache-2.0
//! Puts a disk under load to find out whether it keeps what is written to it. What was on it is lost.
//!
//! Stretch by stretch the disk is written with a pattern that is different everywhere and every time,
//! and read back past the page cache.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use agent_protocol::Disk;
use rustix::fs::{Advice, fadvise};

use crate::device::{AlignedBuffer, Device, DeviceError};
use crate::erase::{self, ErasePolicy};
use crate::{Progress, Tell};

const BLOCK: usize = 1 << 20;
/// What is written before it is read back: more than drives cache.
const STRETCH: u64 = 4 << 30;

/// How long it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// How often all of the disk is written and read.
    pub loops: u32,
    /// It ends after this, whether it is through or not.
    pub longest: Option<Duration>,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BurnedIn {
    /// The disk was left alone, and why.
    Skipped(&'static str),
    /// So many bytes were written and read back as they were written.
    Sound(u64),
}

/// Why a disk did not pass.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It may not be written.
    #[error(transparent)]
    Erase(#[from] erase::Error),
    /// It failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// It does not keep what is written to it.
    #[error("{device} gave back something else than was written at byte {at}; replace it")]
    Differs {
        /// Which.
        device: String,
        /// Where.
        at: u64,
    },
}

/// Writes and reads the disk. Disks that must not be erased are not touched either.
///
/// # Errors
/// If the disk may not be written, cannot be, or does not keep it.
pub fn burn_in(
    disk: &Disk,
    policy: &ErasePolicy,
    load: Load,
    tell: Tell<'_>,
) -> Result<BurnedIn, Error> {
    if let Some(why) = erase::reason_to_leave_alone(disk, policy)? {
        return Ok(BurnedIn::Skipped(why));
    }
    let device = Device::exclusive(Path::new(&disk.name))?;
    let begun = Instant::now();
    let is_over = || load.longest.is_some_and(|longest| begun.elapsed() >= longest);
    let mut trial = Trial { device: &device, direct: device.direct(), written: 0, verified: 0 };
    let total = Some(device.size().saturating_mul(load.loops.into()));
    'all: for round in 0..u64::from(load.loops) {
        let mut start = 0;
        while start < device.size() {
            let end = device.size().min(start + STRETCH);
            let told = |done| tell(Progress { what: "burnin_disk", done, total });
            let reached = trial.write(start..end, round, &is_over, &told)?;
            // What was written last is read in any case.
            trial.verify(start..reached, round)?;
            if is_over() {
                break 'all;
            }
            start = end;
        }
    }
    device.reread_partitions()?;
    Ok(BurnedIn::Sound(trial.verified))
}

struct Trial<'a> {
    device: &'a Device,
    /// None where direct writes do not work.
    direct: Option<File>,
    written: u64,
    verified: u64,
}

impl Trial<'_> {
    /// Writes a stretch as far as time allows, and says how far it got.
    fn write(
        &mut self,
        stretch: std::ops::Range<u64>,
        round: u64,
        is_over: &dyn Fn() -> bool,
        told: &dyn Fn(u64),
    ) -> Result<u64, DeviceError> {
        let mut buffer = AlignedBuffer::new(BLOCK);
        let mut at = stretch.start;
        while at < stretch.end && !(is_over() && at > stretch.start) {
            fill(buffer.bytes_mut(), at, round);
            let length = length_at(at, stretch.end);
            let block = &buffer.bytes()[..length];
            let file = self.direct.as_ref().unwrap_or(self.device.file());
            match file.write_all_at(block, at) {
                Ok(()) => {
                    at += length as u64;
                    self.written += length as u64;
                    told(self.written);
                }
                // Some layers under a disk take no direct writes; then the page cache does.
                Err(error)
                    if self.direct.is_some() && error.raw_os_error() == Some(libc::EINVAL) =>
                {
                    self.direct = None;
                }
                Err(error) => return Err(self.device.write_error(at, error)),
            }
        }
        self.device.sync()?;
        Ok(at)
    }

    fn verify(&mut self, stretch: std::ops::Range<u64>, round: u64) -> Result<(), Error> {
        // Only what is on the disk counts. Where this does not work the cache is what is tested.
        let _ = fadvise(self.device.file(), 0, None, Advice::DontNeed);
        let mut expected = AlignedBuffer::new(BLOCK);
        let mut found = AlignedBuffer::new(BLOCK);
        let mut at = stretch.start;
        while at < stretch.end {
            let length = length_at(at, stretch.end);
            let block = &mut found.bytes_mut()[..length];
            self.device.file().read_exact_at(block, at).map_err(|source| DeviceError::Read {
                device: self.device.path().to_owned(),
                offset: at,
                source,
            })?;
            fill(expected.bytes_mut(), at, round);
            let pairs = block.iter().zip(expected.bytes());
            if let Some(offset) = pairs.into_iter().position(|(one, other)| one != other) {
                let device = self.device.path().display().to_string();
                return Err(Error::Differs { device, at: at + offset as u64 });
            }
            at += length as u64;
            self.verified += length as u64;
        }
        Ok(())
    }
}

fn length_at(at: u64, end: u64) -> usize {
    usize::try_from(end - at).map_or(BLOCK, |left| left.min(BLOCK))
}

/// The pattern at a place in a round (splitmix64 of both): no two words on a disk are alike, so that
/// one that ends up elsewhere is noticed.
fn fill(block: &mut [u8], at: u64, round: u64) {
    let mut state = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (round << 56) ^ round;
    for piece in block.chunks_exact_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        piece.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(folder: &Path, size: u64) -> Disk {
        let path = folder.join("disk");
        File::create(&path).unwrap().set_len(size).unwrap();
        Disk { name: path.display().to_string(), size, ..Disk::default() }
    }

    #[test]
    fn a_sound_disk_passes() {
        let folder = tempfile::tempdir().unwrap();
        let size = 3 * BLOCK as u64 + 4096;
        let disk = disk(folder.path(), size);
        let policy = ErasePolicy::default();
        let load = Load { loops: 2, longest: None };
        assert_eq!(burn_in(&disk, &policy, load, &|_| ()).unwrap(), BurnedIn::Sound(2 * size));
        let first = std::fs::read(&disk.name).unwrap();
        assert!(first.chunks(8).all(|word| word != [0; 8]), "all of it was written");
        // When there is no time, a little is done all the same.
        let load = Load { loops: 9, longest: Some(Duration::ZERO) };
        let done = burn_in(&disk, &policy, load, &|_| ()).unwrap();
        assert_eq!(done, BurnedIn::Sound(BLOCK as u64));
    }

    #[test]
    fn what_changes_by_itself_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let disk = disk(folder.path(), 2 * BLOCK as u64);
        let device = Device::exclusive(Path::new(&disk.name)).unwrap();
        let mut trial = Trial { device: &device, direct: None, written: 0, verified: 0 };
        let end = device.size();
        assert_eq!(trial.write(0..end, 3, &|| false, &|_| ()).unwrap(), end);
        trial.verify(0..end, 3).unwrap();
        // A block that went to the wrong place is as wrong as one that has a wrong bit.
        let block = device.read(0, BLOCK).unwrap();
        device.write(BLOCK as u64, &block).unwrap();
        let error = trial.verify(0..end, 3).unwrap_err();
        assert!(matches!(error, Error::Differs { at, .. } if at >= BLOCK as u64), "{error}");
        assert!(trial.verify(0..end, 4).is_err(), "every round is another");
    }
}
