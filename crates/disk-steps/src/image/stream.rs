// SPDX-License-Identifier: Apache-2.0
//! A blocking reader over a download that computes its checksum.

use std::io::{self, BufRead, Read};

use bytes::{Buf, Bytes};
use images::DownloadMessage;
use tokio::sync::mpsc;

use super::digest::StreamDigest;

/// Reads the chunks of a download in order.
pub(super) struct DownloadReader {
    chunks: mpsc::Receiver<DownloadMessage>,
    current: Bytes,
    digest: StreamDigest,
    length: Option<u64>,
    received: u64,
    is_complete: bool,
}

impl DownloadReader {
    /// Creates a reader over `chunks`.
    pub(super) fn new(chunks: mpsc::Receiver<DownloadMessage>, digest: StreamDigest) -> Self {
        let current = Bytes::new();
        Self { chunks, current, digest, length: None, received: 0, is_complete: false }
    }

    /// Waits for the first bytes; returns the length of the file if the server reported it.
    pub(super) fn start(&mut self) -> io::Result<Option<u64>> {
        self.fill_buf()?;
        Ok(self.length)
    }

    /// Reads the rest, so that the checksum covers the whole file. Returns the length and the checksum.
    pub(super) fn finish(mut self) -> io::Result<(u64, String)> {
        loop {
            let left = self.fill_buf()?.len();
            if left == 0 {
                return Ok((self.received, self.digest.finish()));
            }
            self.consume(left);
        }
    }
}

impl BufRead for DownloadReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.current.is_empty() && !self.is_complete {
            match self.chunks.blocking_recv() {
                Some(DownloadMessage::Length(length)) => self.length = length,
                Some(DownloadMessage::Bytes(bytes)) => {
                    self.digest.update(&bytes);
                    self.received += bytes.len() as u64;
                    self.current = bytes;
                }
                Some(DownloadMessage::End) => self.is_complete = true,
                // The download failed; its future returns the error. It never restarts.
                Some(DownloadMessage::Restart) | None => {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            }
        }
        Ok(&self.current)
    }

    fn consume(&mut self, amount: usize) {
        self.current.advance(amount);
    }
}

impl Read for DownloadReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

/// Reads until the buffer is full or the source ends.
pub(super) fn read_full(from: &mut (impl Read + ?Sized), buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
