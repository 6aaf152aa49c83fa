// SPDX-License-Identifier: Apache-2.0
//! A TCP proxy in front of a database server that breaks a connection at its next COMMIT, or stops to
//! respond.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// At which point the connection breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CommitLoss {
    /// The server does not receive COMMIT.
    Request,
    /// The server has executed COMMIT, and the client does not receive the response.
    Response,
    /// As `Response`, but the connection stays open.
    Silence,
}

/// Forwards connections until the test ends.
pub(crate) struct LossyProxy {
    next_loss: Arc<AtomicU8>,
    is_silent: Arc<AtomicBool>,
}

const NONE: u8 = 0;
const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
const SILENCE: u8 = 3;

impl LossyProxy {
    /// Starts a proxy to the server in a database URL. Returns it with the URL through it, without TLS:
    /// the proxy searches for COMMIT.
    pub(crate) fn start(url: &str) -> (Self, String) {
        let (before, rest) = url.split_once('@').expect("the URL has a user");
        let (server, database) = rest.split_once('/').expect("the URL has a database");
        let server: SocketAddr = server.replace("localhost", "127.0.0.1").parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let next_loss = Arc::new(AtomicU8::new(NONE));
        let is_silent = Arc::new(AtomicBool::new(false));
        let (losses, silence) = (Arc::clone(&next_loss), Arc::clone(&is_silent));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, losses) = (client.unwrap(), Arc::clone(&losses));
                let silence = Arc::clone(&silence);
                std::thread::spawn(move || {
                    if let Ok(server) = TcpStream::connect(server) {
                        forward(&client, &server, &losses, &silence);
                    }
                });
            }
        });
        (Self { next_loss, is_silent }, format!("{before}@{address}/{database}?sslmode=disable"))
    }

    /// Breaks the next connection that sends COMMIT.
    pub(crate) fn lose_next_commit(&self, loss: CommitLoss) {
        let loss = match loss {
            CommitLoss::Request => REQUEST,
            CommitLoss::Response => RESPONSE,
            CommitLoss::Silence => SILENCE,
        };
        self.next_loss.store(loss, Ordering::SeqCst);
    }

    /// Stops or continues to forward responses, without closing connections.
    pub(crate) fn set_silent(&self, is_silent: bool) {
        self.is_silent.store(is_silent, Ordering::SeqCst);
    }

    /// Whether the loss has happened.
    pub(crate) fn has_lost(&self) -> bool {
        self.next_loss.load(Ordering::SeqCst) == NONE
    }
}

fn forward(client: &TcpStream, server: &TcpStream, losses: &AtomicU8, is_silent: &AtomicBool) {
    let breaks = AtomicU8::new(NONE);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            copy(server, client, |_| match breaks.load(Ordering::SeqCst) {
                RESPONSE => Passage::Close,
                SILENCE => Passage::Drop,
                _ if is_silent.load(Ordering::SeqCst) => Passage::Drop,
                _ => Passage::Forward,
            });
        });
        copy(client, server, |bytes| {
            if !bytes.windows(6).any(|part| part == b"COMMIT") {
                return Passage::Forward;
            }
            let loss = losses.swap(NONE, Ordering::SeqCst);
            // A later COMMIT on the same connection does not end its silence.
            let _ = breaks.compare_exchange(NONE, loss, Ordering::SeqCst, Ordering::SeqCst);
            if loss == REQUEST { Passage::Close } else { Passage::Forward }
        });
    });
}

/// What happens to received bytes.
enum Passage {
    Forward,
    /// They are lost, and the connection stays open.
    Drop,
    Close,
}

/// Copies until an end closes, and closes both ends.
fn copy(mut from: &TcpStream, mut to: &TcpStream, passage: impl Fn(&[u8]) -> Passage) {
    let mut buffer = [0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        match passage(&buffer[..count]) {
            Passage::Forward if to.write_all(&buffer[..count]).is_ok() => {}
            Passage::Drop => {}
            Passage::Forward | Passage::Close => break,
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
