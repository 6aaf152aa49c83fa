// SPDX-License-Identifier: Apache-2.0
//! What machines print on their consoles is written down.

use std::sync::Arc;
use std::time::Duration;

use bmc_drivers::ConsoleText;
use node_model::{Actor, Happening, JournalEntry, Timestamp};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::Conductor;

/// Pieces of text written down in one transaction.
const TEXTS_AT_A_TIME: usize = 64;
/// The pauses between attempts to write them.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long the end of the process waits for what is not written down yet.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Writes down what machines print, until there is nothing more or the process stops; then what they
/// have printed until then.
pub(crate) async fn run(conductor: Conductor, mut stopping: watch::Receiver<bool>) {
    let Some(mut texts) = conductor.registry.take_console_texts() else { return };
    // What is not written yet stays here when the process stops.
    let mut pieces = Vec::new();
    let is_over = tokio::select! {
        () = record(&conductor, &mut texts, &mut pieces) => true,
        _ = stopping.changed() => false,
    };
    if is_over {
        return;
    }
    let last = last_words(&conductor, &mut texts, &mut pieces);
    if timeout(LAST_WORDS, last).await.is_err() {
        tracing::warn!(
            "the last that machines printed on their consoles is not in their timelines"
        );
    }
}

async fn record(
    conductor: &Conductor,
    texts: &mut mpsc::Receiver<ConsoleText>,
    pieces: &mut Vec<ConsoleText>,
) {
    while texts.recv_many(pieces, TEXTS_AT_A_TIME).await > 0 {
        write(conductor, pieces).await;
    }
}

/// Leaves the consoles, and writes down what is there when they are left.
async fn last_words(
    conductor: &Conductor,
    texts: &mut mpsc::Receiver<ConsoleText>,
    pieces: &mut Vec<ConsoleText>,
) {
    for id in conductor.registry.consoles_served() {
        conductor.registry.leave_console(id).await;
        // There is room for so many only.
        if texts.len() >= TEXTS_AT_A_TIME {
            texts.recv_many(pieces, TEXTS_AT_A_TIME).await;
            write(conductor, pieces).await;
        }
    }
    while let Ok(piece) = texts.try_recv() {
        pieces.push(piece);
    }
    write(conductor, pieces).await;
}

/// Writes the pieces down, and tries again until that was possible; they are gone then.
async fn write(conductor: &Conductor, pieces: &mut Vec<ConsoleText>) {
    let now = conductor.now();
    let entries: Arc<[_]> = pieces.iter().map(|piece| entry(piece, now)).collect();
    until_it_works(FIRST_PAUSE, || {
        let entries = Arc::clone(&entries);
        conductor.store.write(move |tx| {
            for entry in entries.iter() {
                tx.append(entry.clone());
            }
            Ok::<_, store::Error>(())
        })
    })
    .await;
    pieces.clear();
}

async fn until_it_works<F>(mut pause: Duration, attempt: impl Fn() -> F)
where
    F: Future<Output = Result<(), store::Error>>,
{
    while let Err(error) = attempt().await {
        tracing::warn!(
            %error,
            "what machines printed on their consoles is not in their timelines; trying again in {} s",
            pause.as_secs()
        );
        sleep(pause).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

fn entry(piece: &ConsoleText, at: Timestamp) -> JournalEntry {
    let ConsoleText { node, address, text } = piece;
    let what = Happening::Seen { by: "console".to_owned(), text: text.clone(), times: 1 };
    JournalEntry { at, node_id: *node, actor: Actor::Machine { address: address.clone() }, what }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;

    use super::*;

    #[tokio::test]
    async fn what_could_not_be_written_is_written_later() {
        let tries = Cell::new(0);
        until_it_works(Duration::ZERO, || {
            tries.set(tries.get() + 1);
            ready(if tries.get() < 4 { Err(store::Error::Closed) } else { Ok(()) })
        })
        .await;
        assert_eq!(tries.get(), 4);
    }
}
