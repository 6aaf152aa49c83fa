// SPDX-License-Identifier: Apache-2.0
//! Brings a database to the schema this program knows.

use std::path::Path;

use crate::engine::{Dialect, Session};
use crate::error::{Error, OpenError};
use crate::reader::field;
use crate::schema::{Fill, MIGRATIONS, Migration};
use crate::value::Param;
use crate::vault::Vault;

/// Runs the migrations the database has not seen. The caller holds whatever lock keeps other
/// processes from doing the same, and commits.
///
/// On MariaDB every change of the schema is committed by itself. There, what a process left that was
/// killed in the middle is gone on with: statements leave alone what is there already, and what fills
/// the tables is one transaction with the note that it is done.
pub(crate) fn migrate(
    session: &mut dyn Session,
    data_dir: &Path,
    now: i64,
) -> Result<(), OpenError> {
    let dialect = session.dialect();
    refuse_tables_of_others(session)?;
    let table = words(
        "CREATE TABLE IF NOT EXISTS schema_migrations (
            number {int} PRIMARY KEY, name {key} NOT NULL, applied_at {int} NOT NULL) {table}",
        dialect,
    );
    session.run(&table).map_err(OpenError::Prepare)?;
    let done = highest(session).map_err(OpenError::Prepare)?;
    let known = MIGRATIONS.last().map_or(0, |last| last.number);
    if done > known {
        return Err(OpenError::Newer { found: done, known });
    }
    for migration in MIGRATIONS.iter().filter(|migration| migration.number > done) {
        let failed =
            |source| OpenError::Migrate { number: migration.number, name: migration.name, source };
        for statement in migration.statements {
            session.run(&words(&repeatable(statement, dialect), dialect)).map_err(failed)?;
        }
        let vault = match migration.fill {
            Some(Fill::Sealing(_)) => Some(Vault::open(session, data_dir)?),
            Some(Fill::Plain(_)) | None => None,
        };
        fill(session, migration, vault.as_ref(), now).map_err(failed)?;
        tracing::info!(number = migration.number, name = migration.name, "database migrated");
    }
    Ok(())
}

/// Fills what a migration's statements made, and notes that it is done, both or neither.
fn fill(
    session: &mut dyn Session,
    migration: &Migration,
    vault: Option<&Vault>,
    now: i64,
) -> Result<(), Error> {
    let (begin, commit) = match session.dialect() {
        Dialect::MariaDb => (Some("START TRANSACTION"), Some("COMMIT")),
        // Everything is one transaction there.
        Dialect::Sqlite | Dialect::Postgres => (None, None),
    };
    begin.map_or(Ok(()), |begin| session.run(begin))?;
    match (migration.fill, vault) {
        (Some(Fill::Plain(fill)), _) => fill(session)?,
        (Some(Fill::Sealing(fill)), Some(vault)) => fill(session, vault)?,
        (Some(Fill::Sealing(_)), None) | (None, _) => {}
    }
    session.execute(
        "INSERT INTO schema_migrations (number, name, applied_at) VALUES (?, ?, ?)",
        &[Param::Int(migration.number), Param::Text(migration.name), Param::Int(now)],
    )?;
    commit.map_or(Ok(()), |commit| session.run(commit))
}

/// Where statements leave alone what is there already, that must not be another program's. The other
/// engines say themselves that a table is there, and undo what came before.
fn refuse_tables_of_others(session: &mut dyn Session) -> Result<(), OpenError> {
    match session.dialect() {
        Dialect::Sqlite | Dialect::Postgres => return Ok(()),
        Dialect::MariaDb => {}
    }
    let mut tables: Vec<String> = Vec::new();
    session
        .query(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()",
            &[],
            &mut |row| {
                tables.push(field(row, 0, "tables", "table_name")?);
                Ok(())
            },
        )
        .map_err(OpenError::Prepare)?;
    if tables.iter().any(|table| table == "schema_migrations") {
        return Ok(());
    }
    let made = |table: &str| {
        let mut statements = MIGRATIONS.iter().flat_map(|migration| migration.statements);
        statements.any(|statement| statement.starts_with(&format!("CREATE TABLE {table} ")))
    };
    match tables.into_iter().find(|table| made(table)) {
        Some(table) => Err(OpenError::Taken { table }),
        None => Ok(()),
    }
}

/// A statement that does nothing where it was done before, on the engine where that happens.
fn repeatable(statement: &str, dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite | Dialect::Postgres => return statement.to_owned(),
        Dialect::MariaDb => {}
    }
    for made in ["CREATE TABLE", "CREATE UNIQUE INDEX", "CREATE INDEX"] {
        if let Some(rest) = statement.strip_prefix(made) {
            return format!("{made} IF NOT EXISTS{rest}");
        }
    }
    statement.replace(" ADD COLUMN ", " ADD COLUMN IF NOT EXISTS ")
}

fn highest(session: &mut dyn Session) -> Result<i64, Error> {
    let mut number = 0;
    session.query(
        "SELECT number FROM schema_migrations ORDER BY number DESC LIMIT 1",
        &[],
        &mut |row| {
            number = row
                .value(0)
                .and_then(crate::value::Value::int)
                .map_err(|_| Error::Corrupt { table: "schema_migrations", column: "number" })?;
            Ok(())
        },
    )?;
    Ok(number)
}

/// Replaces the `{words}` of a statement by what the engine calls them.
fn words(statement: &str, dialect: Dialect) -> String {
    // Text compares and sorts by its bytes everywhere: names are case-sensitive, and a page's
    // marker means the same on every engine. MariaDB needs a length to index a text.
    let table: [(&str, &str); 9] = match dialect {
        Dialect::Sqlite => [
            // Rows of deleted resources may be numbered anew; the journal's may not.
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
            // The binary collation without padding, or 'a' would equal 'a '.
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
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_can_be_repeated_on_mariadb() {
        for statement in MIGRATIONS.iter().flat_map(|migration| migration.statements) {
            let repeated = repeatable(statement, Dialect::MariaDb);
            assert_eq!(repeated.matches(" IF NOT EXISTS ").count(), 1, "{repeated}");
            assert_eq!(repeated.replace(" IF NOT EXISTS", ""), *statement);
        }
    }
}
