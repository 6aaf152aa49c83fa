// SPDX-License-Identifier: Apache-2.0
//! Worker threads with one blocking connection each, for PostgreSQL and MariaDB.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::DatabaseSession;
use super::commit_marker::CommitMarker;
use super::job::{PendingRead, ReadJob, WriteJob};
use super::mariadb::MariaDbSession;
use super::postgres::PostgresSession;
use crate::clock::{ClockObservation, FollowedClock, OBSERVATION_INTERVAL};
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

/// How often the journal is polled for entries of other processes.
const JOURNAL_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A database server, or several of which one accepts writes.
#[derive(Clone)]
pub(crate) struct DatabaseServer {
    pub(crate) product: DatabaseProduct,
    pub(crate) url: String,
    /// Statements that take longer are cancelled.
    pub(crate) statement_timeout: Duration,
}

/// The software of a database server.
#[derive(Clone, Copy)]
pub(crate) enum DatabaseProduct {
    Postgres,
    MariaDb,
}

/// A server connection with transactions and error classification.
pub(crate) trait ServerSession: DatabaseSession {
    /// Starts a transaction.
    fn begin(&mut self) -> Result<(), StoreError>;
    /// Commits the transaction.
    fn commit(&mut self) -> Result<(), StoreError>;
    /// Rolls the transaction back.
    fn rollback(&mut self) -> Result<(), StoreError>;
    /// The action that errors since the last call require; resets it.
    fn take_recovery_action(&mut self) -> RecoveryAction;
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

/// The worker threads and their queue.
pub(crate) struct WorkerPool {
    queue: Arc<JobQueue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct JobQueue {
    queued: Mutex<QueuedJobs>,
    arrived: Condvar,
    closed: Condvar,
}

struct QueuedJobs {
    jobs: VecDeque<DatabaseJob>,
    open: bool,
}

enum DatabaseJob {
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
        // The blocking PostgreSQL client panics on a thread of an async runtime, where stores are
        // opened.
        std::thread::scope(|scope| {
            scope
                .spawn(|| match self.product {
                    DatabaseProduct::Postgres => {
                        PostgresSession::connect(self)?.with_migration_lock(prepare)
                    }
                    DatabaseProduct::MariaDb => {
                        MariaDbSession::connect(self)?.with_migration_lock(prepare)
                    }
                })
                .join()
                .unwrap_or(Err(StoreOpenError::Prepare(StoreError::Panicked)))
        })
    }

    pub(crate) fn connect(&self) -> Result<Box<dyn ServerSession>, StoreOpenError> {
        Ok(match self.product {
            DatabaseProduct::Postgres => Box::new(PostgresSession::connect(self)?),
            DatabaseProduct::MariaDb => Box::new(MariaDbSession::connect(self)?),
        })
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
        let queue = Arc::new(JobQueue {
            queued: Mutex::new(QueuedJobs { jobs: VecDeque::new(), open: true }),
            arrived: Condvar::new(),
            closed: Condvar::new(),
        });
        let mut threads: Vec<_> = (0..connections)
            .map(|_| {
                let (queue, server, shared) =
                    (Arc::clone(&queue), server.clone(), Arc::clone(shared));
                std::thread::Builder::new()
                    .name("store-worker".to_owned())
                    .spawn(move || ServerWorker::new(server, shared).run(&queue))
                    .expect("the process may start a few threads")
            })
            .collect();
        let (polled, watched) = (Arc::clone(&queue), Arc::clone(shared));
        threads.push(
            std::thread::Builder::new()
                .name("store-journal".to_owned())
                .spawn(move || watch_journal(&polled, &watched))
                .expect("the process may start a few threads"),
        );
        if let Some(clock) = shared.followed_clock.clone() {
            let queue = Arc::clone(&queue);
            threads.push(
                std::thread::Builder::new()
                    .name("store-clock".to_owned())
                    .spawn(move || follow_clock(&queue, &clock))
                    .expect("the process may start a few threads"),
            );
        }
        Self { queue, threads: Mutex::new(threads) }
    }

    /// Queues a read.
    pub(crate) fn read(&self, job: Box<dyn ReadJob>) {
        self.queue.push(DatabaseJob::Read(job));
    }

    /// Queues a transaction.
    pub(crate) fn write(&self, job: Box<dyn WriteJob>) {
        self.queue.push(DatabaseJob::Write(job));
    }

    /// Finishes queued jobs and disconnects.
    pub(crate) fn stop(&self) {
        self.queue.queued.lock().unwrap_or_else(PoisonError::into_inner).open = false;
        self.queue.arrived.notify_all();
        self.queue.closed.notify_all();
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // The last handle may be dropped by a job on this thread, which must not join itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.stop();
    }
}

// === impl Queue ===

impl JobQueue {
    fn push(&self, job: DatabaseJob) {
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        if queued.open {
            queued.jobs.push_back(job);
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
            if let Some(job) = queued.jobs.pop_front() {
                return Some(job);
            }
            if !queued.open {
                return None;
            }
            queued = self.arrived.wait(queued).unwrap_or_else(PoisonError::into_inner);
        }
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
            Ok(Err(error)) => tracing::debug!(%error, "journal end query failed"),
        }
    }
}

/// Compares the time of the store with the clock of the server in regular intervals.
fn follow_clock(queue: &JobQueue, clock: &FollowedClock) {
    while queue.wait_until_closed(OBSERVATION_INTERVAL) {
        let (reply, result) = oneshot::channel();
        let closure = |reader: &mut StoreReader<'_>| ClockObservation::of_server(reader.session);
        queue.push(DatabaseJob::Read(Box::new(PendingRead { closure, reply })));
        match result.blocking_recv() {
            Ok(Ok(observed)) => {
                if let Some(observed) = observed.if_exact() {
                    clock.observe(observed);
                }
            }
            // The server is unreachable: time advances with the monotonic clock meanwhile.
            Ok(Err(error)) => tracing::debug!(%error, "clock of the database server not read"),
            Err(_) => {}
        }
    }
}

struct ServerWorker {
    server: DatabaseServer,
    shared: Arc<StoreShared>,
    session: Option<Box<dyn ServerSession>>,
    marker: CommitMarker,
}

impl ServerWorker {
    fn new(server: DatabaseServer, shared: Arc<StoreShared>) -> Self {
        Self { server, shared, session: None, marker: CommitMarker::new() }
    }

    fn run(mut self, queue: &JobQueue) {
        while let Some(job) = queue.pop() {
            match job {
                DatabaseJob::Read(job) => self.read(job),
                DatabaseJob::Write(job) => self.write(job),
            }
        }
    }

    fn read(&mut self, job: Box<dyn ReadJob>) {
        let shared = Arc::clone(&self.shared);
        match self.connected() {
            Err(error) => job.fail(error),
            Ok(session) => {
                job.run(session, &shared);
                if session.take_recovery_action() == RecoveryAction::Reconnect {
                    self.session = None;
                }
            }
        }
    }

    fn write(&mut self, mut job: Box<dyn WriteJob>) {
        let mut end = Err(StoreError::Closed);
        for attempt in 1..=MAX_ATTEMPTS {
            let mut pending = PendingEffects::default();
            let (ended, recovery) = self.attempt(&mut *job, &mut pending);
            end = ended;
            match recovery {
                RecoveryAction::None => {
                    if end.is_ok() {
                        self.shared.notify_committed(&pending);
                    }
                    break;
                }
                RecoveryAction::Reconnect => {
                    self.session = None;
                    if end.is_err() && pending.in_commit {
                        match self.look_up_commit() {
                            // Not committed, so it can be repeated.
                            Some(false) => {}
                            Some(true) => {
                                end = Ok(());
                                self.shared.notify_committed(&pending);
                                break;
                            }
                            None => {
                                end = end.map_err(|error| {
                                    StoreError::CommitUnknown(std::sync::Arc::new(error))
                                });
                                break;
                            }
                        }
                    }
                }
                RecoveryAction::Retry => {}
            }
            // Back off quadratically to spread colliding transactions.
            std::thread::sleep(Duration::from_millis(u64::from(attempt * attempt)));
        }
        job.finish(end);
    }

    /// Whether the transaction was committed whose COMMIT got no response. Returns `None` if the server
    /// cannot be reached for too long.
    fn look_up_commit(&mut self) -> Option<bool> {
        let deadline = Instant::now() + COMMIT_LOOKUP_TIMEOUT;
        loop {
            let looked_up =
                self.server.connect().map_err(|error| error.to_string()).and_then(|mut session| {
                    let committed = self.marker.is_committed(&mut *session);
                    self.session = committed.is_ok().then_some(session);
                    committed.map_err(|error| error.to_string())
                });
            match looked_up {
                Ok(is_committed) => {
                    tracing::info!(is_committed, "result of a COMMIT without response found");
                    return Some(is_committed);
                }
                Err(error) if Instant::now() >= deadline => {
                    tracing::error!(error, "result of a COMMIT without response is unknown");
                    return None;
                }
                Err(error) => {
                    tracing::debug!(error, "result of a COMMIT without response not found yet");
                    std::thread::sleep(COMMIT_LOOKUP_INTERVAL);
                }
            }
        }
    }

    fn attempt(
        &mut self,
        job: &mut dyn WriteJob,
        pending: &mut PendingEffects,
    ) -> (Result<(), StoreError>, RecoveryAction) {
        let shared = Arc::clone(&self.shared);
        let mut session = match self.take_session() {
            Ok(session) => session,
            Err(error) => return (Err(error), RecoveryAction::Reconnect),
        };
        let end = self.attempt_on(&mut *session, job, &shared, pending);
        let mut recovery = session.take_recovery_action();
        if self.marker.is_lost() && recovery == RecoveryAction::None {
            recovery = RecoveryAction::Retry;
        }
        if recovery == RecoveryAction::Retry {
            // The server may have rolled back already; a second ROLLBACK is harmless.
            let _ = session.rollback();
            let _ = session.take_recovery_action();
        }
        self.session = Some(session);
        (end, recovery)
    }

    fn attempt_on(
        &mut self,
        session: &mut dyn ServerSession,
        job: &mut dyn WriteJob,
        shared: &Arc<StoreShared>,
        pending: &mut PendingEffects,
    ) -> Result<(), StoreError> {
        let now = (shared.clock)();
        self.marker.register(session, now)?;
        session.begin()?;
        if job.attempt(session, shared, pending) {
            if let Err(error) = self.marker.write(session, now) {
                let _ = session.rollback();
                return Err(error);
            }
            pending.in_commit = true;
            session.commit()
        } else {
            *pending = PendingEffects::default();
            // The closure's own error is returned to the caller.
            session.rollback()
        }
    }

    fn connected(&mut self) -> Result<&mut dyn ServerSession, StoreError> {
        let session = self.take_session()?;
        Ok(&mut **self.session.insert(session))
    }

    fn take_session(&mut self) -> Result<Box<dyn ServerSession>, StoreError> {
        match self.session.take() {
            Some(session) => Ok(session),
            None => self.server.connect().map_err(|error| StoreError::Unavailable(Arc::new(error))),
        }
    }
}
