// SPDX-License-Identifier: Apache-2.0
//! The checksum of what is downloaded, as it comes.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use images::{Algorithm, Checksum};
use md5::Digest as _;
use ring::digest::{Context, SHA256, SHA512};

/// A checksum on its way.
pub(super) enum Digester {
    Md5(Box<md5::Md5>),
    Sha256(Context),
    /// Without vector instructions.
    PlainSha256(sha2::Sha256),
    Sha512(Context),
}

impl Digester {
    /// Of nothing yet.
    pub(super) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Md5 => Self::Md5(Box::default()),
            Algorithm::Sha256 if plain_is_faster() => Self::PlainSha256(sha2::Sha256::default()),
            Algorithm::Sha256 => Self::Sha256(Context::new(&SHA256)),
            Algorithm::Sha512 => Self::Sha512(Context::new(&SHA512)),
        }
    }

    /// Takes the next bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Md5(context) => context.update(bytes),
            Self::PlainSha256(context) => context.update(bytes),
            Self::Sha256(context) | Self::Sha512(context) => context.update(bytes),
        }
    }

    /// The hexadecimal digits, lower case.
    pub(super) fn finish(self) -> String {
        let (algorithm, value) = match self {
            Self::Md5(context) => (Algorithm::Md5, context.finalize().to_vec()),
            Self::PlainSha256(context) => (Algorithm::Sha256, context.finalize().to_vec()),
            Self::Sha256(context) => (Algorithm::Sha256, context.finish().as_ref().to_vec()),
            Self::Sha512(context) => (Algorithm::Sha512, context.finish().as_ref().to_vec()),
        };
        debug_assert_eq!(value.len(), algorithm.length());
        value.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Whether the digits are those of the checksum.
pub(super) fn is(digits: &str, expected: &Checksum) -> bool {
    expected.digits() == digits
}

/// Whether SHA-256 is faster here without vector instructions. Where those are emulated (machines
/// without KVM) they take several times as long; on real processors it is the other way round. A
/// few milliseconds tell, once.
fn plain_is_faster() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
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
    *ANSWER.get_or_init(|| {
        let vector = time(|| {
            std::hint::black_box(ring::digest::digest(&SHA256, &SAMPLE));
        });
        let plain = time(|| {
            std::hint::black_box(sha2::Sha256::digest(SAMPLE));
        });
        plain < vector
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_say_the_same() {
        for length in [0, 1, 63, 64, 65, 100_000] {
            let bytes = vec![7; length];
            let mut two = [
                Digester::Sha256(Context::new(&SHA256)),
                Digester::PlainSha256(sha2::Sha256::default()),
            ];
            for digester in &mut two {
                bytes.chunks(1000).for_each(|piece| digester.update(piece));
            }
            let [one, other] = two.map(Digester::finish);
            assert_eq!(one, other);
        }
        let empty = Digester::new(Algorithm::Sha256).finish();
        assert!(empty.starts_with("e3b0c442"));
    }
}
