// SPDX-License-Identifier: Apache-2.0
//! Where the bytes of an image go: a file with holes instead of zeroes, a digest of everything, a
//! bound on the size, and room taken in the cache as the file grows.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use md5::Digest as _;
use ring::digest;

use crate::cache::Reservation;
use crate::checksum::{Algorithm, Checksum};

/// What is all zeroes in a piece of this size is not written: the block of most file systems.
const BLOCK: usize = 4096;

/// Zeroes to digest where nothing is written.
static ZEROES: [u8; 64 * 1024] = [0; 64 * 1024];

/// Takes an image's bytes in order.
pub(crate) struct Sink {
    file: File,
    room: Reservation,
    at: u64,
    /// Bytes really written, as they take room.
    written: u64,
    limit: u64,
    sha256: digest::Context,
    also: Vec<Also>,
}

/// A second digest next to SHA-256.
enum Also {
    Md5(md5::Md5),
    Sha512(digest::Context),
}

/// What went into a [`Sink`].
pub(crate) struct Taken {
    pub(crate) file: File,
    pub(crate) room: Reservation,
    pub(crate) size: u64,
    pub(crate) sha256: [u8; 32],
    also: Vec<Checksum>,
}

/// Why a sink takes no more.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// More bytes than allowed.
    #[error(
        "it has more than the {limit} bytes allowed: raise the limit in the configuration, or make a smaller image"
    )]
    TooLarge {
        /// How many are allowed.
        limit: u64,
    },
    /// There is no room in the cache that is not in use.
    #[error(
        "there is no room for {wanted} more bytes in the image cache of {bound} bytes, as what is in it is in use: raise its bound in the configuration"
    )]
    NoRoom {
        /// How many were wanted.
        wanted: u64,
        /// How many the cache may have.
        bound: u64,
    },
    /// The disk failed, or is full.
    #[error("it cannot be written to the image cache")]
    Write(#[source] io::Error),
}

impl Sink {
    /// A sink over an empty file that takes at most `limit` bytes.
    pub(crate) fn new(file: File, room: Reservation, limit: u64, checksums: &[Algorithm]) -> Self {
        let also = checksums.iter().filter_map(|algorithm| Also::new(*algorithm)).collect();
        let sha256 = digest::Context::new(&digest::SHA256);
        Self { file, room, at: 0, written: 0, limit, sha256, also }
    }

    /// Learns how many bytes will come, and takes room for them right away.
    pub(crate) fn expect(&mut self, length: u64) -> Result<(), SinkError> {
        self.check(length)?;
        self.room.grow_to(length)
    }

    /// Takes the next bytes.
    pub(crate) fn write(&mut self, data: &[u8]) -> Result<(), SinkError> {
        self.check(data.len() as u64)?;
        self.digest(data);
        let mut start = 0;
        while start < data.len() {
            let run = run_of_data(&data[start..], self.at);
            if run.data > 0 {
                self.written += run.data as u64;
                self.room.grow_to(self.written)?;
                self.file
                    .write_all_at(&data[start..start + run.data], self.at)
                    .map_err(SinkError::Write)?;
            }
            let taken = run.data + run.zeroes;
            start += taken;
            self.at += taken as u64;
        }
        Ok(())
    }

    /// Takes this many zeroes.
    pub(crate) fn skip(&mut self, count: u64) -> Result<(), SinkError> {
        self.check(count)?;
        let mut left = count;
        while left > 0 {
            let piece = left.min(ZEROES.len() as u64);
            self.digest(&ZEROES[..usize::try_from(piece).expect("no more than there are zeroes")]);
            left -= piece;
        }
        self.at += count;
        Ok(())
    }

    /// Forgets everything taken so far.
    pub(crate) fn restart(&mut self) -> Result<(), SinkError> {
        self.file.set_len(0).map_err(SinkError::Write)?;
        self.sha256 = digest::Context::new(&digest::SHA256);
        self.also = self.also.iter().filter_map(|also| Also::new(also.algorithm())).collect();
        (self.at, self.written) = (0, 0);
        Ok(())
    }

    /// What was taken. It is not durable yet: much of it is only on its way to something else.
    pub(crate) fn finish(self) -> Result<Taken, SinkError> {
        // A hole at the end is only there once the file is told how long it is.
        self.file.set_len(self.at).map_err(SinkError::Write)?;
        let sha256 = self.sha256.finish();
        let also = self.also.into_iter().map(Also::finish).collect();
        Ok(Taken {
            file: self.file,
            room: self.room,
            size: self.at,
            sha256: sha256.as_ref().try_into().expect("SHA-256 has 32 bytes"),
            also,
        })
    }

    fn check(&self, more: u64) -> Result<(), SinkError> {
        match self.at.checked_add(more) {
            Some(size) if size <= self.limit => Ok(()),
            Some(_) | None => Err(SinkError::TooLarge { limit: self.limit }),
        }
    }

    fn digest(&mut self, data: &[u8]) {
        self.sha256.update(data);
        for also in &mut self.also {
            match also {
                Also::Md5(context) => context.update(data),
                Also::Sha512(context) => context.update(data),
            }
        }
    }
}

impl Also {
    /// The digest of this algorithm, if it is not the one that is always made.
    fn new(algorithm: Algorithm) -> Option<Self> {
        match algorithm {
            Algorithm::Md5 => Some(Self::Md5(md5::Md5::new())),
            Algorithm::Sha512 => Some(Self::Sha512(digest::Context::new(&digest::SHA512))),
            Algorithm::Sha256 => None,
        }
    }

    fn algorithm(&self) -> Algorithm {
        match self {
            Self::Md5(_) => Algorithm::Md5,
            Self::Sha512(_) => Algorithm::Sha512,
        }
    }

    fn finish(self) -> Checksum {
        match self {
            Self::Md5(context) => Checksum::new(Algorithm::Md5, context.finalize().to_vec()),
            Self::Sha512(context) => {
                Checksum::new(Algorithm::Sha512, context.finish().as_ref().to_vec())
            }
        }
    }
}

impl Taken {
    /// What the checksum of this algorithm came to. SHA-256 is always known, another only when it
    /// was asked for.
    pub(crate) fn checksum(&self, algorithm: Algorithm) -> Option<Checksum> {
        match algorithm {
            Algorithm::Sha256 => Some(Checksum::new(algorithm, self.sha256.to_vec())),
            Algorithm::Md5 | Algorithm::Sha512 => {
                self.also.iter().find(|also| also.algorithm() == algorithm).cloned()
            }
        }
    }
}

/// Bytes to write, and zeroes after them not to.
struct Run {
    data: usize,
    zeroes: usize,
}

/// The first run of `data`, which goes to `at`. Only whole blocks of the file become holes.
fn run_of_data(data: &[u8], at: u64) -> Run {
    let offset = usize::try_from(at % BLOCK as u64).expect("less than a block");
    let mut written = ((BLOCK - offset) % BLOCK).min(data.len());
    loop {
        let Some(block) = data.get(written..written + BLOCK) else {
            return Run { data: data.len(), zeroes: 0 };
        };
        if is_zero(block) {
            break;
        }
        written += BLOCK;
    }
    let zero_blocks = data[written..].chunks_exact(BLOCK).take_while(|block| is_zero(block));
    Run { data: written, zeroes: zero_blocks.count() * BLOCK }
}

fn is_zero(block: &[u8]) -> bool {
    block == &ZEROES[..block.len()]
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::{Sink, SinkError};
    use crate::cache::Reservation;
    use crate::checksum::Algorithm;
    use crate::hex;

    fn sink(limit: u64, checksums: &[Algorithm]) -> Sink {
        Sink::new(tempfile::tempfile().unwrap(), Reservation::boundless(), limit, checksums)
    }

    #[test]
    fn zeroes_become_holes_and_count_all_the_same() {
        let mut content = vec![0; 1 << 20];
        content[100_000..100_010].fill(7);
        content[900_000] = 1;
        let mut sink = sink(1 << 20, &[Algorithm::Sha512]);
        for piece in content[..(1 << 19)].chunks(70_001) {
            sink.write(piece).unwrap();
        }
        sink.write(&content[1 << 19..]).unwrap();
        let taken = sink.finish().unwrap();
        assert_eq!(taken.size, 1 << 20);
        let whole = ring::digest::digest(&ring::digest::SHA256, &content);
        assert_eq!(taken.sha256, whole.as_ref());
        let whole = ring::digest::digest(&ring::digest::SHA512, &content);
        assert_eq!(taken.checksum(Algorithm::Sha512).unwrap().value(), whole.as_ref());
        assert!(taken.checksum(Algorithm::Md5).is_none());
        let mut read = vec![0; 1 << 20];
        std::os::unix::fs::FileExt::read_exact_at(&taken.file, &mut read, 0).unwrap();
        assert!(read == content);
        assert!(taken.file.metadata().unwrap().blocks() * 512 < 200_000);
    }

    #[test]
    fn skipped_and_restarted() {
        let mut sink = sink(10, &[Algorithm::Md5]);
        sink.write(b"wrong").unwrap();
        sink.restart().unwrap();
        sink.write(b"ab").unwrap();
        sink.skip(3).unwrap();
        assert!(matches!(sink.write(b"123456"), Err(SinkError::TooLarge { limit: 10 })));
        assert!(matches!(sink.skip(u64::MAX), Err(SinkError::TooLarge { limit: 10 })));
        let taken = sink.finish().unwrap();
        assert_eq!(taken.size, 5);
        let whole = ring::digest::digest(&ring::digest::SHA256, b"ab\0\0\0");
        assert_eq!(taken.sha256, whole.as_ref());
        let md5 = taken.checksum(Algorithm::Md5).unwrap();
        assert_eq!(hex::encode(md5.value()), "b5a2be883858eeea7ae82e1d285310c7");
    }
}
