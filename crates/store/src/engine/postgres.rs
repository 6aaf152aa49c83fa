// SPDX-License-Identifier: Apache-2.0
//! PostgreSQL sessions over the blocking client.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::sync::Arc;

use postgres::config::{Host, SslMode, TargetSessionAttrs};
use postgres::error::SqlState;
use postgres::fallible_iterator::FallibleIterator as _;
use postgres::types::private::BytesMut;
use postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use postgres::{Client, Config, NoTls, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::tls::{DatabaseTls, TlsRequirement};
use super::workers::{DatabaseServer, RecoveryAction, ServerSession};
use super::{
    CONNECT_TIMEOUT, DatabaseRow, DatabaseSession, Dialect, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES,
    duplicate_error, host_and_port,
};
use crate::error::{ErrorSource, StoreError, StoreOpenError};
use crate::value::{CorruptValue, SqlParam, SqlValue};

/// Advisory lock id held during migrations. An arbitrary number.
const MIGRATION_LOCK: i64 = 0x0FE2_217E;

/// Prepared statements cached per connection. Besides lists, there are about a hundred.
const MAX_PREPARED: usize = 256;

/// PostgreSQL's default port.
const DEFAULT_PORT: u16 = 5432;

/// A connection to PostgreSQL.
pub(crate) struct PostgresSession {
    client: Client,
    prepared: HashMap<String, Statement>,
    recovery: RecoveryAction,
    /// A statement of the transaction has failed. PostgreSQL then turns COMMIT into a silent
    /// rollback, so the commit must be refused here.
    aborted: bool,
}

impl PostgresSession {
    /// Connects to the first server that accepts writes.
    pub(crate) fn connect(server: &DatabaseServer) -> Result<Self, StoreOpenError> {
        let (url, tls) =
            DatabaseTls::from_url(&server.url).map_err(|why| StoreOpenError::Address { why })?;
        let mut config: Config = url.parse().map_err(|error: postgres::Error| {
            StoreOpenError::Address { why: error_text(&error) }
        })?;
        config.ssl_mode(match tls.requirement {
            TlsRequirement::Disable => SslMode::Disable,
            TlsRequirement::Prefer => SslMode::Prefer,
            TlsRequirement::Require | TlsRequirement::VerifyCa | TlsRequirement::VerifyFull => {
                SslMode::Require
            }
        });
        let tls = tls.client_config().map_err(|why| StoreOpenError::Certificates { why })?;
        let connect = || {
            let mut config = config.clone();
            config
                .application_name("ferrite")
                .connect_timeout(CONNECT_TIMEOUT)
                .target_session_attrs(TargetSessionAttrs::ReadWrite)
                .keepalives_idle(KEEPALIVE_INTERVAL)
                .keepalives_interval(KEEPALIVE_INTERVAL)
                .keepalives_retries(KEEPALIVE_PROBES)
                .tcp_user_timeout(KEEPALIVE_INTERVAL * (KEEPALIVE_PROBES + 1));
            let mut client = match tls {
                None => config.connect(NoTls)?,
                Some(tls) => config.connect(MakeRustlsConnect::new(tls))?,
            };
            client.batch_execute(&format!(
                "SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '10s'; \
                 SET statement_timeout = {}",
                server.statement_timeout.as_millis()
            ))?;
            Ok(client)
        };
        let client = connect().map_err(|error: postgres::Error| StoreOpenError::Connect {
            what: format!(
                "{} on {}",
                config.get_dbname().unwrap_or("(no name)"),
                server_addresses(&config)
            ),
            source: error_source(error),
        })?;
        Ok(Self {
            client,
            prepared: HashMap::new(),
            recovery: RecoveryAction::None,
            aborted: false,
        })
    }

    /// Runs `prepare` in a transaction that holds the migration lock.
    pub(crate) fn with_migration_lock<T>(
        mut self,
        prepare: impl FnOnce(&mut dyn DatabaseSession) -> Result<T, StoreOpenError>,
    ) -> Result<T, StoreOpenError> {
        self.begin().map_err(StoreOpenError::Prepare)?;
        self.run(&format!(
            "SET LOCAL lock_timeout = '120s'; SET LOCAL statement_timeout = 0; \
             SET LOCAL idle_in_transaction_session_timeout = 0; \
             SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"
        ))
        .map_err(StoreOpenError::Prepare)?;
        let prepared = prepare(&mut self)?;
        self.commit().map_err(StoreOpenError::Prepare)?;
        Ok(prepared)
    }

    fn statement(&mut self, sql: &str) -> Result<Statement, StoreError> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = match self.client.prepare(&numbered_placeholders(sql)) {
            Ok(statement) => statement,
            Err(error) => return Err(self.classify(error)),
        };
        if self.prepared.len() >= MAX_PREPARED {
            self.prepared.clear();
        }
        self.prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    fn classify(&mut self, error: postgres::Error) -> StoreError {
        self.aborted = true;
        let Some(db) = error.as_db_error() else {
            self.recovery = RecoveryAction::Reconnect;
            return StoreError::Unavailable(error_source(error));
        };
        let code = db.code();
        if *code == SqlState::UNIQUE_VIOLATION {
            duplicate_error(db.constraint().unwrap_or_default())
        } else if *code == SqlState::FOREIGN_KEY_VIOLATION {
            StoreError::Reference
        } else if *code == SqlState::CHARACTER_NOT_IN_REPERTOIRE {
            StoreError::ValueRejected(error_source(error))
        } else if [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::LOCK_NOT_AVAILABLE,
        ]
        .contains(code)
        {
            self.recovery = RecoveryAction::Retry;
            StoreError::Contended(error_source(error))
        } else {
            // A server that was demoted or is shutting down.
            let has_left = [
                SqlState::READ_ONLY_SQL_TRANSACTION,
                SqlState::ADMIN_SHUTDOWN,
                SqlState::CRASH_SHUTDOWN,
                SqlState::CANNOT_CONNECT_NOW,
            ]
            .contains(code);
            if has_left || self.client.is_closed() {
                self.recovery = RecoveryAction::Reconnect;
            }
            StoreError::Unavailable(error_source(error))
        }
    }
}

impl ServerSession for PostgresSession {
    fn begin(&mut self) -> Result<(), StoreError> {
        self.aborted = false;
        self.run("BEGIN")
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        if self.aborted {
            self.rollback()?;
            let cause: ErrorSource = Arc::from(Box::<dyn StdError + Send + Sync>::from(
                "a statement of the transaction failed, but the closure returned success",
            ));
            return Err(StoreError::Unavailable(cause));
        }
        self.run("COMMIT")
    }

    fn rollback(&mut self) -> Result<(), StoreError> {
        self.run("ROLLBACK")
    }

    fn take_recovery_action(&mut self) -> RecoveryAction {
        std::mem::take(&mut self.recovery)
    }
}

impl DatabaseSession for PostgresSession {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn query(
        &mut self,
        sql: &str,
        params: &[SqlParam<'_>],
        each: &mut dyn FnMut(&dyn DatabaseRow) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
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
            Ok(Err(error)) | Err(error) => Err(self.classify(error)),
        }
    }

    fn execute(&mut self, sql: &str, params: &[SqlParam<'_>]) -> Result<u64, StoreError> {
        let statement = self.statement(sql)?;
        let params: Vec<_> = params.iter().map(|param| param as &(dyn ToSql + Sync)).collect();
        let done = self.client.execute(&statement, &params);
        done.map_err(|error| self.classify(error))
    }

    fn run(&mut self, sql: &str) -> Result<(), StoreError> {
        let done = self.client.batch_execute(sql);
        done.map_err(|error| self.classify(error))
    }
}

/// The configured server addresses, for messages.
fn server_addresses(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |index: usize| *ports.get(index).or(ports.first()).unwrap_or(&DEFAULT_PORT);
    let hosts = config.get_hosts().iter().enumerate().map(|(index, host)| match host {
        Host::Tcp(name) => host_and_port(name, port(index)),
        Host::Unix(folder) => format!("{} (port {})", folder.display(), port(index)),
    });
    hosts.collect::<Vec<_>>().join(", ")
}

/// Converts a client error to its message.
fn error_source(error: postgres::Error) -> ErrorSource {
    Arc::from(Box::<dyn StdError + Send + Sync>::from(error_text(&error)))
}

/// The server's message with SQLSTATE and hint, or the client's error with its source chain.
fn error_text(error: &postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        let hint = db.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
        return format!("{} (SQLSTATE {}){hint}", db.message(), db.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// Replaces each `?` by `$1`, `$2`, …
fn numbered_placeholders(sql: &str) -> String {
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

/// A value in the server's binary format.
struct RawSqlValue<'a>(SqlValue<'a>);

impl<'a> FromSql<'a> for RawSqlValue<'a> {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(if *ty == Type::INT8 {
            SqlValue::Int(i64::from_sql(ty, raw)?)
        } else if *ty == Type::INT2 {
            SqlValue::Int(i64::from(i16::from_sql(ty, raw)?))
        } else if *ty == Type::INT4 {
            SqlValue::Int(i64::from(i32::from_sql(ty, raw)?))
        } else {
            SqlValue::Bytes(raw)
        }))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(SqlValue::Null))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl DatabaseRow for postgres::Row {
    fn value(&self, column: usize) -> Result<SqlValue<'_>, CorruptValue> {
        self.try_get::<_, RawSqlValue<'_>>(column).map(|raw| raw.0).map_err(|_| CorruptValue)
    }
}

impl ToSql for SqlParam<'_> {
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
