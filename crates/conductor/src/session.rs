// SPDX-License-Identifier: Apache-2.0
//! The session of this process: until when it may command machines, which nodes it holds, and which other
//! processes are dead.
//!
//! On a shared database the session must be renewed. A process that cannot renew it stops commanding
//! machines [`SESSION_TIMEOUT`] after it sent the last successful renewal. Others end the session when they
//! have seen the same number of renewals for [`DEATH_TIMEOUT`], which is later: they saw the last renewal
//! after it was sent, and both times are measured with clocks that are never set. Commands are cancelled at
//! the end of the session, and the session is checked before each poll of the future that sends them, so a
//! process that was suspended sends nothing when it continues.

use std::collections::{BTreeSet, HashMap};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use node_model::NodeId;
use store::{LeaseOwner, MonotonicClock, NodeLease, ObservedSession, StoreError};
use tokio::sync::{Notify, mpsc};
use uuid::Uuid;

use crate::ConductorError;
use crate::error::error_text;

#[cfg(test)]
mod tests;

/// How long a process may command machines after it sent its last successful renewal.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(6);
/// How long others see no renewal before they end a session.
pub(crate) const DEATH_TIMEOUT: Duration = Duration::from_secs(8);
/// After a longer time without an observation, the database may have been unavailable to all processes, so
/// the others get time to renew their sessions.
const MAX_OBSERVATION_GAP: Duration = Duration::from_secs(4);
/// The time between two attempts to end the session of a dead process.
const END_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The session of this process.
pub(crate) struct ConductorSession {
    clock: MonotonicClock,
    state: Mutex<SessionState>,
    /// Notified when work has to be cancelled. Waiting tasks are woken in the order in which they began to
    /// wait.
    changed: Notify,
    draining: AtomicBool,
    held: Mutex<HashMap<NodeId, HeldNode>>,
    /// Nodes whose lease was not released by the task that held them.
    unreleased: mpsc::UnboundedSender<UnreleasedNode>,
    unreleased_receiver: Mutex<Option<mpsc::UnboundedReceiver<UnreleasedNode>>>,
    /// Nodes that a task wanted to hold while another one did.
    freed: mpsc::UnboundedSender<NodeId>,
    freed_receiver: Mutex<Option<mpsc::UnboundedReceiver<NodeId>>>,
    /// Wakes the search for due nodes.
    pub(crate) search_now: Notify,
}

/// A node that a task of this process works on.
struct HeldNode {
    lease: Option<NodeLease>,
    /// Whether the lease was lost.
    lost: Arc<AtomicBool>,
    /// Whether another task wanted to hold it.
    wanted: bool,
}

/// A node whose lease has to be released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UnreleasedNode {
    pub(crate) node: NodeId,
    /// Whether to run the node immediately afterwards. A node whose task failed for another reason is
    /// found by the next search, so that it cannot keep the process busy.
    pub(crate) runs_again: bool,
}

/// Whether this process may command machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SessionState {
    /// Incremented whenever the right to command machines was lost, so that work that began before does not
    /// continue after the next renewal.
    epoch: u64,
    /// `None` if the database is not shared.
    valid_until: Option<Duration>,
    /// Whether another process has ended the session.
    ended: bool,
    /// Whether this process stops.
    closed: bool,
}

impl SessionState {
    const fn new() -> Self {
        Self { epoch: 0, valid_until: None, ended: false, closed: false }
    }

    fn is_valid(&self, now: Duration) -> bool {
        !self.ended && !self.closed && self.valid_until.is_none_or(|until| now < until)
    }

    /// After a successful renewal that was sent at `submitted`.
    fn renewed(self, submitted: Duration, now: Duration) -> Self {
        let epoch = if self.is_valid(now) { self.epoch } else { self.epoch + 1 };
        Self { epoch, valid_until: Some(submitted + SESSION_TIMEOUT), ended: false, ..self }
    }

    /// After another process has ended the session.
    fn ended(self) -> Self {
        Self { epoch: self.epoch + 1, ended: true, ..self }
    }
}

impl ConductorSession {
    pub(crate) fn new(clock: MonotonicClock) -> Self {
        let (unreleased, unreleased_receiver) = mpsc::unbounded_channel();
        let (freed, freed_receiver) = mpsc::unbounded_channel();
        Self {
            clock,
            state: Mutex::new(SessionState::new()),
            changed: Notify::new(),
            draining: AtomicBool::new(false),
            held: Mutex::default(),
            unreleased,
            unreleased_receiver: Mutex::new(Some(unreleased_receiver)),
            freed,
            freed_receiver: Mutex::new(Some(freed_receiver)),
            search_now: Notify::new(),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        (self.clock)()
    }

    /// The session was begun or renewed by a statement that was sent at `submitted`.
    pub(crate) fn renewed(&self, submitted: Duration) {
        let now = self.now();
        self.change(|state| state.renewed(submitted, now));
    }

    /// Another process has ended the session.
    pub(crate) fn ended(&self) {
        self.change(SessionState::ended);
    }

    /// Cancels all work, for good.
    pub(crate) fn close(&self) {
        self.change(|state| SessionState { epoch: state.epoch + 1, closed: true, ..state });
    }

    fn change(&self, change: impl FnOnce(SessionState) -> SessionState) {
        let (before, after) = {
            let mut state = self.state();
            let before = *state;
            *state = change(before);
            (before, *state)
        };
        // Work that continues need not be woken by each renewal.
        if before.epoch != after.epoch {
            self.changed.notify_waiters();
        }
    }

    fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process may command machines now.
    pub(crate) fn is_valid(&self) -> bool {
        let state = *self.state();
        state.is_valid(self.now())
    }

    /// Starts no action any more.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// The nodes to release. Returns the receiver once.
    pub(crate) fn take_unreleased(&self) -> Option<mpsc::UnboundedReceiver<UnreleasedNode>> {
        self.unreleased_receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The nodes to run because they are free again. Returns the receiver once.
    pub(crate) fn take_freed(&self) -> Option<mpsc::UnboundedReceiver<NodeId>> {
        self.freed_receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn held(&self) -> MutexGuard<'_, HashMap<NodeId, HeldNode>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a node for one task of this process. Returns `None` if another task holds it; the node is
    /// run when that one ends.
    pub(crate) fn hold(self: &Arc<Self>, node: NodeId) -> Option<NodeHold> {
        let epoch = self.state().epoch;
        let mut held = self.held();
        if let Some(holder) = held.get_mut(&node) {
            holder.wanted = true;
            return None;
        }
        let lost = Arc::new(AtomicBool::new(false));
        held.insert(node, HeldNode { lease: None, lost: Arc::clone(&lost), wanted: false });
        drop(held);
        let (released, interrupted) = (AtomicBool::new(false), AtomicBool::new(false));
        Some(NodeHold { session: Arc::clone(self), node, epoch, lost, released, interrupted })
    }

    /// The leases of the nodes that are held now.
    pub(crate) fn held_leases(&self) -> Vec<NodeLease> {
        self.held().values().filter_map(|held| held.lease).collect()
    }

    /// Cancels the work under a lease that another process has taken.
    pub(crate) fn lost(&self, lease: &NodeLease) {
        if let Some(held) = self.held().get(&lease.node)
            && held.lease == Some(*lease)
        {
            held.lost.store(true, Ordering::Relaxed);
            self.changed.notify_waiters();
        }
    }

    /// Awaits work that commands a machine without a lease, for example a power poll. Fails at the end of
    /// the session.
    pub(crate) async fn while_valid<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, StoreError> {
        let epoch = self.state().epoch;
        self.guard(epoch, &AtomicBool::new(false), work).await
    }

    /// Awaits `work` as long as the session has this epoch. The session is checked before each poll.
    async fn guard<T>(
        &self,
        epoch: u64,
        lost: &AtomicBool,
        work: impl Future<Output = T>,
    ) -> Result<T, StoreError> {
        let is_valid = || {
            let state = *self.state();
            state.epoch == epoch && state.is_valid(self.now()) && !lost.load(Ordering::Relaxed)
        };
        let invalid = async {
            loop {
                // Created before the check, so that no later notification is missed.
                let changed = self.changed.notified();
                if !is_valid() {
                    return;
                }
                let until = self.state().valid_until;
                let left = until.map(|until| until.saturating_sub(self.now()));
                tokio::select! {
                    biased;
                    () = changed => {}
                    () = sleep_if(left) => {}
                }
            }
        };
        let (mut work, mut invalid) = (pin!(work), pin!(invalid));
        poll_fn(|context| {
            if !is_valid() || invalid.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(StoreError::LeaseLost));
            }
            work.as_mut().poll(context).map(Ok)
        })
        .await
    }
}

async fn sleep_if(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// The exclusive right of a task to work on a node within this process. If it is dropped before
/// [`NodeHold::released`] was called, the lease in the database is released in the background.
pub(crate) struct NodeHold {
    session: Arc<ConductorSession>,
    node: NodeId,
    epoch: u64,
    lost: Arc<AtomicBool>,
    released: AtomicBool,
    /// Whether the work was interrupted by an outage of the database.
    interrupted: AtomicBool,
}

impl NodeHold {
    /// The node was claimed in the database.
    pub(crate) fn claimed(&self, lease: NodeLease) {
        if let Some(held) = self.session.held().get_mut(&self.node) {
            held.lease = Some(lease);
        }
    }

    /// The node is not claimed in the database: it was released, or another process has it. Another task of
    /// this process may hold it now.
    pub(crate) fn released(&self) {
        if self.released.swap(true, Ordering::Relaxed) {
            return;
        }
        let held = self.session.held().remove(&self.node);
        if held.is_some_and(|held| held.wanted) {
            // Sending fails only if there is no receiver: in tests, or when the process ends.
            let _ = self.session.freed.send(self.node);
        }
    }

    /// Whether the machine may be commanded.
    pub(crate) fn is_valid(&self) -> bool {
        let state = *self.session.state();
        state.epoch == self.epoch
            && state.is_valid(self.session.now())
            && !self.lost.load(Ordering::Relaxed)
    }

    /// Awaits `work`, which may command the machine. Fails if the session ends or the lease is lost.
    pub(crate) async fn while_valid<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, StoreError> {
        self.session.guard(self.epoch, &self.lost, work).await
    }
}

/// The time between two attempts to write during an outage of the database. It doubles with each.
const FIRST_OUTAGE_DELAY: Duration = Duration::from_millis(250);
const MAX_OUTAGE_DELAY: Duration = Duration::from_secs(2);
/// How long a write is repeated at most. The embedded database has no sessions that end.
const MAX_OUTAGE: Duration = Duration::from_secs(30);

impl NodeHold {
    fn may_repeat(&self, started: tokio::time::Instant) -> bool {
        self.is_valid() && started.elapsed() < MAX_OUTAGE
    }

    /// Repeats a write that the database did not execute because it is unavailable, as long as the machine
    /// may be commanded: what was done to the machine must be recorded, or it would be done again.
    pub(crate) async fn repeat_during_outage<
        T,
        E: DatabaseOutage,
        F: Future<Output = Result<T, E>>,
    >(
        &self,
        mut write: impl FnMut() -> F,
    ) -> Result<T, E> {
        let started = tokio::time::Instant::now();
        let mut delay = FIRST_OUTAGE_DELAY;
        loop {
            match write().await {
                Err(error) if error.is_outage() && self.may_repeat(started) => {
                    if delay == FIRST_OUTAGE_DELAY {
                        let node = self.node;
                        tracing::warn!(%node, error = error_text(&error), "write failed, repeating it");
                    }
                    tokio::time::sleep(delay).await;
                    delay = (delay * 2).min(MAX_OUTAGE_DELAY);
                }
                Err(error) => {
                    if error.is_outage() {
                        self.interrupted.store(true, Ordering::Relaxed);
                    }
                    return Err(error);
                }
                done => return done,
            }
        }
    }
}

/// An error that may be an outage of the database.
pub(crate) trait DatabaseOutage: std::error::Error + 'static {
    /// Whether the database is unavailable and the write was not executed.
    fn is_outage(&self) -> bool;
}

impl DatabaseOutage for StoreError {
    fn is_outage(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Contended(_))
    }
}

impl DatabaseOutage for ConductorError {
    fn is_outage(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_outage())
    }
}

impl Drop for NodeHold {
    fn drop(&mut self) {
        if self.released.load(Ordering::Relaxed) {
            return;
        }
        self.session.held().remove(&self.node);
        let runs_again = self.interrupted.load(Ordering::Relaxed) || !self.is_valid();
        // Sending fails only if there is no receiver: in tests, or when the process ends.
        let _ = self.session.unreleased.send(UnreleasedNode { node: self.node, runs_again });
    }
}

impl std::fmt::Debug for NodeHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeHold").field("node", &self.node).finish_non_exhaustive()
    }
}

/// Finds the dead among the processes that share the database.
#[derive(Default, Debug)]
pub(crate) struct ReplicaWatch {
    seen: HashMap<String, SeenSession>,
    observed_at: Option<Duration>,
    online: BTreeSet<(String, Option<Uuid>)>,
}

#[derive(Debug)]
struct SeenSession {
    run: Uuid,
    renewals: i64,
    /// When this number of renewals was first seen.
    since: Duration,
}

/// What an observation of the sessions shows.
#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct ReplicaChanges {
    /// The processes that are dead, and the number of their renewals.
    pub(crate) dead: Vec<(LeaseOwner, i64)>,
    /// Whether processes have come or gone.
    pub(crate) members_changed: bool,
}

impl ReplicaWatch {
    /// Evaluates the sessions that were read before `at`, a time of a monotonic clock.
    pub(crate) fn observe(
        &mut self,
        own_hostname: &str,
        at: Duration,
        sessions: &[ObservedSession],
    ) -> ReplicaChanges {
        let gap = self.observed_at.map(|before| at.saturating_sub(before));
        if gap.is_some_and(|gap| gap > MAX_OBSERVATION_GAP) {
            self.seen.clear();
        }
        self.observed_at = Some(at);
        let mut seen = std::mem::take(&mut self.seen);
        let mut changes = ReplicaChanges::default();
        let others = sessions.iter().filter(|session| session.hostname != own_hostname);
        for session in others.filter(|session| session.online && session.renews) {
            let Some(run) = session.run else { continue };
            let unchanged = seen
                .remove(&session.hostname)
                .filter(|seen| seen.run == run && seen.renewals == session.renewals);
            let mut since = unchanged.map_or(at, |seen| seen.since);
            if at.saturating_sub(since) >= DEATH_TIMEOUT {
                let owner = LeaseOwner { hostname: session.hostname.clone(), run };
                changes.dead.push((owner, session.renewals));
                since = (at + END_RETRY_INTERVAL).saturating_sub(DEATH_TIMEOUT);
            }
            let entry = SeenSession { run, renewals: session.renewals, since };
            self.seen.insert(session.hostname.clone(), entry);
        }
        let online = sessions.iter().filter(|session| session.online);
        let online = online.map(|session| (session.hostname.clone(), session.run)).collect();
        changes.members_changed = self.online != online;
        self.online = online;
        changes
    }
}
