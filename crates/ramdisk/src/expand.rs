// SPDX-License-Identifier: Apache-2.0
//! Undoes the compressions that kernels, firmware and packages come in.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use liblzma::read::XzDecoder;

/// The largest single file that is taken out of something compressed.
pub(crate) const LARGEST_FILE: u64 = 512 << 20;

/// A way to compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    None,
    Gzip,
    Xz,
    Zstd,
}

impl Packing {
    /// By the first bytes.
    fn of(bytes: &[u8]) -> Self {
        const MAGIC: [(&[u8], Packing); 3] = [
            (&[0x1f, 0x8b], Packing::Gzip),
            (&[0xfd, b'7', b'z', b'X', b'Z', 0], Packing::Xz),
            (&[0x28, 0xb5, 0x2f, 0xfd], Packing::Zstd),
        ];
        let found = MAGIC.iter().find(|(magic, _)| bytes.starts_with(magic));
        found.map_or(Self::None, |(_, packing)| *packing)
    }

    /// By the end of a file's name, and the name without it.
    pub(crate) fn of_name(name: &str) -> (Self, &str) {
        for (end, packing) in [(".gz", Self::Gzip), (".xz", Self::Xz), (".zst", Self::Zstd)] {
            if let Some(rest) = name.strip_suffix(end) {
                return (packing, rest);
            }
        }
        (Self::None, name)
    }

    /// What was compressed, read from `packed`.
    pub(crate) fn reader<'a>(self, packed: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
        Ok(match self {
            Self::None => Box::new(packed),
            Self::Gzip => Box::new(MultiGzDecoder::new(packed)),
            Self::Xz => Box::new(XzDecoder::new_multi_decoder(packed)),
            Self::Zstd => Box::new(zstd::stream::read::Decoder::new(packed)?),
        })
    }
}

/// The content of a file, however it is compressed.
pub(crate) fn expanded(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    let packing = Packing::of(&bytes);
    if packing == Packing::None {
        return Ok(bytes);
    }
    let mut whole = Vec::new();
    packing.reader(bytes.as_slice())?.take(LARGEST_FILE + 1).read_to_end(&mut whole)?;
    if whole.len() as u64 > LARGEST_FILE {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "it is larger than any module when unpacked",
        ));
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn every_packing_is_undone() {
        let text = b"kernel module".repeat(1000);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).unwrap();
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
        xz.write_all(&text).unwrap();
        let zstd = zstd::encode_all(text.as_slice(), 1).unwrap();
        for packed in [text.clone(), gzip.finish().unwrap(), xz.finish().unwrap(), zstd] {
            assert_eq!(expanded(packed.clone()).unwrap(), text);
            if packed != text {
                expanded(packed[..packed.len() - 9].to_vec()).unwrap_err();
            }
        }
    }
}
