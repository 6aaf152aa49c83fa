// SPDX-License-Identifier: Apache-2.0
//! SQLite: reads on the caller's thread, writes on one thread with many transactions to a commit.
//!
//! Point reads and scans have connections of their own, so that a point read, which runs on a
//! thread of the async runtime, never waits for a list to end.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql};

use super::job::WriteJob;
use super::{Dialect, Row, Session, duplicate};
use crate::error::{Cause, Error, OpenError};
use crate::settings::Synchronous;
use crate::store::Shared;
use crate::value::{Damaged, Param, Value};
use crate::writer::Pending;

/// Point reads beyond this wait for one to end, which takes microseconds. Each connection has a
/// cache of its own.
const MOST_READERS: usize = 4;

/// How many scans run at a time. Whoever starts them keeps to it. More would not be quicker, since
/// they wait for the processor and not for the disk, and each thread keeps the memory of its
/// largest answer.
pub(crate) const MOST_SCANS: usize = 2;

/// How long to wait for another process (a backup, a shell) that holds the write lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Page cache of each connection, in KiB: enough for the indexes of ten thousand nodes.
const CACHE: i64 = 2048;

/// How many transactions may share a commit: bounds how long the first of them waits.
const MOST_PER_COMMIT: usize = 256;

/// The database file and the thread that writes to it.
pub(crate) struct Sqlite {
    path: PathBuf,
    points: Pool,
    scans: Pool,
    writer: Mutex<Option<(Sender<Message>, JoinHandle<()>)>>,
    queue: Sender<Message>,
}

/// Which connections a read takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Readers {
    /// Those for single resources.
    Points,
    /// Those for many rows.
    Scans,
}

/// Reading connections.
struct Pool {
    most: usize,
    connections: Mutex<Connections>,
    free: Condvar,
}

struct Connections {
    idle: Vec<Connection>,
    open: usize,
}

/// What the writer's thread is told.
enum Message {
    Write(Box<dyn WriteJob>),
    Stop,
}

/// A connection in use.
pub(crate) struct SqliteSession<'a>(pub(crate) &'a Connection);

impl Sqlite {
    /// Opens the database for writing. The schema is not looked at yet.
    pub(crate) fn connect(path: &Path, synchronous: Synchronous) -> Result<Connection, OpenError> {
        let failed = |source: rusqlite::Error| OpenError::File {
            what: path.display().to_string(),
            source: Arc::new(source),
        };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        prepare(&connection).map_err(failed)?;
        connection
            .pragma_update(None, "journal_mode", "WAL")
            .and_then(|()| {
                connection.pragma_update(
                    None,
                    "synchronous",
                    match synchronous {
                        Synchronous::Full => "FULL",
                        Synchronous::Normal => "NORMAL",
                    },
                )
            })
            .map_err(failed)?;
        Ok(connection)
    }

    /// Starts the writing thread.
    pub(crate) fn start(path: &Path, connection: Connection, shared: Arc<Shared>) -> Self {
        let (queue, jobs) = channel();
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || write_forever(connection, &jobs, &shared))
            .expect("the process may start one thread");
        Self {
            path: path.to_owned(),
            points: Pool::new(MOST_READERS),
            scans: Pool::new(MOST_SCANS),
            writer: Mutex::new(Some((queue.clone(), thread))),
            queue,
        }
    }

    /// Runs `read` on a reading connection, on this thread.
    pub(crate) fn with_reader<T>(
        &self,
        readers: Readers,
        read: impl FnOnce(&mut SqliteSession<'_>) -> T,
    ) -> Result<T, Error> {
        let pool = match readers {
            Readers::Points => &self.points,
            Readers::Scans => &self.scans,
        };
        let connection = pool.take(&self.path)?;
        let result = read(&mut SqliteSession(&connection));
        pool.give_back(connection);
        Ok(result)
    }

    /// Hands a transaction to the writing thread, or answers that it has stopped.
    pub(crate) fn write(&self, job: Box<dyn WriteJob>) {
        if let Err(refused) = self.queue.send(Message::Write(job))
            && let Message::Write(job) = refused.0
        {
            job.answer(Err(Error::Closed));
        }
    }

    /// Finishes what is queued, folds the write-ahead log into the database and stops.
    pub(crate) fn stop(&self) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((queue, thread)) = writer {
            // Reading connections keep the log from being folded completely.
            self.points.close_idle();
            self.scans.close_idle();
            let _ = queue.send(Message::Stop);
            // The last who held the store may have been a job: nobody waits for himself.
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

impl Pool {
    fn new(most: usize) -> Self {
        let connections = Mutex::new(Connections { idle: Vec::new(), open: 0 });
        Self { most, connections, free: Condvar::new() }
    }

    fn take(&self, path: &Path) -> Result<Connection, Error> {
        let mut connections = self.lock();
        loop {
            if let Some(connection) = connections.idle.pop() {
                return Ok(connection);
            }
            if connections.open < self.most {
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

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open_reader(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(translate)?;
    prepare(&connection).map_err(translate)?;
    Ok(connection)
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.pragma_update(None, "foreign_keys", "ON")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // Negative is in KiB.
    // Without this, binding a LIMIT makes SQLite prepare the statement anew for every list.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "cache_size", -CACHE)
}

fn write_forever(connection: Connection, jobs: &Receiver<Message>, shared: &Arc<Shared>) {
    let mut batch: Vec<Box<dyn WriteJob>> = Vec::new();
    let mut running = true;
    while running {
        match jobs.recv() {
            Ok(Message::Write(job)) => batch.push(job),
            Ok(Message::Stop) | Err(_) => running = false,
        }
        // Whatever came in while the last commit was flushed to disk shares the next one.
        while batch.len() < MOST_PER_COMMIT {
            match jobs.try_recv() {
                Ok(Message::Write(job)) => batch.push(job),
                Ok(Message::Stop) => running = false,
                Err(_) => break,
            }
        }
        if !batch.is_empty() {
            commit_together(&connection, &mut batch, shared);
        }
    }
    if let Err(error) = connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)") {
        tracing::warn!(%error, "the write-ahead log could not be folded; it will be at the next start");
    }
}

/// Runs the transactions of `batch` one after the other, commits once, and answers all. One that
/// fails is undone alone.
fn commit_together(
    connection: &Connection,
    batch: &mut Vec<Box<dyn WriteJob>>,
    shared: &Arc<Shared>,
) {
    let mut pending = Pending::default();
    let end = match step(connection, "BEGIN IMMEDIATE") {
        Err(error) => Err(error),
        Ok(()) => match run_all(connection, batch, shared, &mut pending) {
            Ok(Kept::Some) => step(connection, "COMMIT"),
            Ok(Kept::None) => step(connection, "ROLLBACK"),
            Err(error) => Err(error),
        },
    };
    match end {
        Ok(()) => {
            shared.committed(&pending);
            batch.drain(..).for_each(|job| job.answer(Ok(())));
        }
        Err(error) => {
            if !connection.is_autocommit() {
                let _ = step(connection, "ROLLBACK");
            }
            tracing::error!(error = %error, transactions = batch.len(), "commit failed");
            let cause: Cause = Arc::new(error);
            batch.drain(..).for_each(|job| job.answer(Err(Error::Unavailable(Arc::clone(&cause)))));
        }
    }
}

/// Whether any transaction of a batch wants to be kept.
enum Kept {
    Some,
    None,
}

fn run_all(
    connection: &Connection,
    batch: &mut [Box<dyn WriteJob>],
    shared: &Arc<Shared>,
    pending: &mut Pending,
) -> rusqlite::Result<Kept> {
    let mut session = SqliteSession(connection);
    if let [only] = batch {
        // Alone, a failure can undo the whole: no savepoint needed.
        let keep = only.attempt(&mut session, shared, pending);
        if !keep {
            *pending = Pending::default();
        }
        return Ok(if keep { Kept::Some } else { Kept::None });
    }
    let mut kept = Kept::None;
    for job in batch {
        let (wakes, last_seq) = (pending.wakes.len(), pending.last_seq);
        step(connection, "SAVEPOINT one")?;
        if job.attempt(&mut session, shared, pending) {
            kept = Kept::Some;
        } else {
            pending.journal.clear();
            pending.wakes.truncate(wakes);
            pending.last_seq = last_seq;
            step(connection, "ROLLBACK TO one")?;
        }
        step(connection, "RELEASE one")?;
    }
    Ok(kept)
}

fn step(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

// === impl Session ===

impl Session for SqliteSession<'_> {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn query(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut statement = self.0.prepare_cached(sql).map_err(translate)?;
        let mut rows = statement.query(rusqlite::params_from_iter(params)).map_err(translate)?;
        while let Some(row) = rows.next().map_err(translate)? {
            each(row)?;
        }
        Ok(())
    }

    fn execute(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64, Error> {
        let mut statement = self.0.prepare_cached(sql).map_err(translate)?;
        let found = statement.execute(rusqlite::params_from_iter(params)).map_err(translate)?;
        Ok(found as u64)
    }

    fn run(&mut self, sql: &str) -> Result<(), Error> {
        self.0.execute_batch(sql).map_err(translate)
    }
}

impl Row for rusqlite::Row<'_> {
    fn value(&self, column: usize) -> Result<Value<'_>, Damaged> {
        match self.get_ref(column).map_err(|_| Damaged)? {
            ValueRef::Null => Ok(Value::Null),
            ValueRef::Integer(number) => Ok(Value::Int(number)),
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Ok(Value::Bytes(bytes)),
            ValueRef::Real(_) => Err(Damaged),
        }
    }
}

impl ToSql for Param<'_> {
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

/// What an error of SQLite means to the store.
pub(crate) fn translate(error: rusqlite::Error) -> Error {
    const UNIQUE: i32 = rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE;
    const PRIMARY_KEY: i32 = rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY;
    const FOREIGN_KEY: i32 = rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY;
    if let rusqlite::Error::SqliteFailure(code, message) = &error {
        match code.extended_code {
            // "UNIQUE constraint failed: nodes.name", or several columns, the telling one last.
            UNIQUE | PRIMARY_KEY => return duplicate(message.as_deref().unwrap_or_default()),
            FOREIGN_KEY => return Error::Reference,
            _ => {}
        }
        if code.code == ErrorCode::DatabaseBusy {
            return Error::Contended(Arc::new(error));
        }
    }
    Error::Unavailable(Arc::new(error))
}
