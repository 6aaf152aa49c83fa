// SPDX-License-Identifier: Apache-2.0
//! Checksums, as text.

use sha2::{Digest as _, Sha256};

/// SHA-256 in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
