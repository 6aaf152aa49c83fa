// SPDX-License-Identifier: Apache-2.0
//! A download as something to read from, digested on the way.

use std::io::{self, BufRead, Read};

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;

use super::digest::Digester;
use crate::http::Piece;

/// The bytes of a download, in order.
pub(super) struct Stream {
    pieces: mpsc::Receiver<Piece>,
    current: Bytes,
    digester: Digester,
    length: Option<u64>,
    received: u64,
    ended: bool,
}

impl Stream {
    /// Of what comes through `pieces`.
    pub(super) fn new(pieces: mpsc::Receiver<Piece>, digester: Digester) -> Self {
        let current = Bytes::new();
        Self { pieces, current, digester, length: None, received: 0, ended: false }
    }

    /// Waits for the beginning, and says how long the whole will be if the server told.
    pub(super) fn start(&mut self) -> io::Result<Option<u64>> {
        self.fill_buf()?;
        Ok(self.length)
    }

    /// Takes what nobody read, so that the checksum is of all of it. Answers how much came and its
    /// checksum.
    pub(super) fn finish(mut self) -> io::Result<(u64, String)> {
        loop {
            let left = self.fill_buf()?.len();
            if left == 0 {
                return Ok((self.received, self.digester.finish()));
            }
            self.consume(left);
        }
    }
}

impl BufRead for Stream {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.current.is_empty() && !self.ended {
            match self.pieces.blocking_recv() {
                Some(Piece::Length(length)) => self.length = length,
                Some(Piece::Bytes(bytes)) => {
                    self.digester.update(&bytes);
                    self.received += bytes.len() as u64;
                    self.current = bytes;
                }
                Some(Piece::End) => self.ended = true,
                // The download failed; whoever runs it knows why.
                None => return Err(io::ErrorKind::ConnectionAborted.into()),
            }
        }
        Ok(&self.current)
    }

    fn consume(&mut self, amount: usize) {
        self.current.advance(amount);
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let there = self.fill_buf()?;
        let count = there.len().min(buffer.len());
        buffer[..count].copy_from_slice(&there[..count]);
        self.consume(count);
        Ok(count)
    }
}

/// Reads until the buffer is full or there is no more.
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
