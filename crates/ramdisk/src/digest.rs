// SPDX-License-Identifier: Apache-2.0
//! SHA-256 checksums in hexadecimal.

use sha2::{Digest as _, Sha256};

/// Returns the SHA-256 checksum in hexadecimal.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}
