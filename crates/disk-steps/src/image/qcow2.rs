// SPDX-License-Identifier: Apache-2.0
//! Writes a qcow2 image to a disk in one pass over the downloaded file.
//!
//! The tables are fetched first by HTTP ranges, so that the content of each extent of the file is known.
//! Then the file is read once from start to end: its checksum is computed, its clusters are written to
//! their positions on the disk, and its tables are compared with those fetched before. Unallocated
//! clusters are zeroed. `images::qcow2` parses the header and decodes entries and compressed clusters;
//! its own converter needs random access and so does not fit a download.

use std::io::{self, Read};

use images::qcow2::{ClusterDecompressor, Qcow2Cluster, Qcow2Error, Qcow2Header};
use ring::digest::{Digest, SHA256, digest};

use super::stream::read_full;
use super::writer::{BLOCK_SIZE, DiskWriter, WriterFailed};

/// The header and its extensions are expected in this many bytes.
pub(super) const HEADER_LENGTH_LIMIT: usize = 64 * 1024;

/// Content of each extent of the file.
pub(super) struct Qcow2Map {
    header: Qcow2Header,
    /// Ordered by `file_offset`.
    extents: Vec<FileExtent>,
    /// Offset and length of zeroed disk ranges.
    zeroes: Vec<(u64, u64)>,
}

struct FileExtent {
    file_offset: u64,
    length: u64,
    content: ExtentContent,
}

enum ExtentContent {
    /// Uncompressed data for this disk offset.
    Data(u64),
    /// One compressed cluster for this disk offset.
    Compressed(u64),
    /// A table, with its digest.
    Table(Box<Digest>),
}

/// The image was not written.
#[derive(Debug)]
pub(super) enum Qcow2WriteError {
    Image(Qcow2Error),
    Download(io::Error),
    /// Reported by [`DiskWriter::finish`].
    Disk,
    /// A table differs from the one fetched by range.
    Changed,
}

impl From<Qcow2Error> for Qcow2WriteError {
    fn from(error: Qcow2Error) -> Self {
        Self::Image(error)
    }
}

impl From<WriterFailed> for Qcow2WriteError {
    fn from(WriterFailed: WriterFailed) -> Self {
        Self::Disk
    }
}

impl Qcow2Map {
    /// Reads the tables with `fetch`, which returns a range (offset and length) of the file.
    pub(super) fn read<E: From<Qcow2Error>>(
        header: Qcow2Header,
        fetch: &mut dyn FnMut(u64, u64) -> Result<Vec<u8>, E>,
    ) -> Result<Self, E> {
        let cluster_size = 1_u64 << header.cluster_bits;
        let covered_by_table = cluster_size / 8 * cluster_size;
        let table_count = header.virtual_size.div_ceil(covered_by_table);
        let mut map = Self { header, extents: Vec::new(), zeroes: Vec::new() };
        if table_count == 0 {
            return Ok(map);
        }
        let l1 = fetch(map.header.l1_offset, table_count * 8)?;
        map.add_table(map.header.l1_offset, &l1);
        let mut disk_offset = 0;
        for entry in entries(&l1) {
            let covered = covered_by_table.min(map.header.virtual_size - disk_offset);
            match map.header.l2_table_offset(entry) {
                None => map.add_zeroes(disk_offset, covered),
                Some(file_offset) => {
                    let l2 = fetch(file_offset, covered.div_ceil(cluster_size) * 8)?;
                    map.add_table(file_offset, &l2);
                    map.add_clusters(disk_offset, covered, &l2)?;
                }
            }
            disk_offset += covered;
        }
        map.extents.sort_by_key(|extent| extent.file_offset);
        Ok(map)
    }

    fn add_clusters(&mut self, start: u64, covered: u64, l2: &[u8]) -> Result<(), Qcow2Error> {
        let cluster_size = 1_u64 << self.header.cluster_bits;
        let end = start + covered;
        let disk_offsets = (start..end).step_by(1 << self.header.cluster_bits);
        for (entry, disk_offset) in entries(l2).zip(disk_offsets) {
            let length = cluster_size.min(end - disk_offset);
            match self.header.cluster(entry)? {
                Qcow2Cluster::Zeroes => self.add_zeroes(disk_offset, length),
                Qcow2Cluster::Data(file_offset) => self.add_data(file_offset, disk_offset, length),
                Qcow2Cluster::Compressed { offset, length } => {
                    let content = ExtentContent::Compressed(disk_offset);
                    self.extents.push(FileExtent { file_offset: offset, length, content });
                }
            }
        }
        Ok(())
    }

    fn add_table(&mut self, file_offset: u64, bytes: &[u8]) {
        let content = ExtentContent::Table(Box::new(digest(&SHA256, bytes)));
        self.extents.push(FileExtent { file_offset, length: bytes.len() as u64, content });
    }

    fn add_zeroes(&mut self, disk_offset: u64, length: u64) {
        match self.zeroes.last_mut() {
            Some((start, total)) if *start + *total == disk_offset => *total += length,
            Some(_) | None => self.zeroes.push((disk_offset, length)),
        }
    }

    /// Adds a cluster; merges it with the last extent if both are adjacent in the file and on the disk.
    fn add_data(&mut self, file_offset: u64, disk_offset: u64, length: u64) {
        if let Some(last) = self.extents.last_mut()
            && let ExtentContent::Data(start) = last.content
            && last.file_offset + last.length == file_offset
            && start + last.length == disk_offset
        {
            last.length += length;
            return;
        }
        let content = ExtentContent::Data(disk_offset);
        self.extents.push(FileExtent { file_offset, length, content });
    }

    /// Writes the disk from `file`, which is read from its first byte.
    pub(super) fn write_to_disk(
        &self,
        file: &mut dyn Read,
        disk: &mut DiskWriter,
    ) -> Result<(), Qcow2WriteError> {
        for &(offset, length) in &self.zeroes {
            disk.zero(offset, length)?;
        }
        let mut window = ForwardWindow { file, bytes: Vec::new(), start: 0, file_offset: 0 };
        let mut unpacker = ClusterDecompressor::new(&self.header);
        let mut cluster = vec![0; 1 << self.header.cluster_bits];
        for extent in &self.extents {
            match &extent.content {
                ExtentContent::Table(expected) => {
                    let bytes = window.get(extent.file_offset, extent.length)?;
                    if digest(&SHA256, bytes).as_ref() != expected.as_ref().as_ref() {
                        return Err(Qcow2WriteError::Changed);
                    }
                }
                ExtentContent::Compressed(disk_offset) => {
                    let compressed = window.get(extent.file_offset, extent.length)?;
                    unpacker.decompress(compressed, &mut cluster)?;
                    let remaining = self.header.virtual_size - disk_offset;
                    let length = usize::try_from(remaining)
                        .map_or(cluster.len(), |remaining| remaining.min(cluster.len()));
                    disk.write(*disk_offset, &cluster[..length])?;
                }
                ExtentContent::Data(disk_offset) => {
                    copy(&mut window, extent, *disk_offset, cluster.len() as u64, disk)?;
                }
            }
        }
        Ok(())
    }
}

/// Copies an extent of adjacent clusters. The last cluster of the file may be truncated; its rest is
/// zero.
fn copy(
    window: &mut ForwardWindow<'_>,
    extent: &FileExtent,
    disk_offset: u64,
    cluster_size: u64,
    disk: &mut DiskWriter,
) -> Result<(), Qcow2WriteError> {
    let mut done = 0;
    while done < extent.length {
        let length = (extent.length - done).min(BLOCK_SIZE as u64);
        let bytes = window.get(extent.file_offset + done, length)?;
        let missing = length - bytes.len() as u64;
        if missing >= cluster_size {
            return Err(Qcow2Error::Damaged { what: "a cluster lies beyond its end" }.into());
        }
        disk.write(disk_offset + done, bytes)?;
        if missing > 0 {
            let zeroes = vec![0; usize::try_from(missing).expect("less than a cluster")];
            disk.write(disk_offset + done + length - missing, &zeroes)?;
        }
        done += length;
    }
    Ok(())
}

/// A buffered view of the file that only moves forward.
struct ForwardWindow<'a> {
    file: &'a mut dyn Read,
    bytes: Vec<u8>,
    /// Start of the view in `bytes`.
    start: usize,
    /// File offset of the start of the view.
    file_offset: u64,
}

impl ForwardWindow<'_> {
    /// Returns a range of the file, truncated at the end of the file. Offsets must not decrease.
    fn get(&mut self, file_offset: u64, length: u64) -> Result<&[u8], Qcow2WriteError> {
        let length = usize::try_from(length)
            .map_err(|_| Qcow2Error::Damaged { what: "a part of it is impossibly long" })?;
        let Some(skipped) = file_offset.checked_sub(self.file_offset) else {
            return Err(Qcow2Error::Damaged { what: "parts of it overlap" }.into());
        };
        let buffered = (self.bytes.len() - self.start) as u64;
        if skipped >= buffered {
            self.bytes.clear();
            self.start = 0;
            io::copy(&mut (&mut *self.file).take(skipped - buffered), &mut io::sink())
                .map_err(Qcow2WriteError::Download)?;
        } else {
            self.start += usize::try_from(skipped).expect("less than what is buffered");
        }
        self.file_offset = file_offset;
        if self.bytes.len() - self.start < length {
            self.bytes.drain(..self.start);
            self.start = 0;
            let buffered = self.bytes.len();
            self.bytes.resize(length, 0);
            let read = read_full(self.file, &mut self.bytes[buffered..])
                .map_err(Qcow2WriteError::Download)?;
            self.bytes.truncate(buffered + read);
        }
        let end = self.bytes.len().min(self.start + length);
        Ok(&self.bytes[self.start..end])
    }
}

fn entries(table: &[u8]) -> impl Iterator<Item = u64> {
    table
        .chunks_exact(8)
        .map(|entry| u64::from_be_bytes(entry.try_into().expect("chunks of eight bytes")))
}
