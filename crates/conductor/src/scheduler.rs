// SPDX-License-Identifier: Apache-2.0
//! Starts a runner for every node that has something to do.
//!
//! Nodes are found in two ways: by wake-ups, which come with the transaction that gave the node
//! something to do, and by searching for nodes that are due. The first makes it quick, the second
//! makes it certain.

use std::collections::HashMap;
use std::time::Duration;

use node_model::{NodeId, Timestamp};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::{Conductor, runner};

/// Nodes looked up in one search; more are found by the next, which then follows at once.
const SEARCH_LIMIT: u32 = 500;

/// How a node stands with this process.
enum Place {
    /// A runner is on it.
    Running,
    /// A runner is on it, and it has been woken meanwhile.
    RunAgain,
}

pub(crate) async fn run(conductor: Conductor, mut stopping: watch::Receiver<bool>) {
    let Some(mut wakes) = conductor.store.take_wakes() else {
        tracing::error!("another scheduler has the wake-ups of this store");
        return;
    };
    let mut places: HashMap<NodeId, Place> = HashMap::new();
    let mut runners: JoinSet<(NodeId, Option<Timestamp>)> = JoinSet::new();
    let mut next_search = Instant::now();
    loop {
        tokio::select! {
            biased;
            _ = stopping.changed() => break,
            Some(ended) = runners.join_next(), if !runners.is_empty() => {
                let Ok((node, due)) = ended else { continue };
                if let Some(moment) = due {
                    let pause = moment.since(conductor.now());
                    next_search = next_search.min(Instant::now() + pause);
                }
                if let Some(Place::RunAgain) = places.remove(&node) {
                    start(&conductor, node, &mut places, &mut runners);
                }
            }
            Some(node) = wakes.recv() => start(&conductor, node, &mut places, &mut runners),
            () = tokio::time::sleep_until(next_search) => {
                let pause = search(&conductor, &mut places, &mut runners).await;
                next_search = Instant::now() + pause;
            }
        }
    }
    while runners.join_next().await.is_some() {}
}

fn start(
    conductor: &Conductor,
    node: NodeId,
    places: &mut HashMap<NodeId, Place>,
    runners: &mut JoinSet<(NodeId, Option<Timestamp>)>,
) {
    if let Some(place) = places.get_mut(&node) {
        *place = Place::RunAgain;
        return;
    }
    places.insert(node, Place::Running);
    let conductor = conductor.clone();
    runners.spawn(async move {
        let due = runner::run(&conductor, node).await;
        (node, due)
    });
}

/// Starts runners for the nodes that are due, and answers how long to pause before the next
/// search: until the next node is due, or the longest pause there may be.
async fn search(
    conductor: &Conductor,
    places: &mut HashMap<NodeId, Place>,
    runners: &mut JoinSet<(NodeId, Option<Timestamp>)>,
) -> Duration {
    let longest = Duration::from_secs(conductor.settings.due_interval.max(1));
    let now = conductor.now();
    let found = conductor
        .store
        .read(move |reader| {
            let due = reader.node_ids_due(now, SEARCH_LIMIT)?;
            let next = reader.next_due_after(now)?;
            Ok::<(Vec<NodeId>, Option<Timestamp>), store::Error>((due, next))
        })
        .await;
    match found {
        Ok((due, next)) => {
            for node in due {
                if !places.contains_key(&node) {
                    start(conductor, node, places, runners);
                }
            }
            next.map_or(longest, |moment| {
                moment.since(now).clamp(Duration::from_millis(5), longest)
            })
        }
        Err(error) => {
            tracing::warn!(%error, "could not search for nodes that are due");
            longest
        }
    }
}
