// SPDX-License-Identifier: Apache-2.0
//! Threads that parse large bodies of unauthenticated requests.
//!
//! The runtime's threads must not be busy for that long. A pool that grows is no better: the allocator
//! keeps freed memory per thread, so every thread that ever parsed a hostile body would keep megabytes.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use tokio::sync::oneshot;

/// Number of threads, and so of bodies that are parsed at the same time.
const THREADS: usize = 2;

type ParseJob = Box<dyn FnOnce() + Send>;

/// The threads. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct ParserThreads {
    jobs: mpsc::Sender<ParseJob>,
}

impl ParserThreads {
    pub(crate) fn start() -> Self {
        let (jobs, receiver) = mpsc::channel::<ParseJob>();
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..THREADS {
            let receiver = Arc::clone(&receiver);
            let run = move || {
                loop {
                    let job = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(job) = job else { return };
                    // The caller sees that the result is missing.
                    let _ = std::panic::catch_unwind(AssertUnwindSafe(job));
                }
            };
            if let Err(error) = std::thread::Builder::new().name("parser".to_owned()).spawn(run) {
                tracing::error!(%error, "cannot start a thread that parses bodies");
            }
        }
        Self { jobs }
    }

    /// Runs a function on one of the threads. Returns `None` if it panicked or no thread runs.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        parse: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        let job = Box::new(move || {
            // The request may have ended meanwhile; then the result is not needed.
            if !sender.is_closed() {
                let _ = sender.send(parse());
            }
        });
        self.jobs.send(job).ok()?;
        receiver.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn runs_on_few_threads_and_survives_panics() {
        let threads = ParserThreads::start();
        let mut ids = std::collections::HashSet::new();
        for number in 0..20 {
            assert_eq!(threads.run(move || number + 1).await, Some(number + 1));
            assert_eq!(threads.run(|| -> u8 { panic!("a test panic") }).await, None);
            ids.extend(threads.run(|| std::thread::current().id()).await);
        }
        assert!((1..=THREADS).contains(&ids.len()), "{ids:?}");
    }
}
