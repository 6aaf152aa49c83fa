// SPDX-License-Identifier: Apache-2.0
//! Restores a backup into a database of any engine.
//!
//! Rows keep their numbers, because lists and the journal are ordered by them. A restored database becomes
//! usable only when it is complete: SQLite replaces its file, PostgreSQL commits once, and on MariaDB, where
//! creating a table commits, the table of migrations is created last, without which no server starts.

use std::path::{Path, PathBuf};

use super::backup_file::{BackupLine, BackupReader, BackupValue, check};
use super::restore_sqlite::restore_sqlite;
use super::schema_tables::{SchemaTable, tables_of_schema};
use super::{BackupError, BackupSummary};
use crate::clock::host_now;
use crate::engine::workers::DatabaseServer;
use crate::engine::{DatabaseSession, Dialect};
use crate::error::{StoreError, StoreOpenError};
use crate::key_ring::loaded_key_ids;
use crate::migrate::{
    MIGRATIONS_TABLE, create_tables, newest_schema, record_migrations, table_names,
};
use crate::settings::{DatabaseAddress, StoreSettings};
use crate::value::SqlParam;

/// Rows per statement.
const MAX_STATEMENT_ROWS: usize = 100;
/// Size of the values of a statement. MariaDB accepts 16 MiB by default.
const MAX_STATEMENT_BYTES: usize = 1 << 20;
/// Rows per transaction on MariaDB: a Galera cluster limits the size.
const TRANSACTION_ROWS: u64 = 2_000;

/// How to restore.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RestoreOptions {
    /// Check the backup, the keys and the database, and change nothing.
    pub dry_run: bool,
    /// Continue unfinished jobs when a server starts. Otherwise their nodes are put into maintenance.
    pub continue_work: bool,
}

/// The result of a restore.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestoreReport {
    /// What was restored.
    pub backup: BackupSummary,
    /// Where the previous SQLite database is now.
    pub previous_database: Option<PathBuf>,
}

/// Restores a backup. With SQLite, the caller has locked the data directory against servers, and an existing
/// database is kept under another name. On a server the database must be empty.
pub fn restore(
    settings: &StoreSettings,
    file: &Path,
    options: RestoreOptions,
) -> Result<RestoreReport, BackupError> {
    let backup = check(file)?;
    check_keys(settings, &backup)?;
    let previous_database = match settings.address()? {
        DatabaseAddress::Sqlite(path) => restore_sqlite(&path, file, options)?,
        DatabaseAddress::Server(server) => {
            restore_server(&server, file, options)?;
            None
        }
    };
    Ok(RestoreReport { backup, previous_database })
}

fn check_keys(settings: &StoreSettings, backup: &BackupSummary) -> Result<(), BackupError> {
    let source = settings.key_source();
    let found = loaded_key_ids(&*source)
        .map_err(|error| BackupError::KeySource { from: source.describe(), source: error })?;
    match backup.sealing_key_ids.iter().find(|id| !found.contains(id)) {
        None => Ok(()),
        Some(id) => Err(BackupError::KeyMissing { key_id: id.clone(), from: source.describe() }),
    }
}

fn restore_server(
    server: &DatabaseServer,
    file: &Path,
    options: RestoreOptions,
) -> Result<(), BackupError> {
    let mut failed = None;
    // An error ends the session without a commit.
    let result = server.with_first_session(|session| {
        fill_server(session, file, options).map_err(|error| {
            failed = Some(error);
            StoreOpenError::Prepare(StoreError::Closed)
        })
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(result?),
    }
}

/// Creates and fills the tables in an empty database. The session has the migration lock.
fn fill_server(
    session: &mut dyn DatabaseSession,
    file: &Path,
    options: RestoreOptions,
) -> Result<(), BackupError> {
    let before = table_names(session).map_err(BackupError::Prepare)?;
    let own = tables_of_schema(newest_schema());
    let is_own =
        |name: &String| name == MIGRATIONS_TABLE || own.iter().any(|table| table.name == *name);
    if let Some(table) = before.iter().find(|name| is_own(name)) {
        return Err(BackupError::NotEmpty { table: table.clone() });
    }
    if options.dry_run {
        return Ok(());
    }
    let filled = fill_tables(session, file, options);
    if filled.is_err() && session.dialect() == Dialect::MariaDb {
        drop_new_tables(session, &before);
    }
    filled
}

/// Drops the tables of an incomplete restore, which MariaDB does not roll back. If this fails too, servers
/// still refuse to use them.
fn drop_new_tables(session: &mut dyn DatabaseSession, before: &[String]) {
    let dropped = session.run("ROLLBACK").and_then(|()| {
        session.run("SET SESSION foreign_key_checks = 0")?;
        for table in table_names(session)?.iter().filter(|name| !before.contains(name)) {
            session.run(&format!("DROP TABLE {table}"))?;
        }
        Ok(())
    });
    if let Err(error) = dropped {
        tracing::warn!(%error, "tables of an incomplete restore are left; drop the database");
    }
}

/// Creates the tables of the backup's schema, inserts all rows, and records the schema.
pub(super) fn fill_tables(
    session: &mut dyn DatabaseSession,
    file: &Path,
    options: RestoreOptions,
) -> Result<(), BackupError> {
    let mut reader = BackupReader::open(file)?;
    let schema = reader.header.schema;
    create_tables(session, schema).map_err(BackupError::Prepare)?;
    let commits_in_parts = session.dialect() == Dialect::MariaDb;
    if commits_in_parts {
        session.run("START TRANSACTION").map_err(BackupError::Prepare)?;
    }
    let tables = reader.tables.clone();
    let mut batch = RowBatch::default();
    let mut uncommitted = 0;
    loop {
        match reader.next_line()? {
            BackupLine::Row(row) => {
                batch.push(row);
                uncommitted += 1;
                if batch.is_full() {
                    batch.insert(session, reader.number)?;
                    if commits_in_parts && uncommitted >= TRANSACTION_ROWS {
                        uncommitted = 0;
                        session
                            .run("COMMIT")
                            .and_then(|()| session.run("START TRANSACTION"))
                            .map_err(BackupError::Prepare)?;
                    }
                }
            }
            BackupLine::Table(index) => {
                batch.insert(session, reader.number)?;
                batch.table = tables.get(index).cloned();
            }
            BackupLine::End => {
                batch.insert(session, reader.number)?;
                break;
            }
        }
    }
    complete(session, &tables, reader.header.created_at(), options)
        .map_err(BackupError::Prepare)?;
    if commits_in_parts {
        session.run("COMMIT").map_err(BackupError::Prepare)?;
    }
    record_migrations(session, schema, host_now().0).map_err(BackupError::Prepare)
}

/// Ends the leases of the processes that used the original database, stops unfinished jobs, and lets
/// PostgreSQL continue to number after the restored rows.
fn complete(
    session: &mut dyn DatabaseSession,
    tables: &[SchemaTable],
    created_at: &str,
    options: RestoreOptions,
) -> Result<(), StoreError> {
    session.run("UPDATE nodes SET reservation = NULL, lease_run = NULL, lease_until = NULL")?;
    session.run("UPDATE conductors SET online = 0")?;
    if !options.continue_work {
        hold_deployments(session, tables, created_at)?;
        let reason = format!(
            "restored from a backup of {created_at} with unfinished work; check the machine, then end \
             maintenance to continue the work"
        );
        session.execute(
            "UPDATE nodes SET due_at = NULL, maintenance_reason = ?, maintenance = 1
             WHERE maintenance = 0 AND (work IS NOT NULL OR power_request IS NOT NULL)",
            &[SqlParam::Text(&reason)],
        )?;
        session.run(
            "UPDATE nodes SET due_at = NULL WHERE work IS NOT NULL OR power_request IS NOT NULL",
        )?;
    }
    if session.dialect() != Dialect::Postgres {
        return Ok(());
    }
    for table in tables {
        let Some(column) = table.columns.iter().find(|column| column.is_numbered) else { continue };
        let (table, column) = (&table.name, &column.name);
        session.run(&format!(
            "SELECT setval(pg_get_serial_sequence('{table}', '{column}'),
                 (SELECT COALESCE(MAX({column}), 0) + 1 FROM {table}), false)"
        ))?;
    }
    Ok(())
}

/// Prevents that deployments give machines away or take them back, before anyone has compared the restored
/// records with the machines.
fn hold_deployments(
    session: &mut dyn DatabaseSession,
    tables: &[SchemaTable],
    created_at: &str,
) -> Result<(), StoreError> {
    let reason = format!(
        "restored from a backup of {created_at}; check that the machine is not used, then end maintenance"
    );
    session.execute(
        "UPDATE nodes SET maintenance_reason = ?, maintenance = 1
         WHERE maintenance = 0 AND provision_state = 'available'",
        &[SqlParam::Text(&reason)],
    )?;
    // Earlier versions have none.
    if !tables.iter().any(|table| table.name == "deployments") {
        return Ok(());
    }
    session.execute(
        "UPDATE deployments SET expiry_action = 'notify'
         WHERE expired_at IS NULL AND expires_at <= ?",
        &[SqlParam::Int(host_now().0)],
    )?;
    let error = format!(
        "restored from a backup of {created_at} while its instance was removed; delete it again if it still exists"
    );
    session
        .execute(
            "UPDATE deployments SET state = 'failed', last_error = ? WHERE state = 'deleting'",
            &[SqlParam::Text(&error)],
        )
        .map(drop)
}

/// Rows of one table for one statement.
#[derive(Default)]
struct RowBatch {
    table: Option<SchemaTable>,
    rows: Vec<Vec<BackupValue>>,
    bytes: usize,
}

impl RowBatch {
    fn push(&mut self, row: Vec<BackupValue>) {
        self.bytes += row.iter().map(BackupValue::size).sum::<usize>();
        self.rows.push(row);
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= MAX_STATEMENT_ROWS || self.bytes >= MAX_STATEMENT_BYTES
    }

    /// Inserts the rows and removes them from the batch.
    fn insert(&mut self, session: &mut dyn DatabaseSession, line: u64) -> Result<(), BackupError> {
        let Some(table) = self.table.as_ref().filter(|_| !self.rows.is_empty()) else {
            return Ok(());
        };
        let row = format!("({})", vec!["?"; table.columns.len()].join(", "));
        let rows = vec![row; self.rows.len()].join(", ");
        let sql = format!("INSERT INTO {} ({}) VALUES {rows}", table.name, table.column_list());
        let params: Vec<_> = self.rows.iter().flatten().map(BackupValue::param).collect();
        let inserted = session.execute(&sql, &params);
        inserted.map_err(|source| BackupError::Write {
            table: table.name.clone(),
            line,
            source,
        })?;
        self.rows.clear();
        self.bytes = 0;
        Ok(())
    }
}
