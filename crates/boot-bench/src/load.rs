// SPDX-License-Identifier: Apache-2.0
//! Many operations, so many at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use tokio::task::JoinSet;

/// What came of a load.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// How many operations succeeded.
    pub(crate) operations: u32,
    /// Bytes that arrived.
    pub(crate) bytes: u64,
    /// How many failed.
    pub(crate) failures: u32,
    /// Why the first one did.
    pub(crate) first_failure: Option<String>,
    /// How long each took, sorted.
    pub(crate) latencies: Vec<Duration>,
    /// From the first to the last.
    pub(crate) wall: Duration,
}

impl Outcome {
    /// For the benchmark to read.
    pub(crate) fn to_line(&self) -> String {
        let share = |percent: usize| {
            let last = self.latencies.len().checked_sub(1)?;
            self.latencies.get(last * percent / 100).map(Duration::as_secs_f64)
        };
        json!({
            "operations": self.operations, "bytes": self.bytes, "seconds": self.wall.as_secs_f64(),
            "failures": self.failures, "first_failure": self.first_failure,
            "p50": share(50), "p99": share(99),
        })
        .to_string()
    }
}

/// Carries out operations 0 to `count`, each of which says how many bytes it brought.
pub(crate) async fn drive<Operation, Running>(
    count: u32,
    at_once: u32,
    operation: Operation,
) -> Outcome
where
    Operation: Fn(u32) -> Running + Clone + Send + 'static,
    Running: Future<Output = Result<u64>> + Send,
{
    let next = Arc::new(AtomicU32::new(0));
    let began = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..at_once.min(count) {
        let (next, operation) = (next.clone(), operation.clone());
        workers.spawn(async move {
            let mut mine = Outcome::default();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return mine;
                }
                let begins = Instant::now();
                match operation(number).await {
                    Ok(bytes) => {
                        mine.operations += 1;
                        mine.bytes += bytes;
                        mine.latencies.push(begins.elapsed());
                    }
                    Err(error) => {
                        mine.failures += 1;
                        mine.first_failure.get_or_insert(format!("{error:#}"));
                    }
                }
            }
        });
    }
    let mut all = Outcome::default();
    for mut mine in workers.join_all().await {
        all.operations += mine.operations;
        all.bytes += mine.bytes;
        all.failures += mine.failures;
        all.first_failure = all.first_failure.take().or(mine.first_failure);
        all.latencies.append(&mut mine.latencies);
    }
    all.wall = began.elapsed();
    all.latencies.sort_unstable();
    all
}
