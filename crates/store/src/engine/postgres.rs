// SPDX-License-Identifier: Apache-2.0
//! PostgreSQL sessions. Each has a runtime of its own, on which the thread of the session waits for the
//! async client, so that every wait has a timeout.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Config, NoTls, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::server_urls::{ServerCandidate, connect_to_first, text_source, urls_with_one_host};
use super::tls::{DatabaseTls, TlsRequirement};
use super::workers::{DatabaseServer, RecoveryAction, ServerSession, SessionPurpose};
use super::{
    CONNECT_TIMEOUT, DatabaseRow, DatabaseSession, Dialect, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES,
    duplicate_error, host_and_port, response_timeout,
};
use crate::error::{ErrorSource, StoreError, StoreOpenError};
use crate::value::{CorruptValue, SqlParam, SqlValue};

/// Advisory lock id held during migrations. An arbitrary number.
const MIGRATION_LOCK: i64 = 0x0FE2_217E;

/// Prepared statements cached per connection. Besides lists, there are about a hundred.
const MAX_PREPARED: usize = 256;

/// PostgreSQL's default port.
const DEFAULT_PORT: u16 = 5432;

/// How long a closed session waits until its message has left.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// A connection to PostgreSQL.
pub(crate) struct PostgresSession {
    connection: PostgresConnection,
    prepared: HashMap<String, Statement>,
    recovery: RecoveryAction,
    /// A statement of the transaction has failed. PostgreSQL then turns COMMIT into a silent
    /// rollback, so the commit must be refused here.
    aborted: bool,
    is_commit_unknown: bool,
}

/// The client, and the runtime that it runs on.
struct PostgresConnection {
    /// `None` while it is dropped.
    client: Option<Client>,
    runtime: Option<Runtime>,
    transport: JoinHandle<()>,
    /// `host:port` of the server.
    address: String,
    response_timeout: Option<Duration>,
}

/// Why a call of the client failed.
enum ClientError {
    /// The server did not respond.
    NoResponse(Duration),
    Failed(tokio_postgres::Error),
}

impl PostgresSession {
    /// Connects to the first server that accepts writes.
    pub(crate) fn connect(
        server: &DatabaseServer,
        purpose: SessionPurpose,
    ) -> Result<Self, StoreOpenError> {
        let (url, tls) =
            DatabaseTls::from_url(&server.url).map_err(|why| StoreOpenError::Address { why })?;
        let candidates = urls_with_one_host(&url)?
            .iter()
            .map(|url| candidate(url, &tls))
            .collect::<Result<Vec<_>, _>>()?;
        let tls = tls.client_config().map_err(|why| StoreOpenError::Certificates { why })?;
        let database = candidates.first().and_then(|first| first.options.get_dbname());
        let database = database.unwrap_or("(no name)").to_owned();
        connect_to_first(&database, &candidates, |candidate, time| {
            let connection =
                PostgresConnection::open(candidate, tls.as_ref(), server, purpose, time)?;
            Ok(Self {
                connection,
                prepared: HashMap::new(),
                recovery: RecoveryAction::None,
                aborted: false,
                is_commit_unknown: false,
            })
        })
    }

    /// Runs `prepare` in a transaction that holds the migration lock.
    pub(crate) fn with_migration_lock<T>(
        mut self,
        prepare: impl FnOnce(&mut dyn DatabaseSession) -> Result<T, StoreOpenError>,
    ) -> Result<T, StoreOpenError> {
        self.begin().map_err(StoreOpenError::Prepare)?;
        self.run(&format!(
            "SET LOCAL lock_timeout = '120s'; SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"
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
        let text = numbered_placeholders(sql);
        let prepared = self.connection.call(async |client| client.prepare(&text).await);
        let statement = prepared.map_err(|error| self.classify(error))?;
        if self.prepared.len() >= MAX_PREPARED {
            self.prepared.clear();
        }
        self.prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    fn classify(&mut self, error: ClientError) -> StoreError {
        self.aborted = true;
        let error = match error {
            ClientError::Failed(error) => error,
            ClientError::NoResponse(_) => {
                self.recovery = RecoveryAction::Reconnect;
                return StoreError::Unavailable(error.into_source());
            }
        };
        let Some(db) = error.as_db_error() else {
            self.recovery = RecoveryAction::Reconnect;
            return StoreError::Unavailable(error_source(&error));
        };
        let code = db.code();
        if *code == SqlState::UNIQUE_VIOLATION {
            duplicate_error(db.constraint().unwrap_or_default())
        } else if *code == SqlState::FOREIGN_KEY_VIOLATION {
            StoreError::Reference
        } else if *code == SqlState::CHARACTER_NOT_IN_REPERTOIRE {
            StoreError::ValueRejected(error_source(&error))
        } else if [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::LOCK_NOT_AVAILABLE,
        ]
        .contains(code)
        {
            self.recovery = RecoveryAction::Retry;
            StoreError::Contended(error_source(&error))
        } else {
            // A server that was demoted or is shutting down, or that ends the session.
            let has_left = [
                SqlState::READ_ONLY_SQL_TRANSACTION,
                SqlState::ADMIN_SHUTDOWN,
                SqlState::CRASH_SHUTDOWN,
                SqlState::CANNOT_CONNECT_NOW,
            ]
            .contains(code);
            let ends_session =
                matches!(db.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
            if has_left || ends_session || self.connection.is_closed() {
                self.recovery = RecoveryAction::Reconnect;
            }
            StoreError::Unavailable(error_source(&error))
        }
    }
}

impl ServerSession for PostgresSession {
    fn begin(&mut self) -> Result<(), StoreError> {
        self.aborted = false;
        self.is_commit_unknown = false;
        self.run("BEGIN")
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        if self.aborted {
            self.rollback()?;
            return Err(StoreError::Unavailable(text_source(
                "a statement of the transaction failed, but the closure returned success",
            )));
        }
        // A cancelled COMMIT succeeds although the synchronous standby has not received it, so it is not
        // cancelled.
        let sql = "SET LOCAL statement_timeout = 0; COMMIT";
        let committed = self.connection.call(async |client| client.batch_execute(sql).await);
        committed.map_err(|error| {
            self.is_commit_unknown = error.leaves_commit_unknown();
            self.classify(error)
        })
    }

    fn rollback(&mut self) -> Result<(), StoreError> {
        self.run("ROLLBACK")
    }

    fn take_recovery_action(&mut self) -> RecoveryAction {
        std::mem::take(&mut self.recovery)
    }

    fn is_commit_unknown(&self) -> bool {
        self.is_commit_unknown
    }

    fn address(&self) -> &str {
        &self.connection.address
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
        let params = params.iter().map(|param| param as &(dyn ToSql + Sync));
        let limit = self.connection.response_timeout;
        let streamed = self.connection.wait(async |client| {
            let rows = within(limit, client.query_raw(&statement, params)).await?;
            let mut rows = std::pin::pin!(rows);
            while let Some(row) = within(limit, rows.try_next()).await? {
                if let Err(error) = each(&row) {
                    return Ok(Err(error));
                }
            }
            Ok(Ok(()))
        });
        streamed.unwrap_or_else(|error| Err(self.classify(error)))
    }

    fn execute(&mut self, sql: &str, params: &[SqlParam<'_>]) -> Result<u64, StoreError> {
        let statement = self.statement(sql)?;
        let params: Vec<_> = params.iter().map(|param| param as &(dyn ToSql + Sync)).collect();
        let done = self.connection.call(async |client| client.execute(&statement, &params).await);
        done.map_err(|error| self.classify(error))
    }

    fn run(&mut self, sql: &str) -> Result<(), StoreError> {
        let done = self.connection.call(async |client| client.batch_execute(sql).await);
        done.map_err(|error| self.classify(error))
    }
}

// === impl PostgresConnection ===

impl PostgresConnection {
    fn open(
        candidate: &ServerCandidate<Config>,
        tls: Option<&rustls::ClientConfig>,
        server: &DatabaseServer,
        purpose: SessionPurpose,
        time: Duration,
    ) -> Result<Self, ErrorSource> {
        let statement_timeout = match purpose {
            SessionPurpose::Transactions => server.statement_timeout,
            // Waiting for the lock, key sources and migrations may take long.
            SessionPurpose::Preparation => Duration::ZERO,
        };
        let idle_seconds = match purpose {
            SessionPurpose::Transactions => 10,
            SessionPurpose::Preparation => 0,
        };
        let settings = format!(
            "SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '{idle_seconds}s'; \
             SET statement_timeout = {}",
            statement_timeout.as_millis()
        );
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| ErrorSource::from(Box::from(error)))?;
        let config = &candidate.options;
        let connect = async {
            let (client, transport) = match tls {
                None => {
                    let (client, connection) = config.connect(NoTls).await?;
                    (client, spawn_transport(connection))
                }
                Some(tls) => {
                    let tls = MakeRustlsConnect::new(tls.clone());
                    let (client, connection) = config.connect(tls).await?;
                    (client, spawn_transport(connection))
                }
            };
            client.batch_execute(&settings).await?;
            Ok((client, transport))
        };
        match runtime.block_on(within(Some(time), connect)) {
            Ok((client, transport)) => Ok(Self {
                client: Some(client),
                runtime: Some(runtime),
                transport,
                address: candidate.address.clone(),
                response_timeout: response_timeout(statement_timeout, server.response_grace),
            }),
            Err(error) => {
                // A name may still be looked up on another thread.
                runtime.shutdown_background();
                Err(error.into_source())
            }
        }
    }

    /// Runs one call of the client.
    fn call<T>(
        &self,
        call: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, ClientError> {
        self.wait(async |client| within(self.response_timeout, call(client)).await)
    }

    /// Runs calls of the client that have timeouts.
    fn wait<T>(
        &self,
        calls: impl AsyncFnOnce(&Client) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        match (&self.runtime, &self.client) {
            (Some(runtime), Some(client)) => runtime.block_on(calls(client)),
            _ => unreachable!("both are there until the connection is dropped"),
        }
    }

    fn is_closed(&self) -> bool {
        self.client.as_ref().is_none_or(Client::is_closed)
    }
}

impl Drop for PostgresConnection {
    fn drop(&mut self) {
        // The transport sends the message that ends the session.
        drop(self.client.take());
        if let Some(runtime) = self.runtime.take() {
            let transport = &mut self.transport;
            // A server that does not respond notices the closed connection.
            let _ =
                runtime.block_on(async { tokio::time::timeout(CLOSE_TIMEOUT, transport).await });
            runtime.shutdown_background();
        }
    }
}

// === impl ClientError ===

impl ClientError {
    /// Whether a COMMIT with this error may have taken effect.
    fn leaves_commit_unknown(&self) -> bool {
        let Self::Failed(error) = self else { return true };
        let Some(db) = error.as_db_error() else { return true };
        let ends_session = matches!(db.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
        ends_session
            || [
                SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN,
                SqlState::TRANSACTION_RESOLUTION_UNKNOWN,
                SqlState::QUERY_CANCELED,
            ]
            .contains(db.code())
    }

    fn into_source(self) -> ErrorSource {
        match self {
            Self::Failed(error) => error_source(&error),
            Self::NoResponse(time) => text_source(format!("no response within {time:.1?}")),
        }
    }
}

/// Limits the time of one call.
async fn within<T>(
    limit: Option<Duration>,
    call: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, ClientError> {
    let done = match limit {
        None => call.await,
        Some(limit) => {
            let done = tokio::time::timeout(limit, call).await;
            done.map_err(|_| ClientError::NoResponse(limit))?
        }
    };
    done.map_err(ClientError::Failed)
}

/// Runs the connection next to its client. Errors are returned to the client.
fn spawn_transport<E>(
    connection: impl Future<Output = Result<(), E>> + Send + 'static,
) -> JoinHandle<()>
where
    E: Send + 'static,
{
    tokio::spawn(async move {
        let _ = connection.await;
    })
}

/// The options of a URL with one host.
fn candidate(url: &str, tls: &DatabaseTls) -> Result<ServerCandidate<Config>, StoreOpenError> {
    let mut options: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        StoreOpenError::Address { why: error_text(&error) }
    })?;
    let address = server_addresses(&options);
    options
        .ssl_mode(match tls.requirement {
            TlsRequirement::Disable => SslMode::Disable,
            TlsRequirement::Prefer => SslMode::Prefer,
            TlsRequirement::Require | TlsRequirement::VerifyCa | TlsRequirement::VerifyFull => {
                SslMode::Require
            }
        })
        .application_name("ferrite")
        .connect_timeout(CONNECT_TIMEOUT)
        .target_session_attrs(TargetSessionAttrs::ReadWrite)
        .keepalives_idle(KEEPALIVE_INTERVAL)
        .keepalives_interval(KEEPALIVE_INTERVAL)
        .keepalives_retries(KEEPALIVE_PROBES)
        .tcp_user_timeout(KEEPALIVE_INTERVAL * (KEEPALIVE_PROBES + 1));
    Ok(ServerCandidate { address, options })
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
fn error_source(error: &tokio_postgres::Error) -> ErrorSource {
    text_source(error_text(error))
}

/// The server's message with SQLSTATE and hint, or the client's error with its source chain.
fn error_text(error: &tokio_postgres::Error) -> String {
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

impl DatabaseRow for tokio_postgres::Row {
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
