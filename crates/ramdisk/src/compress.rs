// SPDX-License-Identifier: Apache-2.0
//! How the ramdisk is compressed: as the kernel can unpack it.

use std::io::{self, Write as _};

use liblzma::stream::{Check, Stream};
use serde::{Deserialize, Serialize};

/// Above it, zstd takes memory that small machines have not got to unpack.
const ZSTD_LEVEL: i32 = 19;
const XZ_LEVEL: u32 = 9;

/// A way to compress a ramdisk, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Small, and several times faster to unpack than xz.
    Zstd,
    /// The smallest.
    Xz,
    /// What every kernel can.
    Gzip,
}

impl Compression {
    /// The best that a kernel can, by how it was built. One that does not say is taken for one of
    /// today: zstd came with Linux 5.9.
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
            // Told the size beforehand, it takes no more memory than that needs, which for a small
            // module is most of the work.
            Self::Zstd => zstd::bulk::compress(bytes, ZSTD_LEVEL),
            Self::Xz => {
                // The kernel knows no other checksum.
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

impl std::fmt::Display for Compression {
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
    use crate::expand::expanded;

    #[test]
    fn the_kernel_decides() {
        for (config, expected) in [
            (None, Compression::Zstd),
            (Some("CONFIG_RD_XZ=y\nCONFIG_RD_ZSTD=y\n"), Compression::Zstd),
            (Some("CONFIG_RD_XZ=y\n# CONFIG_RD_ZSTD is not set\n"), Compression::Xz),
            (Some(""), Compression::Gzip),
        ] {
            assert_eq!(Compression::best(config), expected);
        }
    }

    #[test]
    fn what_was_compressed_comes_back() {
        let text = b"ramdisk".repeat(1000);
        for compression in [Compression::Zstd, Compression::Xz, Compression::Gzip] {
            let packed = compression.compress(&text).unwrap();
            assert!(packed.len() < text.len());
            assert_eq!(packed, compression.compress(&text).unwrap());
            assert_eq!(expanded(packed).unwrap(), text);
        }
    }
}
