// SPDX-License-Identifier: Apache-2.0
//! Runs many operations with a fixed concurrency and collects their latencies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use tokio::task::JoinSet;

/// The result of a load.
#[derive(Debug, Default)]
pub(crate) struct LoadResult {
    /// The number of successful operations.
    pub(crate) operations: u32,
    /// The number of received bytes.
    pub(crate) bytes: u64,
    /// The number of failed operations.
    pub(crate) failures: u32,
    /// The error of the first failed operation.
    pub(crate) first_failure: Option<String>,
    /// The latencies of the successful operations, sorted.
    pub(crate) latencies: Vec<Duration>,
    /// The time from the start to the last operation.
    pub(crate) wall: Duration,
}

impl LoadResult {
    /// Returns the JSON line that the benchmark reads.
    pub(crate) fn to_json(&self) -> String {
        let percentile = |percent: usize| {
            let last = self.latencies.len().checked_sub(1)?;
            self.latencies.get(last * percent / 100).map(Duration::as_secs_f64)
        };
        json!({
            "operations": self.operations, "bytes": self.bytes, "seconds": self.wall.as_secs_f64(),
            "failures": self.failures, "first_failure": self.first_failure,
            "p50": percentile(50), "p99": percentile(99),
        })
        .to_string()
    }
}

/// Runs operations 0 to `count`, of which `at_once` are concurrent. Each returns its number of bytes.
pub(crate) async fn run<Operation, Running>(
    count: u32,
    at_once: u32,
    operation: Operation,
) -> LoadResult
where
    Operation: Fn(u32) -> Running + Clone + Send + 'static,
    Running: Future<Output = Result<u64>> + Send,
{
    let next = Arc::new(AtomicU32::new(0));
    let started = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..at_once.min(count) {
        let (next, operation) = (next.clone(), operation.clone());
        workers.spawn(async move {
            let mut result = LoadResult::default();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return result;
                }
                let operation_started = Instant::now();
                match operation(number).await {
                    Ok(bytes) => {
                        result.operations += 1;
                        result.bytes += bytes;
                        result.latencies.push(operation_started.elapsed());
                    }
                    Err(error) => {
                        result.failures += 1;
                        result.first_failure.get_or_insert(format!("{error:#}"));
                    }
                }
            }
        });
    }
    let mut total = LoadResult::default();
    for mut result in workers.join_all().await {
        total.operations += result.operations;
        total.bytes += result.bytes;
        total.failures += result.failures;
        total.first_failure = total.first_failure.take().or(result.first_failure);
        total.latencies.append(&mut result.latencies);
    }
    total.wall = started.elapsed();
    total.latencies.sort_unstable();
    total
}
