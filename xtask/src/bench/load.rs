// SPDX-License-Identifier: Apache-2.0
//! Sends concurrent requests and measures the processor time of the server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use http_probe::ProbeClient;

use super::bench_server::BenchServer;
use super::meter::CpuUsage;

/// Small, because there are thousands of threads.
const STACK: usize = 256 * 1024;

/// A request of the load.
pub(crate) struct LoadRequest {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) body: Option<Vec<u8>>,
}

impl LoadRequest {
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

/// How the requests are sent.
#[derive(Clone, Copy)]
pub(crate) struct LoadPattern {
    /// Number of concurrent connections.
    pub(crate) at_once: usize,
    /// A new connection for each request.
    pub(crate) reconnects: bool,
    /// No new requests start after this time.
    pub(crate) at_most: Option<Duration>,
    pub(crate) expects: ExpectedStatus,
}

/// The expected status of the responses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpectedStatus {
    /// Any 2xx.
    Success,
    Exactly(u16),
}

/// The result of a load.
#[derive(Clone, Default)]
pub(crate) struct LoadMeasurement {
    pub(crate) operations: usize,
    /// Processor time of the server for all operations.
    pub(crate) server: Duration,
    /// Sorted.
    pub(crate) latencies: Vec<Duration>,
    pub(crate) wall: Duration,
    pub(crate) errors: usize,
    pub(crate) first_error: Option<String>,
}

impl LoadMeasurement {
    /// Processor time of the server per operation.
    pub(crate) fn server_each(&self) -> Option<Duration> {
        let operations =
            u32::try_from(self.operations).ok().filter(|&operations| operations > 0)?;
        Some(self.server / operations)
    }

    /// The latency at this percentile (0 to 100).
    pub(crate) fn percentile(&self, share: usize) -> Option<Duration> {
        let last = self.latencies.len().checked_sub(1)?;
        self.latencies.get(last * share / 100).copied()
    }
}

/// The first 300 characters.
pub(crate) fn truncate(text: &str) -> String {
    text.chars().take(300).collect()
}

/// Sends `count` requests.
pub(crate) fn send_requests(
    target: &BenchServer,
    pattern: LoadPattern,
    count: usize,
    request: impl Fn(usize) -> LoadRequest + Sync,
) -> Result<LoadMeasurement> {
    run_operations(target, pattern, count, |client, number| {
        let LoadRequest { method, path, body } = request(number);
        let response =
            client.send(method, &path, body.as_deref()).map_err(|error| error.to_string())?;
        let is_expected = match pattern.expects {
            ExpectedStatus::Success => (200..300).contains(&response.status),
            ExpectedStatus::Exactly(status) => response.status == status,
        };
        if is_expected {
            Ok(())
        } else {
            Err(format!("{method} {path}: {} {}", response.status, truncate(&response.text())))
        }
    })
}

/// Runs `count` operations of one or more requests.
pub(crate) fn run_operations(
    target: &BenchServer,
    pattern: LoadPattern,
    count: usize,
    operation: impl Fn(&mut ProbeClient, usize) -> Result<(), String> + Sync,
) -> Result<LoadMeasurement> {
    let threads = pattern.at_once.min(count).max(1);
    let next = AtomicUsize::new(0);
    let total = Mutex::new(LoadMeasurement::default());
    // All threads and this one: no request is sent before all are connected and the usage was read.
    let (ready, go) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
    let mut before = None;
    let mut started = Instant::now();
    thread::scope(|scope| -> Result<()> {
        for _ in 0..threads {
            let worker = || {
                let mut client = target.client();
                if pattern.reconnects {
                    client = client.without_keep_alive();
                }
                ready.wait();
                go.wait();
                let started_at = Instant::now();
                let mut mine = LoadMeasurement::default();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count
                        || pattern.at_most.is_some_and(|most| started_at.elapsed() > most)
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
        before = target.pid.map(CpuUsage::of).transpose()?;
        started = Instant::now();
        go.wait();
        Ok(())
    })?;
    let mut measured = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    measured.wall = started.elapsed();
    measured.latencies.sort_unstable();
    measured.operations = measured.latencies.len() + measured.errors;
    if let (Some(pid), Some(before)) = (target.pid, before) {
        measured.server = CpuUsage::of(pid)?.since(&before);
    }
    Ok(measured)
}
