// SPDX-License-Identifier: Apache-2.0
//! Applies schema migrations.

use std::sync::Arc;

use crate::engine::{DatabaseSession, Dialect};
use crate::error::{StoreError, StoreOpenError};
use crate::key_ring::KeyRing;
use crate::key_source::KeySource;
use crate::reader::decode_field;
use crate::schema::{Backfill, MIGRATIONS, MIGRATIONS_PER_RELEASE, Migration, RELEASE};
use crate::value::{ColumnType as _, SqlParam};

/// The table of applied migrations.
pub(crate) const MIGRATIONS_TABLE: &str = "schema_migrations";

/// The schema of a database before and after the outstanding migrations were applied. A database without
/// tables has schema 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SchemaUpgrade {
    /// The schema that was found.
    pub before: i64,
    /// The schema now.
    pub after: i64,
}

/// What an upgrade of a database would do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MigrationPlan {
    /// The schema of the database.
    pub schema: i64,
    /// The migrations that it has not applied, in order.
    pub outstanding: Vec<PlannedMigration>,
}

/// A migration that a database has not applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlannedMigration {
    /// The schema after it.
    pub number: i64,
    /// What it adds.
    pub name: &'static str,
    /// Whether it reads and changes rows, which takes longer with a large database.
    pub changes_rows: bool,
}

impl MigrationPlan {
    fn from_schema(schema: i64) -> Self {
        let outstanding = MIGRATIONS.iter().filter(|migration| migration.number > schema);
        let outstanding = outstanding.map(|migration| PlannedMigration {
            number: migration.number,
            name: migration.name,
            changes_rows: migration.backfill.is_some(),
        });
        Self { schema, outstanding: outstanding.collect() }
    }
}

/// Reads which migrations the database has not applied, and changes nothing.
pub(crate) fn plan(
    session: &mut dyn DatabaseSession,
    now: i64,
) -> Result<MigrationPlan, StoreOpenError> {
    reject_foreign_tables(session)?;
    let tables = table_names(session).map_err(StoreOpenError::Prepare)?;
    let schema = match tables.iter().any(|table| table == MIGRATIONS_TABLE) {
        true => applied_version(session).map_err(StoreOpenError::Prepare)?,
        false => 0,
    };
    reject_newer_schema(schema)?;
    reject_version_skew(session, schema, now)?;
    Ok(MigrationPlan::from_schema(schema))
}

/// The plan for a database that does not exist yet.
pub(crate) fn plan_of_new_database() -> MigrationPlan {
    MigrationPlan::from_schema(0)
}

/// Runs the migrations that the database has not applied yet. The caller holds the lock against
/// other processes, and commits.
///
/// On MariaDB each DDL statement commits by itself. A migration interrupted there is run again: the
/// statements are made idempotent, and the backfill is one transaction with the row in
/// `schema_migrations`.
pub(crate) fn migrate(
    session: &mut dyn DatabaseSession,
    source: &Arc<dyn KeySource>,
    now: i64,
) -> Result<SchemaUpgrade, StoreOpenError> {
    let dialect = session.dialect();
    reject_foreign_tables(session)?;
    create_migrations_table(session, MIGRATIONS_TABLE).map_err(StoreOpenError::Prepare)?;
    let done = applied_version(session).map_err(StoreOpenError::Prepare)?;
    let known = newest_schema();
    reject_newer_schema(done)?;
    if done > known {
        tracing::warn!(schema = done, known, "a later version has migrated the database");
    }
    reject_version_skew(session, done, now)?;
    for migration in MIGRATIONS.iter().filter(|migration| migration.number > done) {
        let failed = |source| StoreOpenError::Migrate {
            number: migration.number,
            name: migration.name,
            source,
        };
        for statement in migration.statements {
            session
                .run(&expand_placeholders(&idempotent(statement, dialect), dialect))
                .map_err(failed)?;
        }
        let keys = match migration.backfill {
            Some(Backfill::WithKey(_)) => Some(KeyRing::load_or_create(session, source)?),
            Some(Backfill::Plain(_)) | None => None,
        };
        run_backfill(session, migration, keys.as_ref(), now).map_err(failed)?;
        tracing::info!(number = migration.number, name = migration.name, "database migrated");
    }
    Ok(SchemaUpgrade { before: done, after: done.max(known) })
}

/// The schema of this version.
pub(crate) fn newest_schema() -> i64 {
    MIGRATIONS.last().map_or(0, |last| last.number)
}

/// Fails if a version that is more than one release newer has migrated the database.
fn reject_newer_schema(schema: i64) -> Result<(), StoreOpenError> {
    if schema / MIGRATIONS_PER_RELEASE > RELEASE + 1 {
        return Err(StoreOpenError::NewerSchema { found: schema, known: newest_schema() });
    }
    Ok(())
}

/// The first schema with a version for each process.
const FIRST_WITH_VERSIONS: i64 = 18;
/// A process that has not renewed its registration for longer is not running.
const RUNNING_TIMEOUT_MICROS: i64 = 60_000_000;

/// Fails if a process is running whose version is not the same, the previous or the next release: it might not
/// read what this version writes. Does nothing on SQLite, which only one process uses.
fn reject_version_skew(
    session: &mut dyn DatabaseSession,
    schema: i64,
    now: i64,
) -> Result<(), StoreOpenError> {
    if session.dialect() == Dialect::Sqlite || schema < FIRST_WITH_VERSIONS {
        return Ok(());
    }
    let since = SqlParam::Int(now.saturating_sub(RUNNING_TIMEOUT_MICROS));
    let sql = "SELECT hostname, version FROM conductors
               WHERE online = ? AND updated_at > ? AND version IS NOT NULL";
    let mut running: Vec<(String, String)> = Vec::new();
    session
        .query(sql, &[true.bind(), since], &mut |row| {
            let hostname = decode_field(row, 0, "conductors", "hostname")?;
            running.push((hostname, decode_field(row, 1, "conductors", "version")?));
            Ok(())
        })
        .map_err(StoreOpenError::Prepare)?;
    let other = running.into_iter().find(|(_, version)| !are_compatible(OWN_VERSION, version));
    match other {
        Some((hostname, version)) => {
            Err(StoreOpenError::VersionSkew { hostname, version, own: OWN_VERSION })
        }
        None => Ok(()),
    }
}

const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Whether processes of two versions can share a database: the same major version, and minor versions that differ
/// by one at most. A version that is not two numbers is not compatible with any.
fn are_compatible(one: &str, other: &str) -> bool {
    match (minor_version(one), minor_version(other)) {
        (Some((major, minor)), Some((other_major, other_minor))) => {
            major == other_major && minor.abs_diff(other_minor) <= 1
        }
        _ => false,
    }
}

fn minor_version(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Creates the tables of the migrations up to `number` in an empty database, without recording them.
pub(crate) fn create_tables(
    session: &mut dyn DatabaseSession,
    number: i64,
) -> Result<(), StoreError> {
    let dialect = session.dialect();
    for migration in MIGRATIONS.iter().filter(|migration| migration.number <= number) {
        for statement in migration.statements {
            session.run(&expand_placeholders(statement, dialect))?;
        }
    }
    Ok(())
}

/// Records the migrations up to `number` as applied, at once: the database is usable afterwards and not
/// before.
pub(crate) fn record_migrations(
    session: &mut dyn DatabaseSession,
    number: i64,
    now: i64,
) -> Result<(), StoreError> {
    // On MariaDB creating a table commits, and renaming it is atomic.
    let table = match session.dialect() {
        Dialect::MariaDb => "restored_migrations",
        Dialect::Sqlite | Dialect::Postgres => MIGRATIONS_TABLE,
    };
    create_migrations_table(session, table)?;
    for migration in MIGRATIONS.iter().filter(|migration| migration.number <= number) {
        record_migration(session, table, migration, now)?;
    }
    if table != MIGRATIONS_TABLE {
        session.run(&format!("ALTER TABLE {table} RENAME TO {MIGRATIONS_TABLE}"))?;
    }
    Ok(())
}

fn create_migrations_table(
    session: &mut dyn DatabaseSession,
    name: &str,
) -> Result<(), StoreError> {
    let statement = format!(
        "CREATE TABLE IF NOT EXISTS {name} (
            number {{int}} PRIMARY KEY, name {{key}} NOT NULL, applied_at {{int}} NOT NULL) {{table}}"
    );
    let statement = expand_placeholders(&statement, session.dialect());
    session.run(&statement)
}

fn record_migration(
    session: &mut dyn DatabaseSession,
    table: &str,
    migration: &Migration,
    now: i64,
) -> Result<(), StoreError> {
    let sql = format!("INSERT INTO {table} (number, name, applied_at) VALUES (?, ?, ?)");
    let number = SqlParam::Int(migration.number);
    session.execute(&sql, &[number, SqlParam::Text(migration.name), SqlParam::Int(now)]).map(drop)
}

/// Runs the backfill of a migration and records the migration as applied, in one transaction.
fn run_backfill(
    session: &mut dyn DatabaseSession,
    migration: &Migration,
    keys: Option<&KeyRing>,
    now: i64,
) -> Result<(), StoreError> {
    let (begin, commit) = match session.dialect() {
        Dialect::MariaDb => (Some("START TRANSACTION"), Some("COMMIT")),
        // The whole migration is one transaction.
        Dialect::Sqlite | Dialect::Postgres => (None, None),
    };
    begin.map_or(Ok(()), |begin| session.run(begin))?;
    match (migration.backfill, keys) {
        (Some(Backfill::Plain(fill)), _) => fill(session)?,
        (Some(Backfill::WithKey(fill)), Some(keys)) => fill(session, keys)?,
        (Some(Backfill::WithKey(_)), None) | (None, _) => {}
    }
    record_migration(session, MIGRATIONS_TABLE, migration, now)?;
    commit.map_or(Ok(()), |commit| session.run(commit))
}

/// Rejects a database that contains another program's tables. Only needed on MariaDB, where
/// `IF NOT EXISTS` would hide the conflict; the other engines fail on `CREATE TABLE` and roll back.
fn reject_foreign_tables(session: &mut dyn DatabaseSession) -> Result<(), StoreOpenError> {
    match session.dialect() {
        Dialect::Sqlite | Dialect::Postgres => return Ok(()),
        Dialect::MariaDb => {}
    }
    let tables = table_names(session).map_err(StoreOpenError::Prepare)?;
    if tables.iter().any(|table| table == MIGRATIONS_TABLE) {
        return Ok(());
    }
    let is_created = |table: &str| {
        let mut statements = MIGRATIONS.iter().flat_map(|migration| migration.statements);
        statements.any(|statement| statement.starts_with(&format!("CREATE TABLE {table} ")))
    };
    match tables.into_iter().find(|table| is_created(table)) {
        Some(table) => Err(StoreOpenError::ForeignTable { table }),
        None => Ok(()),
    }
}

/// The names of all tables of the database.
pub(crate) fn table_names(session: &mut dyn DatabaseSession) -> Result<Vec<String>, StoreError> {
    let sql = match session.dialect() {
        Dialect::Sqlite => "SELECT name FROM sqlite_master WHERE type = 'table'",
        Dialect::Postgres => {
            "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema()"
        }
        Dialect::MariaDb => {
            "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
        }
    };
    let mut tables = Vec::new();
    session.query(sql, &[], &mut |row| {
        tables.push(decode_field(row, 0, "tables", "table_name")?);
        Ok(())
    })?;
    Ok(tables)
}

/// A statement that does nothing if it has been executed before. Only needed on MariaDB.
fn idempotent(statement: &str, dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite | Dialect::Postgres => return statement.to_owned(),
        Dialect::MariaDb => {}
    }
    for create in ["CREATE TABLE", "CREATE UNIQUE INDEX", "CREATE INDEX"] {
        if let Some(rest) = statement.strip_prefix(create) {
            return format!("{create} IF NOT EXISTS{rest}");
        }
    }
    if let Some(rest) = statement.strip_prefix("DROP INDEX") {
        return format!("DROP INDEX IF EXISTS{rest}");
    }
    if statement.contains(" RENAME TO ") {
        return statement.replacen("ALTER TABLE ", "ALTER TABLE IF EXISTS ", 1);
    }
    statement
        .replace(" ADD COLUMN ", " ADD COLUMN IF NOT EXISTS ")
        .replace(" RENAME COLUMN ", " RENAME COLUMN IF EXISTS ")
}

/// The highest number of an applied migration.
pub(crate) fn applied_version(session: &mut dyn DatabaseSession) -> Result<i64, StoreError> {
    let mut number = 0;
    session.query(
        "SELECT number FROM schema_migrations ORDER BY number DESC LIMIT 1",
        &[],
        &mut |row| {
            number = row.value(0).and_then(crate::value::SqlValue::int).map_err(|_| {
                StoreError::Corrupt { table: "schema_migrations", column: "number" }
            })?;
            Ok(())
        },
    )?;
    Ok(number)
}

/// Replaces the `{placeholders}` of a statement by the engine's SQL.
fn expand_placeholders(statement: &str, dialect: Dialect) -> String {
    // Text compares and sorts bytewise on all engines, so that names are case-sensitive and page
    // markers are portable. MariaDB needs a length to index text.
    let table: [(&str, &str); 9] = match dialect {
        Dialect::Sqlite => [
            // Row ids of deleted resources may be reused; those of the journal must not.
            ("{id}", "INTEGER PRIMARY KEY"),
            ("{seq}", "INTEGER PRIMARY KEY AUTOINCREMENT"),
            ("{uuid}", "TEXT"),
            ("{key}", "TEXT"),
            ("{text}", "TEXT"),
            ("{json}", "TEXT"),
            ("{blob}", "BLOB"),
            ("{bool}", "SMALLINT"),
            ("{table}", ""),
        ],
        Dialect::Postgres => [
            ("{id}", "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"),
            ("{seq}", "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"),
            ("{uuid}", "TEXT COLLATE \"C\""),
            ("{key}", "TEXT COLLATE \"C\""),
            ("{text}", "TEXT COLLATE \"C\""),
            ("{json}", "TEXT COLLATE \"C\""),
            ("{blob}", "BYTEA"),
            ("{bool}", "SMALLINT"),
            ("{table}", ""),
        ],
        Dialect::MariaDb => [
            ("{id}", "BIGINT AUTO_INCREMENT PRIMARY KEY"),
            ("{seq}", "BIGINT AUTO_INCREMENT PRIMARY KEY"),
            ("{uuid}", "CHAR(36)"),
            ("{key}", "VARCHAR(255)"),
            ("{text}", "LONGTEXT"),
            ("{json}", "LONGTEXT"),
            ("{blob}", "LONGBLOB"),
            ("{bool}", "SMALLINT"),
            // Binary collation without padding; otherwise 'a' equals 'a '.
            ("{table}", "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin"),
        ],
    };
    let mut text = statement.replace("{int}", "BIGINT");
    for (word, meaning) in table {
        text = text.replace(word, meaning);
    }
    if let Some((before, column)) = text.split_once("{where ") {
        let column = column.trim_end_matches('}');
        text = match dialect {
            Dialect::Sqlite | Dialect::Postgres => format!("{before}WHERE {column} IS NOT NULL"),
            Dialect::MariaDb => before.to_owned(),
        };
    }
    // MariaDB's index names are per table, so DROP INDEX needs the table.
    if let Some((before, table)) = text.split_once("{on ") {
        let table = table.trim_end_matches('}');
        text = match dialect {
            Dialect::Sqlite | Dialect::Postgres => before.to_owned(),
            Dialect::MariaDb => format!("{before}ON {table}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_is_idempotent_on_mariadb() {
        for statement in MIGRATIONS.iter().flat_map(|migration| migration.statements) {
            let repeatable = idempotent(statement, Dialect::MariaDb);
            let conditions = [" IF NOT EXISTS ", " IF EXISTS "];
            let count: usize = conditions.iter().map(|it| repeatable.matches(it).count()).sum();
            assert_eq!(count, 1, "{repeatable}");
            let plain = repeatable.replace(" IF NOT EXISTS", "").replace(" IF EXISTS", "");
            assert_eq!(plain, *statement);
        }
    }

    /// Processes of the previous version run until a rolling upgrade is finished, so they must work with
    /// the tables of the next one.
    #[test]
    fn migrations_only_add() {
        const LAST_WITH_RENAMES: i64 = 8;
        let released = |migration: &&Migration| migration.number > LAST_WITH_RENAMES;
        for migration in MIGRATIONS.iter().filter(released) {
            for statement in migration.statements {
                let adds = ["CREATE TABLE ", "CREATE INDEX ", "CREATE UNIQUE INDEX "]
                    .iter()
                    .any(|start| statement.starts_with(start))
                    || statement.starts_with("ALTER TABLE ") && statement.contains(" ADD COLUMN ");
                assert!(adds, "migration {}: {statement}", migration.number);
                // Rows that the previous version inserts have no value for a new column.
                let is_column = statement.contains(" ADD COLUMN ");
                let needs_value = statement.contains("NOT NULL") && !statement.contains("DEFAULT");
                assert!(!(is_column && needs_value), "migration {}: {statement}", migration.number);
            }
        }
    }

    #[test]
    fn the_release_belongs_to_the_version() {
        let (major, minor) = minor_version(OWN_VERSION).unwrap();
        let release = u64::try_from(RELEASE).unwrap();
        assert_eq!((major, minor), (0, release + 1), "RELEASE is incremented with the version");
        assert!(newest_schema() < (RELEASE + 1) * MIGRATIONS_PER_RELEASE);
    }

    #[test]
    fn versions_that_differ_by_one_release_share_a_database() {
        for (one, other, expected) in [
            ("0.1.0", "0.1.9", true),
            ("0.1.0", "0.2.0", true),
            ("0.2.0-rc1", "0.1.0", true),
            ("0.1.0", "0.3.0", false),
            ("0.1.0", "1.1.0", false),
            ("0.1.0", "", false),
            ("0.1.0", "newest", false),
        ] {
            assert_eq!(are_compatible(one, other), expected, "{one} {other}");
            assert_eq!(are_compatible(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn no_placeholder_is_left() {
        for dialect in [Dialect::Sqlite, Dialect::Postgres, Dialect::MariaDb] {
            for statement in MIGRATIONS.iter().flat_map(|migration| migration.statements) {
                let sql = expand_placeholders(statement, dialect);
                assert!(!sql.contains(['{', '}']), "{sql}");
            }
        }
    }
}
