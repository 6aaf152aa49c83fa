// SPDX-License-Identifier: Apache-2.0
//! Decompression of gzip, xz and zstd into an [`ImageSink`], whose size limit stops small files that
//! unpack to terabytes of zeroes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use liblzma::bufread::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::format::Compression;
use crate::sink::{ImageSink, SinkError};

/// Bytes that are decompressed before they are digested and written.
const BUFFER_BYTES: usize = 256 * 1024;

/// Memory limit of an xz stream: `xz -9` needs 65 MiB.
const MAX_XZ_MEMORY: u64 = 256 << 20;

/// Window limit of a zstd stream: `zstd --ultra -22` needs 128 MiB.
const MAX_ZSTD_WINDOW: u64 = 128 << 20;

/// Why data cannot be decompressed.
#[derive(Debug, thiserror::Error)]
pub enum DecompressError {
    /// The compression is not supported.
    #[error("images compressed with {name} are not supported: use gzip, xz or zstd")]
    Unsupported {
        /// The compression.
        name: &'static str,
    },
    /// The data are corrupt.
    #[error(
        "it is damaged, or not really compressed by {name}: check the checksum, or compress it again"
    )]
    Damaged {
        /// The compression.
        name: &'static str,
        /// The problem.
        #[source]
        source: io::Error,
    },
    /// The decompressed data cannot be written.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// Decompresses `file` into `sink`.
pub(crate) fn decompress(
    file: &File,
    compression: Compression,
    sink: &mut ImageSink,
) -> Result<(), DecompressError> {
    let name = crate::format::ImageFormat::Compressed(compression).name();
    let damaged = |source: io::Error| DecompressError::Damaged { name, source };
    let input = BufReader::with_capacity(BUFFER_BYTES, file);
    copy_to_sink(decompressing_reader(input, compression)?, sink, damaged)
}

/// Returns a reader of the decompressed data. Reading fails at corrupt data.
pub fn decompressing_reader<'a>(
    input: impl BufRead + 'a,
    compression: Compression,
) -> Result<Box<dyn Read + 'a>, DecompressError> {
    let name = crate::format::ImageFormat::Compressed(compression).name();
    match compression {
        Compression::Gzip => Ok(Box::new(MultiGzDecoder::new(input))),
        Compression::Xz => {
            let stream = Stream::new_stream_decoder(MAX_XZ_MEMORY, CONCATENATED)
                .map_err(|error| DecompressError::Damaged { name, source: error.into() })?;
            Ok(Box::new(XzDecoder::new_stream(input, stream)))
        }
        Compression::Zstd => Ok(Box::new(ZstdFrames::new(input))),
        Compression::Bzip2 | Compression::Lz4 => Err(DecompressError::Unsupported { name }),
    }
}

fn copy_to_sink(
    mut from: impl Read,
    sink: &mut ImageSink,
    damaged: impl Fn(io::Error) -> DecompressError,
) -> Result<(), DecompressError> {
    let mut piece = vec![0; BUFFER_BYTES];
    loop {
        // Decoders return small chunks; the sink is faster with whole blocks.
        let mut filled = 0;
        while filled < BUFFER_BYTES {
            match from.read(&mut piece[filled..]).map_err(&damaged)? {
                0 => break,
                count => filled += count,
            }
        }
        if filled == 0 {
            return Ok(());
        }
        sink.write(&piece[..filled])?;
    }
}

/// Reads all frames of a zstd file. `pzstd` and `zstd --adapt` write many, with skippable frames between
/// them.
struct ZstdFrames<R> {
    input: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> ZstdFrames<R> {
    fn new(input: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_ZSTD_WINDOW);
        Self { input, decoder, in_frame: false }
    }

    /// Begins the next frame; `false` at the end of the file.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.input.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.input) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut (&mut self.input).take(length), &mut io::sink())?;
                    if skipped < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.in_frame {
                if !self.next_frame()? {
                    return Ok(0);
                }
                self.in_frame = true;
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            }
            let count = self.decoder.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            if let Some(expected) = self.decoder.get_checksum_from_data()
                && self.decoder.get_calculated_checksum() != Some(expected)
            {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "wrong frame checksum"));
            }
            self.in_frame = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use proptest::prelude::*;

    use super::{DecompressError, decompress};
    use crate::cache::SpaceReservation;
    use crate::format::Compression;
    use crate::sink::{ImageSink, SinkError};

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn xz(content: &[u8]) -> Vec<u8> {
        let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(content: &[u8]) -> Vec<u8> {
        use ruzstd::encoding::{CompressionLevel, compress_to_vec};
        compress_to_vec(content, CompressionLevel::Fastest)
    }

    type Pack = fn(&[u8]) -> Vec<u8>;

    const ALL: [(Compression, Pack); 3] =
        [(Compression::Gzip, gzip), (Compression::Xz, xz), (Compression::Zstd, zstd)];

    fn unpack(packed: &[u8], how: Compression, limit: u64) -> Result<Vec<u8>, DecompressError> {
        let mut input = tempfile::tempfile().unwrap();
        input.write_all(packed).unwrap();
        std::io::Seek::rewind(&mut input).unwrap();
        let output = tempfile::tempfile().unwrap();
        let mut sink = ImageSink::new(output, SpaceReservation::unlimited(), limit, &[]);
        decompress(&input, how, &mut sink)?;
        Ok(contents(&sink.finish().unwrap().file))
    }

    fn contents(file: &File) -> Vec<u8> {
        let mut content = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
        std::os::unix::fs::FileExt::read_exact_at(file, &mut content, 0).unwrap();
        content
    }

    #[test]
    fn decompresses_concatenated_streams() {
        let first: Vec<u8> = (0..700_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        for (how, pack) in ALL {
            let mut packed = pack(&first);
            packed.extend(pack(b"second"));
            let whole = [&first[..], b"second"].concat();
            assert!(unpack(&packed, how, 1 << 30).unwrap() == whole, "{how:?}");
        }
        let mut skippable = b"\x50\x2a\x4d\x18\x03\0\0\0xyz".to_vec();
        skippable.extend(zstd(b"content"));
        assert_eq!(unpack(&skippable, Compression::Zstd, 100).unwrap(), b"content");
    }

    #[test]
    fn decompression_stops_at_the_limit() {
        let zeroes = vec![0; 4 << 20];
        for (how, pack) in ALL {
            let outcome = unpack(&pack(&zeroes), how, 1 << 20);
            let stopped = matches!(outcome, Err(DecompressError::Sink(SinkError::TooLarge { .. })));
            assert!(stopped, "{how:?}");
        }
    }

    #[test]
    fn rejects_truncated_and_changed_streams() {
        let content: Vec<u8> = (0..50_000_u32).flat_map(|n| (n * n).to_le_bytes()).collect();
        for (how, pack) in ALL {
            let packed = pack(&content);
            let cut = unpack(&packed[..packed.len() - 9], how, 1 << 30);
            assert!(matches!(cut, Err(DecompressError::Damaged { .. })), "{how:?} cut");
            let mut changed = packed.clone();
            let middle = changed.len() / 2;
            changed[middle] ^= 0x10;
            match unpack(&changed, how, 1 << 30) {
                Err(DecompressError::Damaged { .. }) => {}
                other => panic!("{how:?} changed: {:?}", other.map(|it| it.len())),
            }
        }
        let unread = unpack(b"BZh9", Compression::Bzip2, 1);
        assert!(matches!(unread, Err(DecompressError::Unsupported { name: "bzip2" })));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            for (how, pack) in ALL {
                let _ = unpack(&bytes, how, 1 << 16);
                // With a valid header the decoder reads more of the data.
                bytes.splice(..0, pack(b"").into_iter().take(6));
                let _ = unpack(&bytes, how, 1 << 16);
            }
        }
    }
}
