// SPDX-License-Identifier: Apache-2.0
//! Records console output in the journal.

use std::sync::Arc;
use std::time::Duration;

use drivers::ConsoleText;
use node_model::{Actor, JournalEntry, JournalEvent, Timestamp};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::Conductor;
use crate::error::error_text;

/// The number of texts written in one transaction.
const BATCH_SIZE: usize = 64;
/// The first and the longest delay between attempts to write.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(60);
/// How long the end of the process is delayed to write the remaining texts.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Writes console output until the channel closes or the process stops, then the remaining texts.
pub(crate) async fn run(conductor: Conductor, mut stopping: watch::Receiver<bool>) {
    let Some(mut texts) = conductor.registry.take_console_texts() else { return };
    // Survives the cancellation of `record` when the process stops.
    let mut pending = Vec::new();
    let is_closed = tokio::select! {
        biased;
        () = record(&conductor, &mut texts, &mut pending) => true,
        _ = stopping.changed() => false,
    };
    if is_closed {
        return;
    }
    let remaining = flush(&conductor, &mut texts, &mut pending);
    if timeout(FLUSH_TIMEOUT, remaining).await.is_err() {
        tracing::warn!(timeout = ?FLUSH_TIMEOUT, "remaining console output could not be recorded");
    }
}

async fn record(
    conductor: &Conductor,
    texts: &mut mpsc::Receiver<ConsoleText>,
    pending: &mut Vec<ConsoleText>,
) {
    while texts.recv_many(pending, BATCH_SIZE).await > 0 {
        write(conductor, pending).await;
    }
}

/// Closes the consoles and writes their remaining output.
async fn flush(
    conductor: &Conductor,
    texts: &mut mpsc::Receiver<ConsoleText>,
    pending: &mut Vec<ConsoleText>,
) {
    for id in conductor.served_consoles() {
        conductor.release_console(id).await;
        // The channel has a limited capacity.
        if texts.len() >= BATCH_SIZE {
            texts.recv_many(pending, BATCH_SIZE).await;
            write(conductor, pending).await;
        }
    }
    while let Ok(text) = texts.try_recv() {
        pending.push(text);
    }
    write(conductor, pending).await;
}

/// Writes and clears the pending texts, and retries until it succeeds.
async fn write(conductor: &Conductor, pending: &mut Vec<ConsoleText>) {
    let now = conductor.now();
    let entries: Arc<[_]> = pending.iter().map(|text| journal_entry(text, now)).collect();
    retry(FIRST_DELAY, || {
        let entries = Arc::clone(&entries);
        conductor.store.write(move |tx| {
            for entry in entries.iter() {
                tx.append(entry.clone());
            }
            Ok::<_, store::StoreError>(())
        })
    })
    .await;
    pending.clear();
}

async fn retry<F>(mut delay: Duration, attempt: impl Fn() -> F)
where
    F: Future<Output = Result<(), store::StoreError>>,
{
    while let Err(error) = attempt().await {
        tracing::warn!(error = error_text(&error), retry_in = ?delay, "console output could not be recorded");
        sleep(delay).await;
        delay = (2 * delay).min(MAX_DELAY);
    }
}

fn journal_entry(text: &ConsoleText, at: Timestamp) -> JournalEntry {
    let ConsoleText { node, address, text } = text;
    let event =
        JournalEvent::NetworkActivity { by: "console".to_owned(), text: text.clone(), times: 1 };
    JournalEntry { at, node_id: *node, actor: Actor::Machine { address: address.clone() }, event }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;

    use super::*;

    #[tokio::test]
    async fn retries_until_it_succeeds() {
        let attempts = Cell::new(0);
        retry(Duration::ZERO, || {
            attempts.set(attempts.get() + 1);
            ready(if attempts.get() < 4 { Err(store::StoreError::Closed) } else { Ok(()) })
        })
        .await;
        assert_eq!(attempts.get(), 4);
    }
}
