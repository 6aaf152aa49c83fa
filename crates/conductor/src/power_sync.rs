// SPDX-License-Identifier: Apache-2.0
//! Polls the power state and health of all machines, spread evenly over the interval.
//!
//! A part of the fleet is polled every second, each machine in its own task, so that an unresponsive
//! BMC delays no other. Expected results are not written.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drivers::{Driver, DriverTarget};
use lifecycle::{
    PendingEntries, PowerPollResult, PowerSyncDecision, WarmUpStatus, apply_power_sync,
    decide_power_sync, is_power_monitored, record_warm_up, warm_up_status,
};
use node_model::{Health, Node, NodeId, PowerState, Timestamp};
use serde_json::json;
use store::{Columns, NodeFilter};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::error::error_text;
use crate::handle::ConductorCounters;
use crate::hash_ring::{alive_conductors, conductor_of};
use crate::node_snapshot::NodeSnapshot;
use crate::pending_entries::write_pending_entries;
use crate::{Conductor, ConductorError};

/// The state of power polls that is kept from one to the next.
#[derive(Clone, Default)]
pub(crate) struct PowerPolls(Arc<Mutex<PollState>>);

#[derive(Default)]
struct PollState {
    /// The number of consecutive polls that failed or returned an unexpected state.
    unexpected: HashMap<NodeId, u32>,
    /// The nodes that are being polled: a BMC that hangs gets no second request.
    in_progress: HashSet<NodeId>,
}

impl PowerPolls {
    /// Begins a poll, unless one is in progress.
    fn begin(&self, id: NodeId) -> Option<PowerPoll> {
        let is_new = self.state().in_progress.insert(id);
        is_new.then(|| PowerPoll { polls: self.clone(), id })
    }

    fn state(&self) -> MutexGuard<'_, PollState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A poll that is in progress until it is dropped.
struct PowerPoll {
    polls: PowerPolls,
    id: NodeId,
}

impl PowerPoll {
    /// Counts the result, and returns the number of consecutive unexpected ones including this one.
    fn count(&self, as_expected: bool) -> u32 {
        let mut state = self.polls.state();
        if as_expected {
            state.unexpected.remove(&self.id);
            return 0;
        }
        let count = state.unexpected.entry(self.id).or_insert(0);
        *count += 1;
        *count
    }
}

impl Drop for PowerPoll {
    fn drop(&mut self) {
        self.polls.state().in_progress.remove(&self.id);
    }
}

pub(crate) async fn run(conductor: Conductor, mut stopping: watch::Receiver<bool>) {
    let interval = conductor.settings.sync_power_state_interval;
    if interval == 0 {
        return;
    }
    let polls = PowerPolls::default();
    let mut tasks = JoinSet::new();
    let mut after = 0;
    let mut batch_size = 1;
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
            _ = stopping.changed() => return,
        }
        while tasks.try_join_next().is_some() {}
        if after == 0 {
            batch_size = nodes_per_second(&conductor, interval).await;
        }
        match read_batch(&conductor, after, batch_size).await {
            Ok((nodes, next)) => {
                for node in nodes {
                    tasks.spawn(poll(conductor.clone(), node, polls.clone()));
                }
                after = next.unwrap_or(0);
            }
            Err(error) => {
                tracing::warn!(
                    error = error_text(&error),
                    "nodes for power polls could not be read"
                );
            }
        }
    }
}

/// The number of nodes to poll per second, so that all are polled once per interval.
async fn nodes_per_second(conductor: &Conductor, interval: u64) -> u32 {
    let count = conductor
        .store
        .read(|reader| reader.count::<Node>(&NodeFilter::default()))
        .await
        .unwrap_or_default();
    u32::try_from(count.div_ceil(interval)).unwrap_or(u32::MAX).max(1)
}

async fn read_batch(
    conductor: &Conductor,
    after: i64,
    limit: u32,
) -> Result<(Vec<Node>, Option<i64>), store::StoreError> {
    let store = conductor.store.clone();
    let conductor = conductor.clone();
    store
        .read(move |reader| {
            let mut nodes = Vec::new();
            let alive = alive_conductors(reader, &conductor.settings)?;
            let us = conductor.hostname();
            let next = reader.nodes_after(after, limit, Columns::ALL, |node| {
                // Each node is polled by one of the processes that share a database.
                if is_power_monitored(node) && conductor_of(node, &alive) == Some(us) {
                    nodes.push(node.clone());
                }
            })?;
            Ok((nodes, next))
        })
        .await
}

/// The response of a BMC to a poll.
struct PolledState {
    power: Option<PowerState>,
    health: Option<Health>,
    can_restore: bool,
}

/// Polls one machine.
pub(crate) async fn poll(conductor: Conductor, node: Node, polls: PowerPolls) {
    let id = node.id;
    let Some(poll) = polls.begin(id) else { return };
    ConductorCounters::add(&conductor.counters.power_polls);
    let timeout = Duration::from_secs(conductor.settings.power_state_timeout.max(1));
    // Another process polls the machine after the end of the session.
    let Ok(polled) = conductor.session.while_valid(query(&conductor, node.clone(), timeout)).await
    else {
        return;
    };
    let (power, health, can_restore) = match polled {
        // The power interface does not know the state yet.
        Ok(PolledState { power: None, .. }) => return,
        Ok(PolledState { power: Some(power), health, can_restore }) => {
            (Ok(power), health, can_restore)
        }
        Err(error) => (Err(error_text(&error)), None, false),
    };
    let as_expected = power.as_ref().is_ok_and(|power| Some(*power) == node.power_state);
    let unexpected_polls = poll.count(as_expected);
    let result = PowerPollResult { power, unexpected_polls, can_restore };
    if !changes_node(&conductor, &node, &result, health) {
        return;
    }
    if let Err(error) = write(&conductor, &node, result, health).await {
        tracing::warn!(node = %id, error = error_text(&error), "result of power poll could not be stored");
    }
}

/// Whether the result of a poll has to be written.
fn changes_node(
    conductor: &Conductor,
    node: &Node,
    result: &PowerPollResult,
    health: Option<Health>,
) -> bool {
    let health_changed = health.is_some() && health != node.health;
    let warm_up = warm_up_status(node, &conductor.rules, conductor.now());
    health_changed
        || !is_error_recorded(node, result.power.as_ref().err())
        || matches!(warm_up, WarmUpStatus::Finished | WarmUpStatus::Overdue)
        || decide_power_sync(node, result, &conductor.rules).changes_node()
}

/// The key of `driver_internal_info` with the error of a BMC that does not respond, before it becomes
/// a fault.
const BMC_ERROR_KEY: &str = "bmc_unreachable";

/// Whether the recorded BMC error of the node equals `error`. Evaluated at every poll, so the text is
/// searched before it is parsed.
fn is_error_recorded(node: &Node, error: Option<&String>) -> bool {
    let recorded = if node.driver_internal_info.as_str().contains("\"bmc_unreachable\"") {
        node.driver_internal_info.get(BMC_ERROR_KEY)
    } else {
        None
    };
    match (recorded, error) {
        (None, None) => true,
        (Some(recorded), Some(error)) => recorded["error"] == **error,
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// Records the BMC error and since when it occurs, or removes it.
fn record_error(node: &mut Node, error: Option<&String>, now: Timestamp) {
    if is_error_recorded(node, error) {
        return;
    }
    match error {
        None => node.driver_internal_info.remove(BMC_ERROR_KEY),
        Some(error) => {
            let before = node.driver_internal_info.get(BMC_ERROR_KEY);
            let since = before.and_then(|before| before["since"].as_str().map(str::to_owned));
            let since = since.unwrap_or_else(|| now.to_string());
            node.driver_internal_info.set(BMC_ERROR_KEY, json!({"since": since, "error": error}));
        }
    }
}

async fn query(
    conductor: &Conductor,
    node: Node,
    timeout: Duration,
) -> Result<PolledState, ConductorError> {
    let snapshot = conductor.store.read(move |reader| NodeSnapshot::read(reader, node)).await?;
    let driver = snapshot.driver(&conductor.registry)?;
    let target = snapshot.target(&driver, conductor.now());
    let power = tokio::time::timeout(timeout, driver.power().get(&target)).await;
    let power = power.map_err(|_| ConductorError::Invalid {
        node: snapshot.node.label(),
        why: format!("the BMC did not respond within {} s", timeout.as_secs()),
    })?;
    let power = power.map_err(|source| snapshot.driver_error(source))?;
    let health = tokio::time::timeout(timeout, health(&driver, &target)).await;
    let can_restore = driver.power().supports_sync();
    Ok(PolledState { power, health: health.ok().flatten(), can_restore })
}

/// The health, if the BMC reports it. Errors are ignored.
async fn health(driver: &Driver, target: &DriverTarget<'_>) -> Option<Health> {
    driver.management().health(target).await.ok().flatten()
}

/// Writes the result of a poll, unless the node changed since it was read: the result may be outdated
/// then.
async fn write(
    conductor: &Conductor,
    before: &Node,
    result: PowerPollResult,
    health: Option<Health>,
) -> Result<(), store::StoreError> {
    let conductor = conductor.clone();
    let store = conductor.store.clone();
    let (id, read_at) = (before.id, before.updated_at);
    store
        .write(move |tx| {
            let Some(mut node) = tx.get(id)? else { return Ok(()) };
            if !is_power_monitored(&node) || node.updated_at != read_at {
                return Ok(());
            }
            let (actor, now) = (conductor.actor(), tx.now());
            let mut entries = PendingEntries::default();
            if health.is_some() {
                node.health = health;
            }
            record_error(&mut node, result.power.as_ref().err(), now);
            record_warm_up(&mut node, &conductor.rules, now, &mut entries);
            let rules = &conductor.rules;
            let decision =
                apply_power_sync(&mut node, &result, actor.clone(), rules, now, &mut entries);
            if let PowerSyncDecision::Restore(_) = decision {
                tx.wake(id);
            }
            write_pending_entries(tx, &mut node, entries, &actor, &conductor.owner.hostname)?;
            tx.save(&mut node)
        })
        .await
}
