// SPDX-License-Identifier: Apache-2.0
//! The TFTP messages.

use std::time::Duration;

pub(super) const READ: u16 = 1;
const WRITE: u16 = 2;
pub(super) const DATA: u16 = 3;
pub(super) const ACK: u16 = 4;
pub(super) const ERROR: u16 = 5;
pub(super) const OACK: u16 = 6;

/// The size limit of a request.
const MAX_REQUEST_BYTES: usize = 2048;

/// A read request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TftpRequest {
    /// The file name as the client sent it.
    pub file: String,
    /// Whether line ends are translated.
    pub netascii: bool,
    /// The requested options.
    pub options: TftpOptions,
}

/// The requested options. Missing and invalid ones are `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TftpOptions {
    /// The block size in bytes.
    pub block_size: Option<u16>,
    /// Whether the client requests the file size.
    pub requests_size: bool,
    /// The retransmission timeout.
    pub timeout: Option<Duration>,
    /// The number of blocks per acknowledgement.
    pub window: Option<u16>,
}

/// Why a message to the listening port is not a read request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TftpRequestError {
    /// A write request.
    #[error("this server is read-only")]
    Write,
    /// Neither octet nor netascii.
    #[error("the transfer mode is neither octet nor netascii")]
    Mode,
    /// Not a request.
    #[error("not a TFTP request")]
    Malformed,
}

/// The error codes of RFC 1350 and 2347.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the RFC's")]
pub enum TftpErrorCode {
    Undefined = 0,
    NotFound = 1,
    AccessViolation = 2,
    IllegalOperation = 4,
    OptionRefused = 8,
}

impl TftpRequest {
    /// Decodes a request.
    ///
    /// # Errors
    /// If it is not a read request.
    pub fn decode(bytes: &[u8]) -> Result<Self, TftpRequestError> {
        let (operation, rest) = split_u16(bytes).ok_or(TftpRequestError::Malformed)?;
        match operation {
            READ if bytes.len() <= MAX_REQUEST_BYTES => {}
            WRITE => return Err(TftpRequestError::Write),
            _ => return Err(TftpRequestError::Malformed),
        }
        let mut strings = NulTerminatedStrings(rest);
        let (file, mode) = strings.next().zip(strings.next()).ok_or(TftpRequestError::Malformed)?;
        let file = std::str::from_utf8(file).map_err(|_| TftpRequestError::Malformed)?.to_owned();
        let netascii = mode.eq_ignore_ascii_case(b"netascii");
        if !netascii && !mode.eq_ignore_ascii_case(b"octet") {
            return Err(TftpRequestError::Mode);
        }
        let mut options = TftpOptions::default();
        while let Some((name, value)) = strings.next().zip(strings.next()) {
            options.set(name, value);
        }
        Ok(Self { file, netascii, options })
    }
}

impl TftpOptions {
    fn set(&mut self, name: &[u8], value: &[u8]) {
        let Some(number) =
            std::str::from_utf8(value).ok().and_then(|text| text.parse::<u32>().ok())
        else {
            return;
        };
        if name.eq_ignore_ascii_case(b"blksize") && (8..=65464).contains(&number) {
            self.block_size = Some(number as u16);
        } else if name.eq_ignore_ascii_case(b"tsize") {
            self.requests_size = true;
        } else if name.eq_ignore_ascii_case(b"timeout") && (1..=255).contains(&number) {
            self.timeout = Some(Duration::from_secs(u64::from(number)));
        } else if name.eq_ignore_ascii_case(b"windowsize") && (1..=65535).contains(&number) {
            self.window = Some(number as u16);
        }
    }
}

/// Encodes an error message.
pub(super) fn error_message(code: TftpErrorCode, text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(5 + text.len());
    out.extend(ERROR.to_be_bytes());
    out.extend((code as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
    out.push(0);
    out
}

/// A message of the client during a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TftpClientMessage {
    Ack(u16),
    Error,
    Other,
}

impl TftpClientMessage {
    pub(super) fn decode(bytes: &[u8]) -> Self {
        match split_u16(bytes) {
            Some((ACK, rest)) => split_u16(rest).map_or(Self::Other, |(block, _)| Self::Ack(block)),
            Some((ERROR, _)) => Self::Error,
            Some(_) | None => Self::Other,
        }
    }
}

fn split_u16(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<2>()?;
    Some((u16::from_be_bytes(*number), rest))
}

/// Iterates over NUL-terminated strings.
struct NulTerminatedStrings<'a>(&'a [u8]);

impl<'a> Iterator for NulTerminatedStrings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let (string, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Some(string)
    }
}
