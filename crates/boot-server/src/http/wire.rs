// SPDX-License-Identifier: Apache-2.0
//! How bytes get to a client: straight from the page cache over plain TCP, through a buffer over TLS.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use boot_media::{Content, Segment};
use bytes::BufMut as _;
use rustix::net::SendFlags;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::page_cache;

/// A connection.
pub(super) enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Contents in memory up to this size go out together with the head.
const SMALL: usize = 16 << 10;
/// The piece in which files and zeros go through TLS. It is what rustls holds at a time.
const PIECE: usize = 64 << 10;
static ZEROS: [u8; PIECE] = [0; PIECE];

impl Wire {
    /// Reads what has come behind what is in `buffer`, until that is `most` long. Zero is the end.
    pub(super) async fn read(&mut self, buffer: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        let room = most.saturating_sub(buffer.len());
        let mut space = buffer.limit(room);
        match self {
            Self::Plain(stream) => stream.read_buf(&mut space).await,
            Self::Tls(stream) => stream.read_buf(&mut space).await,
        }
    }

    /// Sends a head and a content. `sent` counts the bytes of the content that were given to the
    /// network, also if that fails in the middle; it fails if no byte moves for as long as `stall`.
    pub(super) async fn send(
        &mut self,
        head: &mut Vec<u8>,
        content: &Content,
        stall: Duration,
        sent: &mut u64,
    ) -> io::Result<()> {
        let in_one_go = match content.segments() {
            [] => Some(&[][..]),
            [Segment::Bytes(bytes)] if bytes.len() <= SMALL => Some(&bytes[..]),
            _ => None,
        };
        if let Some(bytes) = in_one_go {
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
                Segment::Bytes(bytes) => self.send_bytes(bytes, stall, sent).await?,
                Segment::File { file, offset, length } => {
                    self.send_file(file, *offset, offset + length, stall, sent).await?;
                }
                Segment::Zeros(length) => {
                    let mut left = *length;
                    while left > 0 {
                        let count = left.min(PIECE as u64);
                        self.send_bytes(&ZEROS[..count as usize], stall, sent).await?;
                        left -= count;
                    }
                }
            }
        }
        self.flush(stall).await?;
        self.cork(false);
        Ok(())
    }

    /// Says that nothing more is sent.
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.shutdown().await,
            Self::Tls(stream) => stream.shutdown().await,
        }
    }

    async fn flush(&mut self, stall: Duration) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(stream) => in_time(stall, stream.flush()).await,
        }
    }

    /// While it is corked, the kernel sends full packets only; what is left goes out when the cork is
    /// drawn. Without this `sendfile` ends every batch of pages with a packet of a few bytes, and such
    /// packets fill the client's buffer with nothing: over loopback that is half of the throughput.
    fn cork(&self, is_corked: bool) {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        };
        // Without a cork it only gets slower.
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
                    in_time(stall, stream.async_io(Interest::WRITABLE, send)).await?
                }
                Self::Tls(stream) => in_time(stall, stream.write(bytes)).await?,
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
                    buffer.resize((end - at).min(PIECE as u64) as usize, 0);
                    buffer = page_cache::read(file, at, buffer).await?;
                    self.send_bytes(&buffer, stall, sent).await?;
                    at += buffer.len() as u64;
                }
                Ok(())
            }
        }
    }
}

/// The kernel takes the pages of the file as they are and copies nothing.
async fn send_from_cache(
    stream: &TcpStream,
    file: &Arc<File>,
    start: u64,
    end: u64,
    stall: Duration,
    sent: &mut u64,
) -> io::Result<()> {
    let mut at = start;
    let mut in_memory = start;
    while at < end {
        if at == in_memory {
            if at > start {
                // A client on a fast network takes all that comes; others have their turn.
                tokio::task::yield_now().await;
            }
            in_memory = page_cache::bring(file, at, end).await?;
        }
        let count = (in_memory - at) as usize;
        let send = || Ok(rustix::fs::sendfile(stream, &**file, Some(&mut at), count)?);
        match in_time(stall, stream.async_io(Interest::WRITABLE, send)).await? {
            // The file was cut short; what was promised cannot be kept.
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => *sent += count as u64,
        }
    }
    Ok(())
}

async fn in_time<T>(stall: Duration, action: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(stall, action).await?
}
