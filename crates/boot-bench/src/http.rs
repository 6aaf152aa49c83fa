// SPDX-License-Identifier: Apache-2.0
//! An HTTP client that discards bodies without copying them, so that it uses little CPU time compared to
//! the measured server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use rustix::net::RecvFlags;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{TcpSocket, TcpStream};

use crate::load::{self, LoadResult};

const MAX_HEAD_BYTES: usize = 4096;
/// The number of bytes to discard per call.
const DISCARD_BYTES: usize = 1 << 20;

/// A persistent connection.
pub(crate) struct BenchHttpConnection {
    stream: TcpStream,
    host: SocketAddr,
    /// The buffer for discarded bytes, which is never written to.
    discard_buffer: Vec<u8>,
}

/// Sends `count` requests over `at_once` connections.
pub(crate) async fn load(server: SocketAddr, path: &str, count: u32, at_once: u32) -> LoadResult {
    // A connection is removed while it is used, so it has one request at a time.
    let idle: Arc<Mutex<Vec<BenchHttpConnection>>> = Arc::default();
    let path: Arc<str> = path.into();
    load::run(count, at_once, move |_| {
        let (idle, path) = (idle.clone(), path.clone());
        async move {
            let reused = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut connection = match reused {
                Some(connection) => connection,
                None => BenchHttpConnection::open(server, Ipv4Addr::UNSPECIFIED.into()).await?,
            };
            let bytes = connection.get(&path).await?;
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            Ok(bytes)
        }
    })
    .await
}

impl BenchHttpConnection {
    pub(crate) async fn open(server: SocketAddr, from: IpAddr) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into()).context("cannot bind a socket")?;
        let stream = socket.connect(server).await.context("cannot connect")?;
        Ok(Self { stream, host: server, discard_buffer: vec![0; DISCARD_BYTES] })
    }

    /// Fetches a path and returns the size of the body.
    pub(crate) async fn get(&mut self, path: &str) -> Result<u64> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host);
        self.stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::with_capacity(MAX_HEAD_BYTES);
        let (length, body) = loop {
            ensure!(head.len() < MAX_HEAD_BYTES, "the response head is too long");
            let read = self.stream.read_buf(&mut head).await?;
            ensure!(read > 0, "the connection was closed before the response");
            if let Some(end) = head.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break (content_length(&head[..end])?, head.len() - end - 4);
            }
        };
        let mut remaining = length
            .checked_sub(body as u64)
            .context("the body is longer than its content length")?;
        while remaining > 0 {
            remaining -= self.discard(remaining).await?;
        }
        Ok(length)
    }

    /// Discards up to `max` received bytes. With `MSG_TRUNC` Linux does not copy them.
    async fn discard(&mut self, max: u64) -> Result<u64> {
        let max = usize::try_from(max).unwrap_or(DISCARD_BYTES).min(DISCARD_BYTES);
        let (stream, buffer) = (&self.stream, &mut self.discard_buffer[..max]);
        let discarded = stream
            .async_io(Interest::READABLE, || {
                let (_, discarded) = rustix::net::recv(stream, &mut *buffer, RecvFlags::TRUNC)?;
                io::Result::Ok(discarded)
            })
            .await?;
        ensure!(discarded > 0, "the connection was closed inside the body");
        Ok(discarded as u64)
    }
}

fn content_length(head: &[u8]) -> Result<u64> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.lines();
    let status = lines.next().unwrap_or_default();
    if !status.contains(" 200 ") {
        bail!("{status}");
    }
    lines
        .find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        })
        .context("the response has no content length")
}
