// SPDX-License-Identifier: Apache-2.0
//! TFTP messages: bytes to meaning and back.

use std::time::Duration;

pub(super) const READ: u16 = 1;
const WRITE: u16 = 2;
pub(super) const DATA: u16 = 3;
pub(super) const ACK: u16 = 4;
pub(super) const ERROR: u16 = 5;
pub(super) const OACK: u16 = 6;

/// The largest request that is looked at; names longer than this are no files of ours.
const LONGEST_REQUEST: usize = 2048;

/// A request to read a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The name as the client wrote it.
    pub file: String,
    /// Whether line ends are to be translated.
    pub netascii: bool,
    /// The options the client asks for.
    pub options: RequestedOptions,
}

/// Options the client asks for; what it did not name, or named nonsensically, is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestedOptions {
    /// Bytes per block.
    pub block_size: Option<u16>,
    /// Whether it wants to know the size.
    pub size: bool,
    /// How long to wait before sending again.
    pub timeout: Option<Duration>,
    /// Blocks per acknowledgement.
    pub window: Option<u16>,
}

/// Why a message to the listening port is not a request to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// It wants to write.
    #[error("this server is read-only")]
    Write,
    /// Neither octet nor netascii.
    #[error("the transfer mode is neither octet nor netascii")]
    Mode,
    /// No request at all.
    #[error("not a TFTP request")]
    Malformed,
}

/// The error numbers of RFC 1350 and 2347.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the RFC's")]
pub enum ErrorCode {
    Undefined = 0,
    NotFound = 1,
    AccessViolation = 2,
    IllegalOperation = 4,
    OptionRefused = 8,
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// If it is not a request to read.
    pub fn decode(bytes: &[u8]) -> Result<Self, RequestError> {
        let (operation, rest) = split_number(bytes).ok_or(RequestError::Malformed)?;
        match operation {
            READ if bytes.len() <= LONGEST_REQUEST => {}
            WRITE => return Err(RequestError::Write),
            _ => return Err(RequestError::Malformed),
        }
        let mut words = Words(rest);
        let (file, mode) = words.next().zip(words.next()).ok_or(RequestError::Malformed)?;
        let file = std::str::from_utf8(file).map_err(|_| RequestError::Malformed)?.to_owned();
        let netascii = mode.eq_ignore_ascii_case(b"netascii");
        if !netascii && !mode.eq_ignore_ascii_case(b"octet") {
            return Err(RequestError::Mode);
        }
        let mut options = RequestedOptions::default();
        while let Some((name, value)) = words.next().zip(words.next()) {
            options.take(name, value);
        }
        Ok(Self { file, netascii, options })
    }
}

impl RequestedOptions {
    fn take(&mut self, name: &[u8], value: &[u8]) {
        let Some(number) =
            std::str::from_utf8(value).ok().and_then(|text| text.parse::<u32>().ok())
        else {
            return;
        };
        if name.eq_ignore_ascii_case(b"blksize") && (8..=65464).contains(&number) {
            self.block_size = Some(number as u16);
        } else if name.eq_ignore_ascii_case(b"tsize") {
            self.size = true;
        } else if name.eq_ignore_ascii_case(b"timeout") && (1..=255).contains(&number) {
            self.timeout = Some(Duration::from_secs(u64::from(number)));
        } else if name.eq_ignore_ascii_case(b"windowsize") && (1..=65535).contains(&number) {
            self.window = Some(number as u16);
        }
    }
}

/// An error message.
pub(super) fn error(code: ErrorCode, text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(5 + text.len());
    out.extend(ERROR.to_be_bytes());
    out.extend((code as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
    out.push(0);
    out
}

/// What a client in a transfer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FromClient {
    Ack(u16),
    Error,
    Other,
}

impl FromClient {
    pub(super) fn decode(bytes: &[u8]) -> Self {
        match split_number(bytes) {
            Some((ACK, rest)) => {
                split_number(rest).map_or(Self::Other, |(block, _)| Self::Ack(block))
            }
            Some((ERROR, _)) => Self::Error,
            Some(_) | None => Self::Other,
        }
    }
}

fn split_number(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<2>()?;
    Some((u16::from_be_bytes(*number), rest))
}

/// Zero-ended words.
struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let (word, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Some(word)
    }
}
