// SPDX-License-Identifier: Apache-2.0
//! Compression of the ramdisk, in a format that the kernel supports.

use std::io::{self, Write as _};

use liblzma::stream::{Check, Stream};
use serde::{Deserialize, Serialize};

/// Higher levels need more memory for decompression than small machines have.
const ZSTD_LEVEL: i32 = 19;
const XZ_LEVEL: u32 = 9;

/// The compression format of a ramdisk, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RamdiskCompression {
    /// Small, and several times faster to decompress than xz.
    Zstd,
    /// The smallest.
    Xz,
    /// Supported by every kernel.
    Gzip,
}

impl RamdiskCompression {
    /// Returns the best format that a kernel supports according to its build configuration. Without
    /// a configuration a recent kernel is assumed: zstd is supported since Linux 5.9.
    pub(crate) fn best(config: Option<&str>) -> Self {
        let Some(config) = config else { return Self::Zstd };
        let can = |option: &str| config.lines().any(|line| line == option);
        if can("CONFIG_RD_ZSTD=y") {
            Self::Zstd
        } else if can("CONFIG_RD_XZ=y") {
            Self::Xz
        } else {
            Self::Gzip
        }
    }

    pub(crate) fn compress(self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            // With the size known in advance, zstd allocates no more memory than needed, which
            // dominates the time for small modules.
            Self::Zstd => zstd::bulk::compress(bytes, ZSTD_LEVEL),
            Self::Xz => {
                // The only checksum that the kernel's decoder supports.
                let stream = Stream::new_easy_encoder(XZ_LEVEL, Check::Crc32)?;
                let mut xz = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
                xz.write_all(bytes)?;
                xz.finish()
            }
            Self::Gzip => {
                let best = flate2::Compression::best();
                let mut gzip = flate2::write::GzEncoder::new(Vec::new(), best);
                gzip.write_all(bytes)?;
                gzip.finish()
            }
        }
    }
}

impl std::fmt::Display for RamdiskCompression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Zstd => "zstd",
            Self::Xz => "xz",
            Self::Gzip => "gzip",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decompress::decompress;

    #[test]
    fn chooses_best_format_the_kernel_supports() {
        for (config, expected) in [
            (None, RamdiskCompression::Zstd),
            (Some("CONFIG_RD_XZ=y\nCONFIG_RD_ZSTD=y\n"), RamdiskCompression::Zstd),
            (Some("CONFIG_RD_XZ=y\n# CONFIG_RD_ZSTD is not set\n"), RamdiskCompression::Xz),
            (Some(""), RamdiskCompression::Gzip),
        ] {
            assert_eq!(RamdiskCompression::best(config), expected);
        }
    }

    #[test]
    fn compressed_data_round_trips() {
        let text = b"ramdisk".repeat(1000);
        for compression in
            [RamdiskCompression::Zstd, RamdiskCompression::Xz, RamdiskCompression::Gzip]
        {
            let packed = compression.compress(&text).unwrap();
            assert!(packed.len() < text.len());
            assert_eq!(packed, compression.compress(&text).unwrap());
            assert_eq!(decompress(packed).unwrap(), text);
        }
    }
}
