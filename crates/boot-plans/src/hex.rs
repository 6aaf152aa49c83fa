// SPDX-License-Identifier: Apache-2.0
//! Bytes as hexadecimal digits.

use std::fmt::Write as _;

/// The digits of `bytes`, lower case.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing into a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
