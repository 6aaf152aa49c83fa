// SPDX-License-Identifier: Apache-2.0
//! A TFTP client like that of firmware: in-order blocks, with or without a window.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::net::UdpSocket;

use crate::load::{self, LoadResult};

/// A file to fetch and the options to request.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct TftpFetch {
    /// The server.
    #[arg(long)]
    pub(crate) server: SocketAddr,
    /// The file.
    #[arg(long)]
    pub(crate) file: String,
    /// The requested block size in bytes.
    #[arg(long, default_value_t = 1468)]
    pub(crate) block: usize,
    /// The requested window size in blocks. The option is not sent if it is 1.
    #[arg(long, default_value_t = 1)]
    pub(crate) window: u64,
}

const DATA: u8 = 3;
const OACK: u8 = 6;
const TIMEOUT: Duration = Duration::from_secs(1);
/// The number of consecutive timeouts after which the client gives up.
const MAX_TIMEOUTS: u32 = 30;

/// Fetches the file `count` times.
pub(crate) async fn load(request: &TftpFetch, count: u32, at_once: u32) -> LoadResult {
    let request = request.clone();
    load::run(count, at_once, move |_| {
        let request = request.clone();
        async move { fetch(&request, Ipv4Addr::UNSPECIFIED.into()).await }
    })
    .await
}

/// Fetches the file once from this local address and returns its size.
pub(crate) async fn fetch(request: &TftpFetch, from: IpAddr) -> Result<u64> {
    let socket = UdpSocket::bind((from, 0)).await.context("cannot bind a socket")?;
    let mut last_sent = encode_request(request);
    let mut to = request.server;
    let mut buffer = vec![0; 65536];
    let mut timeouts = 0;
    let mut state = ReceiveState { window: request.window, ..ReceiveState::default() };
    let mut is_connected = false;
    socket.send_to(&last_sent, to).await?;
    loop {
        let received = tokio::time::timeout(TIMEOUT, socket.recv_from(&mut buffer)).await;
        let Ok(received) = received else {
            timeouts += 1;
            ensure!(timeouts < MAX_TIMEOUTS, "no reply after {} bytes", state.bytes);
            send(&socket, &last_sent, to, is_connected).await?;
            continue;
        };
        let (length, sender) = received?;
        timeouts = 0;
        if !is_connected {
            // The server uses a new port for each transfer.
            socket.connect(sender).await?;
            to = sender;
            is_connected = true;
        }
        let message = &buffer[..length];
        let acknowledgement = match message {
            [0, OACK, agreed @ ..] => {
                state.block = agreed_option(agreed, "blksize").unwrap_or(512);
                state.window = agreed_option(agreed, "windowsize").unwrap_or(1);
                Some(0)
            }
            [0, DATA, high, low, data @ ..] => {
                if state.block == 0 {
                    state.block = 512;
                    state.window = 1;
                }
                state.accept(u16::from_be_bytes([*high, *low]), data.len() as u64)
            }
            _ => bail!("refused: {}", String::from_utf8_lossy(message)),
        };
        if let Some(block) = acknowledgement {
            let [high, low] = block.to_be_bytes();
            last_sent = vec![0, 4, high, low];
            send(&socket, &last_sent, to, is_connected).await?;
        }
        if state.is_done {
            return Ok(state.bytes);
        }
    }
}

/// The progress of a transfer.
#[derive(Default)]
struct ReceiveState {
    block: u64,
    window: u64,
    /// The number of received blocks.
    received: u64,
    in_window: u64,
    bytes: u64,
    is_done: bool,
}

impl ReceiveState {
    /// Accepts the next block. Returns the block number to acknowledge, if any.
    fn accept(&mut self, number: u16, length: u64) -> Option<u16> {
        if number != (self.received + 1) as u16 {
            // A gap or a duplicate: repeat the last acknowledgement, once per window.
            let is_first = self.in_window > 0 || self.window == 1;
            self.in_window = 0;
            return is_first.then_some(self.received as u16);
        }
        self.received += 1;
        self.in_window += 1;
        self.bytes += length;
        self.is_done = length < self.block;
        if self.is_done || self.in_window == self.window {
            self.in_window = 0;
            return Some(self.received as u16);
        }
        None
    }
}

async fn send(socket: &UdpSocket, message: &[u8], to: SocketAddr, connected: bool) -> Result<()> {
    let sent =
        if connected { socket.send(message).await } else { socket.send_to(message, to).await };
    sent.map(|_| ()).context("cannot send")
}

fn encode_request(request: &TftpFetch) -> Vec<u8> {
    let mut out = vec![0, 1];
    let mut strings = vec![request.file.clone(), "octet".into(), "tsize".into(), "0".into()];
    strings.extend(["blksize".into(), request.block.to_string()]);
    if request.window > 1 {
        strings.extend(["windowsize".into(), request.window.to_string()]);
    }
    for string in strings {
        out.extend_from_slice(string.as_bytes());
        out.push(0);
    }
    out
}

fn agreed_option(agreed: &[u8], name: &str) -> Option<u64> {
    let mut strings = agreed.split(|byte| *byte == 0);
    while let (Some(key), Some(value)) = (strings.next(), strings.next()) {
        if key.eq_ignore_ascii_case(name.as_bytes()) {
            return std::str::from_utf8(value).ok()?.parse().ok();
        }
    }
    None
}
