// SPDX-License-Identifier: Apache-2.0
//! Starts a runner for every due node.
//!
//! Due nodes are found by wake-ups, which are sent with the transaction that made the node due, and
//! by searching the database. Wake-ups make it fast, the search makes it reliable. Of the processes that
//! share a database, the one that monitors a node runs it if the search finds it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use node_model::{ConductorInfo, NodeId, Timestamp};
use store::DueFilter;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use crate::error::error_text;
use crate::handle::ConductorCounters;
use crate::hash_ring::alive_conductors;
use crate::{Conductor, runner};

/// The maximum number of nodes of one search. If there are more, the next search follows at once.
const SEARCH_LIMIT: u32 = 500;
/// The shortest interval between two searches.
const MIN_INTERVAL: Duration = Duration::from_millis(5);
/// The interval between two searches if more nodes are due, but none could be started.
const BUSY_INTERVAL: Duration = Duration::from_millis(250);
/// The interval between two searches while the database is unavailable.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) async fn run(conductor: Conductor, mut stopping: watch::Receiver<bool>) {
    let Some(mut wakes) = conductor.store.take_wakes() else {
        tracing::error!("another scheduler receives the wake-ups of this store");
        return;
    };
    let Some(mut freed) = conductor.session.take_freed() else { return };
    let mut runners = Runners::new(conductor.clone());
    let mut next_search = Instant::now();
    loop {
        // The search has priority over wake-ups, so that many wake-ups cannot starve it.
        tokio::select! {
            biased;
            _ = stopping.changed() => break,
            () = tokio::time::sleep_until(next_search) => {
                next_search = Instant::now() + search(&conductor, &mut runners).await;
            }
            Some(ended) = runners.tasks.join_next_with_id(), if !runners.tasks.is_empty() => {
                if let Some(due) = runners.ended(ended) {
                    let delay = due.since(conductor.now());
                    next_search = next_search.min(Instant::now() + delay);
                }
            }
            Some(node) = freed.recv() => runners.wake(node),
            Some(node) = wakes.recv() => runners.wake(node),
            () = conductor.session.search_now.notified() => next_search = Instant::now(),
        }
    }
    while runners.tasks.join_next().await.is_some() {}
}

/// The running tasks, one per node.
struct Runners {
    conductor: Conductor,
    tasks: JoinSet<Option<Timestamp>>,
    nodes: HashMap<Id, NodeId>,
    states: HashMap<NodeId, RunnerState>,
}

/// The state of a node's runner.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunnerState {
    /// The runner works.
    Running,
    /// The runner works, and the node was woken meanwhile: it runs again when it ends.
    RunAgain,
}

impl Runners {
    fn new(conductor: Conductor) -> Self {
        Self { conductor, tasks: JoinSet::new(), nodes: HashMap::new(), states: HashMap::new() }
    }

    /// Starts a runner, or lets the existing one run again when it ends.
    fn wake(&mut self, node: NodeId) {
        if let Some(state) = self.states.get_mut(&node) {
            *state = RunnerState::RunAgain;
        } else {
            self.start(node);
        }
    }

    fn start(&mut self, node: NodeId) {
        let conductor = self.conductor.clone();
        self.spawn(node, async move { runner::run(&conductor, node).await });
    }

    /// Starts a runner that leaves nodes of other processes to them.
    fn start_found(&mut self, node: NodeId, members: &Arc<[ConductorInfo]>) {
        let (conductor, members) = (self.conductor.clone(), Arc::clone(members));
        self.spawn(node, async move { runner::run_found(&conductor, node, members).await });
    }

    fn spawn(
        &mut self,
        node: NodeId,
        run: impl Future<Output = Option<Timestamp>> + Send + 'static,
    ) {
        self.states.insert(node, RunnerState::Running);
        let task = self.tasks.spawn(run);
        self.nodes.insert(task.id(), node);
    }

    /// Removes a runner that ended, and returns when its node is due next.
    fn ended(&mut self, ended: Result<(Id, Option<Timestamp>), JoinError>) -> Option<Timestamp> {
        let (id, due) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // The lease of the node is released, and the search finds it again.
                tracing::error!(%error, "node task panicked");
                (error.id(), None)
            }
        };
        let node = self.nodes.remove(&id)?;
        if self.states.remove(&node) == Some(RunnerState::RunAgain) {
            self.start(node);
        }
        due
    }
}

/// Starts runners for the due nodes that this conductor can manage. Returns the time until the next
/// search: when the next node is due, at most `due_interval`.
async fn search(conductor: &Conductor, runners: &mut Runners) -> Duration {
    let max_interval = Duration::from_secs(conductor.settings.due_interval.max(1));
    let now = conductor.now();
    let filter = due_filter(conductor);
    ConductorCounters::add(&conductor.counters.searches);
    let this = conductor.clone();
    let found = conductor
        .store
        .read(move |reader| {
            let due = reader.node_ids_due(now, &filter, SEARCH_LIMIT)?;
            let next = reader.next_due_after(now, &filter)?;
            let is_shared = this.store.is_shared() && !due.is_empty();
            let members =
                if is_shared { alive_conductors(reader, &this.settings)? } else { Vec::new() };
            Ok::<_, store::StoreError>((due, next, members))
        })
        .await;
    let (due, next, members) = match found {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(error = error_text(&error), retry_in = ?RETRY_INTERVAL, "search for due nodes failed");
            return RETRY_INTERVAL;
        }
    };
    let has_more = due.len() >= SEARCH_LIMIT as usize;
    let members: Arc<[ConductorInfo]> = members.into();
    let mut started = 0;
    for node in due {
        if !runners.states.contains_key(&node) {
            runners.start_found(node, &members);
            started += 1;
        }
    }
    match next {
        _ if has_more && started > 0 => MIN_INTERVAL,
        _ if has_more => BUSY_INTERVAL,
        Some(next) => next.since(now).clamp(MIN_INTERVAL, max_interval),
        None => max_interval,
    }
}

/// The nodes of this conductor's group with one of its drivers.
pub(crate) fn due_filter(conductor: &Conductor) -> DueFilter {
    let drivers = conductor.registry.hardware_types().map(|driver| driver.name.to_owned());
    DueFilter {
        conductor_group: conductor.settings.conductor_group.clone(),
        drivers: drivers.collect(),
    }
}
