// SPDX-License-Identifier: Apache-2.0
//! Content as a list of segments with a known length, without holding its bytes in memory.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

/// A part of a [`Content`]. Clones share bytes and files.
#[derive(Clone)]
pub enum ContentSegment {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A range of an open file. The file stays open, so replacing it on disk has no effect; writing into
    /// it in place would change the content and must not be done.
    File {
        /// The file, shared by all segments.
        file: Arc<File>,
        /// Start of the range in bytes.
        offset: u64,
        /// Length of the range in bytes.
        length: u64,
    },
    /// A number of zero bytes.
    Zeros(u64),
}

/// A sequence of segments.
#[derive(Debug, Clone, Default)]
pub struct Content {
    segments: Vec<ContentSegment>,
    /// The end offset of each segment; as long as `segments`, and strictly increasing.
    ends: Vec<u64>,
}

/// Reads a [`Content`]. Supports seeking.
#[derive(Debug)]
pub struct ContentReader<'a> {
    content: &'a Content,
    position: u64,
}

// === impl Segment ===

impl ContentSegment {
    /// Returns the number of bytes.
    pub fn length(&self) -> u64 {
        match self {
            ContentSegment::Bytes(bytes) => bytes.len() as u64,
            ContentSegment::File { length, .. } | ContentSegment::Zeros(length) => *length,
        }
    }

    fn part(&self, range: Range<u64>) -> ContentSegment {
        match self {
            ContentSegment::Bytes(bytes) => {
                ContentSegment::Bytes(bytes.slice(range.start as usize..range.end as usize))
            }
            ContentSegment::File { file, offset, .. } => ContentSegment::File {
                file: Arc::clone(file),
                offset: offset + range.start,
                length: range.end - range.start,
            },
            ContentSegment::Zeros(_) => ContentSegment::Zeros(range.end - range.start),
        }
    }

    /// Reads from the offset `skip` of this segment; the buffer must not be longer than the rest.
    fn read_exact_at(&self, skip: u64, buffer: &mut [u8]) -> io::Result<()> {
        match self {
            ContentSegment::Bytes(bytes) => {
                let from = skip as usize;
                buffer.copy_from_slice(&bytes[from..from + buffer.len()]);
                Ok(())
            }
            ContentSegment::File { file, offset, .. } => file.read_exact_at(buffer, offset + skip),
            ContentSegment::Zeros(_) => {
                buffer.fill(0);
                Ok(())
            }
        }
    }
}

/// Does not show bytes: kernel parameters contain agent tokens, user data contains passwords.
impl fmt::Debug for ContentSegment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContentSegment::Bytes(bytes) => write!(formatter, "{} bytes", bytes.len()),
            ContentSegment::File { offset, length, .. } => {
                write!(formatter, "{length} bytes of a file from {offset}")
            }
            ContentSegment::Zeros(length) => write!(formatter, "{length} zeros"),
        }
    }
}

// === impl Content ===

impl Content {
    /// Returns an empty content.
    pub fn new() -> Content {
        Content::default()
    }

    /// Opens a file as content with its current length.
    pub fn open(path: &Path) -> io::Result<Content> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            // A pipe or a device has no length.
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let length = metadata.len();
        let mut content = Content::new();
        content.push(ContentSegment::File { file: Arc::new(file), offset: 0, length });
        Ok(content)
    }

    /// Returns the number of bytes.
    pub fn length(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the segments in order, for callers that send file ranges with `sendfile`.
    pub fn segments(&self) -> &[ContentSegment] {
        &self.segments
    }

    /// Appends a segment; an empty one is ignored.
    pub fn push(&mut self, segment: ContentSegment) {
        let length = segment.length();
        if length > 0 {
            self.ends.push(self.length() + length);
            self.segments.push(segment);
        }
    }

    /// Appends all of another content, by reference.
    pub fn append(&mut self, other: &Content) {
        for segment in &other.segments {
            self.push(segment.clone());
        }
    }

    /// Appends zeros until the length is a multiple of `unit`.
    pub fn pad_to_multiple(&mut self, unit: u64) {
        let length = self.length();
        self.push(ContentSegment::Zeros(length.next_multiple_of(unit) - length));
    }

    /// Returns the bytes of `range`, limited to the length, by reference. Used for HTTP ranges.
    pub fn slice(&self, range: Range<u64>) -> Content {
        let end = range.end.min(self.length());
        let mut position = range.start;
        let mut slice = Content::new();
        let mut index = self.ends.partition_point(|segment_end| *segment_end <= position);
        while position < end {
            let segment = &self.segments[index];
            let segment_start = self.ends[index] - segment.length();
            let until = self.ends[index].min(end);
            slice.push(segment.part(position - segment_start..until - segment_start));
            position = until;
            index += 1;
        }
        slice
    }

    /// Fills the buffer from `offset` as far as there are bytes, and returns the number of bytes read.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut position = offset;
        let mut filled = 0;
        let mut index = self.ends.partition_point(|segment_end| *segment_end <= offset);
        while filled < buffer.len() && index < self.segments.len() {
            let segment = &self.segments[index];
            let left = self.ends[index] - position;
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len() - filled);
            segment.read_exact_at(segment.length() - left, &mut buffer[filled..filled + count])?;
            filled += count;
            position += count as u64;
            index += 1;
        }
        Ok(filled)
    }

    /// Returns a reader over all bytes.
    pub fn reader(&self) -> ContentReader<'_> {
        ContentReader { content: self, position: 0 }
    }

    /// Writes all bytes, in blocks of 256 KiB.
    pub fn write_to(&self, output: &mut impl Write) -> io::Result<u64> {
        let mut buffer = vec![0; 256 * 1024];
        let mut position = 0;
        loop {
            let count = self.read_at(position, &mut buffer)?;
            if count == 0 {
                return Ok(position);
            }
            output.write_all(&buffer[..count])?;
            position += count as u64;
        }
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Content {
        Content::from(Bytes::from(bytes))
    }
}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Content {
        let mut content = Content::new();
        content.push(ContentSegment::Bytes(bytes));
        content
    }
}

// === impl ContentReader ===

impl Read for ContentReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.content.read_at(self.position, buffer)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for ContentReader<'_> {
    fn seek(&mut self, target: SeekFrom) -> io::Result<u64> {
        let position = match target {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(distance) => self.content.length().checked_add_signed(distance),
            SeekFrom::Current(distance) => self.position.checked_add_signed(distance),
        };
        self.position = position.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "seek before the start of the content")
        })?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(content: &Content) -> Vec<u8> {
        let mut bytes = Vec::new();
        content.write_to(&mut bytes).unwrap();
        bytes
    }

    /// Returns a content with all three kinds of segments, and its bytes.
    fn content_and_bytes(pieces: &[(u8, Vec<u8>)]) -> (Content, Vec<u8>) {
        let mut content = Content::new();
        let mut plain = Vec::new();
        for (kind, bytes) in pieces {
            match kind % 3 {
                0 => {
                    plain.extend_from_slice(bytes);
                    content.push(ContentSegment::Bytes(Bytes::from(bytes.clone())));
                }
                1 => {
                    plain.extend_from_slice(bytes);
                    let mut file = tempfile::tempfile().unwrap();
                    file.write_all(b"before").unwrap();
                    file.write_all(bytes).unwrap();
                    let length = bytes.len() as u64;
                    content.push(ContentSegment::File { file: Arc::new(file), offset: 6, length });
                }
                _ => {
                    plain.resize(plain.len() + bytes.len(), 0);
                    content.push(ContentSegment::Zeros(bytes.len() as u64));
                }
            }
        }
        (content, plain)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn all_read_methods_agree(
            pieces in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..40)), 0..8),
            start in 0_u64..300,
            length in 0_u64..300,
        ) {
            let (content, plain) = content_and_bytes(&pieces);
            prop_assert_eq!(content.length(), plain.len() as u64);
            prop_assert_eq!(&written(&content), &plain);
            let from = (start as usize).min(plain.len());
            let to = ((start + length) as usize).min(plain.len());
            prop_assert_eq!(written(&content.slice(start..start + length)), &plain[from..to]);
            let mut buffer = vec![0xAA; length as usize];
            let count = content.read_at(start, &mut buffer).unwrap();
            prop_assert_eq!(&buffer[..count], &plain[from..to]);
        }
    }

    #[test]
    fn truncated_file_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"twelve bytes").unwrap();
        let content = Content::open(file.path()).unwrap();
        file.as_file().set_len(4).unwrap();
        let error = content.write_to(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn reader_seeks() {
        let content = Content::from(b"0123456789".to_vec());
        let mut reader = content.reader();
        reader.seek(SeekFrom::End(-3)).unwrap();
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "789");
        assert!(reader.seek(SeekFrom::Current(-11)).is_err());
    }
}
