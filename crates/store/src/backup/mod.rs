// SPDX-License-Identifier: Apache-2.0
//! Backups: one file with all rows, which can be restored into a database of any engine.
//!
//! A backup is taken from one consistent snapshot while servers run. It contains sealed values as they
//! are in the database, and the ids of the sealing keys, but no keys.

mod backup_file;
mod export;
mod restore;
mod restore_sqlite;
mod schema_tables;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use node_model::Timestamp;

pub use export::back_up;
pub use restore::{RestoreOptions, RestoreReport, restore};

use crate::error::{StoreError, StoreOpenError};
use crate::sealing_key::SealError;

/// Tables whose rows are not in a backup: they describe running processes, or would make ended sessions
/// valid again.
const TABLES_WITHOUT_ROWS: [&str; 3] = ["commit_markers", "key_processes", "sessions"];

/// What a backup contains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackupSummary {
    /// The version of Ferrite that wrote it.
    pub ferrite_version: String,
    /// The schema of the database.
    pub schema: i64,
    /// When the snapshot was taken, by the clock of the host.
    pub created_at: Timestamp,
    /// The kind of database: `sqlite`, `postgresql` or `mariadb`.
    pub engine: String,
    /// The ids of the sealing keys that the secrets need.
    pub sealing_key_ids: Vec<String>,
    /// The number of rows of all tables.
    pub rows: u64,
    /// The number of nodes.
    pub nodes: u64,
    /// The number of nodes with an unfinished job or power request.
    pub unfinished_nodes: u64,
}

/// A backup could not be written, read or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The database cannot be opened.
    #[error(transparent)]
    Open(#[from] StoreOpenError),
    /// A later version has migrated the database; it has tables or columns that this version does not know.
    #[error(
        "the database has schema {found}, and this version can back up schemas up to {known}; back it up \
         with the newer version"
    )]
    NewerSchema {
        /// The schema of the database.
        found: i64,
        /// The schema of this version.
        known: i64,
    },
    /// The database has no tables.
    #[error("the database is empty; there is nothing to back up")]
    NothingToBackUp,
    /// A query failed.
    #[error("cannot read table {table}")]
    Read {
        /// The table.
        table: String,
        /// The cause.
        #[source]
        source: StoreError,
    },
    /// A value of a row is not one that Ferrite writes.
    #[error("cannot decode column {column} of table {table}")]
    CorruptColumn {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// A row could not be inserted.
    #[error("cannot write table {table} (line {line} of the backup)")]
    Write {
        /// The table.
        table: String,
        /// The line of the last row of the statement.
        line: u64,
        /// The cause.
        #[source]
        source: StoreError,
    },
    /// A statement that prepares or completes the restored database failed.
    #[error("cannot prepare the restored database")]
    Prepare(#[source] StoreError),
    /// SQLite's own check found damage.
    #[error(
        "the database file {path} is damaged: {report}; restore a backup, or repair the file with `sqlite3 \
         {path} .recover`"
    )]
    DamagedDatabase {
        /// The database file.
        path: PathBuf,
        /// The first line of SQLite's report.
        report: String,
    },
    /// A file cannot be read or written.
    #[error("cannot use {path}; check its folder, permissions and free space")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file to write exists already.
    #[error("{path} exists already; give another name, or remove it")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a complete, unchanged backup.
    #[error("{path} is not a valid backup: line {line}: {why}; nothing was changed")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line.
        line: u64,
        /// What is wrong.
        why: String,
    },
    /// A newer version wrote the backup.
    #[error(
        "the backup was written by Ferrite {ferrite_version} with {what} {found}, but this version supports \
         {known} at most; restore it with that version"
    )]
    NewerVersion {
        /// The version that wrote it.
        ferrite_version: String,
        /// `format` or `schema`.
        what: &'static str,
        /// The number in the backup.
        found: i64,
        /// The highest supported number.
        known: i64,
    },
    /// The sealing keys are not those of the backup.
    #[error(
        "the backup needs the sealing key {key_id}, which is not in {from}; restore the key first (see \
         docs/backup.md)"
    )]
    KeyMissing {
        /// The id of the key.
        key_id: String,
        /// The source of the keys.
        from: String,
    },
    /// The source of the sealing keys cannot be read.
    #[error("cannot use {from}")]
    KeySource {
        /// The source of the keys.
        from: String,
        /// The cause.
        #[source]
        source: SealError,
    },
    /// The database of a server has tables of Ferrite already.
    #[error(
        "the database has a table {table}; create a new, empty database for the restore and give its URL \
         with --database"
    )]
    NotEmpty {
        /// One of its tables.
        table: String,
    },
}

/// Reads a backup completely and checks it.
pub fn check_backup(file: &Path) -> Result<BackupSummary, BackupError> {
    backup_file::check(file)
}

fn file_error(path: &Path) -> impl Fn(std::io::Error) -> BackupError + '_ {
    move |source| BackupError::File { path: path.to_owned(), source }
}

fn sqlite_error(path: &Path) -> impl Fn(rusqlite::Error) -> BackupError + '_ {
    move |source| {
        BackupError::Open(StoreOpenError::File {
            what: path.display().to_string(),
            source: Arc::new(source),
        })
    }
}

/// Fails if SQLite's check of a database file finds damage. `pragma` is `quick_check` or
/// `integrity_check`.
fn check_sqlite(
    connection: &rusqlite::Connection,
    path: &Path,
    pragma: &str,
) -> Result<(), BackupError> {
    let report: String = connection
        .query_row(&format!("PRAGMA {pragma}(1)"), [], |row| row.get(0))
        .map_err(sqlite_error(path))?;
    if report == "ok" {
        return Ok(());
    }
    Err(BackupError::DamagedDatabase { path: path.to_owned(), report })
}
