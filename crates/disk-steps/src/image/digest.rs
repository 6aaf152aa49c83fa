// SPDX-License-Identifier: Apache-2.0
//! Checksum of a stream.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use images::{Checksum, ChecksumAlgorithm};
use md5::Digest as _;
use ring::digest::{Context, SHA256, SHA512};

/// A checksum in progress.
pub(super) enum StreamDigest {
    Md5(Box<md5::Md5>),
    Sha256(Context),
    /// Without vector instructions.
    SoftwareSha256(sha2::Sha256),
    Sha512(Context),
}

impl StreamDigest {
    /// Creates the checksum of an empty stream.
    pub(super) fn new(algorithm: ChecksumAlgorithm) -> Self {
        match algorithm {
            ChecksumAlgorithm::Md5 => Self::Md5(Box::default()),
            ChecksumAlgorithm::Sha256 if software_is_faster() => {
                Self::SoftwareSha256(sha2::Sha256::default())
            }
            ChecksumAlgorithm::Sha256 => Self::Sha256(Context::new(&SHA256)),
            ChecksumAlgorithm::Sha512 => Self::Sha512(Context::new(&SHA512)),
        }
    }

    /// Adds the next bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Md5(context) => context.update(bytes),
            Self::SoftwareSha256(context) => context.update(bytes),
            Self::Sha256(context) | Self::Sha512(context) => context.update(bytes),
        }
    }

    /// Returns the lower-case hexadecimal digits.
    pub(super) fn finish(self) -> String {
        let (algorithm, value) = match self {
            Self::Md5(context) => (ChecksumAlgorithm::Md5, context.finalize().to_vec()),
            Self::SoftwareSha256(context) => {
                (ChecksumAlgorithm::Sha256, context.finalize().to_vec())
            }
            Self::Sha256(context) => {
                (ChecksumAlgorithm::Sha256, context.finish().as_ref().to_vec())
            }
            Self::Sha512(context) => {
                (ChecksumAlgorithm::Sha512, context.finish().as_ref().to_vec())
            }
        };
        debug_assert_eq!(value.len(), algorithm.length());
        hex::encode(value)
    }
}

/// Whether the digits are those of the checksum.
pub(super) fn matches_checksum(digits: &str, expected: &Checksum) -> bool {
    expected.to_hex() == digits
}

/// Whether SHA-256 is faster without vector instructions on this machine. Emulation (QEMU without KVM)
/// makes those several times slower; on real processors it is the reverse. Measured once, in a few
/// milliseconds.
fn software_is_faster() -> bool {
    static IS_FASTER: OnceLock<bool> = OnceLock::new();
    static SAMPLE: [u8; 64 * 1024] = [0x5a; 64 * 1024];
    fn time(mut work: impl FnMut()) -> Duration {
        let mut best = Duration::MAX;
        for _ in 0..3 {
            let started = Instant::now();
            work();
            best = best.min(started.elapsed());
        }
        best
    }
    *IS_FASTER.get_or_init(|| {
        let hardware = time(|| {
            std::hint::black_box(ring::digest::digest(&SHA256, &SAMPLE));
        });
        let software = time(|| {
            std::hint::black_box(sha2::Sha256::digest(SAMPLE));
        });
        software < hardware
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_implementations_agree() {
        for length in [0, 1, 63, 64, 65, 100_000] {
            let bytes = vec![7; length];
            let mut two = [
                StreamDigest::Sha256(Context::new(&SHA256)),
                StreamDigest::SoftwareSha256(sha2::Sha256::default()),
            ];
            for digest in &mut two {
                bytes.chunks(1000).for_each(|piece| digest.update(piece));
            }
            let [one, other] = two.map(StreamDigest::finish);
            assert_eq!(one, other);
        }
        let empty = StreamDigest::new(ChecksumAlgorithm::Sha256).finish();
        assert!(empty.starts_with("e3b0c442"));
    }
}
