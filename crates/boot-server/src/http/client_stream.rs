// SPDX-License-Identifier: Apache-2.0
//! Sends bytes to a client: directly from the page cache over plain TCP, through a buffer over TLS.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use boot_media::{Content, ContentSegment};
use bytes::BufMut as _;
use rustix::net::SendFlags;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::page_cache;

/// The stream of a connection.
pub(super) enum ClientStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Bodies in memory up to this size are sent together with the head.
const MAX_INLINE_BODY: usize = 16 << 10;
/// The chunk size of files over TLS and of zeros. It is the buffer limit of rustls.
const CHUNK: usize = 64 << 10;
static ZEROS: [u8; CHUNK] = [0; CHUNK];

impl ClientStream {
    /// Appends received bytes to `buffer`, up to a total of `max`. Returns 0 at the end of the stream.
    pub(super) async fn read(&mut self, buffer: &mut Vec<u8>, max: usize) -> io::Result<usize> {
        let mut space = buffer.limit(max.saturating_sub(buffer.len()));
        match self {
            Self::Plain(stream) => stream.read_buf(&mut space).await,
            Self::Tls(stream) => stream.read_buf(&mut space).await,
        }
    }

    /// Sends a head and a body. `sent` counts the sent bytes of the body, also if sending fails midway.
    /// Fails if no byte can be sent within `stall`.
    pub(super) async fn send(
        &mut self,
        head: &mut Vec<u8>,
        content: &Content,
        stall: Duration,
        sent: &mut u64,
    ) -> io::Result<()> {
        let inline_body = match content.segments() {
            [] => Some(&[][..]),
            [ContentSegment::Bytes(bytes)] if bytes.len() <= MAX_INLINE_BODY => Some(&bytes[..]),
            _ => None,
        };
        if let Some(bytes) = inline_body {
            head.extend_from_slice(bytes);
            self.send_bytes(head, stall, &mut 0).await?;
            self.flush(stall).await?;
            *sent = bytes.len() as u64;
            return Ok(());
        }
        self.cork(true);
        self.send_bytes(head, stall, &mut 0).await?;
        for segment in content.segments() {
            match segment {
                ContentSegment::Bytes(bytes) => self.send_bytes(bytes, stall, sent).await?,
                ContentSegment::File { file, offset, length } => {
                    self.send_file(file, *offset, offset + length, stall, sent).await?;
                }
                ContentSegment::Zeros(length) => {
                    let mut remaining = *length;
                    while remaining > 0 {
                        let count = remaining.min(CHUNK as u64);
                        self.send_bytes(&ZEROS[..count as usize], stall, sent).await?;
                        remaining -= count;
                    }
                }
            }
        }
        self.flush(stall).await?;
        self.cork(false);
        Ok(())
    }

    /// Closes the sending direction.
    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.shutdown().await,
            Self::Tls(stream) => stream.shutdown().await,
        }
    }

    async fn flush(&mut self, stall: Duration) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(stream) => with_stall_timeout(stall, stream.flush()).await,
        }
    }

    /// Sets `TCP_CORK`: the kernel then sends only full packets, and the rest when the cork is removed.
    /// Without it `sendfile` ends every batch of pages with a small packet, and small packets fill the
    /// client's receive buffer. Over loopback that halves the throughput.
    fn cork(&self, is_corked: bool) {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        };
        // A failure only costs throughput.
        let _ = socket2::SockRef::from(stream).set_tcp_cork(is_corked);
    }

    async fn send_bytes(
        &mut self,
        mut bytes: &[u8],
        stall: Duration,
        sent: &mut u64,
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = match self {
                Self::Plain(stream) => {
                    let send = || Ok(rustix::net::send(&*stream, bytes, SendFlags::NOSIGNAL)?);
                    with_stall_timeout(stall, stream.async_io(Interest::WRITABLE, send)).await?
                }
                Self::Tls(stream) => with_stall_timeout(stall, stream.write(bytes)).await?,
            };
            *sent += count as u64;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    async fn send_file(
        &mut self,
        file: &Arc<File>,
        start: u64,
        end: u64,
        stall: Duration,
        sent: &mut u64,
    ) -> io::Result<()> {
        match self {
            Self::Plain(stream) => send_from_cache(stream, file, start, end, stall, sent).await,
            Self::Tls(_) => {
                let mut at = start;
                let mut buffer = Vec::new();
                while at < end {
                    buffer.resize((end - at).min(CHUNK as u64) as usize, 0);
                    buffer = page_cache::read(file, at, buffer).await?;
                    self.send_bytes(&buffer, stall, sent).await?;
                    at += buffer.len() as u64;
                }
                Ok(())
            }
        }
    }
}

/// Sends a range of a file with `sendfile`, which does not copy it.
async fn send_from_cache(
    stream: &TcpStream,
    file: &Arc<File>,
    start: u64,
    end: u64,
    stall: Duration,
    sent: &mut u64,
) -> io::Result<()> {
    let mut at = start;
    let mut cached_until = start;
    while at < end {
        if at == cached_until {
            if at > start {
                // A fast client must not starve the other connections of this thread.
                tokio::task::yield_now().await;
            }
            cached_until = page_cache::load(file, at, end).await?;
        }
        let count = (cached_until - at) as usize;
        let send = || Ok(rustix::fs::sendfile(stream, &**file, Some(&mut at), count)?);
        match with_stall_timeout(stall, stream.async_io(Interest::WRITABLE, send)).await? {
            // The file was truncated, so the promised length cannot be sent.
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => *sent += count as u64,
        }
    }
    Ok(())
}

async fn with_stall_timeout<T>(
    stall: Duration,
    action: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    tokio::time::timeout(stall, action).await?
}
