// SPDX-License-Identifier: Apache-2.0
//! Reads the disk in a qcow2 image from start to end.
//!
//! One table and one run of clusters, of up to 2 MiB each, are in memory at a time, whatever the size of
//! the disk. Adjacent clusters are read at once. Unallocated clusters are not written.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use flate2::{Decompress, FlushDecompress, Status};
use ruzstd::decoding::FrameDecoder;

use super::{Qcow2Error, Qcow2Header};
use crate::sink::{ImageSink, SinkError};

/// Bytes at the start of the image that contain the header and its extensions.
const HEAD_BYTES: u64 = 64 * 1024;

/// Maximum number of bytes per read.
const MAX_RUN_BYTES: u64 = 2 << 20;

/// The bits of an L1 or L2 entry with the offset, and the flags of an L2 entry.
const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;
const ALL_ZEROES: u64 = 1;

/// Why a disk cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Qcow2ConvertError {
    #[error(transparent)]
    Image(#[from] Qcow2Error),
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// Writes the disk in the qcow2 image `file` to `sink`, if it has at most `limit` bytes.
pub(crate) fn convert(
    file: &File,
    limit: u64,
    sink: &mut ImageSink,
) -> Result<(), Qcow2ConvertError> {
    let length = file.metadata().map_err(Qcow2Error::Read)?.len();
    let mut head = vec![0; usize::try_from(length.min(HEAD_BYTES)).expect("at most 64 KiB")];
    file.read_exact_at(&mut head, 0).map_err(Qcow2Error::Read)?;
    let header = Qcow2Header::parse(&head, limit)?;
    Qcow2Reader::new(file, length, header).run(sink)
}

struct Qcow2Reader<'a> {
    file: &'a File,
    file_length: u64,
    header: Qcow2Header,
    /// The size of a cluster.
    cluster_size: u64,
    /// Clusters that were read.
    run: Vec<u8>,
    /// A compressed cluster.
    compressed: Vec<u8>,
    decompressor: ClusterDecompressor,
}

/// Unpacks compressed clusters.
pub struct ClusterDecompressor {
    inflate: Decompress,
    zstd: FrameDecoder,
    is_zstd: bool,
}

/// The location of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qcow2Cluster {
    /// Unallocated: reads as zeroes.
    Zeroes,
    /// The offset of the bytes.
    Data(u64),
    /// Compressed bytes.
    Compressed {
        /// The offset.
        offset: u64,
        /// The maximum number of bytes.
        length: u64,
    },
}

impl Qcow2Header {
    /// Returns the offset of the L2 table of an L1 entry; `None` if its range is all zeroes.
    pub fn l2_table_offset(&self, l1_entry: u64) -> Option<u64> {
        Some(l1_entry & OFFSET_MASK).filter(|offset| *offset != 0)
    }

    /// Parses an L2 entry.
    pub fn cluster(&self, l2_entry: u64) -> Result<Qcow2Cluster, Qcow2Error> {
        if l2_entry & COMPRESSED != 0 {
            // The low bits are the offset; the bits between them and the flags the length in sectors.
            let length_bits = self.cluster_bits - 8;
            let offset_bits = 62 - length_bits;
            let offset = l2_entry & ((1 << offset_bits) - 1);
            let sectors = (l2_entry >> offset_bits & ((1 << length_bits) - 1)) + 1;
            return Ok(Qcow2Cluster::Compressed { offset, length: sectors * 512 - offset % 512 });
        }
        if l2_entry & ALL_ZEROES != 0 && self.version >= 3 {
            return Ok(Qcow2Cluster::Zeroes);
        }
        match l2_entry & OFFSET_MASK {
            0 => Ok(Qcow2Cluster::Zeroes),
            offset if offset % (1 << self.cluster_bits) == 0 => Ok(Qcow2Cluster::Data(offset)),
            _ => Err(Qcow2Error::Damaged { what: "a cluster is out of line" }),
        }
    }
}

impl ClusterDecompressor {
    /// Returns a decompressor for the clusters of an image with this header.
    pub fn new(header: &Qcow2Header) -> Self {
        let mut zstd = FrameDecoder::new();
        // The window of a frame is at most one cluster.
        zstd.set_max_window_size(8 << 20);
        Self { inflate: Decompress::new(false), zstd, is_zstd: header.zstd }
    }

    /// Decompresses one cluster, which must fill `output`.
    pub fn decompress(&mut self, packed: &[u8], output: &mut [u8]) -> Result<(), Qcow2Error> {
        let damaged = || Qcow2Error::Damaged { what: "a compressed cluster makes no sense" };
        if self.is_zstd {
            let mut input = packed;
            return decompress_zstd(&mut self.zstd, &mut input, output).map_err(|_| damaged());
        }
        self.inflate.reset(false);
        let status = self.inflate.decompress(packed, output, FlushDecompress::Finish);
        let full = self.inflate.total_out() == output.len() as u64;
        match status {
            Ok(Status::StreamEnd | Status::Ok | Status::BufError) if full => Ok(()),
            Ok(_) | Err(_) => Err(damaged()),
        }
    }
}

impl<'a> Qcow2Reader<'a> {
    fn new(file: &'a File, file_length: u64, header: Qcow2Header) -> Self {
        Self {
            file,
            file_length,
            cluster_size: 1 << header.cluster_bits,
            run: Vec::new(),
            compressed: Vec::new(),
            decompressor: ClusterDecompressor::new(&header),
            header,
        }
    }

    fn run(mut self, sink: &mut ImageSink) -> Result<(), Qcow2ConvertError> {
        let l2_entries = self.cluster_size / 8;
        let mut left = self.header.virtual_size;
        let mut l2 = vec![0; usize::try_from(self.cluster_size).expect("at most 2 MiB")];
        let needed = left.div_ceil(l2_entries * self.cluster_size);
        let mut l1 = vec![0; usize::try_from(needed * 8).expect("the header bounds it")];
        self.read_table(self.header.l1_offset, &mut l1)?;
        let mut holes = 0;
        for entry in entries(&l1) {
            let offset = entry & OFFSET_MASK;
            let covered = left.min(l2_entries * self.cluster_size);
            left -= covered;
            if offset == 0 {
                holes += covered;
                continue;
            }
            sink.write_zeroes(std::mem::take(&mut holes))?;
            self.read_table(offset, &mut l2)?;
            self.clusters(&l2, covered, sink)?;
        }
        Ok(sink.write_zeroes(holes)?)
    }

    /// Writes the `covered` bytes of this L2 table.
    fn clusters(
        &mut self,
        l2: &[u8],
        covered: u64,
        sink: &mut ImageSink,
    ) -> Result<(), Qcow2ConvertError> {
        let mut left = covered;
        let mut clusters = entries(l2)
            .take(usize::try_from(covered.div_ceil(self.cluster_size)).unwrap_or(0))
            .peekable();
        while let Some(entry) = clusters.next() {
            let cluster = self.header.cluster(entry)?;
            let mut length = self.cluster_size;
            // Adjacent clusters are part of the same run.
            while length < MAX_RUN_BYTES
                && let Some(&next) = clusters.peek()
                && self.continues(cluster, length, next)?
            {
                length += self.cluster_size;
                clusters.next();
            }
            // The disk may end within its last cluster.
            let length = length.min(left);
            left -= length;
            match cluster {
                Qcow2Cluster::Zeroes => sink.write_zeroes(length)?,
                Qcow2Cluster::Data(offset) => {
                    self.read_run(offset, length)?;
                    sink.write(&self.run)?;
                }
                Qcow2Cluster::Compressed { offset, length: packed } => {
                    self.decompress_cluster(offset, packed)?;
                    sink.write(&self.run[..usize::try_from(length).expect("one cluster")])?;
                }
            }
        }
        Ok(())
    }

    fn continues(&self, cluster: Qcow2Cluster, length: u64, next: u64) -> Result<bool, Qcow2Error> {
        let next = self.header.cluster(next)?;
        Ok(match cluster {
            Qcow2Cluster::Zeroes => next == Qcow2Cluster::Zeroes,
            Qcow2Cluster::Data(offset) => next == Qcow2Cluster::Data(offset + length),
            Qcow2Cluster::Compressed { .. } => false,
        })
    }

    fn read_table(&self, offset: u64, table: &mut [u8]) -> Result<(), Qcow2Error> {
        let end = offset.checked_add(table.len() as u64);
        if end.is_none_or(|end| end > self.file_length) {
            return Err(Qcow2Error::Damaged { what: "a table lies beyond its end" });
        }
        self.file.read_exact_at(table, offset).map_err(Qcow2Error::Read)
    }

    /// Reads clusters into `run`. A truncated last cluster is filled with zeroes.
    fn read_run(&mut self, offset: u64, length: u64) -> Result<(), Qcow2Error> {
        let there = self.file_length.saturating_sub(offset).min(length);
        if length - there >= self.cluster_size {
            return Err(Qcow2Error::Damaged { what: "a cluster lies beyond its end" });
        }
        let size = |bytes: u64| usize::try_from(bytes).expect("at most a run");
        self.run.clear();
        self.run.resize(size(length), 0);
        self.file.read_exact_at(&mut self.run[..size(there)], offset).map_err(Qcow2Error::Read)
    }

    /// Unpacks one cluster into `run`.
    fn decompress_cluster(&mut self, offset: u64, length: u64) -> Result<(), Qcow2Error> {
        let damaged = || Qcow2Error::Damaged { what: "a compressed cluster makes no sense" };
        // The length is in whole sectors and may point past the end.
        let there = self.file_length.saturating_sub(offset).min(length);
        self.compressed.resize(usize::try_from(there).map_err(|_| damaged())?, 0);
        self.file.read_exact_at(&mut self.compressed, offset).map_err(Qcow2Error::Read)?;
        let size = usize::try_from(self.cluster_size).expect("at most 2 MiB");
        self.run.clear();
        self.run.resize(size, 0);
        self.decompressor.decompress(&self.compressed, &mut self.run)
    }
}

/// Decompresses one frame, which must fill `output`. The rest of the sector is ignored.
fn decompress_zstd(
    decoder: &mut FrameDecoder,
    input: &mut &[u8],
    output: &mut [u8],
) -> Result<(), io::Error> {
    use std::io::Read;

    use ruzstd::decoding::BlockDecodingStrategy;
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    decoder.reset(&mut *input).map_err(invalid)?;
    let mut filled = 0;
    while filled < output.len() {
        while decoder.can_collect() == 0 && !decoder.is_finished() {
            decoder
                .decode_blocks(&mut *input, BlockDecodingStrategy::UptoBlocks(1))
                .map_err(invalid)?;
        }
        match decoder.read(&mut output[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(())
}

fn entries(table: &[u8]) -> impl Iterator<Item = u64> {
    table
        .chunks_exact(8)
        .map(|entry| u64::from_be_bytes(entry.try_into().expect("chunks of eight bytes")))
}
