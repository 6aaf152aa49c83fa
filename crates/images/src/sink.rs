// SPDX-License-Identifier: Apache-2.0
//! Writes an image to a sparse file, computes its digests, and limits and reserves its size.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use md5::Digest as _;
use ring::digest;

use crate::cache::SpaceReservation;
use crate::checksum::{Checksum, ChecksumAlgorithm};

/// Blocks of this size that contain only zeroes become holes. It is the block size of most file systems.
const BLOCK: usize = 4096;

/// Zeroes for the digests of holes.
static ZEROES: [u8; 64 * 1024] = [0; 64 * 1024];

/// Receives the bytes of an image in order.
pub(crate) struct ImageSink {
    file: File,
    reservation: SpaceReservation,
    position: u64,
    /// Bytes that were written and use disk space.
    written: u64,
    limit: u64,
    sha256: digest::Context,
    extra_digests: Vec<ExtraDigest>,
}

/// A second digest next to SHA-256.
enum ExtraDigest {
    Md5(md5::Md5),
    Sha512(digest::Context),
}

/// The result of writing to an [`ImageSink`].
pub(crate) struct SinkOutput {
    pub(crate) file: File,
    pub(crate) reservation: SpaceReservation,
    pub(crate) size: u64,
    pub(crate) sha256: [u8; 32],
    extra_checksums: Vec<Checksum>,
}

/// Why a sink rejects bytes.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The image exceeds the size limit.
    #[error(
        "it has more than the {limit} bytes allowed: raise images.largest_download, images.largest_disk or images.largest_expansion, or make a smaller image"
    )]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The cache is full of images that are in use.
    #[error(
        "no space for {wanted} more bytes in the image cache of {max_bytes} bytes, since the cached images are in use: raise images.cache_size"
    )]
    CacheFull {
        /// The number of bytes to reserve.
        wanted: u64,
        /// The size limit of the cache in bytes.
        max_bytes: u64,
    },
    /// A write failed, for example because the disk is full.
    #[error("it cannot be written to the image cache")]
    Write(#[source] io::Error),
}

impl ImageSink {
    /// Returns a sink that writes to an empty file and accepts at most `limit` bytes.
    pub(crate) fn new(
        file: File,
        room: SpaceReservation,
        limit: u64,
        checksums: &[ChecksumAlgorithm],
    ) -> Self {
        let also = checksums.iter().filter_map(|algorithm| ExtraDigest::new(*algorithm)).collect();
        let sha256 = digest::Context::new(&digest::SHA256);
        Self {
            file,
            reservation: room,
            position: 0,
            written: 0,
            limit,
            sha256,
            extra_digests: also,
        }
    }

    /// Reserves space for the announced number of bytes.
    pub(crate) fn reserve(&mut self, length: u64) -> Result<(), SinkError> {
        self.check(length)?;
        self.reservation.grow_to(length)
    }

    /// Writes the next bytes.
    pub(crate) fn write(&mut self, data: &[u8]) -> Result<(), SinkError> {
        self.check(data.len() as u64)?;
        self.digest(data);
        let mut start = 0;
        while start < data.len() {
            let run = next_run(&data[start..], self.position);
            if run.data > 0 {
                self.written += run.data as u64;
                self.reservation.grow_to(self.written)?;
                self.file
                    .write_all_at(&data[start..start + run.data], self.position)
                    .map_err(SinkError::Write)?;
            }
            let taken = run.data + run.zeroes;
            start += taken;
            self.position += taken as u64;
        }
        Ok(())
    }

    /// Writes this many zeroes, as a hole.
    pub(crate) fn write_zeroes(&mut self, count: u64) -> Result<(), SinkError> {
        self.check(count)?;
        let mut left = count;
        while left > 0 {
            let piece = left.min(ZEROES.len() as u64);
            self.digest(&ZEROES[..usize::try_from(piece).expect("no more than there are zeroes")]);
            left -= piece;
        }
        self.position += count;
        Ok(())
    }

    /// Discards all received bytes.
    pub(crate) fn restart(&mut self) -> Result<(), SinkError> {
        self.file.set_len(0).map_err(SinkError::Write)?;
        self.sha256 = digest::Context::new(&digest::SHA256);
        self.extra_digests = self
            .extra_digests
            .iter()
            .filter_map(|also| ExtraDigest::new(also.algorithm()))
            .collect();
        (self.position, self.written) = (0, 0);
        Ok(())
    }

    /// Returns the size and the digests. The file is not synced, because most files are converted next.
    pub(crate) fn finish(self) -> Result<SinkOutput, SinkError> {
        // Sets the length, since a hole at the end was not written.
        self.file.set_len(self.position).map_err(SinkError::Write)?;
        let sha256 = self.sha256.finish();
        let also = self.extra_digests.into_iter().map(ExtraDigest::finish).collect();
        Ok(SinkOutput {
            file: self.file,
            reservation: self.reservation,
            size: self.position,
            sha256: sha256.as_ref().try_into().expect("SHA-256 has 32 bytes"),
            extra_checksums: also,
        })
    }

    fn check(&self, more: u64) -> Result<(), SinkError> {
        match self.position.checked_add(more) {
            Some(size) if size <= self.limit => Ok(()),
            Some(_) | None => Err(SinkError::TooLarge { limit: self.limit }),
        }
    }

    fn digest(&mut self, data: &[u8]) {
        self.sha256.update(data);
        for also in &mut self.extra_digests {
            match also {
                ExtraDigest::Md5(context) => context.update(data),
                ExtraDigest::Sha512(context) => context.update(data),
            }
        }
    }
}

impl ExtraDigest {
    /// Returns the digest of this algorithm; `None` for SHA-256, which is always computed.
    fn new(algorithm: ChecksumAlgorithm) -> Option<Self> {
        match algorithm {
            ChecksumAlgorithm::Md5 => Some(Self::Md5(md5::Md5::new())),
            ChecksumAlgorithm::Sha512 => Some(Self::Sha512(digest::Context::new(&digest::SHA512))),
            ChecksumAlgorithm::Sha256 => None,
        }
    }

    fn algorithm(&self) -> ChecksumAlgorithm {
        match self {
            Self::Md5(_) => ChecksumAlgorithm::Md5,
            Self::Sha512(_) => ChecksumAlgorithm::Sha512,
        }
    }

    fn finish(self) -> Checksum {
        match self {
            Self::Md5(context) => {
                Checksum::new(ChecksumAlgorithm::Md5, context.finalize().to_vec())
            }
            Self::Sha512(context) => {
                Checksum::new(ChecksumAlgorithm::Sha512, context.finish().as_ref().to_vec())
            }
        }
    }
}

impl SinkOutput {
    /// Returns the checksum. SHA-256 is always available, others only if they were requested.
    pub(crate) fn checksum(&self, algorithm: ChecksumAlgorithm) -> Option<Checksum> {
        match algorithm {
            ChecksumAlgorithm::Sha256 => Some(Checksum::new(algorithm, self.sha256.to_vec())),
            ChecksumAlgorithm::Md5 | ChecksumAlgorithm::Sha512 => {
                self.extra_checksums.iter().find(|also| also.algorithm() == algorithm).cloned()
            }
        }
    }
}

/// Bytes to write, and the number of zeroes after them.
struct DataRun {
    data: usize,
    zeroes: usize,
}

/// Returns the first run of `data`, which starts at the offset `at`. Only whole blocks of the file become
/// holes.
fn next_run(data: &[u8], at: u64) -> DataRun {
    let offset = usize::try_from(at % BLOCK as u64).expect("less than a block");
    let mut written = ((BLOCK - offset) % BLOCK).min(data.len());
    loop {
        let Some(block) = data.get(written..written + BLOCK) else {
            return DataRun { data: data.len(), zeroes: 0 };
        };
        if is_zero(block) {
            break;
        }
        written += BLOCK;
    }
    let zero_blocks = data[written..].chunks_exact(BLOCK).take_while(|block| is_zero(block));
    DataRun { data: written, zeroes: zero_blocks.count() * BLOCK }
}

fn is_zero(block: &[u8]) -> bool {
    block == &ZEROES[..block.len()]
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::{ImageSink, SinkError};
    use crate::cache::SpaceReservation;
    use crate::checksum::ChecksumAlgorithm;

    fn sink(limit: u64, checksums: &[ChecksumAlgorithm]) -> ImageSink {
        ImageSink::new(
            tempfile::tempfile().unwrap(),
            SpaceReservation::unlimited(),
            limit,
            checksums,
        )
    }

    #[test]
    fn zeroes_become_holes_and_are_digested() {
        let mut content = vec![0; 1 << 20];
        content[100_000..100_010].fill(7);
        content[900_000] = 1;
        let mut sink = sink(1 << 20, &[ChecksumAlgorithm::Sha512]);
        for piece in content[..(1 << 19)].chunks(70_001) {
            sink.write(piece).unwrap();
        }
        sink.write(&content[1 << 19..]).unwrap();
        let taken = sink.finish().unwrap();
        assert_eq!(taken.size, 1 << 20);
        let whole = ring::digest::digest(&ring::digest::SHA256, &content);
        assert_eq!(taken.sha256, whole.as_ref());
        let whole = ring::digest::digest(&ring::digest::SHA512, &content);
        assert_eq!(taken.checksum(ChecksumAlgorithm::Sha512).unwrap().value(), whole.as_ref());
        assert!(taken.checksum(ChecksumAlgorithm::Md5).is_none());
        let mut read = vec![0; 1 << 20];
        std::os::unix::fs::FileExt::read_exact_at(&taken.file, &mut read, 0).unwrap();
        assert!(read == content);
        assert!(taken.file.metadata().unwrap().blocks() * 512 < 200_000);
    }

    #[test]
    fn writes_zeroes_and_restarts() {
        let mut sink = sink(10, &[ChecksumAlgorithm::Md5]);
        sink.write(b"wrong").unwrap();
        sink.restart().unwrap();
        sink.write(b"ab").unwrap();
        sink.write_zeroes(3).unwrap();
        assert!(matches!(sink.write(b"123456"), Err(SinkError::TooLarge { limit: 10 })));
        assert!(matches!(sink.write_zeroes(u64::MAX), Err(SinkError::TooLarge { limit: 10 })));
        let taken = sink.finish().unwrap();
        assert_eq!(taken.size, 5);
        let whole = ring::digest::digest(&ring::digest::SHA256, b"ab\0\0\0");
        assert_eq!(taken.sha256, whole.as_ref());
        let md5 = taken.checksum(ChecksumAlgorithm::Md5).unwrap();
        assert_eq!(hex::encode(md5.value()), "b5a2be883858eeea7ae82e1d285310c7");
    }
}
