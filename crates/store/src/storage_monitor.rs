// SPDX-License-Identifier: Apache-2.0
//! Tests whether the database accepts writes and the data directory has free space.
//!
//! A full disk is an alarm and not the end of the process: writes fail until there is space again. A small
//! write can succeed on a disk that is too full for others, because SQLite reuses its write-ahead log, so
//! the free space is checked too.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use rusqlite::ErrorCode;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::engine::Dialect;
use crate::error::StoreError;
use crate::store::Store;
use crate::value::{ColumnType as _, SqlParam};
use crate::writer::StoreWriter;

/// How long a result is used again, so that health checks do not load the database.
const RESULT_LIFETIME: Duration = Duration::from_secs(1);

/// How long a test waits for the database.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between two tests without health checks.
const INTERVAL: Duration = Duration::from_secs(10);

/// A data directory with less free space is full. SQLite's write-ahead log grows to this size before its
/// content is moved to the database.
const MIN_FREE_BYTES: u64 = 4 << 20;

/// Why the process cannot store data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StorageProblem {
    /// The disk of the data directory is full.
    DataDirFull,
    /// The disk of the database is full.
    DatabaseFull,
    /// The database rejects writes or is not reachable.
    NotWritable,
    /// The database did not finish a write in time.
    TooSlow,
}

impl StorageProblem {
    /// A sentence for operators, without details of the installation.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::DataDirFull => "the disk of the data directory is full",
            Self::DatabaseFull => "the disk of the database is full",
            Self::NotWritable => "the database does not accept writes",
            Self::TooSlow => "the database did not finish a write within 5 seconds",
        }
    }
}

/// Tests the storage, at most once a second.
pub struct StorageMonitor {
    store: Store,
    data_dir: PathBuf,
    /// The row that this process writes.
    row: Uuid,
    tests: Mutex<StorageTests>,
    latest: StdMutex<Option<StorageProblem>>,
    was_logged: AtomicBool,
}

#[derive(Default)]
struct StorageTests {
    finished: Option<(Instant, Result<(), StorageProblem>)>,
    /// A write that the database has not finished yet. There is never a second one.
    running: Option<JoinHandle<Result<(), StoreError>>>,
}

impl StorageMonitor {
    /// Monitors the database of `store`, and the disk of `data_dir`.
    #[must_use]
    pub fn new(store: Store, data_dir: PathBuf) -> Arc<Self> {
        Arc::new(Self {
            store,
            data_dir,
            row: Uuid::new_v4(),
            tests: Mutex::default(),
            latest: StdMutex::default(),
            was_logged: AtomicBool::new(false),
        })
    }

    /// Tests a write. The result may be up to one second old.
    pub async fn check(&self) -> Result<(), StorageProblem> {
        // Callers wait for the one that tests.
        let mut tests = self.tests.lock().await;
        if let Some((at, result)) = tests.finished
            && at.elapsed() < RESULT_LIFETIME
        {
            return result;
        }
        let result = self.test(&mut tests).await;
        tests.finished = Some((Instant::now(), result));
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = result.err();
        result
    }

    /// The result of the last test.
    #[must_use]
    pub fn latest(&self) -> Option<StorageProblem> {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The free space of the data directory in bytes.
    #[must_use]
    pub fn free_bytes(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(&self.data_dir).ok()?;
        // Some network file systems do not report their size.
        (disk.f_blocks > 0).then(|| disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Tests in regular intervals, so that a full disk is reported without health checks.
    pub async fn run(self: Arc<Self>) {
        loop {
            // The result is logged.
            let _ = self.check().await;
            sleep(INTERVAL).await;
        }
    }

    async fn test(&self, tests: &mut StorageTests) -> Result<(), StorageProblem> {
        if let Some(free) = self.free_bytes()
            && free < MIN_FREE_BYTES
        {
            let error = format!("{free} bytes free in {}", self.data_dir.display());
            self.log(Some((StorageProblem::DataDirFull, error)));
            return Err(StorageProblem::DataDirFull);
        }
        let running = tests.running.get_or_insert_with(|| {
            let (store, row) = (self.store.clone(), self.row);
            tokio::spawn(async move { store.write(move |writer| writer.test_write(row)).await })
        });
        let Ok(ended) = timeout(WRITE_TIMEOUT, running).await else {
            self.log(Some((StorageProblem::TooSlow, "timed out".to_owned())));
            return Err(StorageProblem::TooSlow);
        };
        tests.running = None;
        let error = match ended {
            Ok(Ok(())) => {
                self.log(None);
                return Ok(());
            }
            Ok(Err(error)) => error,
            Err(_) => StoreError::Panicked,
        };
        let problem = match is_disk_full(&error) {
            true => StorageProblem::DatabaseFull,
            false => StorageProblem::NotWritable,
        };
        self.log(Some((problem, error_text(&error))));
        Err(problem)
    }

    /// Logs when a problem begins and when it ends.
    fn log(&self, problem: Option<(StorageProblem, String)>) {
        let was_logged = self.was_logged.swap(problem.is_some(), Ordering::AcqRel);
        match problem {
            Some((problem, error)) if !was_logged => tracing::error!(
                problem = problem.describe(),
                error,
                "storage does not accept writes; free space or repair the database, work continues then"
            ),
            None if was_logged => tracing::info!("storage accepts writes again"),
            Some(_) | None => {}
        }
    }
}

impl StoreWriter<'_> {
    /// Changes a row that has no other purpose than to test a write. `row` is different in each process.
    pub(crate) fn test_write(&mut self, row: Uuid) -> Result<(), StoreError> {
        // Rows of ended processes are deleted on servers only.
        let row = match self.session.dialect() {
            Dialect::Sqlite => Uuid::nil(),
            Dialect::Postgres | Dialect::MariaDb => row,
        };
        let now = self.now();
        let changed = self.session.execute(
            "UPDATE commit_markers SET number = number + 1, changed_at = ? WHERE uuid = ?",
            &[now.bind(), row.bind()],
        )?;
        if changed == 0 {
            self.session.execute(
                "INSERT INTO commit_markers (uuid, number, changed_at) VALUES (?, ?, ?)",
                &[row.bind(), SqlParam::Int(0), now.bind()],
            )?;
        }
        Ok(())
    }
}

/// Whether the database failed because its disk is full.
fn is_disk_full(error: &StoreError) -> bool {
    let StoreError::Unavailable(source) = error else { return false };
    if let Some(rusqlite::Error::SqliteFailure(code, _)) = source.downcast_ref() {
        return code.code == ErrorCode::DiskFull;
    }
    // PostgreSQL's disk_full; MariaDB's ER_DISK_FULL and ER_RECORD_FILE_FULL.
    let text = source.to_string();
    ["(SQLSTATE 53100)", "(error 1021)", "(error 1114)"].iter().any(|code| text.contains(code))
}

fn error_text(error: &StoreError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorSource;

    #[test]
    fn full_disks_are_recognised() {
        let sqlite = |code| {
            let failure = rusqlite::ffi::Error::new(code);
            let source: ErrorSource = Arc::new(rusqlite::Error::SqliteFailure(failure, None));
            is_disk_full(&StoreError::Unavailable(source))
        };
        assert!(sqlite(rusqlite::ffi::SQLITE_FULL));
        assert!(!sqlite(rusqlite::ffi::SQLITE_READONLY));
        let server = |text: &str| {
            let source = Box::<dyn std::error::Error + Send + Sync>::from(text);
            is_disk_full(&StoreError::Unavailable(Arc::from(source)))
        };
        assert!(server("could not extend file: No space left on device (SQLSTATE 53100)"));
        assert!(server("The table 'nodes' is full (error 1114)"));
        assert!(!server("the server is read-only (error 1290)"));
        assert!(!is_disk_full(&StoreError::Closed));
    }
}
