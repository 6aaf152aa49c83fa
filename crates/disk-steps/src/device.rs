// SPDX-License-Identifier: Apache-2.0
//! A disk, a partition, or a file in place of one: reads, writes and zeroing with errors that name the
//! position.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::syscalls;

/// Alignment of buffers for `O_DIRECT`: the largest sector size.
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

/// A device operation failed.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Opening failed.
    #[error("{} cannot be opened{}", device.display(), open_advice(source))]
    Open {
        /// Path of the device.
        device: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// Reading failed.
    #[error(
        "{} cannot be read at byte {offset}: check the kernel log and the disk's health, or choose another disk",
        device.display()
    )]
    Read {
        /// Path of the device.
        device: PathBuf,
        /// Byte offset.
        offset: u64,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// Writing failed.
    #[error(
        "{} cannot be written at byte {offset}: check the kernel log and the disk's health, or choose another disk",
        device.display()
    )]
    Write {
        /// Path of the device.
        device: PathBuf,
        /// Byte offset.
        offset: u64,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The kernel did not reread the partition table.
    #[error(
        "the kernel cannot reread the partition table of {}: a partition is in use",
        device.display()
    )]
    RereadPartitions {
        /// Path of the device.
        device: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The device file of a partition did not appear.
    #[error(
        "{} did not appear, though it is in the partition table: check the kernel log",
        device.display()
    )]
    PartitionMissing {
        /// Path of the partition.
        device: PathBuf,
    },
}

impl Device {
    /// Opens a device read-only.
    pub(crate) fn read_only(path: &Path) -> Result<Self, DeviceError> {
        Self::open(path, OpenOptions::new().read(true))
    }

    /// Opens a device read-write.
    pub(crate) fn writable(path: &Path) -> Result<Self, DeviceError> {
        Self::open(path, OpenOptions::new().read(true).write(true))
    }

    /// Opens a device read-write; fails if it or one of its partitions is in use.
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

    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the logical sector size in bytes.
    pub(crate) fn sector(&self) -> u64 {
        u64::from(self.sector)
    }

    /// Whether it is a block device rather than a regular file.
    pub(crate) fn is_block(&self) -> bool {
        self.is_block
    }

    /// Returns the open file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Opens another descriptor with `O_DIRECT`; `None` if that is not possible.
    pub(crate) fn direct(&self) -> Option<File> {
        if !self.is_block {
            return None;
        }
        OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&self.path).ok()
    }

    /// Reads bytes; those beyond the end are zero.
    pub(crate) fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; length];
        let available = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let available = available.min(length);
        self.file
            .read_exact_at(&mut bytes[..available], offset)
            .map_err(|source| DeviceError::Read { device: self.path.clone(), offset, source })?;
        Ok(bytes)
    }

    /// Writes bytes.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.file.write_all_at(bytes, offset).map_err(|source| self.write_error(offset, source))
    }

    /// Zeroes a range; the part beyond the end is ignored.
    pub(crate) fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        let length = length.min(self.size.saturating_sub(offset));
        if length == 0 {
            return Ok(());
        }
        let aligned = (offset | length).is_multiple_of(self.sector());
        if self.is_block && aligned && syscalls::zero_out(self.file.as_fd(), offset, length).is_ok()
        {
            return Ok(());
        }
        let (mut position, end) = (offset, offset + length);
        while position < end {
            let length =
                usize::try_from(end - position).map_or(ZEROES.len(), |left| left.min(ZEROES.len()));
            self.write(position, &ZEROES[..length])?;
            position += length as u64;
        }
        Ok(())
    }

    /// Waits until all writes are on the medium.
    pub(crate) fn sync(&self) -> Result<(), DeviceError> {
        let synced = self.file.sync_all().map_err(|source| self.write_error(0, source));
        if self.is_block {
            // Cached pages are stale after O_DIRECT writes.
            let _ = syscalls::flush_buffers(self.file.as_fd());
        }
        synced
    }

    /// Makes the kernel reread the partition table. Does nothing for a regular file.
    pub(crate) fn reread_partitions(&self) -> Result<(), DeviceError> {
        if !self.is_block {
            return Ok(());
        }
        // blkid or udev may hold a changed disk open for a short time.
        let mut attempts = 0;
        loop {
            match syscalls::reread_partitions(self.file.as_fd()) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && attempts < 20 => {
                    attempts += 1;
                    std::thread::sleep(Duration::from_millis(100));
                }
                // Partitions, and loop devices without partition support, have no table.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
                Err(source) => {
                    return Err(DeviceError::RereadPartitions {
                        device: self.path.clone(),
                        source,
                    });
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Registers one new partition with the kernel, which works while others are in use.
    pub(crate) fn add_partition(
        &self,
        number: u32,
        (start, length): (u64, u64),
    ) -> Result<(), DeviceError> {
        if !self.is_block {
            return Ok(());
        }
        syscalls::add_partition(self.file.as_fd(), number, start, length)
            .map_err(|source| DeviceError::RereadPartitions { device: self.path.clone(), source })
    }

    pub(crate) fn write_error(&self, offset: u64, source: io::Error) -> DeviceError {
        DeviceError::Write { device: self.path.clone(), offset, source }
    }
}

/// A zeroed buffer aligned for `O_DIRECT`.
pub(crate) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// Allocates a buffer.
    pub(crate) fn new(length: usize) -> Self {
        let memory = vec![0; length + ALIGNMENT];
        let start = memory.as_ptr().addr().next_multiple_of(ALIGNMENT) - memory.as_ptr().addr();
        Self { memory, start, length }
    }

    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    /// Returns the bytes for writing.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

/// Returns the device file of a partition: `p` separates the number from a name that ends in a digit.
#[must_use]
pub fn partition_path(disk: &Path, number: u32) -> PathBuf {
    let name = disk.to_string_lossy();
    // Links under /dev/disk have the suffix `-part1`.
    if name.starts_with("/dev/disk/by-") {
        return PathBuf::from(format!("{name}-part{number}"));
    }
    let separator = if name.ends_with(|last: char| last.is_ascii_digit()) { "p" } else { "" };
    PathBuf::from(format!("{name}{separator}{number}"))
}

/// Waits for the device file of a partition, at most 15 seconds.
pub(crate) fn wait_for_device(partition: &Path) -> Result<(), DeviceError> {
    for _ in 0..150 {
        if partition.exists() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(DeviceError::PartitionMissing { device: partition.to_owned() })
}

/// Whether all bytes are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(ZEROES.len()).all(|length| length == &ZEROES[..length.len()])
}

fn open_advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EBUSY) => {
            ": it is in use (mounted, or part of an array); free it, or choose another disk"
        }
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => {
            ": it is missing; check cables and the kernel log"
        }
        Some(libc::EROFS | libc::EACCES | libc::EPERM) => ": it is write-protected",
        Some(_) | None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn composes_partition_paths() {
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
    fn aligns_buffers_and_zeroes_ranges() {
        let buffer = AlignedBuffer::new(10_000);
        assert!(buffer.bytes().as_ptr().addr().is_multiple_of(ALIGNMENT));
        assert_eq!(buffer.bytes().len(), 10_000);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![7; 200_001]).unwrap();
        let device = Device::writable(file.path()).unwrap();
        device.zero(3, 150_000).unwrap();
        let bytes = device.read(0, 200_001).unwrap();
        assert!(is_zero(&bytes[3..150_003]) && bytes[2] == 7 && bytes[150_003] == 7);
        // Zeroing does not extend the file.
        device.zero(200_000, 1_000_000).unwrap();
        assert_eq!(std::fs::metadata(file.path()).unwrap().len(), 200_001);
    }
}
