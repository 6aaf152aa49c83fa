// SPDX-License-Identifier: Apache-2.0
//! Sends wrong passwords at a constant rate, whether or not the server responds.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use socket2::{Domain, Socket, Type};

/// A guess without a response after this time is given up: its connection is closed.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);

/// Where the guesses come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GuessSource {
    /// 127.0.0.1, the address of all other clients.
    OneAddress,
    /// As many addresses of the loopback network, one after the other.
    ManyAddresses(u8),
}

/// A thread that guesses until it is stopped.
pub(crate) struct PasswordGuessing {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<GuessCounts>,
}

/// The results of the guesses.
#[derive(Default, Debug)]
pub(crate) struct GuessCounts {
    pub(crate) sent: usize,
    /// Number of responses per status.
    pub(crate) responses: BTreeMap<u16, usize>,
    pub(crate) without_response: usize,
    pub(crate) not_connected: usize,
    took: Duration,
}

/// A guess whose response was not read yet.
struct PendingGuess {
    connection: TcpStream,
    sent_at: Instant,
}

impl PasswordGuessing {
    /// Starts to send `rate` guesses per second.
    pub(crate) fn start(server: SocketAddr, rate: u32, source: GuessSource) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || guess(server, rate, source, &stopped));
        Self { stop, thread }
    }

    /// Stops. Fails if a guess was accepted, or the rate was not reached.
    pub(crate) fn finish(self, rate: u32) -> Result<GuessCounts> {
        self.stop.store(true, Ordering::Relaxed);
        let Ok(counts) = self.thread.join() else { bail!("the guessing thread panicked") };
        if let Some((status, _)) = counts.responses.iter().find(|(status, _)| **status < 400) {
            bail!("a wrong password got the status {status}");
        }
        let reached = counts.sent as f64 / counts.took.as_secs_f64();
        if reached < f64::from(rate) * 0.9 {
            bail!("only {reached:.0} passwords per second were sent instead of {rate}: {counts}");
        }
        Ok(counts)
    }
}

fn guess(server: SocketAddr, rate: u32, source: GuessSource, stop: &AtomicBool) -> GuessCounts {
    let mut counts = GuessCounts::default();
    let mut pending: VecDeque<PendingGuess> = VecDeque::new();
    let started = Instant::now();
    for number in 0_u32.. {
        let due = Duration::from_secs(1) * number / rate;
        thread::sleep(due.saturating_sub(started.elapsed()));
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let has_old =
            pending.front().is_some_and(|guess| guess.sent_at.elapsed() >= RESPONSE_TIMEOUT);
        let old = if has_old { pending.pop_front() } else { None };
        // Clients that guess keep their connections, which costs them and the server less.
        let kept = old.and_then(|old| counts.response(old.connection));
        let connection = match kept {
            Some(connection) => Some(connection),
            None => connect(server, source.address(number)).ok(),
        };
        let request = request(server, number);
        match connection.map(|mut stream| stream.write_all(&request).map(|()| stream)) {
            Some(Ok(connection)) => {
                counts.sent += 1;
                pending.push_back(PendingGuess { connection, sent_at: Instant::now() });
            }
            Some(Err(_)) | None => counts.not_connected += 1,
        }
    }
    counts.took = started.elapsed();
    for guess in pending {
        counts.response(guess.connection);
    }
    counts
}

/// A request with a user and a password that were not used before.
fn request(server: SocketAddr, number: u32) -> Vec<u8> {
    let credentials = STANDARD.encode(format!("user{number}:guess{number}"));
    format!(
        "GET /v1/nodes HTTP/1.1\r\nHost: {server}\r\nAuthorization: Basic {credentials}\r\n\r\n"
    )
    .into_bytes()
}

fn connect(server: SocketAddr, from: IpAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    socket.connect_timeout(&server.into(), CONNECT_TIMEOUT)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

impl GuessSource {
    fn address(self, number: u32) -> IpAddr {
        let last = match self {
            Self::OneAddress => return Ipv4Addr::LOCALHOST.into(),
            Self::ManyAddresses(addresses) => number % u32::from(addresses.max(1)),
        };
        Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 0, 1, 1)) + last).into()
    }
}

impl GuessCounts {
    /// Counts the response, and returns the connection if it can be used again.
    fn response(&mut self, mut connection: TcpStream) -> Option<TcpStream> {
        let mut buffer = [0; 4096];
        let read = connection.read(&mut buffer).unwrap_or(0);
        let head = String::from_utf8_lossy(buffer.get(..read)?);
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let Some(status) = status else {
            self.without_response += 1;
            return None;
        };
        *self.responses.entry(status).or_default() += 1;
        (read < buffer.len() && !head.contains("connection: close")).then_some(connection)
    }
}

impl fmt::Display for GuessCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passwords sent", self.sent)?;
        for (status, count) in &self.responses {
            write!(f, ", {count} responses {status}")?;
        }
        write!(f, ", {} given up after {RESPONSE_TIMEOUT:?}", self.without_response)?;
        write!(f, ", {} not connected", self.not_connected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_stay_in_the_loopback_network() {
        for (source, number, expected) in [
            (GuessSource::OneAddress, 7, "127.0.0.1"),
            (GuessSource::ManyAddresses(200), 0, "127.0.1.1"),
            (GuessSource::ManyAddresses(200), 199, "127.0.1.200"),
            (GuessSource::ManyAddresses(200), 200, "127.0.1.1"),
            (GuessSource::ManyAddresses(0), 5, "127.0.1.1"),
        ] {
            assert_eq!(source.address(number).to_string(), expected);
        }
    }
}
