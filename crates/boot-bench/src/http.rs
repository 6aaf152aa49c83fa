// SPDX-License-Identifier: Apache-2.0
//! An HTTP client that throws bodies away without copying them, so that it costs little beside the
//! server that is measured.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use rustix::net::RecvFlags;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{TcpSocket, TcpStream};

use crate::load::{self, Outcome};

const LONGEST_HEAD: usize = 4096;
/// What is thrown away per call.
const PIECE: usize = 1 << 20;

/// A connection that stays.
pub(crate) struct Connection {
    stream: TcpStream,
    host: SocketAddr,
    /// Room for what is thrown away, which nothing is written to.
    bin: Vec<u8>,
}

/// Sends `count` requests over `at_once` connections.
pub(crate) async fn load(server: SocketAddr, path: &str, count: u32, at_once: u32) -> Outcome {
    // Connections are taken and put back, so each serves one request at a time.
    let idle: Arc<Mutex<Vec<Connection>>> = Arc::default();
    let path: Arc<str> = path.into();
    load::drive(count, at_once, move |_| {
        let (idle, path) = (idle.clone(), path.clone());
        async move {
            let taken = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut connection = match taken {
                Some(connection) => connection,
                None => Connection::open(server, Ipv4Addr::UNSPECIFIED.into()).await?,
            };
            let bytes = connection.get(&path).await?;
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            Ok(bytes)
        }
    })
    .await
}

impl Connection {
    pub(crate) async fn open(server: SocketAddr, from: IpAddr) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into()).context("no socket")?;
        let stream = socket.connect(server).await.context("cannot connect by HTTP")?;
        Ok(Self { stream, host: server, bin: vec![0; PIECE] })
    }

    /// Fetches a path; how many bytes came.
    pub(crate) async fn get(&mut self, path: &str) -> Result<u64> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host);
        self.stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::with_capacity(LONGEST_HEAD);
        let (length, body) = loop {
            ensure!(head.len() < LONGEST_HEAD, "the head does not end");
            let read = self.stream.read_buf(&mut head).await?;
            ensure!(read > 0, "the connection was closed");
            if let Some(end) = head.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break (content_length(&head[..end])?, head.len() - end - 4);
            }
        };
        let mut left = length.checked_sub(body as u64).context("more than was promised")?;
        while left > 0 {
            left -= self.discard(left).await?;
        }
        Ok(length)
    }

    /// Linux lets go of what came in when it is read with `MSG_TRUNC`, and copies nothing.
    async fn discard(&mut self, most: u64) -> Result<u64> {
        let most = usize::try_from(most).unwrap_or(PIECE).min(PIECE);
        let (stream, bin) = (&self.stream, &mut self.bin[..most]);
        let gone = stream
            .async_io(Interest::READABLE, || {
                let (_, gone) = rustix::net::recv(stream, &mut *bin, RecvFlags::TRUNC)?;
                io::Result::Ok(gone)
            })
            .await?;
        ensure!(gone > 0, "the connection was closed too early");
        Ok(gone as u64)
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
        .context("no content length")
}
