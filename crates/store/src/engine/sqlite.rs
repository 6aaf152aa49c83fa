// SPDX-License-Identifier: Apache-2.0
//! SQLite: reads on the caller's thread, writes on one thread with group commit.
//!
//! Point reads and scans use separate connection pools, so that a point read, which blocks a thread
//! of the async runtime, never waits for a list.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql};

use super::job::WriteJob;
use super::{DatabaseRow, DatabaseSession, Dialect, duplicate_error};
use crate::error::{ErrorSource, StoreError, StoreOpenError};
use crate::settings::SqliteSynchronous;
use crate::store::StoreShared;
use crate::value::{CorruptValue, SqlParam, SqlValue};
use crate::writer::PendingEffects;

/// Maximum number of concurrent point reads; more wait for microseconds. Each connection has its own
/// page cache.
const MAX_READERS: usize = 4;

/// Maximum number of concurrent scans, enforced by the caller's semaphore. More would not be faster,
/// since scans are CPU-bound, and each thread keeps the memory of its largest result.
pub(crate) const MAX_SCANS: usize = 2;

/// How long to wait for another process (a backup, an SQLite shell) that holds the write lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Page cache per connection, in KiB; fits the indexes of ten thousand nodes.
const CACHE_KIB: i64 = 2048;

/// Maximum number of transactions per commit. Bounds the latency of the first one.
const MAX_BATCH: usize = 256;

/// The database file, its read connections and its writer thread.
pub(crate) struct Sqlite {
    path: PathBuf,
    point_reads: ConnectionPool,
    scans: ConnectionPool,
    writer: Mutex<Option<(Sender<WriterMessage>, JoinHandle<()>)>>,
    queue: Sender<WriterMessage>,
}

/// Which pool a read takes its connection from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReaderPool {
    /// For single resources.
    PointReads,
    /// For queries over many rows.
    Scans,
}

/// A bounded pool of read connections.
struct ConnectionPool {
    limit: usize,
    connections: Mutex<PooledConnections>,
    free: Condvar,
}

struct PooledConnections {
    idle: Vec<Connection>,
    open: usize,
}

/// Messages to the writer thread.
enum WriterMessage {
    Write(Box<dyn WriteJob>),
    Stop,
}

/// A borrowed connection.
pub(crate) struct SqliteSession<'a>(pub(crate) &'a Connection);

impl Sqlite {
    /// Opens the database for writing, without touching the schema.
    pub(crate) fn connect(
        path: &Path,
        synchronous: SqliteSynchronous,
    ) -> Result<Connection, StoreOpenError> {
        let failed = |source: rusqlite::Error| StoreOpenError::File {
            what: path.display().to_string(),
            source: Arc::new(source),
        };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        configure(&connection).map_err(failed)?;
        connection
            .pragma_update(None, "journal_mode", "WAL")
            .and_then(|()| {
                connection.pragma_update(
                    None,
                    "synchronous",
                    match synchronous {
                        SqliteSynchronous::Full => "FULL",
                        SqliteSynchronous::Normal => "NORMAL",
                    },
                )
            })
            .map_err(failed)?;
        Ok(connection)
    }

    /// Runs `prepare` in a transaction that excludes other writers. It is committed if `prepare` succeeds.
    pub(crate) fn in_transaction<T>(
        connection: &Connection,
        prepare: impl FnOnce(&mut dyn DatabaseSession) -> Result<T, StoreOpenError>,
    ) -> Result<T, StoreOpenError> {
        let run = |sql: &str| {
            connection
                .execute_batch(sql)
                .map_err(|error| StoreOpenError::Prepare(store_error(error)))
        };
        run("BEGIN IMMEDIATE")?;
        let prepared = prepare(&mut SqliteSession(connection))?;
        run("COMMIT")?;
        Ok(prepared)
    }

    /// Starts the writer thread.
    pub(crate) fn start(path: &Path, connection: Connection, shared: Arc<StoreShared>) -> Self {
        let (queue, jobs) = channel();
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || run_writer(connection, &jobs, &shared))
            .expect("the process may start one thread");
        Self {
            path: path.to_owned(),
            point_reads: ConnectionPool::new(MAX_READERS),
            scans: ConnectionPool::new(MAX_SCANS),
            writer: Mutex::new(Some((queue.clone(), thread))),
            queue,
        }
    }

    /// Runs `read` on this thread with a connection from the pool.
    pub(crate) fn with_reader<T>(
        &self,
        readers: ReaderPool,
        read: impl FnOnce(&mut SqliteSession<'_>) -> T,
    ) -> Result<T, StoreError> {
        let pool = match readers {
            ReaderPool::PointReads => &self.point_reads,
            ReaderPool::Scans => &self.scans,
        };
        let connection = pool.take(&self.path)?;
        let result = read(&mut SqliteSession(&connection));
        pool.give_back(connection);
        Ok(result)
    }

    /// Queues a transaction for the writer thread. Fails the job if the thread has stopped.
    pub(crate) fn write(&self, job: Box<dyn WriteJob>) {
        if let Err(refused) = self.queue.send(WriterMessage::Write(job))
            && let WriterMessage::Write(job) = refused.0
        {
            job.finish(Err(StoreError::Closed));
        }
    }

    /// Finishes queued transactions, checkpoints the write-ahead log and stops.
    pub(crate) fn stop(&self) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((queue, thread)) = writer {
            // Open read connections would prevent a complete checkpoint.
            self.point_reads.close_idle();
            self.scans.close_idle();
            let _ = queue.send(WriterMessage::Stop);
            // The last handle may be dropped by a job on this thread, which must not join itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.stop();
    }
}

// === impl Pool ===

impl ConnectionPool {
    fn new(most: usize) -> Self {
        let connections = Mutex::new(PooledConnections { idle: Vec::new(), open: 0 });
        Self { limit: most, connections, free: Condvar::new() }
    }

    fn take(&self, path: &Path) -> Result<Connection, StoreError> {
        let mut connections = self.lock();
        loop {
            if let Some(connection) = connections.idle.pop() {
                return Ok(connection);
            }
            if connections.open < self.limit {
                connections.open += 1;
                drop(connections);
                return open_reader(path).inspect_err(|_| self.lock().open -= 1);
            }
            connections = self.free.wait(connections).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_back(&self, connection: Connection) {
        self.lock().idle.push(connection);
        self.free.notify_one();
    }

    fn close_idle(&self) {
        let mut connections = self.lock();
        connections.open -= connections.idle.len();
        connections.idle.clear();
    }

    fn lock(&self) -> MutexGuard<'_, PooledConnections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(store_error)?;
    configure(&connection).map_err(store_error)?;
    Ok(connection)
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.pragma_update(None, "foreign_keys", "ON")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // Without this, binding a LIMIT makes SQLite re-prepare the statement for every list.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // A negative size is in KiB.
    connection.pragma_update(None, "cache_size", -CACHE_KIB)
}

fn run_writer(connection: Connection, jobs: &Receiver<WriterMessage>, shared: &Arc<StoreShared>) {
    let mut batch: Vec<Box<dyn WriteJob>> = Vec::new();
    let mut running = true;
    while running {
        match jobs.recv() {
            Ok(WriterMessage::Write(job)) => batch.push(job),
            Ok(WriterMessage::Stop) | Err(_) => running = false,
        }
        // Jobs that arrived during the last commit share the next one.
        while batch.len() < MAX_BATCH {
            match jobs.try_recv() {
                Ok(WriterMessage::Write(job)) => batch.push(job),
                Ok(WriterMessage::Stop) => running = false,
                Err(_) => break,
            }
        }
        if !batch.is_empty() {
            commit_batch(&connection, &mut batch, shared);
        }
    }
    if let Err(error) = connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)") {
        tracing::warn!(%error, "write-ahead log checkpoint failed, will retry at the next start");
    }
}

/// Runs the transactions of `batch` in order, commits once, and sends all results. A failed one is
/// rolled back to its savepoint.
fn commit_batch(
    connection: &Connection,
    batch: &mut Vec<Box<dyn WriteJob>>,
    shared: &Arc<StoreShared>,
) {
    let mut pending = PendingEffects::default();
    let end = match execute_cached(connection, "BEGIN IMMEDIATE") {
        Err(error) => Err(error),
        Ok(()) => match run_batch(connection, batch, shared, &mut pending) {
            Ok(BatchEnd::Commit) => execute_cached(connection, "COMMIT"),
            Ok(BatchEnd::Rollback) => execute_cached(connection, "ROLLBACK"),
            Err(error) => Err(error),
        },
    };
    match end {
        Ok(()) => {
            shared.notify_committed(&pending);
            batch.drain(..).for_each(|job| job.finish(Ok(())));
        }
        Err(error) => {
            if !connection.is_autocommit() {
                let _ = execute_cached(connection, "ROLLBACK");
            }
            tracing::error!(error = %error, transactions = batch.len(), "commit failed");
            let cause: ErrorSource = Arc::new(error);
            batch
                .drain(..)
                .for_each(|job| job.finish(Err(StoreError::Unavailable(Arc::clone(&cause)))));
        }
    }
}

/// How to end the transaction of a batch: commit if any job in it succeeded.
enum BatchEnd {
    Commit,
    Rollback,
}

fn run_batch(
    connection: &Connection,
    batch: &mut [Box<dyn WriteJob>],
    shared: &Arc<StoreShared>,
    pending: &mut PendingEffects,
) -> rusqlite::Result<BatchEnd> {
    let mut session = SqliteSession(connection);
    if let [only] = batch {
        // A single job needs no savepoint: on failure the whole transaction is rolled back.
        let keep = only.attempt(&mut session, shared, pending);
        if !keep {
            *pending = PendingEffects::default();
        }
        return Ok(if keep { BatchEnd::Commit } else { BatchEnd::Rollback });
    }
    let mut end = BatchEnd::Rollback;
    for job in batch {
        let (wakes, last_seq) = (pending.wakes.len(), pending.last_seq);
        execute_cached(connection, "SAVEPOINT one")?;
        if job.attempt(&mut session, shared, pending) {
            end = BatchEnd::Commit;
        } else {
            pending.journal.clear();
            pending.wakes.truncate(wakes);
            pending.last_seq = last_seq;
            execute_cached(connection, "ROLLBACK TO one")?;
        }
        execute_cached(connection, "RELEASE one")?;
    }
    Ok(end)
}

fn execute_cached(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

// === impl Session ===

impl DatabaseSession for SqliteSession<'_> {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn query(
        &mut self,
        sql: &str,
        params: &[SqlParam<'_>],
        each: &mut dyn FnMut(&dyn DatabaseRow) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut statement = self.0.prepare_cached(sql).map_err(store_error)?;
        let mut rows = statement.query(rusqlite::params_from_iter(params)).map_err(store_error)?;
        while let Some(row) = rows.next().map_err(store_error)? {
            each(row)?;
        }
        Ok(())
    }

    fn execute(&mut self, sql: &str, params: &[SqlParam<'_>]) -> Result<u64, StoreError> {
        let mut statement = self.0.prepare_cached(sql).map_err(store_error)?;
        let found = statement.execute(rusqlite::params_from_iter(params)).map_err(store_error)?;
        Ok(found as u64)
    }

    fn run(&mut self, sql: &str) -> Result<(), StoreError> {
        self.0.execute_batch(sql).map_err(store_error)
    }
}

impl DatabaseRow for rusqlite::Row<'_> {
    fn value(&self, column: usize) -> Result<SqlValue<'_>, CorruptValue> {
        match self.get_ref(column).map_err(|_| CorruptValue)? {
            ValueRef::Null => Ok(SqlValue::Null),
            ValueRef::Integer(number) => Ok(SqlValue::Int(number)),
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Ok(SqlValue::Bytes(bytes)),
            ValueRef::Real(_) => Err(CorruptValue),
        }
    }
}

impl ToSql for SqlParam<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Owned(text) => ValueRef::Text(text.as_bytes()),
            Self::Id(text) => ValueRef::Text(text),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// Maps an SQLite error to a store error.
fn store_error(error: rusqlite::Error) -> StoreError {
    const UNIQUE: i32 = rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE;
    const PRIMARY_KEY: i32 = rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY;
    const FOREIGN_KEY: i32 = rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY;
    if let rusqlite::Error::SqliteFailure(code, message) = &error {
        match code.extended_code {
            // "UNIQUE constraint failed: nodes.name", or several columns with the relevant one last.
            UNIQUE | PRIMARY_KEY => return duplicate_error(message.as_deref().unwrap_or_default()),
            FOREIGN_KEY => return StoreError::Reference,
            _ => {}
        }
        if code.code == ErrorCode::DatabaseBusy {
            return StoreError::Contended(Arc::new(error));
        }
    }
    StoreError::Unavailable(Arc::new(error))
}
