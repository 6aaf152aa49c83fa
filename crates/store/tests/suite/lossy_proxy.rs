// SPDX-License-Identifier: Apache-2.0
//! A TCP proxy in front of a database server that breaks a connection at its next COMMIT.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// At which point the connection breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CommitLoss {
    /// The server does not receive COMMIT.
    Request,
    /// The server has executed COMMIT, and the client does not receive the response.
    Response,
}

/// Forwards connections until the test ends.
pub(crate) struct LossyProxy {
    next_loss: Arc<AtomicU8>,
}

const NONE: u8 = 0;
const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;

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
        let losses = Arc::clone(&next_loss);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, losses) = (client.unwrap(), Arc::clone(&losses));
                std::thread::spawn(move || {
                    if let Ok(server) = TcpStream::connect(server) {
                        forward(&client, &server, &losses);
                    }
                });
            }
        });
        (Self { next_loss }, format!("{before}@{address}/{database}?sslmode=disable"))
    }

    /// Breaks the next connection that sends COMMIT.
    pub(crate) fn lose_next_commit(&self, loss: CommitLoss) {
        let loss = match loss {
            CommitLoss::Request => REQUEST,
            CommitLoss::Response => RESPONSE,
        };
        self.next_loss.store(loss, Ordering::SeqCst);
    }

    /// Whether the loss has happened.
    pub(crate) fn has_lost(&self) -> bool {
        self.next_loss.load(Ordering::SeqCst) == NONE
    }
}

fn forward(client: &TcpStream, server: &TcpStream, losses: &AtomicU8) {
    let breaks = AtomicU8::new(NONE);
    std::thread::scope(|scope| {
        scope.spawn(|| copy(server, client, |_| breaks.load(Ordering::SeqCst) != RESPONSE));
        copy(client, server, |bytes| {
            if !bytes.windows(6).any(|part| part == b"COMMIT") {
                return true;
            }
            let loss = losses.swap(NONE, Ordering::SeqCst);
            breaks.store(loss, Ordering::SeqCst);
            loss != REQUEST
        });
    });
}

/// Copies until an end closes or `passes` rejects bytes, and closes both ends.
fn copy(mut from: &TcpStream, mut to: &TcpStream, passes: impl Fn(&[u8]) -> bool) {
    let mut buffer = [0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if !passes(&buffer[..count]) || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
