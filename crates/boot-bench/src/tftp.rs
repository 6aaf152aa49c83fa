// SPDX-License-Identifier: Apache-2.0
//! A TFTP client as firmware has it: blocks in order, with or without a window.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::net::UdpSocket;

use crate::load::{self, Outcome};

/// What to fetch, and how.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Fetch {
    /// The server.
    #[arg(long)]
    pub(crate) server: SocketAddr,
    /// The file.
    #[arg(long)]
    pub(crate) file: String,
    /// The bytes of a block to ask for.
    #[arg(long, default_value_t = 1468)]
    pub(crate) block: usize,
    /// The blocks of a window to ask for; with 1 none is asked for.
    #[arg(long, default_value_t = 1)]
    pub(crate) window: u64,
}

const DATA: u8 = 3;
const OPTIONS: u8 = 6;
const PATIENCE: Duration = Duration::from_secs(1);
/// Silences in a row after which a machine gives up.
const MOST_SILENCES: u32 = 30;

/// Fetches the file `count` times.
pub(crate) async fn load(what: &Fetch, count: u32, at_once: u32) -> Outcome {
    let what = what.clone();
    load::drive(count, at_once, move |_| {
        let what = what.clone();
        async move { fetch(&what, Ipv4Addr::UNSPECIFIED.into()).await }
    })
    .await
}

/// Fetches the file once; how many bytes came.
pub(crate) async fn fetch(what: &Fetch, from: IpAddr) -> Result<u64> {
    let socket = UdpSocket::bind((from, 0)).await.context("no socket")?;
    let mut said = request(what);
    let mut to = what.server;
    let mut buffer = vec![0; 65536];
    let mut silences = 0;
    let mut place = Place { window: what.window, ..Place::default() };
    let mut is_connected = false;
    socket.send_to(&said, to).await?;
    loop {
        let received = tokio::time::timeout(PATIENCE, socket.recv_from(&mut buffer)).await;
        let Ok(received) = received else {
            silences += 1;
            ensure!(silences < MOST_SILENCES, "the server is silent after {} bytes", place.bytes);
            send(&socket, &said, to, is_connected).await?;
            continue;
        };
        let (length, sender) = received?;
        silences = 0;
        if !is_connected {
            // The server answers from a port of its own for each transfer.
            socket.connect(sender).await?;
            to = sender;
            is_connected = true;
        }
        let message = &buffer[..length];
        let acknowledgement = match message {
            [0, OPTIONS, agreed @ ..] => {
                place.block = option(agreed, "blksize").unwrap_or(512);
                place.window = option(agreed, "windowsize").unwrap_or(1);
                Some(0)
            }
            [0, DATA, high, low, data @ ..] => {
                if place.block == 0 {
                    place.block = 512;
                    place.window = 1;
                }
                place.take(u16::from_be_bytes([*high, *low]), data.len() as u64)
            }
            _ => bail!("refused: {}", String::from_utf8_lossy(message)),
        };
        if let Some(block) = acknowledgement {
            let [high, low] = block.to_be_bytes();
            said = vec![0, 4, high, low];
            send(&socket, &said, to, is_connected).await?;
        }
        if place.is_done {
            return Ok(place.bytes);
        }
    }
}

/// How far a transfer is.
#[derive(Default)]
struct Place {
    block: u64,
    window: u64,
    /// Blocks taken.
    taken: u64,
    in_window: u64,
    bytes: u64,
    is_done: bool,
}

impl Place {
    /// Takes a block if it is the next; what to acknowledge, if anything.
    fn take(&mut self, number: u16, length: u64) -> Option<u16> {
        if number != (self.taken + 1) as u16 {
            // A gap or a repetition: say where we are, once per window.
            let is_first = self.in_window > 0 || self.window == 1;
            self.in_window = 0;
            return is_first.then_some(self.taken as u16);
        }
        self.taken += 1;
        self.in_window += 1;
        self.bytes += length;
        self.is_done = length < self.block;
        if self.is_done || self.in_window == self.window {
            self.in_window = 0;
            return Some(self.taken as u16);
        }
        None
    }
}

async fn send(socket: &UdpSocket, message: &[u8], to: SocketAddr, connected: bool) -> Result<()> {
    let sent =
        if connected { socket.send(message).await } else { socket.send_to(message, to).await };
    sent.map(|_| ()).context("cannot send")
}

fn request(what: &Fetch) -> Vec<u8> {
    let mut out = vec![0, 1];
    let mut words = vec![what.file.clone(), "octet".into(), "tsize".into(), "0".into()];
    words.extend(["blksize".into(), what.block.to_string()]);
    if what.window > 1 {
        words.extend(["windowsize".into(), what.window.to_string()]);
    }
    for word in words {
        out.extend_from_slice(word.as_bytes());
        out.push(0);
    }
    out
}

fn option(agreed: &[u8], name: &str) -> Option<u64> {
    let mut words = agreed.split(|byte| *byte == 0);
    while let (Some(word), Some(value)) = (words.next(), words.next()) {
        if word.eq_ignore_ascii_case(name.as_bytes()) {
            return std::str::from_utf8(value).ok()?.parse().ok();
        }
    }
    None
}
