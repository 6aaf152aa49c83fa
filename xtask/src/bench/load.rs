// SPDX-License-Identifier: Apache-2.0
//! Sends many requests at once and measures what they cost the server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use http_probe::Client;

use super::meter::Usage;
use super::target::Target;

/// Connection threads do little; thousands of them must fit.
const STACK: usize = 256 * 1024;

/// A request to send.
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) body: Option<Vec<u8>>,
}

impl Request {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self { method: "GET", path: path.into(), body: None }
    }

    pub(crate) fn with_body(
        method: &'static str,
        path: impl Into<String>,
        body: &serde_json::Value,
    ) -> Self {
        Self { method, path: path.into(), body: Some(body.to_string().into_bytes()) }
    }
}

/// How requests are sent.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    /// How many connections at once.
    pub(crate) at_once: usize,
    /// A new connection for each request.
    pub(crate) reconnects: bool,
    /// Stop beginning new requests after this long.
    pub(crate) at_most: Option<Duration>,
    /// The status that is right.
    pub(crate) expects: Expected,
}

/// Which answers are right.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Any 2xx.
    Success,
    /// This one.
    Exactly(u16),
}

/// What came of it.
#[derive(Clone, Default)]
pub(crate) struct Measured {
    /// How many operations were carried out.
    pub(crate) operations: usize,
    /// Processor time of the server for all of them.
    pub(crate) server: Duration,
    /// How long each took, sorted.
    pub(crate) latencies: Vec<Duration>,
    /// From the first to the last.
    pub(crate) wall: Duration,
    /// How many went wrong.
    pub(crate) errors: usize,
    /// What went wrong first.
    pub(crate) first_error: Option<String>,
}

impl Measured {
    /// Processor time of the server for one operation.
    pub(crate) fn server_each(&self) -> Option<Duration> {
        let operations =
            u32::try_from(self.operations).ok().filter(|&operations| operations > 0)?;
        Some(self.server / operations)
    }

    /// The latency that this share (0 to 100) of the operations stayed below.
    pub(crate) fn percentile(&self, share: usize) -> Option<Duration> {
        let last = self.latencies.len().checked_sub(1)?;
        self.latencies.get(last * share / 100).copied()
    }
}

/// The beginning of a text, enough to know what went wrong.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(300).collect()
}

/// Sends `count` requests, made by number.
pub(crate) fn drive(
    target: &Target,
    manner: Manner,
    count: usize,
    request: impl Fn(usize) -> Request + Sync,
) -> Result<Measured> {
    operate(target, manner, count, |client, number| {
        let Request { method, path, body } = request(number);
        let answer =
            client.send(method, &path, body.as_deref()).map_err(|error| error.to_string())?;
        let is_right = match manner.expects {
            Expected::Success => (200..300).contains(&answer.status),
            Expected::Exactly(status) => answer.status == status,
        };
        if is_right {
            Ok(())
        } else {
            Err(format!("{method} {path}: {} {}", answer.status, shortened(&answer.text())))
        }
    })
}

/// Carries out `count` operations, each of which may take several requests.
pub(crate) fn operate(
    target: &Target,
    manner: Manner,
    count: usize,
    operation: impl Fn(&mut Client, usize) -> Result<(), String> + Sync,
) -> Result<Measured> {
    let threads = manner.at_once.min(count).max(1);
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Measured::default());
    // All threads and we: nobody sends before everybody is there and the meter was read.
    let (ready, go) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
    let mut before = None;
    let mut began = Instant::now();
    thread::scope(|scope| -> Result<()> {
        for _ in 0..threads {
            let worker = || {
                let mut client = target.client();
                if manner.reconnects {
                    client = client.reconnecting();
                }
                ready.wait();
                go.wait();
                let begins = Instant::now();
                let mut mine = Measured::default();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count || manner.at_most.is_some_and(|most| begins.elapsed() > most)
                    {
                        break;
                    }
                    let sent = Instant::now();
                    match operation(&mut client, number) {
                        Ok(()) => mine.latencies.push(sent.elapsed()),
                        Err(error) => {
                            mine.errors += 1;
                            mine.first_error.get_or_insert(error);
                        }
                    }
                }
                if let Ok(mut total) = total.lock() {
                    total.latencies.append(&mut mine.latencies);
                    total.errors += mine.errors;
                    total.first_error = total.first_error.take().or(mine.first_error);
                }
            };
            thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, worker)
                .context("cannot start a connection thread")?;
        }
        ready.wait();
        before = target.pid.map(Usage::of).transpose()?;
        began = Instant::now();
        go.wait();
        Ok(())
    })?;
    let mut measured = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    measured.wall = began.elapsed();
    measured.latencies.sort_unstable();
    measured.operations = measured.latencies.len() + measured.errors;
    if let (Some(pid), Some(before)) = (target.pid, before) {
        measured.server = Usage::of(pid)?.since(&before);
    }
    Ok(measured)
}
