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
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use crate::{Conductor, runner};

/// Nodes looked up in one search; if there are more, the next search follows at once.
const SEARCH_LIMIT: u32 = 500;
/// The shortest pause between two searches.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);

pub(crate) async fn run(conductor: Conductor, mut stopping: watch::Receiver<bool>) {
    let Some(mut wakes) = conductor.store.take_wakes() else {
        tracing::error!("another scheduler has the wake-ups of this store");
        return;
    };
    let mut runners = Runners::new(conductor.clone());
    let mut next_search = Instant::now();
    loop {
        // The search comes before the wake-ups: it must not starve while there are many.
        tokio::select! {
            biased;
            _ = stopping.changed() => break,
            () = tokio::time::sleep_until(next_search) => {
                let pause = search(&conductor, &mut runners).await;
                next_search = Instant::now() + pause;
            }
            Some(ended) = runners.tasks.join_next_with_id(), if !runners.tasks.is_empty() => {
                if let Some(moment) = runners.ended(ended) {
                    let pause = moment.since(conductor.now());
                    next_search = next_search.min(Instant::now() + pause);
                }
            }
            Some(node) = wakes.recv() => runners.wake(node),
        }
    }
    while runners.tasks.join_next().await.is_some() {}
}

/// The nodes this process works on, each in a task of its own.
struct Runners {
    conductor: Conductor,
    tasks: JoinSet<Option<Timestamp>>,
    nodes: HashMap<Id, NodeId>,
    places: HashMap<NodeId, Place>,
}

/// How a node stands with this process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A runner is on it.
    Running,
    /// A runner is on it, and it has been woken meanwhile.
    RunAgain,
}

impl Runners {
    fn new(conductor: Conductor) -> Self {
        Self { conductor, tasks: JoinSet::new(), nodes: HashMap::new(), places: HashMap::new() }
    }

    /// Starts a runner on the node, or lets the one that is on it look again at its end.
    fn wake(&mut self, node: NodeId) {
        if let Some(place) = self.places.get_mut(&node) {
            *place = Place::RunAgain;
        } else {
            self.start(node);
        }
    }

    fn start(&mut self, node: NodeId) {
        self.places.insert(node, Place::Running);
        let conductor = self.conductor.clone();
        let task = self.tasks.spawn(async move { runner::run(&conductor, node).await });
        self.nodes.insert(task.id(), node);
    }

    /// A runner ended: answers when its node wants to be looked at next.
    fn ended(&mut self, ended: Result<(Id, Option<Timestamp>), JoinError>) -> Option<Timestamp> {
        let (id, due) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // The node's lease runs out and the search finds it again.
                tracing::error!(%error, "work on a node ended in a panic");
                (error.id(), None)
            }
        };
        let node = self.nodes.remove(&id)?;
        if self.places.remove(&node) == Some(Place::RunAgain) {
            self.start(node);
        }
        due
    }
}

/// Starts runners for the nodes that are due, and answers how long to pause before the next
/// search: until the next node is due, or the longest pause there may be.
async fn search(conductor: &Conductor, runners: &mut Runners) -> Duration {
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
    let (due, next) = match found {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "could not search for nodes that are due");
            return longest;
        }
    };
    let more = due.len() >= SEARCH_LIMIT as usize;
    for node in due {
        if !runners.places.contains_key(&node) {
            runners.start(node);
        }
    }
    match next {
        _ if more => SHORTEST_PAUSE,
        Some(moment) => moment.since(now).clamp(SHORTEST_PAUSE, longest),
        None => longest,
    }
}
