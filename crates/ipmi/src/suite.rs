// SPDX-License-Identifier: Apache-2.0
//! The two supported cipher suites and their algorithms.
//!
//! Suite 3 authenticates with HMAC-SHA1 and suite 17 with HMAC-SHA256; both encrypt with AES-CBC. The
//! other suites have no encryption or use MD5, which exposes the password.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::Sha256;

/// The algorithms of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CipherSuite {
    /// RAKP-HMAC-SHA1, HMAC-SHA1-96, AES-CBC-128.
    Three,
    /// RAKP-HMAC-SHA256, HMAC-SHA256-128, AES-CBC-128.
    Seventeen,
}

/// The numbers of the algorithms in Open Session messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SuiteAlgorithms {
    /// Authentication.
    pub authentication: u8,
    /// Integrity.
    pub integrity: u8,
    /// Confidentiality.
    pub confidentiality: u8,
}

/// An HMAC, possibly truncated.
#[derive(Clone, Copy)]
pub struct HmacDigest {
    bytes: [u8; 32],
    length: usize,
}

impl CipherSuite {
    /// Both suites, strongest first.
    pub const ALL: [Self; 2] = [Self::Seventeen, Self::Three];

    /// The suite with this number.
    #[must_use]
    pub fn numbered(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.number() == number)
    }

    /// The suite with these algorithms.
    #[must_use]
    pub fn of(algorithms: SuiteAlgorithms) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.algorithms() == algorithms)
    }

    /// The number of the suite.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Three => 3,
            Self::Seventeen => 17,
        }
    }

    /// The algorithms of the suite.
    #[must_use]
    pub const fn algorithms(self) -> SuiteAlgorithms {
        match self {
            Self::Three => SuiteAlgorithms { authentication: 1, integrity: 1, confidentiality: 1 },
            Self::Seventeen => {
                SuiteAlgorithms { authentication: 3, integrity: 4, confidentiality: 1 }
            }
        }
    }

    /// The length of the proofs in RAKP 2 and 3.
    #[must_use]
    pub const fn proof_length(self) -> usize {
        match self {
            Self::Three => 20,
            Self::Seventeen => 32,
        }
    }

    /// The length of packet signatures and of the proof in RAKP 4.
    #[must_use]
    pub const fn signature_length(self) -> usize {
        match self {
            Self::Three => 12,
            Self::Seventeen => 16,
        }
    }

    /// The HMAC of the concatenated `parts`.
    #[must_use]
    pub fn digest(self, key: &[u8], parts: &[&[u8]]) -> HmacDigest {
        match self {
            Self::Three => digest_with::<Hmac<Sha1>>(key, parts),
            Self::Seventeen => digest_with::<Hmac<Sha256>>(key, parts),
        }
    }

    /// Returns whether `code` is a prefix of the HMAC of `parts`, in constant time.
    #[must_use]
    pub fn verifies(self, key: &[u8], parts: &[&[u8]], code: &[u8]) -> bool {
        match self {
            Self::Three => keyed::<Hmac<Sha1>>(key, parts).verify_truncated_left(code).is_ok(),
            Self::Seventeen => {
                keyed::<Hmac<Sha256>>(key, parts).verify_truncated_left(code).is_ok()
            }
        }
    }
}

impl fmt::Display for CipherSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

impl HmacDigest {
    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The first `length` bytes.
    #[must_use]
    pub fn cut(mut self, length: usize) -> Self {
        self.length = self.length.min(length);
        self
    }
}

impl fmt::Debug for HmacDigest {
    /// Hides the bytes, which may be a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.length)
    }
}

fn keyed<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> M {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes a key of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac
}

fn digest_with<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> HmacDigest {
    let output = keyed::<M>(key, parts).finalize().into_bytes();
    let mut bytes = [0; 32];
    bytes[..output.len()].copy_from_slice(&output);
    HmacDigest { bytes, length: output.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_suites_by_number_and_algorithms() {
        for suite in CipherSuite::ALL {
            assert_eq!(CipherSuite::numbered(suite.number()), Some(suite));
            assert_eq!(CipherSuite::of(suite.algorithms()), Some(suite));
            assert_eq!(suite.digest(b"k", &[b"x"]).as_slice().len(), suite.proof_length());
        }
        assert_eq!(CipherSuite::numbered(0), None);
    }

    #[test]
    fn verification_compares_every_byte() {
        for suite in CipherSuite::ALL {
            let length = suite.signature_length();
            let code = suite.digest(b"key", &[b"ab", b"c"]).cut(length);
            assert!(suite.verifies(b"key", &[b"a", b"bc"], code.as_slice()));
            for index in 0..length {
                let mut wrong = code.as_slice().to_vec();
                wrong[index] ^= 1;
                assert!(!suite.verifies(b"key", &[b"abc"], &wrong));
            }
            assert!(!suite.verifies(b"key", &[b"abc"], &[]));
        }
    }

    #[test]
    fn debug_hides_digests() {
        assert_eq!(format!("{:?}", CipherSuite::Three.digest(b"k", &[])), "20 bytes");
    }
}
