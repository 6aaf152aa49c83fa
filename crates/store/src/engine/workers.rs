// SPDX-License-Identifier: Apache-2.0
//! Worker threads with one blocking connection each, for PostgreSQL and MariaDB.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread::ThreadId;
use std::time::Duration;

use error_chain::error_chain;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::DatabaseSession;
use super::commit_marker::CommitMarker;
use super::job::{PendingRead, ReadJob, WriteJob};
use super::mariadb::MariaDbSession;
use super::postgres::PostgresSession;
use super::server_link::{LinkedSession, RECONNECT_INTERVAL, ServerLink};
use super::simulated_server::{SimulatedServer, SimulatedSession};
use super::thread_time;
use crate::clock::{FollowedClock, OBSERVATION_INTERVAL};
use crate::error::{StoreError, StoreOpenError};
use crate::reader::StoreReader;
use crate::store::StoreShared;
use crate::writer::PendingEffects;

/// Maximum number of attempts at a transaction that conflicts with others.
const MAX_ATTEMPTS: u32 = 10;

/// How long the result of a COMMIT without response is looked up. Longer than servers keep the
/// transaction of a broken connection.
const COMMIT_LOOKUP_TIMEOUT: Duration = Duration::from_secs(30);
const COMMIT_LOOKUP_INTERVAL: Duration = Duration::from_millis(200);

/// How long a job tries to connect when its connection breaks.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a new job waits while the database is known to be down.
pub(super) const OUTAGE_TIMEOUT: Duration = Duration::from_millis(500);
/// Time before a transaction is repeated on a new connection.
const REPEAT_INTERVAL: Duration = Duration::from_millis(20);
/// How often queued jobs are checked while the database is down.
const OUTAGE_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How long closing waits for running jobs.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How often the journal is polled for entries of other processes.
const JOURNAL_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A database server, or several of which one accepts writes.
#[derive(Clone)]
pub(crate) struct DatabaseServer {
    pub(crate) product: DatabaseProduct,
    pub(crate) url: String,
    /// Statements that take longer are cancelled.
    pub(crate) statement_timeout: Duration,
    /// How much longer the client waits for the response to a statement.
    pub(crate) response_grace: Duration,
}

/// The software of a database server.
#[derive(Clone)]
pub(crate) enum DatabaseProduct {
    Postgres,
    MariaDb,
    /// A server of a simulation.
    Simulated(SimulatedServer),
}

/// What a connection is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SessionPurpose {
    /// Migrations, whose statements may take long.
    Preparation,
    /// Reads and transactions, with timeouts.
    Transactions,
}

/// A server connection with transactions and error classification.
pub(crate) trait ServerSession: DatabaseSession + Send {
    /// Starts a transaction.
    fn begin(&mut self) -> Result<(), StoreError>;
    /// Commits the transaction.
    fn commit(&mut self) -> Result<(), StoreError>;
    /// Rolls the transaction back.
    fn rollback(&mut self) -> Result<(), StoreError>;
    /// The action that errors since the last call require; resets it.
    fn take_recovery_action(&mut self) -> RecoveryAction;
    /// Whether the last COMMIT failed, but may have taken effect.
    fn is_commit_unknown(&self) -> bool;
    /// `host:port` of the server.
    fn address(&self) -> &str;
}

/// What to do after an error on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum RecoveryAction {
    /// Nothing.
    #[default]
    None,
    /// Run the transaction again.
    Retry,
    /// Open a new connection.
    Reconnect,
}

/// How an attempt at a transaction ended.
enum AttemptEnd {
    Committed,
    /// Rolled back because of the closure.
    RolledBack(Result<(), StoreError>),
    /// Rolled back because of a conflict with another transaction.
    Conflict(StoreError),
    /// Not committed, because there is no connection.
    Disconnected(StoreError),
    /// COMMIT failed, but may have taken effect.
    Unknown(StoreError),
}

/// The worker threads and their queue.
pub(crate) struct WorkerPool {
    queue: Arc<JobQueue>,
    link: Arc<ServerLink>,
    threads: Arc<RunningThreads>,
}

/// The threads of a pool that have not ended.
#[derive(Default)]
struct RunningThreads {
    ids: Mutex<Vec<ThreadId>>,
    ended: Condvar,
}

pub(super) struct JobQueue {
    queued: Mutex<QueuedJobs>,
    arrived: Condvar,
    closed: Condvar,
}

struct QueuedJobs {
    /// Each with the time at which it was queued.
    jobs: VecDeque<(Instant, DatabaseJob)>,
    open: bool,
}

pub(super) enum DatabaseJob {
    Read(Box<dyn ReadJob>),
    Write(Box<dyn WriteJob>),
}

// === impl Server ===

impl DatabaseServer {
    /// Runs `prepare` on a first connection, under a lock that other starting processes wait for.
    pub(crate) fn with_first_session<T>(
        &self,
        prepare: impl FnOnce(&mut dyn DatabaseSession) -> Result<T, StoreOpenError> + Send,
    ) -> Result<T, StoreOpenError>
    where
        T: Send,
    {
        if let DatabaseProduct::Simulated(server) = &self.product {
            return server.with_first_session(prepare);
        }
        // The blocking PostgreSQL client panics on a thread of an async runtime, where stores are
        // opened.
        std::thread::scope(|scope| {
            scope
                .spawn(|| match &self.product {
                    DatabaseProduct::Postgres => {
                        let session = PostgresSession::connect(self, SessionPurpose::Preparation)?;
                        session.with_migration_lock(prepare)
                    }
                    DatabaseProduct::MariaDb => {
                        let session = MariaDbSession::connect(self, SessionPurpose::Preparation)?;
                        session.with_migration_lock(prepare)
                    }
                    DatabaseProduct::Simulated(server) => server.with_first_session(prepare),
                })
                .join()
                .unwrap_or(Err(StoreOpenError::Prepare(StoreError::Panicked)))
        })
    }

    /// Connects. Not on a thread of an async runtime.
    pub(crate) fn connect(&self) -> Result<Box<dyn ServerSession>, StoreOpenError> {
        let purpose = SessionPurpose::Transactions;
        Ok(match &self.product {
            DatabaseProduct::Postgres => Box::new(PostgresSession::connect(self, purpose)?),
            DatabaseProduct::MariaDb => Box::new(MariaDbSession::connect(self, purpose)?),
            DatabaseProduct::Simulated(server) => {
                Box::new(SimulatedSession::connect(server, self.response_timeout())?)
            }
        })
    }

    /// How long a client waits for the response to a statement.
    fn response_timeout(&self) -> Duration {
        self.statement_timeout + self.response_grace
    }
}

// === impl Workers ===

impl WorkerPool {
    /// Starts `connections` threads, which connect on their first job.
    pub(crate) fn start(
        server: DatabaseServer,
        connections: usize,
        shared: &Arc<StoreShared>,
    ) -> Self {
        let queue = Arc::new(JobQueue::new());
        let link = Arc::new(ServerLink::new(server));
        let threads = Arc::new(RunningThreads::default());
        for _ in 0..connections {
            let (queue, link, shared) = (Arc::clone(&queue), Arc::clone(&link), Arc::clone(shared));
            threads.start("store-worker", move || ServerWorker::new(link, shared).run(&queue));
        }
        let (polled, watched) = (Arc::clone(&queue), Arc::clone(shared));
        threads.start("store-journal", move || watch_journal(&polled, &watched));
        let (waiting, watched) = (Arc::clone(&queue), Arc::clone(&link));
        threads.start("store-outage", move || end_outages(&waiting, &watched));
        if let Some(clock) = shared.followed_clock.clone() {
            let queue = Arc::clone(&queue);
            threads.start("store-clock", move || follow_clock(&queue, &clock));
        }
        Self { queue, link, threads }
    }

    /// Queues a read.
    pub(crate) fn read(&self, job: Box<dyn ReadJob>) {
        self.queue.push(DatabaseJob::Read(job));
    }

    /// Queues a transaction.
    pub(crate) fn write(&self, job: Box<dyn WriteJob>) {
        self.queue.push(DatabaseJob::Write(job));
    }

    /// The number of jobs that wait for a connection.
    pub(crate) fn queued_jobs(&self) -> usize {
        self.queue.len()
    }

    /// Finishes queued jobs and disconnects. Jobs that take too long fail.
    pub(crate) fn stop(&self) {
        let mut queued = self.queue.queued.lock().unwrap_or_else(PoisonError::into_inner);
        let was_open = std::mem::replace(&mut queued.open, false);
        drop(queued);
        if !was_open {
            return;
        }
        self.queue.arrived.notify_all();
        self.queue.closed.notify_all();
        self.link.close();
        // The last handle may be dropped by a job on one of the threads, which may wait for each other.
        if self.threads.contains_current() {
            return;
        }
        if !self.threads.wait_for_end(CLOSE_TIMEOUT) {
            let failed = self.queue.fail_older_than(Duration::ZERO, || StoreError::Closed);
            tracing::warn!(failed, "database closed while it does not respond");
        }
    }
}

// === impl RunningThreads ===

impl RunningThreads {
    fn start(self: &Arc<Self>, name: &str, run: impl FnOnce() + Send + 'static) {
        struct EndOfThread(Arc<RunningThreads>);
        impl Drop for EndOfThread {
            fn drop(&mut self) {
                let current = std::thread::current().id();
                self.0
                    .ids
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .retain(|id| *id != current);
                self.0.ended.notify_all();
            }
        }
        // Held until the id of the thread is in the list.
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let end = EndOfThread(Arc::clone(self));
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let _end = end;
                run();
            })
            .expect("the process may start a few threads");
        ids.push(thread.thread().id());
    }

    fn contains_current(&self) -> bool {
        let current = std::thread::current().id();
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).contains(&current)
    }

    /// Waits until all threads have ended. Returns whether they have.
    fn wait_for_end(&self, time: Duration) -> bool {
        let ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.ended.wait_timeout_while(ids, time, |ids| !ids.is_empty());
        waited.unwrap_or_else(PoisonError::into_inner).0.is_empty()
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.stop();
    }
}

// === impl Queue ===

impl JobQueue {
    pub(super) fn new() -> Self {
        Self {
            queued: Mutex::new(QueuedJobs { jobs: VecDeque::new(), open: true }),
            arrived: Condvar::new(),
            closed: Condvar::new(),
        }
    }

    /// The number of queued jobs.
    pub(super) fn len(&self) -> usize {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner).jobs.len()
    }

    /// The next job, if there is one.
    pub(super) fn try_pop(&self) -> Option<DatabaseJob> {
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        queued.jobs.pop_front().map(|(_, job)| job)
    }

    pub(super) fn push(&self, job: DatabaseJob) {
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        if queued.open {
            queued.jobs.push_back((Instant::now(), job));
            drop(queued);
            self.arrived.notify_one();
        } else {
            drop(queued);
            job.fail(StoreError::Closed);
        }
    }

    /// The next job, or `None` when the queue is closed and empty.
    fn pop(&self) -> Option<DatabaseJob> {
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some((_, job)) = queued.jobs.pop_front() {
                return Some(job);
            }
            if !queued.open {
                return None;
            }
            queued = self.arrived.wait(queued).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Fails the jobs that were queued longer ago than `age`. Returns their number.
    pub(super) fn fail_older_than(&self, age: Duration, error: impl Fn() -> StoreError) -> usize {
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let count =
            queued.jobs.iter().take_while(|(since, _)| now.duration_since(*since) >= age).count();
        let failed: Vec<_> = queued.jobs.drain(..count).collect();
        drop(queued);
        for (_, job) in failed {
            job.fail(error());
        }
        count
    }

    /// Waits until the queue is closed or `time` has passed. Returns whether it is still open.
    fn wait_until_closed(&self, time: Duration) -> bool {
        let queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        let queued = self.closed.wait_timeout_while(queued, time, |queued| queued.open);
        queued.unwrap_or_else(PoisonError::into_inner).0.open
    }
}

impl DatabaseJob {
    fn fail(self, error: StoreError) {
        match self {
            Self::Read(job) => job.fail(error),
            Self::Write(job) => job.finish(Err(error)),
        }
    }
}

// === Threads ===

/// Polls the journal for entries of other processes and notifies its followers. Skips the query
/// while there are none.
fn watch_journal(queue: &JobQueue, shared: &StoreShared) {
    let mut announced = 0;
    while queue.wait_until_closed(JOURNAL_POLL_INTERVAL) {
        if !shared.has_journal_followers() {
            continue;
        }
        let (reply, result) = oneshot::channel();
        let closure = |reader: &mut StoreReader<'_>| reader.journal_end();
        queue.push(DatabaseJob::Read(Box::new(PendingRead { closure, reply })));
        match result.blocking_recv() {
            Ok(Ok(end)) if end > announced => {
                announced = end;
                shared.notify_journal(end);
            }
            Ok(Ok(_)) | Err(_) => {}
            // Followers get the same error from their own reads; retry at the next poll.
            Ok(Err(error)) => {
                tracing::debug!(error = error_chain(&error), "journal end query failed");
            }
        }
    }
}

/// Compares the time of the store with the clock of the server in regular intervals.
fn follow_clock(queue: &JobQueue, clock: &Arc<FollowedClock>) {
    while queue.wait_until_closed(OBSERVATION_INTERVAL) {
        let (reply, result) = oneshot::channel();
        let read = Arc::clone(clock);
        let closure = move |reader: &mut StoreReader<'_>| read.read_server(reader.session);
        queue.push(DatabaseJob::Read(Box::new(PendingRead { closure, reply })));
        match result.blocking_recv() {
            Ok(Ok(observed)) => {
                if let Some(observed) = observed.if_exact() {
                    clock.observe(observed);
                }
            }
            // The server is unreachable: time advances with the monotonic clock meanwhile.
            Ok(Err(error)) => {
                tracing::debug!(
                    error = error_chain(&error),
                    "clock of the database server not read"
                );
            }
            Err(_) => {}
        }
    }
}

/// Connects again when the database is down. Meanwhile it fails the jobs for which no worker is free.
fn end_outages(queue: &JobQueue, link: &Arc<ServerLink>) {
    while let Some(outage) = link.wait_for_outage() {
        let fail_waiting = || {
            queue.fail_older_than(OUTAGE_TIMEOUT, || StoreError::Unavailable(outage.clone()));
        };
        fail_waiting();
        if !queue.wait_until_closed(RECONNECT_INTERVAL) {
            return;
        }
        let (done, ended) = mpsc::channel::<()>();
        let connecting = Arc::clone(link);
        let connect = move || {
            // The session is closed again: what matters is the recorded state.
            drop(connecting.connect());
            drop(done);
        };
        // Connecting takes seconds if no server responds.
        let started = std::thread::Builder::new().name("store-connect".to_owned()).spawn(connect);
        if let Err(error) = started {
            tracing::error!(%error, "no thread to connect to the database");
            continue;
        }
        while ended.recv_timeout(OUTAGE_POLL_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
            fail_waiting();
            if !queue.wait_until_closed(Duration::ZERO) {
                return;
            }
        }
    }
}

pub(super) struct ServerWorker {
    link: Arc<ServerLink>,
    shared: Arc<StoreShared>,
    session: Option<LinkedSession>,
    marker: CommitMarker,
}

impl ServerWorker {
    pub(super) fn new(link: Arc<ServerLink>, shared: Arc<StoreShared>) -> Self {
        Self { link, shared, session: None, marker: CommitMarker::new() }
    }

    fn run(mut self, queue: &JobQueue) {
        while let Some(job) = queue.pop() {
            self.execute(job);
        }
    }

    /// Runs one job and sends its result.
    pub(super) fn execute(&mut self, job: DatabaseJob) {
        match job {
            DatabaseJob::Read(job) => self.read(job),
            DatabaseJob::Write(job) => self.write(job),
        }
    }

    fn read(&mut self, job: Box<dyn ReadJob>) {
        let mut deadline = self.outage_deadline();
        let mut session = match self.take_session(&mut deadline) {
            Ok(session) => session,
            Err(error) => return job.fail(error),
        };
        job.run(&mut *session.session, &self.shared);
        if session.session.take_recovery_action() != RecoveryAction::Reconnect {
            self.session = Some(session);
        }
    }

    fn write(&mut self, mut job: Box<dyn WriteJob>) {
        let mut deadline = self.outage_deadline();
        let mut conflicts = 0;
        let end = loop {
            let mut pending = PendingEffects::default();
            match self.attempt(&mut *job, &mut pending, &mut deadline) {
                AttemptEnd::Committed => {
                    self.link.worked();
                    self.shared.notify_committed(&pending);
                    break Ok(());
                }
                AttemptEnd::RolledBack(end) => break end,
                AttemptEnd::Disconnected(error) => {
                    let deadline =
                        *deadline.get_or_insert_with(|| Instant::now() + RECOVERY_TIMEOUT);
                    if Instant::now() >= deadline {
                        break Err(error);
                    }
                    thread_time::sleep(REPEAT_INTERVAL);
                }
                AttemptEnd::Unknown(error) => match self.look_up_commit() {
                    Some(true) => {
                        self.shared.notify_committed(&pending);
                        break Ok(());
                    }
                    // Not committed, so it can be repeated.
                    Some(false) if conflicts + 1 < MAX_ATTEMPTS => conflicts += 1,
                    Some(false) => break Err(error),
                    None => {
                        // The look-up may have written the number of the next transaction, which must
                        // not pass for that transaction.
                        self.marker = CommitMarker::new();
                        break Err(StoreError::CommitUnknown(Arc::new(error)));
                    }
                },
                AttemptEnd::Conflict(error) => {
                    conflicts += 1;
                    if conflicts >= MAX_ATTEMPTS {
                        break Err(error);
                    }
                }
            }
            // Back off quadratically to spread colliding transactions.
            thread_time::sleep(Duration::from_millis(u64::from(conflicts * conflicts).max(1)));
        };
        job.finish(end);
    }

    /// Whether the transaction was committed whose COMMIT got no response. Returns `None` if the server
    /// cannot be reached for too long.
    fn look_up_commit(&mut self) -> Option<bool> {
        let deadline = Instant::now() + COMMIT_LOOKUP_TIMEOUT;
        loop {
            let looked_up = self.link.connect_until(deadline).and_then(|mut session| {
                let now = (self.shared.clock)();
                let is_committed = self.marker.look_up(&mut *session.session, now)?;
                self.session = Some(session);
                Ok(is_committed)
            });
            match looked_up {
                Ok(is_committed) => {
                    tracing::info!(is_committed, "result of a COMMIT without response found");
                    return Some(is_committed);
                }
                Err(error) if Instant::now() >= deadline => {
                    let error = error_chain(&error);
                    tracing::error!(error, "result of a COMMIT without response is unknown");
                    return None;
                }
                Err(error) => {
                    let error = error_chain(&error);
                    tracing::warn!(error, "result of a COMMIT without response not found yet");
                    thread_time::sleep(COMMIT_LOOKUP_INTERVAL);
                }
            }
        }
    }

    fn attempt(
        &mut self,
        job: &mut dyn WriteJob,
        pending: &mut PendingEffects,
        deadline: &mut Option<Instant>,
    ) -> AttemptEnd {
        let mut session = match self.take_session(deadline) {
            Ok(session) => session,
            Err(error) => return AttemptEnd::Disconnected(error),
        };
        let end = self.attempt_on(&mut *session.session, job, pending);
        let mut recovery = session.session.take_recovery_action();
        if matches!(end, AttemptEnd::Unknown(_)) {
            // The session is closed, so that the server ends its transaction.
            return end;
        }
        let is_ended = matches!(end, AttemptEnd::Committed | AttemptEnd::RolledBack(Ok(())));
        if recovery == RecoveryAction::Retry || (recovery == RecoveryAction::None && !is_ended) {
            // The server may have rolled back already; a second ROLLBACK is harmless. A session with an
            // open transaction cannot be used again.
            if session.session.rollback().is_err() {
                recovery = RecoveryAction::Reconnect;
            }
            let _ = session.session.take_recovery_action();
        }
        if recovery != RecoveryAction::Reconnect {
            self.session = Some(session);
        }
        match (end, recovery) {
            // What was committed is not repeated, whatever happened to the connection.
            (AttemptEnd::Committed, _) => AttemptEnd::Committed,
            (AttemptEnd::RolledBack(Err(error)), RecoveryAction::Reconnect) => {
                AttemptEnd::Disconnected(error)
            }
            (AttemptEnd::RolledBack(end), RecoveryAction::Reconnect) => {
                AttemptEnd::Disconnected(end.err().unwrap_or(StoreError::Closed))
            }
            (AttemptEnd::RolledBack(end), RecoveryAction::Retry) => {
                AttemptEnd::Conflict(end.err().unwrap_or(StoreError::Closed))
            }
            (end, _) => end,
        }
    }

    fn attempt_on(
        &mut self,
        session: &mut dyn ServerSession,
        job: &mut dyn WriteJob,
        pending: &mut PendingEffects,
    ) -> AttemptEnd {
        let now = (self.shared.clock)();
        if let Err(error) = self.marker.register(session, now) {
            return AttemptEnd::RolledBack(Err(error));
        }
        if let Err(error) = session.begin() {
            return AttemptEnd::RolledBack(Err(error));
        }
        if !job.attempt(session, &self.shared, pending) {
            *pending = PendingEffects::default();
            // The closure's own error is returned to the caller.
            return AttemptEnd::RolledBack(session.rollback());
        }
        if let Err(error) = self.marker.write(session, now) {
            let rolled_back = session.rollback();
            return match rolled_back {
                Ok(()) if self.marker.is_lost() => AttemptEnd::Conflict(error),
                _ => AttemptEnd::RolledBack(Err(error)),
            };
        }
        match session.commit() {
            Ok(()) => AttemptEnd::Committed,
            Err(error) if session.is_commit_unknown() => AttemptEnd::Unknown(error),
            Err(error) => AttemptEnd::RolledBack(Err(error)),
        }
    }

    /// How long a new job may wait for a connection, if the database is known to be down.
    fn outage_deadline(&self) -> Option<Instant> {
        self.link.is_down().then(|| Instant::now() + OUTAGE_TIMEOUT)
    }

    /// The session of this worker, or a new one if it has none or the others use another server. The
    /// deadline is set when there is none and a connection is needed.
    fn take_session(
        &mut self,
        deadline: &mut Option<Instant>,
    ) -> Result<LinkedSession, StoreError> {
        match self.session.take() {
            Some(session) if self.link.is_current(&session) => Ok(session),
            _ => {
                let deadline = deadline.get_or_insert_with(|| Instant::now() + RECOVERY_TIMEOUT);
                self.link.connect_until(*deadline)
            }
        }
    }
}
