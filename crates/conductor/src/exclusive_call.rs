// SPDX-License-Identifier: Apache-2.0
//! Exclusive driver calls outside of jobs: the node is leased for the duration of the call, and the
//! call is recorded in the journal.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use drivers::{BmcCallLog, Driver, DriverTarget, NodeChanges};
use lifecycle::{PendingEntries, PowerRequestError, agent_stopped};
use node_model::{Actor, BmcCall, JournalEvent, Node, NodeId, Timestamp};
use store::{NodeLease, StoreWriter};
use tokio::time::Instant;

use crate::error::error_text;
use crate::node_snapshot::NodeSnapshot;
use crate::pending_entries::write_pending_entries;
use crate::provision::get_node;
use crate::runner::write_changes;
use crate::session::NodeHold;
use crate::{Conductor, ConductorError};

/// The interval between attempts to claim a leased node.
const CLAIM_INTERVAL: Duration = Duration::from_millis(50);

/// A leased node with its driver.
pub(crate) struct ExclusiveCall {
    pub(crate) snapshot: NodeSnapshot,
    pub(crate) driver: Driver,
    lease: NodeLease,
    hold: NodeHold,
    calls: Arc<BmcCallLog>,
    /// Whether the action is stored in the node: its end must remove it, and a failure is the last error.
    has_intent: bool,
}

impl Conductor {
    /// Leases a node for one call. Fails if another call or a job, also of this process, holds the
    /// lease for longer than `node_locked_timeout`.
    pub(crate) async fn exclusive_call(&self, id: NodeId) -> Result<ExclusiveCall, ConductorError> {
        let timeout = Duration::from_secs(self.settings.node_locked_timeout);
        let began = Instant::now();
        let (snapshot, lease, hold) = loop {
            match self.claim(id).await {
                Err(ConductorError::PowerRejected(PowerRequestError::Locked { .. }))
                    if began.elapsed() < timeout =>
                {
                    tokio::time::sleep(CLAIM_INTERVAL).await;
                }
                claimed => break claimed?,
            }
        };
        match snapshot.driver(&self.registry) {
            Ok(driver) => Ok(ExclusiveCall {
                snapshot,
                driver,
                lease,
                hold,
                calls: Arc::default(),
                has_intent: false,
            }),
            Err(error) => {
                self.release(lease, &hold).await;
                Err(error)
            }
        }
    }

    async fn claim(
        &self,
        id: NodeId,
    ) -> Result<(NodeSnapshot, NodeLease, NodeHold), ConductorError> {
        let Some(hold) = self.session.hold(id) else {
            return Err(ConductorError::PowerRejected(PowerRequestError::Locked {
                node: id.to_string(),
                holder: self.hostname().to_owned(),
            }));
        };
        let conductor = self.clone();
        let ttl = self.lease_time();
        let claim = move |tx: &mut StoreWriter<'_>| -> Result<_, ConductorError> {
            let node = get_node(tx, id)?;
            match tx.claim(id, &conductor.owner, ttl)? {
                Some(lease) => {
                    let node = report_interrupted(tx, node, &conductor)?;
                    Ok((NodeSnapshot::read(tx, node)?, lease))
                }
                None => Err(ConductorError::PowerRejected(PowerRequestError::Locked {
                    node: node.id.to_string(),
                    holder: node.reservation.unwrap_or_default(),
                })),
            }
        };
        match self.store.write(claim).await {
            Ok((snapshot, lease)) => {
                hold.claimed(lease);
                Ok((snapshot, lease, hold))
            }
            // Other errors may leave the node claimed.
            Err(error) => {
                if !matches!(error, ConductorError::Store(_)) {
                    hold.released();
                }
                Err(error)
            }
        }
    }

    async fn release(&self, lease: NodeLease, hold: &NodeHold) {
        match self.store.write(move |tx| release(tx, &lease)).await {
            Ok(()) => hold.released(),
            // It is released in the background.
            Err(error) => {
                tracing::warn!(node = %lease.node, error = error_text(&error), "lease could not be released");
            }
        }
    }
}

impl ExclusiveCall {
    /// The argument of driver calls.
    pub(crate) fn target(&self, conductor: &Conductor) -> DriverTarget<'_> {
        let target = self.snapshot.target(&self.driver, conductor.now());
        DriverTarget { call_log: Some(&self.calls), ..target }
    }

    /// Awaits `work`, stores its changes, records `action` in the journal and releases the node.
    pub(crate) async fn run<T>(
        &self,
        conductor: &Conductor,
        actor: &Actor,
        action: &str,
        work: impl Future<Output = Result<(T, NodeChanges), drivers::DriverError>>,
    ) -> Result<T, ConductorError> {
        let (began, started) = (conductor.now(), Instant::now());
        let result = self.hold.while_valid(work).await?;
        let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let action = action.to_owned();
        let (value, changes, event) = match result {
            Ok((value, changes)) => {
                let event = JournalEvent::ActionDone { action, took_ms, result: None };
                (Ok(value), changes, event)
            }
            // An invalid request did not reach the machine, so it is not recorded.
            Err(error) if error.is_caller_error() && !self.has_intent => {
                self.release(conductor).await;
                return Err(self.snapshot.driver_error(error));
            }
            Err(error) => {
                let text = error_text(&error);
                let event = JournalEvent::ActionFailed { action, took_ms, error: text };
                (Err(self.snapshot.driver_error(error)), NodeChanges::none(), event)
            }
        };
        let calls = bmc_call_event(&self.calls);
        let record =
            || self.record(conductor, actor, began, changes.clone(), calls.clone(), event.clone());
        match self.hold.repeat_during_outage(record).await {
            Ok(()) => self.hold.released(),
            Err(error) => {
                self.release(conductor).await;
                return Err(error);
            }
        }
        value
    }

    /// Releases the node without a call.
    pub(crate) async fn release(&self, conductor: &Conductor) {
        conductor.release(self.lease, &self.hold).await;
    }

    /// Stores the action before it is run in the background, and clears the last error, which would look
    /// like a failure of this action. If the process ends meanwhile, the next process that claims the node
    /// reports it as interrupted.
    pub(crate) async fn record_intent(
        self,
        conductor: &Conductor,
        action: &str,
    ) -> Result<Self, ConductorError> {
        let (lease, action) = (self.lease, action.to_owned());
        let stored = conductor
            .store
            .write(move |tx| -> Result<(), ConductorError> {
                let mut node = get_node(tx, lease.node)?;
                node.driver_internal_info.set(INTENT_KEY, action.clone());
                node.last_error = None;
                Ok(tx.save_fenced(&mut node, &lease)?)
            })
            .await;
        match stored {
            Ok(()) => Ok(Self { has_intent: true, ..self }),
            Err(error) => {
                self.release(conductor).await;
                Err(error)
            }
        }
    }

    async fn record(
        &self,
        conductor: &Conductor,
        actor: &Actor,
        began: Timestamp,
        changes: NodeChanges,
        calls: Option<JournalEvent>,
        event: JournalEvent,
    ) -> Result<(), ConductorError> {
        let (lease, actor) = (self.lease, actor.clone());
        let hostname = conductor.owner.hostname.clone();
        let last_error = if let JournalEvent::ActionFailed { action, error, .. } = &event
            && self.has_intent
        {
            Some(format!("failed to {action}: {error}"))
        } else {
            None
        };
        conductor
            .store
            .write(move |tx| {
                let mut node = get_node(tx, lease.node)?;
                write_changes(tx, &mut node, &changes)?;
                node.driver_internal_info.remove(INTENT_KEY);
                if last_error.is_some() {
                    node.last_error.clone_from(&last_error);
                }
                let mut entries = PendingEntries::default();
                if changes.agent_stopped {
                    agent_stopped(&mut node, began, &mut entries);
                }
                entries.events.extend(calls.clone());
                entries.events.push(event.clone());
                write_pending_entries(tx, &mut node, entries, &actor, &hostname)?;
                tx.save_fenced(&mut node, &lease)?;
                release(tx, &lease)?;
                Ok(())
            })
            .await
    }
}

/// The key of `driver_internal_info` with the action that runs in the background.
const INTENT_KEY: &str = "direct_call";

/// Reports a background call on a claimed node that was interrupted by the end of a process or the loss of
/// its lease.
pub(crate) fn report_interrupted(
    tx: &mut StoreWriter<'_>,
    mut node: Node,
    conductor: &Conductor,
) -> Result<Node, store::StoreError> {
    // Evaluated before every job, so search the text before parsing it.
    if !node.driver_internal_info.as_str().contains("\"direct_call\"") {
        return Ok(node);
    }
    let Some(action) = node.driver_internal_info.get_str(INTENT_KEY) else { return Ok(node) };
    node.driver_internal_info.remove(INTENT_KEY);
    let error = "it was interrupted, so the result is unknown; check the machine and repeat the \
                 request"
        .to_owned();
    node.last_error = Some(format!("failed to {action}: {error}"));
    let mut entries = PendingEntries::default();
    entries.events.push(JournalEvent::ActionFailed { action, took_ms: 0, error });
    write_pending_entries(tx, &mut node, entries, &conductor.actor(), conductor.hostname())?;
    tx.save(&mut node)?;
    Ok(node)
}

/// The journal event with the requests to the BMC; `None` if there were none.
pub(crate) fn bmc_call_event(log: &BmcCallLog) -> Option<JournalEvent> {
    let (calls, left_out) = log.take();
    if calls.is_empty() {
        return None;
    }
    let calls = calls.into_iter().map(|call| BmcCall {
        request: call.request,
        result: call.result,
        took_ms: u64::try_from(call.duration.as_millis()).unwrap_or(u64::MAX),
        times: call.count,
    });
    Some(JournalEvent::BmcCalls { calls: calls.collect(), left_out })
}

/// Releases the node and wakes it, for jobs that were requested meanwhile.
fn release(tx: &mut StoreWriter<'_>, lease: &NodeLease) -> Result<(), store::StoreError> {
    tx.release(lease)?;
    tx.wake(lease.node);
    Ok(())
}
