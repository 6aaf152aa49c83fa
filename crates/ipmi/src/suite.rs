// SPDX-License-Identifier: Apache-2.0
//! The two cipher suites worth speaking, and the arithmetic of each.
//!
//! Suite 3 authenticates with HMAC-SHA1 and suite 17 with HMAC-SHA256; both encrypt with AES-CBC.
//! The others either do without encryption or use MD5, and a password sent that way is a password
//! given away.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::Sha256;

/// How a session proves who it is and hides what it says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CipherSuite {
    /// RAKP-HMAC-SHA1, HMAC-SHA1-96, AES-CBC-128.
    Three,
    /// RAKP-HMAC-SHA256, HMAC-SHA256-128, AES-CBC-128.
    Seventeen,
}

/// The numbers that stand for the algorithms of a suite in Open Session messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Algorithms {
    /// How the two sides prove that they know the password.
    pub authentication: u8,
    /// How packets are signed.
    pub integrity: u8,
    /// How packets are encrypted.
    pub confidentiality: u8,
}

/// What comes out of an HMAC, whole or cut short.
#[derive(Clone, Copy)]
pub struct Digest {
    bytes: [u8; 32],
    length: usize,
}

impl CipherSuite {
    /// Both, best first.
    pub const ALL: [Self; 2] = [Self::Seventeen, Self::Three];

    /// The suite with this number.
    #[must_use]
    pub fn numbered(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.number() == number)
    }

    /// The suite made of these algorithms.
    #[must_use]
    pub fn of(algorithms: Algorithms) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.algorithms() == algorithms)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Three => 3,
            Self::Seventeen => 17,
        }
    }

    /// What it is made of.
    #[must_use]
    pub const fn algorithms(self) -> Algorithms {
        match self {
            Self::Three => Algorithms { authentication: 1, integrity: 1, confidentiality: 1 },
            Self::Seventeen => Algorithms { authentication: 3, integrity: 4, confidentiality: 1 },
        }
    }

    /// How many bytes prove the knowledge of a password in RAKP 2 and 3.
    #[must_use]
    pub const fn proof_length(self) -> usize {
        match self {
            Self::Three => 20,
            Self::Seventeen => 32,
        }
    }

    /// How many bytes sign a packet, and RAKP 4.
    #[must_use]
    pub const fn signature_length(self) -> usize {
        match self {
            Self::Three => 12,
            Self::Seventeen => 16,
        }
    }

    /// The HMAC of `parts`, one after the other.
    #[must_use]
    pub fn digest(self, key: &[u8], parts: &[&[u8]]) -> Digest {
        match self {
            Self::Three => digest_with::<Hmac<Sha1>>(key, parts),
            Self::Seventeen => digest_with::<Hmac<Sha256>>(key, parts),
        }
    }

    /// Whether `code` begins the HMAC of `parts`. Takes as long whether it does or not.
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

impl Digest {
    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Its first `length` bytes.
    #[must_use]
    pub fn cut(mut self, length: usize) -> Self {
        self.length = self.length.min(length);
        self
    }
}

impl fmt::Debug for Digest {
    /// Not the bytes: they may be a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.length)
    }
}

fn keyed<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> M {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes a key of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac
}

fn digest_with<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Digest {
    let output = keyed::<M>(key, parts).finalize().into_bytes();
    let mut bytes = [0; 32];
    bytes[..output.len()].copy_from_slice(&output);
    Digest { bytes, length: output.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_found_by_number_and_by_algorithms() {
        for suite in CipherSuite::ALL {
            assert_eq!(CipherSuite::numbered(suite.number()), Some(suite));
            assert_eq!(CipherSuite::of(suite.algorithms()), Some(suite));
            assert_eq!(suite.digest(b"k", &[b"x"]).as_slice().len(), suite.proof_length());
        }
        assert_eq!(CipherSuite::numbered(0), None);
    }

    #[test]
    fn a_code_must_match_to_the_last_byte() {
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
    fn digests_do_not_print() {
        assert_eq!(format!("{:?}", CipherSuite::Three.digest(b"k", &[])), "20 bytes");
    }
}
