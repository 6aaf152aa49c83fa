// SPDX-License-Identifier: Apache-2.0
//! Writes to a disk on a separate thread, in large aligned blocks with `O_DIRECT`, so that the next
//! block is filled while one is written.
//!
//! The beginning of the disk is zeroed first and written last, by [`UncommittedImage::commit`], which is
//! called only after the image was verified. A failure before that, even a power failure, leaves a disk
//! that does not boot.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use crate::device::{AlignedBuffer, Device, DeviceError, is_zero};

/// Bytes per write.
pub(super) const BLOCK_SIZE: usize = 1 << 20;
/// Blocks in flight.
const BLOCK_COUNT: usize = 4;

/// Bytes of the beginning of the disk that are held back.
const HELD_BACK: u64 = 1 << 20;

/// Queue of writes to a disk.
pub(super) struct DiskWriter {
    jobs: SyncSender<DiskWriteJob>,
    spare: Receiver<AlignedBuffer>,
    thread: JoinHandle<Result<UncommittedImage, DeviceError>>,
    /// Block being filled, its disk offset and its fill level.
    block: Option<AlignedBuffer>,
    offset: u64,
    filled: usize,
}

/// The disk failed; [`DiskWriter::finish`] returns the error.
#[derive(Debug)]
pub(super) struct WriterFailed;

/// A disk with the whole image except its beginning, so that it does not boot.
pub(super) struct UncommittedImage {
    device: Device,
    /// The bytes held back; empty until the first write.
    beginning: Vec<u8>,
}

enum DiskWriteJob {
    Write { offset: u64, block: AlignedBuffer, filled: usize },
    Zero { offset: u64, length: u64 },
}

impl DiskWriter {
    /// Starts the thread that writes to `device`.
    pub(super) fn start(device: Device) -> Self {
        let (jobs, queue) = sync_channel(BLOCK_COUNT);
        let (recycled, spare) = channel();
        for _ in 0..BLOCK_COUNT {
            recycled.send(AlignedBuffer::new(BLOCK_SIZE)).expect("the receiver is right here");
        }
        let thread = std::thread::spawn(move || write_all(device, &queue, &recycled));
        Self { jobs, spare, thread, block: None, offset: 0, filled: 0 }
    }

    /// Writes what `fill` puts into the next block. Returns the number of bytes.
    pub(super) fn write_filled<E>(
        &mut self,
        offset: u64,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Result<usize, E>, WriterFailed> {
        self.flush()?;
        let mut block = self.spare.recv().map_err(|_| WriterFailed)?;
        let filled = match fill(block.bytes_mut()) {
            Ok(filled) => filled,
            Err(error) => return Ok(Err(error)),
        };
        if filled > 0 {
            self.jobs
                .send(DiskWriteJob::Write { offset, block, filled })
                .map_err(|_| WriterFailed)?;
        }
        Ok(Ok(filled))
    }

    /// Writes bytes; adjacent writes are merged into one block.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WriterFailed> {
        if offset != self.offset + self.filled as u64 {
            self.flush()?;
        }
        let (mut offset, mut bytes) = (offset, bytes);
        while !bytes.is_empty() {
            if self.block.is_none() {
                self.block = Some(self.spare.recv().map_err(|_| WriterFailed)?);
                (self.offset, self.filled) = (offset, 0);
            }
            let block = self.block.as_mut().expect("set above");
            let count = bytes.len().min(BLOCK_SIZE - self.filled);
            block.bytes_mut()[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
            self.filled += count;
            offset += count as u64;
            bytes = &bytes[count..];
            if self.filled == BLOCK_SIZE {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Zeroes a range.
    pub(super) fn zero(&mut self, offset: u64, length: u64) -> Result<(), WriterFailed> {
        self.jobs.send(DiskWriteJob::Zero { offset, length }).map_err(|_| WriterFailed)
    }

    fn flush(&mut self) -> Result<(), WriterFailed> {
        let Some(block) = self.block.take() else { return Ok(()) };
        let job = DiskWriteJob::Write { offset: self.offset, block, filled: self.filled };
        (self.offset, self.filled) = (self.offset + self.filled as u64, 0);
        self.jobs.send(job).map_err(|_| WriterFailed)
    }

    /// Waits until everything except the beginning is on the medium.
    pub(super) fn finish(mut self) -> Result<UncommittedImage, DeviceError> {
        // A disk error is returned by the thread.
        let _ = self.flush();
        drop(self.jobs);
        let written =
            self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        written.device.sync()?;
        Ok(written)
    }
}

impl UncommittedImage {
    /// Writes the beginning, which makes the disk bootable.
    pub(super) fn commit(self) -> Result<Device, DeviceError> {
        self.device.write(0, &self.beginning)?;
        self.device.sync()?;
        Ok(self.device)
    }

    /// Before the first write, wipes both ends of the disk so that it does not boot.
    fn invalidate(&mut self) -> Result<(), DeviceError> {
        if !self.beginning.is_empty() {
            return Ok(());
        }
        let device = &self.device;
        device.zero(0, HELD_BACK)?;
        device.zero(device.size().saturating_sub(HELD_BACK), HELD_BACK)?;
        device.sync()?;
        let held = usize::try_from(HELD_BACK.min(device.size())).expect("a megabyte");
        self.beginning = vec![0; held];
        Ok(())
    }

    /// Stores the part of a write that belongs to the beginning. Returns its length.
    fn hold_back(&mut self, offset: u64, bytes: &[u8]) -> usize {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(self.beginning.len());
        let count = bytes.len().min(self.beginning.len() - offset);
        self.beginning[offset..offset + count].copy_from_slice(&bytes[..count]);
        count
    }
}

fn write_all(
    device: Device,
    queue: &Receiver<DiskWriteJob>,
    recycled: &Sender<AlignedBuffer>,
) -> Result<UncommittedImage, DeviceError> {
    let mut direct = device.direct();
    let mut written = UncommittedImage { device, beginning: Vec::new() };
    while let Ok(job) = queue.recv() {
        written.invalidate()?;
        let device = &written.device;
        match job {
            // The beginning is already zero, and zeroes are queued before data.
            DiskWriteJob::Zero { offset, length } => device.zero(offset, length)?,
            DiskWriteJob::Write { offset, mut block, filled } => {
                if offset >= HELD_BACK {
                    write_block(device, &mut direct, offset, &mut block, filled)?;
                } else {
                    let held = written.hold_back(offset, &block.bytes()[..filled]);
                    written.device.write(offset + held as u64, &block.bytes()[held..filled])?;
                }
                // Fails only if the `DiskWriter` was dropped.
                let _ = recycled.send(block);
            }
        }
    }
    Ok(written)
}

fn write_block(
    device: &Device,
    direct: &mut Option<File>,
    offset: u64,
    block: &mut AlignedBuffer,
    filled: usize,
) -> Result<(), DeviceError> {
    if filled == BLOCK_SIZE && is_zero(block.bytes()) {
        return device.zero(offset, BLOCK_SIZE as u64);
    }
    // The last sector of an image may be partial; the rest of the sector is padding.
    let sector = usize::try_from(device.sector()).expect("a sector is small");
    let aligned = filled.next_multiple_of(sector);
    if let Some(file) = direct.as_ref().filter(|_| offset.is_multiple_of(device.sector())) {
        block.bytes_mut()[filled..aligned].fill(0);
        match file.write_all_at(&block.bytes()[..aligned], offset) {
            Ok(()) => return Ok(()),
            // Some device drivers reject O_DIRECT only at the first write.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err(device.write_error(offset, error)),
        }
        *direct = None;
    }
    device.write(offset, &block.bytes()[..filled])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_the_beginning_last() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![0xa5; 8 << 20]).unwrap();
        let mut writer = DiskWriter::start(Device::exclusive(file.path()).unwrap());
        let content = vec![7; (3 << 20) + 100];
        writer.write(512 << 10, &content).unwrap();
        writer.write(0, &[1; 1000]).unwrap();
        let written = writer.finish().unwrap();
        // A failure from here on leaves a disk that does not boot.
        let bytes = std::fs::read(file.path()).unwrap();
        assert!(bytes[..1 << 20].iter().all(|byte| *byte == 0), "the beginning is held back");
        assert!(bytes[7 << 20..].iter().all(|byte| *byte == 0), "the old backup table is wiped");
        assert!(bytes[1 << 20..(7 << 19) + 100].iter().all(|byte| *byte == 7));
        written.commit().unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        assert!(bytes[..1000].iter().all(|byte| *byte == 1));
        assert!(bytes[1000..512 << 10].iter().all(|byte| *byte == 0));
        assert!(bytes[512 << 10..(7 << 19) + 100] == content[..]);
        assert!(bytes[(7 << 19) + 100..7 << 20].iter().all(|byte| *byte == 0xa5));
        // Without writes the disk is unchanged.
        let writer = DiskWriter::start(Device::exclusive(file.path()).unwrap());
        writer.finish().unwrap().commit().unwrap();
        assert!(std::fs::read(file.path()).unwrap() == bytes);
    }
}
