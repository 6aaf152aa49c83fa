// SPDX-License-Identifier: Apache-2.0
//! Decompression of kernel modules, firmware and packages.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use liblzma::read::XzDecoder;

/// The maximum size of a decompressed file.
pub(crate) const MAX_FILE_SIZE: u64 = 512 << 20;

/// The compression format of an input file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompressionFormat {
    None,
    Gzip,
    Xz,
    Zstd,
}

impl CompressionFormat {
    /// Detects the format by its magic number.
    fn detect(bytes: &[u8]) -> Self {
        const MAGIC: [(&[u8], CompressionFormat); 3] = [
            (&[0x1f, 0x8b], CompressionFormat::Gzip),
            (&[0xfd, b'7', b'z', b'X', b'Z', 0], CompressionFormat::Xz),
            (&[0x28, 0xb5, 0x2f, 0xfd], CompressionFormat::Zstd),
        ];
        let known = MAGIC.iter().find(|(magic, _)| bytes.starts_with(magic));
        known.map_or(Self::None, |(_, format)| *format)
    }

    /// Returns the format by the suffix of a file name, and the name without the suffix.
    pub(crate) fn from_file_name(name: &str) -> (Self, &str) {
        for (suffix, format) in [(".gz", Self::Gzip), (".xz", Self::Xz), (".zst", Self::Zstd)] {
            if let Some(stem) = name.strip_suffix(suffix) {
                return (format, stem);
            }
        }
        (Self::None, name)
    }

    /// Returns a reader that decompresses `packed`.
    pub(crate) fn reader<'a>(self, packed: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
        Ok(match self {
            Self::None => Box::new(packed),
            Self::Gzip => Box::new(MultiGzDecoder::new(packed)),
            Self::Xz => Box::new(XzDecoder::new_multi_decoder(packed)),
            Self::Zstd => Box::new(zstd::stream::read::Decoder::new(packed)?),
        })
    }
}

/// Decompresses a file of any supported format. Uncompressed content is returned unchanged.
pub(crate) fn decompress(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    let format = CompressionFormat::detect(&bytes);
    if format == CompressionFormat::None {
        return Ok(bytes);
    }
    let mut content = Vec::new();
    format.reader(bytes.as_slice())?.take(MAX_FILE_SIZE + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_FILE_SIZE {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "the decompressed file is larger than 512 MiB",
        ));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn decompresses_every_format() {
        let text = b"kernel module".repeat(1000);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).unwrap();
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
        xz.write_all(&text).unwrap();
        let zstd = zstd::encode_all(text.as_slice(), 1).unwrap();
        for packed in [text.clone(), gzip.finish().unwrap(), xz.finish().unwrap(), zstd] {
            assert_eq!(decompress(packed.clone()).unwrap(), text);
            if packed != text {
                decompress(packed[..packed.len() - 9].to_vec()).unwrap_err();
            }
        }
    }
}
