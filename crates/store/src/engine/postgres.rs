// SPDX-License-Identifier: Apache-2.0
//! PostgreSQL over its blocking client.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use postgres::config::Host;
use postgres::error::SqlState;
use postgres::fallible_iterator::FallibleIterator as _;
use postgres::types::private::BytesMut;
use postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use postgres::{Client, Config, NoTls, Statement};

use super::workers::{ServerSession, Trouble};
use super::{Dialect, Row, Session, duplicate, place};
use crate::error::{Cause, Error, OpenError};
use crate::value::{Damaged, Param, Value};

/// Held while a process brings the schema up to date. Any number that nobody else uses.
const MIGRATION_LOCK: i64 = 0x0FE2_217E;

/// Prepared statements kept per connection. Lists are of many shapes; the rest is about a hundred.
const MOST_PREPARED: usize = 256;

/// Where PostgreSQL listens if nothing is said.
const USUAL_PORT: u16 = 5432;

/// A connection.
pub(crate) struct PostgresSession {
    client: Client,
    prepared: HashMap<String, Statement>,
    trouble: Trouble,
    /// A statement of the transaction has failed. PostgreSQL answers a COMMIT with a silent
    /// rollback then, so the commit must not be believed.
    aborted: bool,
}

impl PostgresSession {
    /// Connects.
    pub(crate) fn connect(url: &str) -> Result<Self, OpenError> {
        let config: Config = url
            .parse()
            .map_err(|error: postgres::Error| OpenError::Address { why: words(&error) })?;
        let connect = || {
            let mut config = config.clone();
            config.application_name("ferrite").connect_timeout(Duration::from_secs(10));
            let mut client = config.connect(NoTls)?;
            client.batch_execute(
                "SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '60s'",
            )?;
            Ok(client)
        };
        let client = connect().map_err(|error: postgres::Error| OpenError::Connect {
            what: format!("{} on {}", config.get_dbname().unwrap_or("(no name)"), places(&config)),
            source: said(error),
        })?;
        Ok(Self { client, prepared: HashMap::new(), trouble: Trouble::None, aborted: false })
    }

    /// Runs `prepare` in a transaction that no other process runs at the same time.
    pub(crate) fn alone<T>(
        mut self,
        prepare: impl FnOnce(&mut dyn Session) -> Result<T, OpenError>,
    ) -> Result<T, OpenError> {
        self.begin().map_err(OpenError::Prepare)?;
        self.run(&format!(
            "SET LOCAL lock_timeout = '120s'; SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"
        ))
        .map_err(OpenError::Prepare)?;
        let prepared = prepare(&mut self)?;
        self.commit().map_err(OpenError::Prepare)?;
        Ok(prepared)
    }

    fn statement(&mut self, sql: &str) -> Result<Statement, Error> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = match self.client.prepare(&numbered(sql)) {
            Ok(statement) => statement,
            Err(error) => return Err(self.failed(error)),
        };
        if self.prepared.len() >= MOST_PREPARED {
            self.prepared.clear();
        }
        self.prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    fn failed(&mut self, error: postgres::Error) -> Error {
        self.aborted = true;
        let Some(db) = error.as_db_error() else {
            self.trouble = Trouble::Lost;
            return Error::Unavailable(said(error));
        };
        let code = db.code();
        if *code == SqlState::UNIQUE_VIOLATION {
            duplicate(db.constraint().unwrap_or_default())
        } else if *code == SqlState::FOREIGN_KEY_VIOLATION {
            Error::Reference
        } else if *code == SqlState::CHARACTER_NOT_IN_REPERTOIRE {
            Error::Unfit(said(error))
        } else if [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::LOCK_NOT_AVAILABLE,
        ]
        .contains(code)
        {
            self.trouble = Trouble::Again;
            Error::Contended(said(error))
        } else {
            if self.client.is_closed() {
                self.trouble = Trouble::Lost;
            }
            Error::Unavailable(said(error))
        }
    }
}

impl ServerSession for PostgresSession {
    fn begin(&mut self) -> Result<(), Error> {
        self.aborted = false;
        self.run("BEGIN")
    }

    fn commit(&mut self) -> Result<(), Error> {
        if self.aborted {
            self.rollback()?;
            let cause: Cause = Arc::from(Box::<dyn StdError + Send + Sync>::from(
                "a statement of the transaction failed and the failure was ignored",
            ));
            return Err(Error::Unavailable(cause));
        }
        self.run("COMMIT")
    }

    fn rollback(&mut self) -> Result<(), Error> {
        self.run("ROLLBACK")
    }

    fn take_trouble(&mut self) -> Trouble {
        std::mem::take(&mut self.trouble)
    }
}

impl Session for PostgresSession {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn query(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let statement = self.statement(sql)?;
        let streamed = {
            let params = params.iter().map(|param| param as &(dyn ToSql + Sync));
            self.client.query_raw(&statement, params).map(|mut rows| {
                loop {
                    match rows.next() {
                        Ok(None) => break Ok(Ok(())),
                        Err(error) => break Err(error),
                        Ok(Some(row)) => {
                            if let Err(error) = each(&row) {
                                break Ok(Err(error));
                            }
                        }
                    }
                }
            })
        };
        match streamed {
            Ok(Ok(result)) => result,
            Ok(Err(error)) | Err(error) => Err(self.failed(error)),
        }
    }

    fn execute(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64, Error> {
        let statement = self.statement(sql)?;
        let params: Vec<_> = params.iter().map(|param| param as &(dyn ToSql + Sync)).collect();
        let done = self.client.execute(&statement, &params);
        done.map_err(|error| self.failed(error))
    }

    fn run(&mut self, sql: &str) -> Result<(), Error> {
        let done = self.client.batch_execute(sql);
        done.map_err(|error| self.failed(error))
    }
}

/// Where the servers are.
fn places(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |index: usize| *ports.get(index).or(ports.first()).unwrap_or(&USUAL_PORT);
    let hosts = config.get_hosts().iter().enumerate().map(|(index, host)| match host {
        Host::Tcp(name) => place(name, port(index)),
        Host::Unix(folder) => format!("{} (port {})", folder.display(), port(index)),
    });
    hosts.collect::<Vec<_>>().join(", ")
}

/// The error as its words.
fn said(error: postgres::Error) -> Cause {
    Arc::from(Box::<dyn StdError + Send + Sync>::from(words(&error)))
}

/// What the server said, if it is the server's; or what went wrong on the way to it, with its
/// causes.
fn words(error: &postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        let hint = db.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
        return format!("{} (SQLSTATE {}){hint}", db.message(), db.code().code());
    }
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        words = format!("{words}: {inner}");
        cause = inner.source();
    }
    words
}

/// `?` as `$1`, `$2`, …
fn numbered(sql: &str) -> String {
    let mut text = String::with_capacity(sql.len() + 64);
    let mut parts = sql.split('?');
    text.push_str(parts.next().unwrap_or_default());
    for (index, part) in parts.enumerate() {
        text.push('$');
        text.push_str(&(index + 1).to_string());
        text.push_str(part);
    }
    text
}

/// A value as the server sent it.
struct Raw<'a>(Value<'a>);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(if *ty == Type::INT8 {
            Value::Int(i64::from_sql(ty, raw)?)
        } else if *ty == Type::INT2 {
            Value::Int(i64::from(i16::from_sql(ty, raw)?))
        } else if *ty == Type::INT4 {
            Value::Int(i64::from(i32::from_sql(ty, raw)?))
        } else {
            Value::Bytes(raw)
        }))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(Value::Null))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl Row for postgres::Row {
    fn value(&self, column: usize) -> Result<Value<'_>, Damaged> {
        self.try_get::<_, Raw<'_>>(column).map(|raw| raw.0).map_err(|_| Damaged)
    }
}

impl ToSql for Param<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(number) if *ty == Type::INT2 => i16::try_from(*number)?.to_sql(ty, out),
            Self::Int(number) if *ty == Type::INT4 => i32::try_from(*number)?.to_sql(ty, out),
            Self::Int(number) => number.to_sql(ty, out),
            Self::Blob(bytes) => bytes.to_sql(ty, out),
            Self::Text(_) | Self::Owned(_) | Self::Id(_) => {
                self.as_text().unwrap_or_default().to_sql(ty, out)
            }
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}
