// SPDX-License-Identifier: Apache-2.0
//! Writes to a disk from a thread of its own, in large aligned blocks past the page cache, so that
//! the next block comes while this one is written.
//!
//! The beginning of the disk is zeroed first and written last, by [`AllButFirst::complete`] and so
//! only after somebody found that the image is the right one. Whatever happens before, be it to the
//! power, leaves a disk that does not boot.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use crate::device::{AlignedBuffer, Device, DeviceError, is_zero};

/// How much is written at once.
pub(super) const BLOCK: usize = 1 << 20;
/// How many blocks are on their way at once.
const BLOCKS: usize = 4;

/// How much of the beginning is held back.
const FIRST: u64 = 1 << 20;

/// Where blocks go.
pub(super) struct Writer {
    jobs: SyncSender<Job>,
    spare: Receiver<AlignedBuffer>,
    thread: JoinHandle<Result<AllButFirst, DeviceError>>,
    /// The block that is being filled, where it goes, and how full it is.
    block: Option<AlignedBuffer>,
    at: u64,
    filled: usize,
}

/// The disk failed, and [`Writer::finish`] says how.
#[derive(Debug)]
pub(super) struct Failed;

/// A disk on which everything is but the beginning, which would make it boot.
pub(super) struct AllButFirst {
    device: Device,
    /// What is held back; empty as long as nothing was written.
    first: Vec<u8>,
}

enum Job {
    Write { at: u64, block: AlignedBuffer, filled: usize },
    Zero { at: u64, length: u64 },
}

impl Writer {
    /// Writes to `device`.
    pub(super) fn start(device: Device) -> Self {
        let (jobs, todo) = sync_channel(BLOCKS);
        let (give_back, spare) = channel();
        for _ in 0..BLOCKS {
            give_back.send(AlignedBuffer::new(BLOCK)).expect("the receiver is right here");
        }
        let thread = std::thread::spawn(move || write_all(device, &todo, &give_back));
        Self { jobs, spare, thread, block: None, at: 0, filled: 0 }
    }

    /// Writes what `fill` puts into the next block, which goes to `at`. Answers how much it was.
    pub(super) fn write_filled<E>(
        &mut self,
        at: u64,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Result<usize, E>, Failed> {
        self.flush()?;
        let mut block = self.spare.recv().map_err(|_| Failed)?;
        let filled = match fill(block.bytes_mut()) {
            Ok(filled) => filled,
            Err(error) => return Ok(Err(error)),
        };
        if filled > 0 {
            self.jobs.send(Job::Write { at, block, filled }).map_err(|_| Failed)?;
        }
        Ok(Ok(filled))
    }

    /// Writes `bytes` at `at`. What goes on where the last bytes ended becomes one block with them.
    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Failed> {
        if at != self.at + self.filled as u64 {
            self.flush()?;
        }
        let (mut at, mut bytes) = (at, bytes);
        while !bytes.is_empty() {
            if self.block.is_none() {
                self.block = Some(self.spare.recv().map_err(|_| Failed)?);
                (self.at, self.filled) = (at, 0);
            }
            let block = self.block.as_mut().expect("it was just put there");
            let count = bytes.len().min(BLOCK - self.filled);
            block.bytes_mut()[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
            self.filled += count;
            at += count as u64;
            bytes = &bytes[count..];
            if self.filled == BLOCK {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Makes a range read as zeroes.
    pub(super) fn zero(&mut self, at: u64, length: u64) -> Result<(), Failed> {
        self.jobs.send(Job::Zero { at, length }).map_err(|_| Failed)
    }

    fn flush(&mut self) -> Result<(), Failed> {
        let Some(block) = self.block.take() else { return Ok(()) };
        let job = Job::Write { at: self.at, block, filled: self.filled };
        (self.at, self.filled) = (self.at + self.filled as u64, 0);
        self.jobs.send(job).map_err(|_| Failed)
    }

    /// Waits until all but the beginning is written and on the medium.
    pub(super) fn finish(mut self) -> Result<AllButFirst, DeviceError> {
        // If the disk failed, the thread says so.
        let _ = self.flush();
        drop(self.jobs);
        let written =
            self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        written.device.sync()?;
        Ok(written)
    }
}

impl AllButFirst {
    /// Writes the beginning.
    pub(super) fn complete(self) -> Result<Device, DeviceError> {
        self.device.write(0, &self.first)?;
        self.device.sync()?;
        Ok(self.device)
    }

    /// Makes sure that nothing boots from the disk from now on.
    fn begin(&mut self) -> Result<(), DeviceError> {
        if !self.first.is_empty() {
            return Ok(());
        }
        let device = &self.device;
        device.zero(0, FIRST)?;
        device.zero(device.size().saturating_sub(FIRST), FIRST)?;
        device.sync()?;
        let held = usize::try_from(FIRST.min(device.size())).expect("a megabyte");
        self.first = vec![0; held];
        Ok(())
    }

    /// Keeps what is of the beginning. Answers how many bytes that are.
    fn hold(&mut self, at: u64, bytes: &[u8]) -> usize {
        let place = usize::try_from(at).unwrap_or(usize::MAX).min(self.first.len());
        let count = bytes.len().min(self.first.len() - place);
        self.first[place..place + count].copy_from_slice(&bytes[..count]);
        count
    }
}

fn write_all(
    device: Device,
    todo: &Receiver<Job>,
    give_back: &Sender<AlignedBuffer>,
) -> Result<AllButFirst, DeviceError> {
    let mut direct = device.direct();
    let mut written = AllButFirst { device, first: Vec::new() };
    while let Ok(job) = todo.recv() {
        written.begin()?;
        let device = &written.device;
        match job {
            // The beginning is zero already, and nothing is written where zeroes come later.
            Job::Zero { at, length } => device.zero(at, length)?,
            Job::Write { at, mut block, filled } => {
                if at >= FIRST {
                    write_block(device, &mut direct, at, &mut block, filled)?;
                } else {
                    let held = written.hold(at, &block.bytes()[..filled]);
                    written.device.write(at + held as u64, &block.bytes()[held..filled])?;
                }
                // Nobody may be left to fill it.
                let _ = give_back.send(block);
            }
        }
    }
    Ok(written)
}

fn write_block(
    device: &Device,
    direct: &mut Option<File>,
    at: u64,
    block: &mut AlignedBuffer,
    filled: usize,
) -> Result<(), DeviceError> {
    if filled == BLOCK && is_zero(block.bytes()) {
        return device.zero(at, BLOCK as u64);
    }
    // The last sector of an image may be half full; its rest belongs to nobody.
    let sector = usize::try_from(device.sector()).expect("a sector is small");
    let aligned = filled.next_multiple_of(sector);
    if let Some(file) = direct.as_ref().filter(|_| at.is_multiple_of(device.sector())) {
        block.bytes_mut()[filled..aligned].fill(0);
        match file.write_all_at(&block.bytes()[..aligned], at) {
            Ok(()) => return Ok(()),
            // Some layers under a disk take no direct writes, and say so only now.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err(device.write_error(at, error)),
        }
        *direct = None;
    }
    device.write(at, &block.bytes()[..filled])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_comes_last() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![0xa5; 8 << 20]).unwrap();
        let mut writer = Writer::start(Device::exclusive(file.path()).unwrap());
        let content = vec![7; (3 << 20) + 100];
        writer.write(512 << 10, &content).unwrap();
        writer.write(0, &[1; 1000]).unwrap();
        let written = writer.finish().unwrap();
        // Whatever happens now, nothing boots from it.
        let bytes = std::fs::read(file.path()).unwrap();
        assert!(bytes[..1 << 20].iter().all(|byte| *byte == 0), "the beginning is held back");
        assert!(bytes[7 << 20..].iter().all(|byte| *byte == 0), "an old table's copy is gone");
        assert!(bytes[1 << 20..(7 << 19) + 100].iter().all(|byte| *byte == 7));
        written.complete().unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        assert!(bytes[..1000].iter().all(|byte| *byte == 1));
        assert!(bytes[1000..512 << 10].iter().all(|byte| *byte == 0));
        assert!(bytes[512 << 10..(7 << 19) + 100] == content[..]);
        assert!(bytes[(7 << 19) + 100..7 << 20].iter().all(|byte| *byte == 0xa5));
        // Where nothing was written, nothing changes.
        let writer = Writer::start(Device::exclusive(file.path()).unwrap());
        writer.finish().unwrap().complete().unwrap();
        assert!(std::fs::read(file.path()).unwrap() == bytes);
    }
}
