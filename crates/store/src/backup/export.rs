// SPDX-License-Identifier: Apache-2.0
//! Writes a backup from one consistent snapshot of a database in use.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::backup_file::{BackupHeader, BackupWriter, check};
use super::schema_tables::tables_of_schema;
use super::{
    BackupError, BackupSummary, TABLES_WITHOUT_ROWS, check_sqlite, file_error, sqlite_error,
};
use crate::clock::host_now;
use crate::engine::sqlite::SqliteSession;
use crate::engine::workers::DatabaseServer;
use crate::engine::{DatabaseSession, Dialect};
use crate::error::{StoreError, StoreOpenError};
use crate::key_ring::recorded_key_id;
use crate::key_rotation::KeyState;
use crate::migrate::{MIGRATIONS_TABLE, applied_version, newest_schema, table_names};
use crate::settings::{DatabaseAddress, StoreSettings};

/// The first schema with rotations of the sealing key.
const SCHEMA_WITH_ROTATIONS: i64 = 13;

/// How long to wait for a process that has locked the SQLite file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Writes a backup to a new file, which only the current user can read. Servers may use the database
/// meanwhile. The file appears under its name when it is complete and was checked.
pub fn back_up(settings: &StoreSettings, file: &Path) -> Result<BackupSummary, BackupError> {
    if file.symlink_metadata().is_ok() {
        return Err(BackupError::Exists { path: file.to_owned() });
    }
    let partial = PartialFile::create(file)?;
    match settings.address()? {
        DatabaseAddress::Sqlite(path) => back_up_sqlite(&path, &partial)?,
        DatabaseAddress::Server(server) => back_up_server(&server, &partial)?,
    }
    let summary = check(&partial.path)?;
    partial.publish(file)?;
    Ok(summary)
}

fn back_up_sqlite(path: &Path, partial: &PartialFile) -> Result<(), BackupError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(sqlite_error(path))?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(sqlite_error(path))?;
    check_sqlite(&connection, path, "quick_check")?;
    // With a write-ahead log, a read transaction is a snapshot that delays no writer.
    connection.execute_batch("BEGIN").map_err(sqlite_error(path))?;
    export(&mut SqliteSession(&connection), partial)
}

fn back_up_server(server: &DatabaseServer, partial: &PartialFile) -> Result<(), BackupError> {
    // The blocking PostgreSQL client panics on a thread of an async runtime.
    let exported = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let mut session = server.connect()?;
                // Reading a large table and writing it to a slow disk may take long.
                let statements: &[&str] = match session.dialect() {
                    Dialect::MariaDb => &[
                        "SET SESSION max_statement_time = 0",
                        "SET SESSION idle_transaction_timeout = 0",
                        "SET SESSION net_write_timeout = 3600",
                        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
                        "START TRANSACTION WITH CONSISTENT SNAPSHOT",
                    ],
                    Dialect::Postgres | Dialect::Sqlite => &[
                        "SET statement_timeout = 0",
                        "SET idle_in_transaction_session_timeout = 0",
                        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
                    ],
                };
                for statement in statements {
                    session.run(statement).map_err(StoreOpenError::Prepare)?;
                }
                export(&mut *session, partial)
            })
            .join()
    });
    exported.unwrap_or(Err(BackupError::Prepare(StoreError::Panicked)))
}

/// Writes all rows. The session is in a transaction with a snapshot.
fn export(session: &mut dyn DatabaseSession, partial: &PartialFile) -> Result<(), BackupError> {
    let failed = |source| BackupError::Read { table: MIGRATIONS_TABLE.to_owned(), source };
    let tables = table_names(session).map_err(failed)?;
    if !tables.iter().any(|table| table == MIGRATIONS_TABLE) {
        return Err(BackupError::NothingToBackUp);
    }
    let schema = applied_version(session).map_err(failed)?;
    if schema == 0 {
        return Err(BackupError::NothingToBackUp);
    }
    let known = newest_schema();
    if schema > known {
        return Err(BackupError::NewerSchema { found: schema, known });
    }
    let keys = required_keys(session, schema)
        .map_err(|source| BackupError::Read { table: "vault".to_owned(), source })?;
    let engine = match session.dialect() {
        Dialect::Sqlite => "sqlite",
        Dialect::Postgres => "postgresql",
        Dialect::MariaDb => "mariadb",
    };
    let header = BackupHeader::new(schema, host_now(), engine, keys);
    let file = partial.file.try_clone().map_err(file_error(&partial.path))?;
    let mut writer = BackupWriter::start(file, &partial.path, &header)?;
    for table in tables_of_schema(schema) {
        if TABLES_WITHOUT_ROWS.contains(&table.name.as_str()) {
            continue;
        }
        writer.table(&table)?;
        let order = table.columns.first().map_or("1", |column| column.name.as_str());
        let sql = format!("SELECT {} FROM {} ORDER BY {order}", table.column_list(), table.name);
        let mut failed = None;
        let queried = session.query(&sql, &[], &mut |row| {
            writer.row(&table, row).map_err(|error| {
                failed = Some(error);
                // Ends the query.
                StoreError::Closed
            })
        });
        match (failed, queried) {
            (Some(error), _) => return Err(error),
            (None, Err(source)) => return Err(BackupError::Read { table: table.name, source }),
            (None, Ok(())) => {}
        }
    }
    writer.finish()
}

/// The ids of the keys that a process needs for this database.
fn required_keys(
    session: &mut dyn DatabaseSession,
    schema: i64,
) -> Result<Vec<String>, StoreError> {
    let recorded = recorded_key_id(session)?;
    if schema < SCHEMA_WITH_ROTATIONS || recorded.is_none() {
        return Ok(recorded.into_iter().collect());
    }
    Ok(KeyState::read(session)?.required().map(str::to_owned).collect())
}

/// A file that is removed unless it is published.
struct PartialFile {
    path: PathBuf,
    file: File,
    is_published: bool,
}

impl PartialFile {
    /// Creates it beside `target`.
    fn create(target: &Path) -> Result<Self, BackupError> {
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(format!(".partial-{}", std::process::id()));
        let path = target.with_file_name(name);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(file_error(&path))?;
        Ok(Self { path, file, is_published: false })
    }

    /// Gives it its name.
    fn publish(mut self, target: &Path) -> Result<(), BackupError> {
        std::fs::rename(&self.path, target).map_err(file_error(target))?;
        self.is_published = true;
        sync_folder(target)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.is_published {
            // The error that the caller returns is more important.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Waits until a new or renamed file is on the disk under its name.
pub(super) fn sync_folder(file: &Path) -> Result<(), BackupError> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(file_error(folder))
}
