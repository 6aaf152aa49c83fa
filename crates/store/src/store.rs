// SPDX-License-Identifier: Apache-2.0
//! The store handle: opened once, cheap to clone.

use std::path::Path;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, PoisonError};

use error_chain::error_chain;
use node_model::{NodeId, Timestamp};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use uuid::Uuid;

use crate::clock::{
    ClockStatus, FollowedClock, HostClockThread, HostClocks, MonotonicClock, StoreClock, host_now,
    server_micros,
};
use crate::conductor_session::{SessionRenewals, SessionReport};
use crate::engine::DatabaseSession;
use crate::engine::RESPONSE_GRACE;
use crate::engine::commit_marker::delete_old_markers;
use crate::engine::job::{PendingRead, PendingWrite, ReadJob, run_read};
use crate::engine::simulated_pool::SimulatedPool;
use crate::engine::simulated_server::SimulatedServer;
use crate::engine::sqlite::{MAX_SCANS, ReaderPool, Sqlite};
use crate::engine::workers::{DatabaseProduct, DatabaseServer, WorkerPool};
use crate::error::{StoreError, StoreOpenError};
use crate::journal::{self, ClusterMembers};
use crate::key_ring::KeyRing;
use crate::lease::LeaseOwner;
use crate::migrate::{self, MigrationPlan, SchemaUpgrade, migrate};
use crate::reader::StoreReader;
use crate::settings::{DatabaseAddress, StoreSettings};
use crate::writer::{PendingEffects, StoreWriter};

/// Handle to the database. Clones share connections and threads.
#[derive(Clone)]
pub struct Store(Arc<StoreInner>);

struct StoreInner {
    shared: Arc<StoreShared>,
    engine: StorageEngine,
    /// The server, for connections besides those of the engine.
    server: Option<DatabaseServer>,
    wakes: Mutex<Option<mpsc::UnboundedReceiver<NodeId>>>,
}

enum StorageEngine {
    Sqlite { sqlite: Arc<Sqlite>, scans: Arc<Semaphore>, _clock_thread: Option<HostClockThread> },
    Server(WorkerPool),
    Simulated(SimulatedPool),
}

/// State shared by all connections.
pub(crate) struct StoreShared {
    pub(crate) clock: StoreClock,
    monotonic: MonotonicClock,
    /// The clock behind `clock`; `None` if the caller gave one.
    pub(crate) followed_clock: Option<Arc<FollowedClock>>,
    pub(crate) keys: KeyRing,
    /// Highest journal sequence number below which no gap can still be filled.
    pub(crate) settled_seq: AtomicI64,
    /// Cluster members that allocate sequence numbers.
    pub(crate) members: Mutex<ClusterMembers>,
    position: watch::Sender<i64>,
    wakes: mpsc::UnboundedSender<NodeId>,
}

impl Store {
    /// Connects, runs outstanding migrations, and loads the sealing keys. Creates the key file on
    /// the first start. The time is that of the database server, or with SQLite that of this host.
    pub fn open(settings: &StoreSettings) -> Result<Self, StoreOpenError> {
        Self::open_with(settings, None)
    }

    /// Opens the store with another clock, for tests.
    pub fn open_with_clock(
        settings: &StoreSettings,
        clock: StoreClock,
    ) -> Result<Self, StoreOpenError> {
        Self::open_with(settings, Some(clock))
    }

    /// Opens the store of a process of a simulation, on a simulated database server. Its work runs on
    /// the current runtime, in the time of that runtime.
    pub fn open_simulated(
        settings: &StoreSettings,
        server: SimulatedServer,
    ) -> Result<Self, StoreOpenError> {
        create_data_dir(settings)?;
        let clocks = server.clocks.clone();
        let server = DatabaseServer {
            product: DatabaseProduct::Simulated(server),
            url: String::new(),
            statement_timeout: settings.statement_timeout,
            response_grace: RESPONSE_GRACE,
        };
        let prepared = server.with_first_session(|session| {
            let followed =
                FollowedClock::of_server(session, settings.clock_tolerance, clocks.clone())?;
            prepare_database(session, settings, OpenedClock::Followed(followed.into()))
        })?;
        let connections = settings.connections.max(1);
        Ok(Self::new(prepared, Some(server.clone()), clocks.monotonic, |shared| {
            StorageEngine::Simulated(SimulatedPool::start(server, connections, shared))
        }))
    }

    fn open_with(
        settings: &StoreSettings,
        clock: Option<StoreClock>,
    ) -> Result<Self, StoreOpenError> {
        create_data_dir(settings)?;
        match settings.address()? {
            DatabaseAddress::Sqlite(path) => Self::open_sqlite(settings, &path, clock),
            DatabaseAddress::Server(server) => Self::open_server(settings, server, clock),
        }
    }

    /// Runs outstanding migrations without opening the store. Waits for other processes that do the same.
    pub fn migrate(settings: &StoreSettings) -> Result<SchemaUpgrade, StoreOpenError> {
        create_data_dir(settings)?;
        let source = settings.key_source();
        match settings.address()? {
            DatabaseAddress::Sqlite(path) => {
                let connection = Sqlite::connect(&path, settings.synchronous)?;
                let run =
                    |session: &mut dyn DatabaseSession| migrate(session, &source, host_now().0);
                Sqlite::in_transaction(&connection, run)
            }
            DatabaseAddress::Server(server) => server.with_first_session(|session| {
                let now = server_micros(session).map_err(StoreOpenError::Prepare)?;
                migrate(session, &source, now)
            }),
        }
    }

    /// The migrations that the database has not applied. Changes nothing.
    pub fn migration_plan(settings: &StoreSettings) -> Result<MigrationPlan, StoreOpenError> {
        match settings.address()? {
            DatabaseAddress::Sqlite(path) if !path.exists() => Ok(migrate::plan_of_new_database()),
            DatabaseAddress::Sqlite(path) => {
                let connection = Sqlite::connect(&path, settings.synchronous)?;
                let plan = |session: &mut dyn DatabaseSession| migrate::plan(session, host_now().0);
                Sqlite::in_transaction(&connection, plan)
            }
            DatabaseAddress::Server(server) => server.with_first_session(|session| {
                let now = server_micros(session).map_err(StoreOpenError::Prepare)?;
                migrate::plan(session, now)
            }),
        }
    }

    /// Runs `closure` with read access to the database.
    ///
    /// On SQLite it runs on the caller's thread, because a point read takes less time than a thread
    /// switch. On a server it runs on a worker thread, hence `'static`.
    ///
    /// Use this for single resources, which take microseconds. Use [`Store::scan`] for queries that
    /// read many rows.
    pub async fn read<T, E>(
        &self,
        closure: impl FnOnce(&mut StoreReader<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        match &self.0.engine {
            StorageEngine::Sqlite { sqlite, .. } => sqlite
                .with_reader(ReaderPool::PointReads, |session| {
                    run_read(closure, session, &self.0.shared)
                })?,
            StorageEngine::Server(workers) => read_queued(closure, |job| workers.read(job)).await,
            StorageEngine::Simulated(pool) => read_queued(closure, |job| pool.read(job)).await,
        }
    }

    /// Runs `closure` with read access to the database, for lists and other queries that read many
    /// rows.
    ///
    /// On SQLite it runs on a blocking thread with a connection from a separate pool, so scans block
    /// neither the async runtime nor [`Store::read`]. On a server it is the same as a read.
    pub async fn scan<T, E>(
        &self,
        closure: impl FnOnce(&mut StoreReader<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (sqlite, scans) = match &self.0.engine {
            StorageEngine::Sqlite { sqlite, scans, .. } => (Arc::clone(sqlite), Arc::clone(scans)),
            StorageEngine::Server(workers) => {
                return read_queued(closure, |job| workers.read(job)).await;
            }
            StorageEngine::Simulated(pool) => {
                return read_queued(closure, |job| pool.read(job)).await;
            }
        };
        // Wait for the permit here: waiting for a connection would block a thread.
        let permit = scans.acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let shared = Arc::clone(&self.0.shared);
        let scan = tokio::task::spawn_blocking(move || {
            let scanned = sqlite
                .with_reader(ReaderPool::Scans, |session| run_read(closure, session, &shared));
            // Held until the scan ends, also if the caller dropped the future.
            drop(permit);
            scanned?
        });
        scan.await.unwrap_or_else(|_| Err(E::from(StoreError::Closed)))
    }

    /// Runs `closure` as one transaction, which is durable when this returns `Ok`. If the closure
    /// fails, the transaction is rolled back.
    ///
    /// The closure may run more than once: servers reject conflicting transactions, which are then
    /// retried. Once submitted, it runs to completion even if the caller drops the future.
    pub async fn write<T, E>(
        &self,
        closure: impl FnMut(&mut StoreWriter<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (reply, result) = oneshot::channel();
        let job = Box::new(PendingWrite::new(closure, reply));
        match &self.0.engine {
            StorageEngine::Sqlite { sqlite, .. } => sqlite.write(job),
            StorageEngine::Server(workers) => workers.write(job),
            StorageEngine::Simulated(pool) => pool.write(job),
        }
        result.await.unwrap_or_else(|_| Err(E::from(StoreError::Closed)))
    }

    /// The highest journal sequence number that this process has seen committed; initially the end of
    /// the journal at the time of opening. The channel is marked as changed whenever there may be new
    /// entries to read, sometimes without a higher number.
    ///
    /// On servers, entries of other processes are polled once a second while a receiver exists.
    /// [`StoreReader::journal_end`] returns the current end.
    #[must_use]
    pub fn journal_position(&self) -> watch::Receiver<i64> {
        self.0.shared.position.subscribe()
    }

    /// The time of the store, which all parts of the process use.
    #[must_use]
    pub fn clock(&self) -> StoreClock {
        Arc::clone(&self.0.shared.clock)
    }

    /// The clock of this host that is never set.
    #[must_use]
    pub fn monotonic_clock(&self) -> MonotonicClock {
        Arc::clone(&self.0.shared.monotonic)
    }

    /// How the clock of this host compares to that of the database server.
    #[must_use]
    pub fn clock_status(&self) -> ClockStatus {
        let followed = self.0.shared.followed_clock.as_ref();
        followed.map_or_else(ClockStatus::default, |clock| clock.status())
    }

    /// Nodes woken by committed transactions. Returns the receiver once, then `None`.
    #[must_use]
    pub fn take_wakes(&self) -> Option<mpsc::UnboundedReceiver<NodeId>> {
        self.0.wakes.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether other processes may use the database: not with SQLite.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.0.server.is_some()
    }

    /// The number of reads and writes that wait for a connection to the server; 0 with SQLite.
    #[must_use]
    pub fn queued_jobs(&self) -> usize {
        match &self.0.engine {
            StorageEngine::Sqlite { .. } => 0,
            StorageEngine::Server(workers) => workers.queued_jobs(),
            StorageEngine::Simulated(pool) => pool.queued_jobs(),
        }
    }

    /// Starts to renew the session of `owner` and to observe those of others. `report` is called on
    /// another thread and must not block. Returns `None` if the database is not shared.
    #[must_use]
    pub fn start_renewals(
        &self,
        owner: LeaseOwner,
        report: impl FnMut(SessionReport) + Send + 'static,
    ) -> Option<SessionRenewals> {
        let server = self.0.server.clone()?;
        let clocks = (self.clock(), self.monotonic_clock());
        Some(SessionRenewals::start(server, clocks, owner, report))
    }

    /// Seals bytes like [`StoreReader::seal`], without a database access.
    #[must_use]
    pub fn seal(&self, owner: Uuid, plain: &[u8]) -> Vec<u8> {
        self.0.shared.keys.seal(owner, plain)
    }

    /// Opens bytes that [`Store::seal`] sealed for `owner`.
    pub fn unseal(&self, owner: Uuid, sealed: &[u8]) -> Result<Vec<u8>, StoreError> {
        let opened = self.0.shared.keys.unseal(owner, sealed);
        opened.map_err(|source| StoreError::Unseal { owner: owner.to_string(), source })
    }

    /// Finishes queued work and closes the database for all clones of this store. Work that a server does
    /// not finish within ten seconds fails.
    pub fn close(self) {
        // The result is not needed: a process that ended otherwise is forgotten after a while.
        let (reply, _) = oneshot::channel();
        let leave = |writer: &mut StoreWriter<'_>| writer.shared.keys.leave(writer.session);
        let job = Box::new(PendingWrite::<_, (), StoreError>::new(leave, reply));
        match &self.0.engine {
            StorageEngine::Sqlite { sqlite, .. } => sqlite.write(job),
            StorageEngine::Server(workers) => workers.write(job),
            StorageEngine::Simulated(pool) => pool.write(job),
        }
        match &self.0.engine {
            StorageEngine::Sqlite { sqlite, .. } => sqlite.stop(),
            StorageEngine::Server(workers) => workers.stop(),
            StorageEngine::Simulated(_) => {}
        }
    }

    /// The sealing keys.
    pub(crate) fn keys(&self) -> &KeyRing {
        &self.0.shared.keys
    }

    fn open_sqlite(
        settings: &StoreSettings,
        path: &Path,
        clock: Option<StoreClock>,
    ) -> Result<Self, StoreOpenError> {
        let connection = Sqlite::connect(path, settings.synchronous)?;
        let clock = match clock {
            Some(clock) => OpenedClock::Given(clock),
            None => OpenedClock::Followed(FollowedClock::of_host(settings.clock_tolerance).into()),
        };
        let prepared = Sqlite::in_transaction(&connection, |session| {
            prepare_database(session, settings, clock)
        })?;
        let monotonic = HostClocks::real().monotonic;
        Ok(Self::new(prepared, None, monotonic, |shared| StorageEngine::Sqlite {
            _clock_thread: shared.followed_clock.clone().map(HostClockThread::start),
            sqlite: Arc::new(Sqlite::start(path, connection, shared)),
            scans: Arc::new(Semaphore::new(MAX_SCANS)),
        }))
    }

    fn open_server(
        settings: &StoreSettings,
        server: DatabaseServer,
        clock: Option<StoreClock>,
    ) -> Result<Self, StoreOpenError> {
        let clocks = HostClocks::real();
        let prepared = server.with_first_session(|session| {
            let clock = match clock {
                Some(clock) => OpenedClock::Given(clock),
                None => OpenedClock::Followed(
                    FollowedClock::of_server(session, settings.clock_tolerance, clocks.clone())?
                        .into(),
                ),
            };
            prepare_database(session, settings, clock)
        })?;
        let connections = settings.connections.max(1);
        Ok(Self::new(prepared, Some(server.clone()), clocks.monotonic, |shared| {
            let workers = WorkerPool::start(server, connections, &shared);
            // The result is not needed: old markers take room, but do no harm.
            let (reply, _) = oneshot::channel();
            let delete = |writer: &mut StoreWriter<'_>| {
                let now = writer.now();
                delete_old_markers(writer.session, now).inspect_err(|error| {
                    tracing::warn!(error = error_chain(error), "old commit markers not deleted");
                })
            };
            workers.write(Box::new(PendingWrite::<_, (), StoreError>::new(delete, reply)));
            StorageEngine::Server(workers)
        }))
    }

    fn new(
        prepared: PreparedDatabase,
        server: Option<DatabaseServer>,
        monotonic: MonotonicClock,
        engine: impl FnOnce(Arc<StoreShared>) -> StorageEngine,
    ) -> Self {
        let (wakes, receiver) = mpsc::unbounded_channel();
        let (clock, followed_clock) = match prepared.clock {
            OpenedClock::Given(clock) => (clock, None),
            OpenedClock::Followed(followed) => {
                let read = Arc::clone(&followed);
                let clock: StoreClock = Arc::new(move || read.now());
                (clock, Some(followed))
            }
        };
        let shared = Arc::new(StoreShared {
            clock,
            monotonic,
            followed_clock,
            keys: prepared.keys,
            settled_seq: AtomicI64::new(prepared.journal_end),
            members: Mutex::new(prepared.members),
            position: watch::Sender::new(prepared.journal_end),
            wakes,
        });
        let engine = engine(Arc::clone(&shared));
        Self(Arc::new(StoreInner { shared, engine, server, wakes: Mutex::new(Some(receiver)) }))
    }
}

impl StoreShared {
    /// Notifies journal followers and the wake channel after a commit.
    pub(crate) fn notify_committed(&self, pending: &PendingEffects) {
        if pending.last_seq > 0 {
            self.notify_journal(pending.last_seq);
        }
        for node in &pending.wakes {
            // A wake is only a hint; a closed channel is ignored.
            let _ = self.wakes.send(*node);
        }
    }

    /// Marks the journal position as changed. The number may stay the same: on servers a lower number
    /// can be committed after a higher one, which makes the held-back entries visible.
    pub(crate) fn notify_journal(&self, seq: i64) {
        self.position.send_modify(|position| *position = seq.max(*position));
    }

    /// Whether the journal position has subscribers.
    pub(crate) fn has_journal_followers(&self) -> bool {
        self.position.receiver_count() > 0
    }
}

fn create_data_dir(settings: &StoreSettings) -> Result<(), StoreOpenError> {
    std::fs::create_dir_all(&settings.data_dir)
        .map_err(|source| StoreOpenError::DataDir { path: settings.data_dir.clone(), source })
}

/// The clock of a store that is being opened.
enum OpenedClock {
    /// The caller's.
    Given(StoreClock),
    Followed(Arc<FollowedClock>),
}

impl OpenedClock {
    fn now(&self) -> Timestamp {
        match self {
            Self::Given(clock) => clock(),
            Self::Followed(clock) => clock.now(),
        }
    }
}

/// Result of preparing a database before the store exists.
struct PreparedDatabase {
    clock: OpenedClock,
    keys: KeyRing,
    journal_end: i64,
    members: ClusterMembers,
}

/// Migrates the schema, loads the key and finds the end of the journal. The caller holds the
/// migration lock.
fn prepare_database(
    session: &mut dyn DatabaseSession,
    settings: &StoreSettings,
    clock: OpenedClock,
) -> Result<PreparedDatabase, StoreOpenError> {
    let now = clock.now();
    let source = settings.key_source();
    migrate(session, &source, now.0)?;
    let keys = KeyRing::load_or_create(session, &source)?;
    keys.join(session, now)?;
    let mut members = ClusterMembers::default();
    let journal_end =
        journal::settled_end(session, 0, now, &mut members).map_err(StoreOpenError::Prepare)?;
    Ok(PreparedDatabase { clock, keys, journal_end, members })
}

/// Awaits the result of a read that `queue` passes to another thread.
async fn read_queued<T, E>(
    closure: impl FnOnce(&mut StoreReader<'_>) -> Result<T, E> + Send + 'static,
    queue: impl FnOnce(Box<dyn ReadJob>),
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    let (reply, result) = oneshot::channel();
    queue(Box::new(PendingRead { closure, reply }));
    result.await.unwrap_or_else(|_| Err(E::from(StoreError::Closed)))
}
