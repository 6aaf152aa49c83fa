// SPDX-License-Identifier: Apache-2.0
//! Runs one node: decide, execute, record, until the node waits or is idle.
//!
//! Each round is one transaction (load, record the outcome, decide, save) and one action outside of
//! it. If the session of this process ends while an action runs, the action is cancelled, and another
//! process continues the job.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use drivers::NodeChanges;
use lifecycle::{
    Action, ActionFailure, ActionOutcome, PendingEntries, SettleResult, agent_steps_are_needed,
    agent_stopped, is_still_running, record, settle,
};
use node_model::{
    ConductorInfo, JournalEvent, Node, NodeId, Stage, Timestamp, Work, contains_secret,
};
use store::{NodeLease, StoreWriter};
use tokio::time::Instant;

use crate::error::error_text;
use crate::exclusive_call::{bmc_call_event, report_interrupted};
use crate::execute::{ActionResults, execute};
use crate::handle::ConductorCounters;
use crate::hash_ring::conductor_of;
use crate::node_snapshot::{NodeResources, NodeSnapshot};
use crate::pending_entries::write_pending_entries;
use crate::session::NodeHold;
use crate::{Conductor, available_steps, hardware, job_queue};

/// A node that is due for longer is run by any process: the one that monitors it does not do so.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// Runs `node` until it waits or is idle, and returns when it is due next.
pub(crate) async fn run(conductor: &Conductor, node: NodeId) -> Option<Timestamp> {
    let members: Arc<[ConductorInfo]> = Arc::new([]);
    run_counted(conductor, node, &members).await
}

/// Like [`run`], but leaves the node to the one of `members` that monitors it.
pub(crate) async fn run_found(
    conductor: &Conductor,
    node: NodeId,
    members: Arc<[ConductorInfo]>,
) -> Option<Timestamp> {
    run_counted(conductor, node, &members).await
}

async fn run_counted(
    conductor: &Conductor,
    node: NodeId,
    members: &Arc<[ConductorInfo]>,
) -> Option<Timestamp> {
    conductor.counters.running.fetch_add(1, Ordering::Relaxed);
    let result = run_until_settled(conductor, node, members).await;
    conductor.counters.running.fetch_sub(1, Ordering::Relaxed);
    match result {
        Ok(due) => due,
        Err(store::StoreError::LeaseLost) => {
            tracing::warn!(%node, "lease lost, stopping work on node");
            None
        }
        Err(error) => {
            tracing::error!(%node, error = error_text(&error), "node task failed, will retry");
            None
        }
    }
}

/// The result of a round of decisions.
enum Round {
    /// Execute this action.
    Act(NodeLease, Box<NodeSnapshot>, Action),
    /// The node waits or is idle.
    Settled(SettledNode),
}

/// A node that waits or is idle.
#[derive(Clone, Copy, Default)]
struct SettledNode {
    /// When it is due; `None` if only an event can advance it.
    due: Option<Timestamp>,
    /// Whether its job gave back its place in a job queue.
    place_released: bool,
}

/// An executed action with its outcome, to be recorded.
struct ExecutedAction {
    lease: NodeLease,
    resources: Arc<NodeResources>,
    action: Action,
    outcome: ActionOutcome,
    results: ActionResults,
    began: Timestamp,
    duration: Duration,
}

async fn run_until_settled(
    conductor: &Conductor,
    id: NodeId,
    members: &Arc<[ConductorInfo]>,
) -> Result<Option<Timestamp>, store::StoreError> {
    if conductor.session.is_draining() || !conductor.session.is_valid() {
        return Ok(None);
    }
    // If it cannot be read, it cannot be claimed either, which is repeated.
    if let Ok(Some(until)) = left_to_other(conductor, id, members).await {
        return Ok(Some(until));
    }
    let Some(hold) = conductor.session.hold(id) else { return Ok(None) };
    let mut round = hold.repeat_during_outage(|| begin(conductor, id, members)).await?;
    loop {
        let (lease, snapshot, action) = match round {
            Round::Act(lease, snapshot, action) => (lease, snapshot, action),
            Round::Settled(node) => {
                hold.released();
                if node.place_released {
                    conductor.job_ended.notify_one();
                }
                return Ok(node.due);
            }
        };
        hold.claimed(lease);
        if conductor.session.is_draining() {
            // Other processes continue.
            conductor.store.write(move |tx| tx.release(&lease)).await?;
            hold.released();
            return Ok(None);
        }
        round = run_action(conductor, &hold, lease, &snapshot, action).await?;
    }
}

async fn run_action(
    conductor: &Conductor,
    hold: &NodeHold,
    lease: NodeLease,
    snapshot: &NodeSnapshot,
    action: Action,
) -> Result<Round, store::StoreError> {
    let (began, started) = (conductor.now(), Instant::now());
    let calls = Arc::default();
    let execution = execute(conductor, snapshot, &action, &calls);
    let (outcome, mut results) = hold.while_valid(execution).await?;
    let duration = started.elapsed();
    results.bmc_calls = bmc_call_event(&calls);
    let requests = results.inspection.as_mut().map(|result| result.take_requests());
    log_outcome(conductor, &snapshot.node, &action, &outcome, duration);
    let resources = Arc::clone(&snapshot.resources);
    let executed = Arc::new(ExecutedAction {
        lease,
        resources: Arc::clone(&resources),
        action: action.clone(),
        outcome,
        results,
        began,
        duration,
    });
    match hold.repeat_during_outage(|| finish(conductor, &executed)).await {
        Err(error) if is_data_error(&error) => {
            // Recording the same data again would fail again: fail the job instead.
            let message = format!("the result could not be stored: {}", error_text(&error));
            let outcome = ActionOutcome::Failed(ActionFailure::new(message));
            let results = ActionResults::default();
            let failed =
                ExecutedAction { lease, resources, action, outcome, results, began, duration };
            let failed = Arc::new(failed);
            hold.repeat_during_outage(|| finish(conductor, &failed)).await
        }
        recorded => {
            let next = recorded?;
            conductor.send_rule_requests(snapshot.node.id, requests.unwrap_or_default());
            Ok(next)
        }
    }
}

/// Whether the store rejects the data, and would reject them again.
const fn is_data_error(error: &store::StoreError) -> bool {
    matches!(
        error,
        store::StoreError::Duplicate { .. }
            | store::StoreError::Reference
            | store::StoreError::ValueRejected(_)
    )
}

/// Claims the node and decides the first action.
async fn begin(
    conductor: &Conductor,
    id: NodeId,
    members: &Arc<[ConductorInfo]>,
) -> Result<Round, store::StoreError> {
    let (conductor, members) = (conductor.clone(), Arc::clone(members));
    let store = conductor.store.clone();
    store
        .write(move |tx| {
            let Some(node) = tx.get(id)? else { return Ok(Round::Settled(SettledNode::default())) };
            // Any call that ends wakes its node, also one whose work is held.
            if !conductor.can_drive(&node) || lifecycle::is_held(&node) {
                return Ok(Round::Settled(SettledNode::default()));
            }
            if let Some(until) = reserved_until(&node, &members, conductor.hostname())
                && tx.now() < until
            {
                return Ok(Round::Settled(SettledNode {
                    due: Some(until),
                    ..SettledNode::default()
                }));
            }
            let Some(lease) = tx.claim(id, &conductor.owner, conductor.lease_time())? else {
                return Ok(Round::Settled(SettledNode::default()));
            };
            let node = report_interrupted(tx, node, &conductor)?;
            decide(&conductor, tx, lease, node, None, PendingEntries::default())
        })
        .await
}

/// Until when a due node is left to another process. A read, because all processes find the node, and a write
/// would lock it.
async fn left_to_other(
    conductor: &Conductor,
    id: NodeId,
    members: &Arc<[ConductorInfo]>,
) -> Result<Option<Timestamp>, store::StoreError> {
    if members.len() < 2 {
        return Ok(None);
    }
    let node: Option<Node> = conductor.store.read(move |reader| reader.get(id)).await?;
    let until = node.and_then(|node| reserved_until(&node, members, conductor.hostname()));
    Ok(until.filter(|until| conductor.now() < *until))
}

/// Until when a due node is left to another process that monitors it.
fn reserved_until(node: &Node, members: &[ConductorInfo], us: &str) -> Option<Timestamp> {
    let owner = conductor_of(node, members)?;
    let due = node.due_at.filter(|_| owner != us)?;
    Some(due.plus(MAX_DELAY))
}

/// Records the outcome of an action and decides the next one.
async fn finish(
    conductor: &Conductor,
    executed: &Arc<ExecutedAction>,
) -> Result<Round, store::StoreError> {
    let (conductor, executed) = (conductor.clone(), Arc::clone(executed));
    let store = conductor.store.clone();
    let took_ms = u64::try_from(executed.duration.as_millis()).unwrap_or(u64::MAX);
    store
        .write(move |tx| {
            let ExecutedAction { lease, action, outcome, results, .. } = &*executed;
            let Some(mut node) = tx.get(lease.node)? else {
                return Ok(Round::Settled(SettledNode::default()));
            };
            let now = tx.now();
            let progress_before = progress_text(&node).map(str::to_owned);
            write_results(&conductor, tx, &mut node, results)?;
            let mut entries = PendingEntries::default();
            if results.changes.agent_stopped {
                agent_stopped(&mut node, executed.began, &mut entries);
            }
            if !is_still_running(action, outcome) {
                entries.events.extend(results.bmc_calls.clone());
            }
            entries.events.extend(progress_event(&node, progress_before.as_deref()));
            entries.append(record(&mut node, action, outcome, took_ms, &conductor.rules, now));
            hardware::change_related_power(tx, &node, action, outcome, &conductor)?;
            // Inspection may have created ports.
            let resources = (*action != Action::Inspect).then_some(&executed.resources);
            decide(&conductor, tx, *lease, node, resources, entries)
        })
        .await
}

fn write_results(
    conductor: &Conductor,
    tx: &mut StoreWriter<'_>,
    node: &mut Node,
    results: &ActionResults,
) -> Result<(), store::StoreError> {
    write_changes(tx, node, &results.changes)?;
    if let Some(inspection) = &results.inspection {
        inspection.write(tx, node, &conductor.actor())?;
    }
    for (child, changes) in &results.children {
        write_child(tx, *child, changes)?;
    }
    if let Some(logs) = &results.logs {
        let failed = node.work.as_ref().is_some_and(|work| work.stage == Stage::CleanUp);
        let failure = node.last_error.as_deref().filter(|_| failed);
        logs.write(conductor, tx, node.id, failure)?;
        if let Some(work) = &mut node.work {
            work.logs_collected = true;
        }
    }
    Ok(())
}

/// What the driver last reported about the current step.
fn progress_text(node: &Node) -> Option<&str> {
    node.work.as_ref()?.progress_text.as_deref()
}

/// The journal event for a progress that differs from `before`.
fn progress_event(node: &Node, before: Option<&str>) -> Option<JournalEvent> {
    let text = progress_text(node).filter(|now| Some(*now) != before)?.to_owned();
    let by = node.work.as_ref().and_then(Work::current_step)?.qualified();
    Some(JournalEvent::Note { by, text })
}

fn decide(
    conductor: &Conductor,
    tx: &mut StoreWriter<'_>,
    lease: NodeLease,
    mut node: Node,
    resources: Option<&Arc<NodeResources>>,
    mut entries: PendingEntries,
) -> Result<Round, store::StoreError> {
    let now = tx.now();
    let queue_before = node.job_queue;
    let mut result = settle(&mut node, &conductor.rules, now, &mut entries);
    loop {
        match &result {
            SettleResult::NeedsPlace(queue) => {
                job_queue::start_or_queue(conductor, tx, &mut node, *queue)?
            }
            // The driver's steps are known without a request to the machine, so they need no round.
            SettleResult::Act(action @ Action::ListSteps(flow)) => {
                let outcome = match conductor.registry.compose(&node) {
                    Ok(driver) => match available_steps::of_driver(&driver, *flow) {
                        steps if agent_steps_are_needed(&node, *flow, &steps) => break,
                        steps => ActionOutcome::StepsListed(steps),
                    },
                    Err(error) => ActionOutcome::Failed(ActionFailure::new(error_text(&error))),
                };
                entries.append(record(&mut node, action, &outcome, 0, &conductor.rules, now));
            }
            SettleResult::Act(_) | SettleResult::Wait(..) | SettleResult::Idle => break,
        }
        result = settle(&mut node, &conductor.rules, now, &mut entries);
    }
    let node_queue = node.job_queue;
    write_pending_entries(tx, &mut node, entries, &conductor.actor(), &conductor.owner.hostname)?;
    tx.save_fenced(&mut node, &lease)?;
    let due = match result {
        SettleResult::Act(action) => {
            let snapshot = match resources {
                Some(resources) => NodeSnapshot::refresh(tx, node, resources)?,
                None => NodeSnapshot::read(tx, node)?,
            };
            return Ok(Round::Act(lease, Box::new(snapshot), action));
        }
        SettleResult::Wait(_, due) => due,
        SettleResult::Idle | SettleResult::NeedsPlace(_) => None,
    };
    tx.release(&lease)?;
    let place_released = queue_before.is_some() && queue_before != node_queue;
    Ok(Round::Settled(SettledNode { due, place_released }))
}

/// Applies the changes of a driver call to the node and its tables. Objects that may contain secrets
/// are sealed again.
pub(crate) fn write_changes(
    tx: &mut StoreWriter<'_>,
    node: &mut Node,
    changes: &NodeChanges,
) -> Result<(), store::StoreError> {
    let has_secrets =
        contains_secret(&changes.instance_info) || contains_secret(&changes.driver_internal_info);
    if has_secrets {
        let mut secrets = tx.reveal(node)?;
        changes.apply_to_secrets(&mut secrets.instance_info, &mut secrets.driver_internal_info);
        let others = NodeChanges {
            instance_info: serde_json::Map::new(),
            driver_internal_info: serde_json::Map::new(),
            ..changes.clone()
        };
        others.apply_to(node);
        tx.seal_node(node, secrets)?;
    } else {
        changes.apply_to(node);
    }
    hardware::write_tables(tx, node.id, changes)
}

/// Applies the changes of a step to a child node.
fn write_child(
    tx: &mut StoreWriter<'_>,
    id: NodeId,
    changes: &NodeChanges,
) -> Result<(), store::StoreError> {
    if let Some(mut child) = tx.get(id)? {
        write_changes(tx, &mut child, changes)?;
        tx.save(&mut child)?;
    }
    Ok(())
}

fn log_outcome(
    conductor: &Conductor,
    node: &Node,
    action: &Action,
    outcome: &ActionOutcome,
    took: Duration,
) {
    ConductorCounters::add(&conductor.counters.actions);
    match outcome {
        ActionOutcome::Failed(failure) | ActionOutcome::Unreachable(_, failure) => {
            ConductorCounters::add(&conductor.counters.failures);
            let error = &failure.message;
            tracing::warn!(node = %node.id, %action, ?took, %error, "action failed");
        }
        ActionOutcome::Progress(_) | ActionOutcome::StepsListed(_) => {
            tracing::debug!(node = %node.id, %action, ?took, "action done");
        }
    }
}
