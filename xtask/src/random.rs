// SPDX-License-Identifier: Apache-2.0
//! Random bytes from the kernel, for passwords and ports.

use std::fs::File;
use std::io::Read;

use anyhow::{Context, Result};

/// Returns random bytes.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("cannot read /dev/urandom")?;
    Ok(bytes)
}

/// Returns a random password.
pub(crate) fn password() -> Result<String> {
    // IPMI passwords have at most 16 characters.
    Ok(bytes::<8>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}
