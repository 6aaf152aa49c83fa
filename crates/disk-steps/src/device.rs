// SPDX-License-Identifier: Apache-2.0
//! A disk, a partition, or a file that stands in for one: reading, writing and zeroing with errors
//! that say where.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::kernel;

/// Memory for direct writes begins at a multiple of this, the largest sector there is.
pub(crate) const ALIGNMENT: usize = 4096;

static ZEROES: [u8; 64 * 1024] = [0; 64 * 1024];

/// An open block device, or a file in its place.
#[derive(Debug)]
pub(crate) struct Device {
    path: PathBuf,
    file: File,
    size: u64,
    sector: u32,
    is_block: bool,
}

/// What a device did not do.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// It cannot be opened.
    #[error("{} cannot be opened{}", device.display(), advice(source))]
    Open {
        /// Which.
        device: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Reading failed.
    #[error(
        "{} cannot be read at byte {offset}: look at the kernel's log and the disk's health, or choose another disk",
        device.display()
    )]
    Read {
        /// Which.
        device: PathBuf,
        /// Where.
        offset: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Writing failed.
    #[error(
        "{} cannot be written at byte {offset}: look at the kernel's log and the disk's health, or choose another disk",
        device.display()
    )]
    Write {
        /// Which.
        device: PathBuf,
        /// Where.
        offset: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel does not take the new partition table.
    #[error(
        "the kernel does not read the partition table of {} again: something on it is in use",
        device.display()
    )]
    Partitions {
        /// Which.
        device: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A partition does not appear.
    #[error(
        "{} does not appear, though it is in the partition table: check the kernel's log",
        device.display()
    )]
    NoPartition {
        /// Which.
        device: PathBuf,
    },
}

impl Device {
    /// Opens for reading only.
    pub(crate) fn read_only(path: &Path) -> Result<Self, DeviceError> {
        Self::open(path, OpenOptions::new().read(true))
    }

    /// Opens for writing.
    pub(crate) fn writable(path: &Path) -> Result<Self, DeviceError> {
        Self::open(path, OpenOptions::new().read(true).write(true))
    }

    /// Opens for writing, unless something on it is in use.
    pub(crate) fn exclusive(path: &Path) -> Result<Self, DeviceError> {
        const EXCLUSIVE: i32 = libc::O_EXCL;
        Self::open(path, OpenOptions::new().read(true).write(true).custom_flags(EXCLUSIVE))
    }

    fn open(path: &Path, options: &OpenOptions) -> Result<Self, DeviceError> {
        let failed = |source| DeviceError::Open { device: path.to_owned(), source };
        let mut file = options.open(path).map_err(failed)?;
        let is_block = file.metadata().map_err(failed)?.file_type().is_block_device();
        let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
        let sector = match is_block {
            true => rustix::fs::ioctl_blksszget(&file).map_err(|error| failed(error.into()))?,
            false => 512,
        };
        Ok(Self { path: path.to_owned(), file, size, sector, is_block })
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of a sector as it is addressed.
    pub(crate) fn sector(&self) -> u64 {
        u64::from(self.sector)
    }

    /// Whether it is a block device and not a file in place of one.
    pub(crate) fn is_block(&self) -> bool {
        self.is_block
    }

    /// The open file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Another descriptor that writes past the page cache, where that is possible.
    pub(crate) fn direct(&self) -> Option<File> {
        if !self.is_block {
            return None;
        }
        OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&self.path).ok()
    }

    /// Reads; what lies beyond the end is zeroes.
    pub(crate) fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; length];
        let there = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let there = there.min(length);
        self.file
            .read_exact_at(&mut bytes[..there], offset)
            .map_err(|source| DeviceError::Read { device: self.path.clone(), offset, source })?;
        Ok(bytes)
    }

    /// Writes.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.file.write_all_at(bytes, offset).map_err(|source| self.write_error(offset, source))
    }

    /// Makes a range read as zeroes, whatever was there.
    pub(crate) fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        let length = length.min(self.size.saturating_sub(offset));
        if length == 0 {
            return Ok(());
        }
        let aligned = (offset | length).is_multiple_of(self.sector());
        if self.is_block && aligned && kernel::zero_out(self.file.as_fd(), offset, length).is_ok() {
            return Ok(());
        }
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let piece =
                usize::try_from(end - at).map_or(ZEROES.len(), |left| left.min(ZEROES.len()));
            self.write(at, &ZEROES[..piece])?;
            at += piece as u64;
        }
        Ok(())
    }

    /// Waits until everything written is on the medium.
    pub(crate) fn sync(&self) -> Result<(), DeviceError> {
        let synced = self.file.sync_all().map_err(|source| self.write_error(0, source));
        if self.is_block {
            // What was read before direct writes is of no use any more.
            let _ = kernel::flush_buffers(self.file.as_fd());
        }
        synced
    }

    /// Makes the kernel read the partition table again. A file has none.
    pub(crate) fn reread_partitions(&self) -> Result<(), DeviceError> {
        if !self.is_block {
            return Ok(());
        }
        // Whatever looks at new disks (blkid, udev) may hold the device for a moment.
        let mut tries = 0;
        loop {
            match kernel::reread_partitions(self.file.as_fd()) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && tries < 20 => {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(100));
                }
                // Loop devices without partitions, and partitions themselves, have no table.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
                Err(source) => {
                    return Err(DeviceError::Partitions { device: self.path.clone(), source });
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Tells the kernel of one new partition, also while others are in use.
    pub(crate) fn add_partition(
        &self,
        number: u32,
        (start, length): (u64, u64),
    ) -> Result<(), DeviceError> {
        if !self.is_block {
            return Ok(());
        }
        kernel::add_partition(self.file.as_fd(), number, start, length)
            .map_err(|source| DeviceError::Partitions { device: self.path.clone(), source })
    }

    pub(crate) fn write_error(&self, offset: u64, source: io::Error) -> DeviceError {
        DeviceError::Write { device: self.path.clone(), offset, source }
    }
}

/// Memory for direct writes.
pub(crate) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// So many bytes, all zero.
    pub(crate) fn new(length: usize) -> Self {
        let memory = vec![0; length + ALIGNMENT];
        let start = memory.as_ptr().addr().next_multiple_of(ALIGNMENT) - memory.as_ptr().addr();
        Self { memory, start, length }
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    /// The bytes, to be changed.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

/// The device file of a disk's partition: names that end in a digit get a `p` in between.
#[must_use]
pub fn partition_path(disk: &Path, number: u32) -> PathBuf {
    let name = disk.to_string_lossy();
    // Links under /dev/disk have a way of their own.
    if name.starts_with("/dev/disk/by-") {
        return PathBuf::from(format!("{name}-part{number}"));
    }
    let between = if name.ends_with(|last: char| last.is_ascii_digit()) { "p" } else { "" };
    PathBuf::from(format!("{name}{between}{number}"))
}

/// Waits until the device file of a partition is there, for some seconds at most.
pub(crate) fn wait_for(partition: &Path) -> Result<(), DeviceError> {
    for _ in 0..150 {
        if partition.exists() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(DeviceError::NoPartition { device: partition.to_owned() })
}

/// Whether all bytes are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(ZEROES.len()).all(|piece| piece == &ZEROES[..piece.len()])
}

fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EBUSY) => {
            ": it is in use (mounted, or part of an array); free it, or choose another disk"
        }
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => {
            ": it is not there any more; check cables and the kernel's log"
        }
        Some(libc::EROFS | libc::EACCES | libc::EPERM) => ": it is write-protected",
        Some(_) | None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_have_their_names() {
        let cases = [
            ("/dev/sda", "/dev/sda1"),
            ("/dev/nvme0n1", "/dev/nvme0n1p1"),
            ("/dev/md127", "/dev/md127p1"),
            ("/dev/loop0", "/dev/loop0p1"),
            ("/dev/disk/by-path/pci-1", "/dev/disk/by-path/pci-1-part1"),
        ];
        for (disk, partition) in cases {
            assert_eq!(partition_path(Path::new(disk), 1), Path::new(partition));
        }
    }

    #[test]
    fn buffers_are_aligned_and_zeroing_is_whole() {
        let buffer = AlignedBuffer::new(10_000);
        assert!(buffer.bytes().as_ptr().addr().is_multiple_of(ALIGNMENT));
        assert_eq!(buffer.bytes().len(), 10_000);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![7; 200_001]).unwrap();
        let device = Device::writable(file.path()).unwrap();
        device.zero(3, 150_000).unwrap();
        let bytes = device.read(0, 200_001).unwrap();
        assert!(is_zero(&bytes[3..150_003]) && bytes[2] == 7 && bytes[150_003] == 7);
        // Beyond the end there is nothing to zero.
        device.zero(200_000, 1_000_000).unwrap();
        assert_eq!(std::fs::metadata(file.path()).unwrap().len(), 200_001);
    }
}
