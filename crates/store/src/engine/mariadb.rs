// SPDX-License-Identifier: Apache-2.0
//! MariaDB sessions over the blocking client.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use mysql::consts::CapabilityFlags;
use mysql::prelude::Queryable as _;
use mysql::{ClientIdentity, Conn, DriverError, Opts, OptsBuilder, Params, SslOpts};

use super::server_urls::{ServerCandidate, connect_to_first, text_source, urls_with_one_host};
use super::tls::{DatabaseTls, TlsRequirement};
use super::workers::{DatabaseServer, RecoveryAction, ServerSession, SessionPurpose};
use super::{
    CONNECT_TIMEOUT, DatabaseRow, DatabaseSession, Dialect, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES,
    duplicate_error, host_and_port, response_timeout,
};
use crate::error::{ErrorSource, StoreError, StoreOpenError};
use crate::value::{CorruptValue, SqlParam, SqlValue};

const DUPLICATE_KEY: u16 = 1062;
const DUPLICATE_KEY_WITH_NAME: u16 = 1586;
const PARENT_IN_USE: u16 = 1451;
const PARENT_MISSING: u16 = 1452;
const DATA_TOO_LONG: u16 = 1406;
const LOCK_WAIT_TIMEOUT: u16 = 1205;
const DEADLOCK: u16 = 1213;
const CHANGED_SINCE_READ: u16 = 1020;
/// The server is shutting down or has dropped the connection.
const SHUTDOWN: u16 = 1053;
const CONNECTION_KILLED: u16 = 1927;

/// The server was demoted.
const READ_ONLY_SERVER: u16 = 1290;
/// The server has lost the majority of its Galera cluster.
const NOT_IN_CLUSTER: u16 = 1047;

const NOT_SUPPORTED: u16 = 1235;
const UNKNOWN_VARIABLE: u16 = 1193;

/// How long a process waits for another one to finish migrating, in seconds.
const MIGRATION_LOCK_TIMEOUT: u32 = 120;

/// A connection to MariaDB.
pub(crate) struct MariaDbSession {
    connection: Conn,
    /// `host:port` of the server.
    address: String,
    recovery: RecoveryAction,
    is_commit_unknown: bool,
}

impl MariaDbSession {
    /// Connects to the first server that accepts writes.
    pub(crate) fn connect(
        server: &DatabaseServer,
        purpose: SessionPurpose,
    ) -> Result<Self, StoreOpenError> {
        let (url, tls) =
            DatabaseTls::from_url(&server.url).map_err(|why| StoreOpenError::Address { why })?;
        let ssl = ssl_options(&tls)?;
        let candidates = urls_with_one_host(&url)?
            .iter()
            .map(|url| candidate(url, server, purpose))
            .collect::<Result<Vec<_>, _>>()?;
        let database = candidates.first().and_then(|first| first.options.get_db_name());
        let database = database.unwrap_or("(no name)").to_owned();
        let prefers_tls = tls.requirement == TlsRequirement::Prefer;
        connect_to_first(&database, &candidates, |candidate, time| {
            connect_within(&candidate.options, ssl.as_ref(), prefers_tls, time).map(|connection| {
                Self {
                    connection,
                    address: candidate.address.clone(),
                    recovery: RecoveryAction::None,
                    is_commit_unknown: false,
                }
            })
        })
    }

    /// Runs `prepare` under a named lock that other processes wait for. A transaction would not do,
    /// because MariaDB commits each DDL statement.
    pub(crate) fn with_migration_lock<T>(
        mut self,
        prepare: impl FnOnce(&mut dyn DatabaseSession) -> Result<T, StoreOpenError>,
    ) -> Result<T, StoreOpenError> {
        self.lock(MIGRATION_LOCK_TIMEOUT)?;
        prepare(&mut self)
    }

    /// Acquires the lock, which is released when the connection closes.
    fn lock(&mut self, seconds: u32) -> Result<(), StoreOpenError> {
        let sql = format!("SELECT GET_LOCK(CONCAT('ferrite migrations ', DATABASE()), {seconds})");
        match self.connection.query_first::<Option<i64>, _>(sql) {
            Ok(Some(Some(1))) => Ok(()),
            Ok(_) => Err(StoreOpenError::Busy { seconds }),
            // Some versions reject GET_LOCK in a Galera cluster; in others it is local to a member.
            Err(mysql::Error::MySqlError(error)) if error.code == NOT_SUPPORTED => {
                tracing::warn!(
                    "no migration lock in this cluster; after an upgrade, start one process first"
                );
                Ok(())
            }
            Err(error) => Err(StoreOpenError::Prepare(self.classify(error))),
        }
    }

    fn classify(&mut self, error: mysql::Error) -> StoreError {
        let mysql::Error::MySqlError(server) = &error else {
            self.recovery = RecoveryAction::Reconnect;
            return StoreError::Unavailable(error_source(error));
        };
        match server.code {
            // "Duplicate entry 'x' for key 'nodes_name_unique'"
            DUPLICATE_KEY | DUPLICATE_KEY_WITH_NAME => {
                let key = server.message.trim_end_matches('\'').rsplit(['\'', '.']).next();
                duplicate_error(key.unwrap_or_default())
            }
            PARENT_IN_USE | PARENT_MISSING => StoreError::Reference,
            DATA_TOO_LONG => StoreError::ValueRejected(error_source(error)),
            LOCK_WAIT_TIMEOUT | DEADLOCK | CHANGED_SINCE_READ => {
                self.recovery = RecoveryAction::Retry;
                StoreError::Contended(error_source(error))
            }
            SHUTDOWN | CONNECTION_KILLED | READ_ONLY_SERVER | NOT_IN_CLUSTER => {
                self.recovery = RecoveryAction::Reconnect;
                StoreError::Unavailable(error_source(error))
            }
            _ => StoreError::Unavailable(error_source(error)),
        }
    }
}

impl ServerSession for MariaDbSession {
    fn begin(&mut self) -> Result<(), StoreError> {
        self.is_commit_unknown = false;
        self.run("START TRANSACTION")
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        if self.recovery == RecoveryAction::Retry {
            // On a deadlock the server has rolled back the transaction, so a COMMIT would commit only
            // the statements after it.
            self.rollback()?;
            self.recovery = RecoveryAction::Retry;
            return Err(StoreError::Contended(text_source(
                "transaction rolled back by the server",
            )));
        }
        let committed = self.run("COMMIT");
        // Other errors, such as that of a cancelled COMMIT, do not show whether it took effect.
        self.is_commit_unknown = committed.is_err() && self.recovery != RecoveryAction::Retry;
        committed
    }

    fn is_commit_unknown(&self) -> bool {
        self.is_commit_unknown
    }

    fn address(&self) -> &str {
        &self.address
    }

    fn rollback(&mut self) -> Result<(), StoreError> {
        self.run("ROLLBACK")
    }

    fn take_recovery_action(&mut self) -> RecoveryAction {
        std::mem::take(&mut self.recovery)
    }
}

impl DatabaseSession for MariaDbSession {
    fn dialect(&self) -> Dialect {
        Dialect::MariaDb
    }

    fn query(
        &mut self,
        sql: &str,
        params: &[SqlParam<'_>],
        each: &mut dyn FnMut(&dyn DatabaseRow) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let streamed = self.connection.exec_iter(sql, positional(params)).map(|mut rows| {
            loop {
                match rows.next() {
                    None => break Ok(Ok(())),
                    Some(Err(error)) => break Err(error),
                    Some(Ok(row)) => {
                        if let Err(error) = each(&row) {
                            break Ok(Err(error));
                        }
                    }
                }
            }
        });
        match streamed {
            Ok(Ok(result)) => result,
            Ok(Err(error)) | Err(error) => Err(self.classify(error)),
        }
    }

    fn execute(&mut self, sql: &str, params: &[SqlParam<'_>]) -> Result<u64, StoreError> {
        let done =
            self.connection.exec_iter(sql, positional(params)).map(|result| result.affected_rows());
        done.map_err(|error| self.classify(error))
    }

    fn run(&mut self, sql: &str) -> Result<(), StoreError> {
        let done = self.connection.query_drop(sql);
        done.map_err(|error| self.classify(error))
    }
}

impl DatabaseRow for mysql::Row {
    fn value(&self, column: usize) -> Result<SqlValue<'_>, CorruptValue> {
        match self.as_ref(column).ok_or(CorruptValue)? {
            mysql::Value::NULL => Ok(SqlValue::Null),
            mysql::Value::Int(number) => Ok(SqlValue::Int(*number)),
            mysql::Value::UInt(number) => {
                i64::try_from(*number).map(SqlValue::Int).map_err(|_| CorruptValue)
            }
            mysql::Value::Bytes(bytes) => Ok(SqlValue::Bytes(bytes)),
            mysql::Value::Float(_)
            | mysql::Value::Double(_)
            | mysql::Value::Date(..)
            | mysql::Value::Time(..) => Err(CorruptValue),
        }
    }
}

fn positional(params: &[SqlParam<'_>]) -> Params {
    if params.is_empty() {
        return Params::Empty;
    }
    let values = params.iter().map(|param| match param {
        SqlParam::Null => mysql::Value::NULL,
        SqlParam::Int(number) => mysql::Value::Int(*number),
        SqlParam::Blob(bytes) => mysql::Value::Bytes(bytes.to_vec()),
        SqlParam::Text(_) | SqlParam::Owned(_) | SqlParam::Id(_) => {
            mysql::Value::Bytes(param.as_text().unwrap_or_default().as_bytes().to_vec())
        }
    });
    Params::Positional(values.collect())
}

/// The options of a URL with one host.
fn candidate(
    url: &str,
    server: &DatabaseServer,
    purpose: SessionPurpose,
) -> Result<ServerCandidate<Opts>, StoreOpenError> {
    let options = Opts::from_url(url).map_err(|error| StoreOpenError::Address {
        why: error_source(mysql::Error::UrlError(error)).to_string(),
    })?;
    let address = host_and_port(&options.get_ip_or_hostname(), options.get_tcp_port());
    let milliseconds = |time: Duration| u32::try_from(time.as_millis()).ok();
    let seconds = u32::try_from(KEEPALIVE_INTERVAL.as_secs()).ok();
    let statement_timeout = match purpose {
        SessionPurpose::Transactions => server.statement_timeout,
        // Waiting for the lock, key sources and migrations may take long.
        SessionPurpose::Preparation => Duration::ZERO,
    };
    let idle_seconds = match purpose {
        SessionPurpose::Transactions => 10,
        SessionPurpose::Preparation => 0,
    };
    let response_timeout = response_timeout(statement_timeout, server.response_grace);
    let options = OptsBuilder::from_opts(options)
        // A proxy on this host would be bypassed.
        .prefer_socket(false)
        .tcp_connect_timeout(Some(CONNECT_TIMEOUT))
        .tcp_keepalive_time_ms(milliseconds(KEEPALIVE_INTERVAL))
        .tcp_keepalive_probe_interval_secs(seconds)
        .tcp_keepalive_probe_count(Some(KEEPALIVE_PROBES))
        .tcp_user_timeout_ms(milliseconds(KEEPALIVE_INTERVAL * (KEEPALIVE_PROBES + 1)))
        .read_timeout(response_timeout)
        .write_timeout(response_timeout)
        .stmt_cache_size(256)
        // Count matched rows: an UPDATE that changes nothing must still report the row as found.
        .additional_capabilities(CapabilityFlags::CLIENT_FOUND_ROWS)
        .init(vec![
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
            "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'".to_owned(),
            "SET SESSION innodb_lock_wait_timeout = 10".to_owned(),
            format!("SET SESSION idle_transaction_timeout = {idle_seconds}"),
            format!("SET SESSION max_statement_time = {}", statement_timeout.as_secs_f64()),
        ]);
    Ok(ServerCandidate { address, options: options.into() })
}

/// Connects on a thread of its own, because the client does not limit the time of the TLS handshake and
/// the sign-in. The thread ends when the client gives up.
fn connect_within(
    options: &Opts,
    ssl: Option<&SslOpts>,
    prefers_tls: bool,
    time: Duration,
) -> Result<Conn, ErrorSource> {
    let (options, ssl) = (options.clone(), ssl.cloned());
    let (reply, result) = mpsc::channel();
    let connect = move || {
        // The receiver may be gone; the connection is then closed.
        let _ = reply.send(connect_writable(options, ssl, prefers_tls));
    };
    let started = std::thread::Builder::new().name("store-connect".to_owned()).spawn(connect);
    started.map_err(|error| ErrorSource::from(Box::from(error)))?;
    result
        .recv_timeout(time)
        .unwrap_or_else(|_| Err(text_source(format!("no connection within {time:.1?}"))))
}

fn connect_writable(
    options: Opts,
    ssl: Option<SslOpts>,
    prefers_tls: bool,
) -> Result<Conn, ErrorSource> {
    let with_tls = OptsBuilder::from_opts(options.clone()).ssl_opts(ssl);
    let connection = match Conn::new(with_tls) {
        Err(mysql::Error::DriverError(DriverError::TlsNotSupported)) if prefers_tls => {
            Conn::new(options)
        }
        outcome => outcome,
    };
    let mut connection = connection.map_err(error_source)?;
    match why_read_only(&mut connection).map_err(error_source)? {
        None => Ok(connection),
        Some(why) => Err(text_source(why)),
    }
}

/// Why the server does not accept writes; `None` if it does. Prepares connections to Galera clusters.
fn why_read_only(connection: &mut Conn) -> Result<Option<&'static str>, mysql::Error> {
    // A number, or in later versions one of several texts.
    let writable = "SELECT CAST(@@global.read_only AS CHAR) IN ('0', 'OFF')";
    if connection.query_first::<i64, _>(writable)? != Some(1) {
        return Ok(Some("the server is read-only"));
    }
    let ready = "SELECT variable_value FROM information_schema.global_status
                 WHERE @@global.wsrep_on = 1 AND variable_name = 'wsrep_ready'";
    match connection.query_first::<String, _>(ready) {
        Ok(Some(ready)) if ready != "ON" => {
            Ok(Some("the server is not connected to the majority of its Galera cluster"))
        }
        Ok(None) => Ok(None),
        Ok(Some(_)) => {
            // Reads and changes wait until this member has applied what was committed on others.
            connection.query_drop("SET SESSION wsrep_sync_wait = 3")?;
            Ok(None)
        }
        // Compiled without Galera.
        Err(mysql::Error::MySqlError(error)) if error.code == UNKNOWN_VARIABLE => Ok(None),
        Err(error) => Err(error),
    }
}

/// The TLS options of the client; `None` without TLS.
fn ssl_options(tls: &DatabaseTls) -> Result<Option<SslOpts>, StoreOpenError> {
    let options = SslOpts::default();
    let options = match tls.requirement {
        TlsRequirement::Disable => return Ok(None),
        TlsRequirement::Prefer | TlsRequirement::Require => {
            options.with_danger_accept_invalid_certs(true)
        }
        // The client always trusts the public CAs too, and without the names, a certificate of any web
        // site would be accepted.
        TlsRequirement::VerifyCa => {
            return Err(StoreOpenError::Address {
                why: "verify-ca is not supported for MariaDB; use sslmode=verify-full".to_owned(),
            });
        }
        TlsRequirement::VerifyFull => options.with_root_cert_path(tls.root_certificates.clone()),
    };
    // The client reports unusable files without their names.
    tls.client_config().map_err(|why| StoreOpenError::Certificates { why })?;
    // The client uses the provider of the process. It is set already if another connection did so.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let identity =
        tls.client.clone().map(|(certificate, key)| ClientIdentity::new(certificate, key));
    Ok(Some(options.with_client_identity(identity)))
}

/// Converts a client error to its message, because some variants are not `Sync`. The client's own
/// type names are left out.
fn error_source(error: mysql::Error) -> ErrorSource {
    let text = match error {
        mysql::Error::MySqlError(error) => format!("{} (error {})", error.message, error.code),
        mysql::Error::DriverError(error) => error.to_string(),
        mysql::Error::IoError(error) => error.to_string(),
        mysql::Error::CodecError(error) => error.to_string(),
        mysql::Error::UrlError(error) => error.to_string(),
        mysql::Error::TlsError(error) => error.to_string(),
        error @ (mysql::Error::FromValueError(_) | mysql::Error::FromRowError(_)) => {
            error.to_string()
        }
    };
    Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(text))
}

#[cfg(test)]
mod tests {
    use super::super::workers::DatabaseProduct;
    use super::*;

    #[test]
    fn migration_lock_is_exclusive() {
        let Ok(url) = std::env::var("FERRITE_TEST_MARIADB") else {
            let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|how| how == "required");
            assert!(!required, "FERRITE_TEST_MARIADB is not set, but servers are required");
            return;
        };
        let url = format!("{}/", url.rsplit_once('/').unwrap().0);
        let connect = || {
            let server = DatabaseServer {
                product: DatabaseProduct::MariaDb,
                url: url.clone(),
                statement_timeout: Duration::from_secs(30),
                response_grace: Duration::from_secs(30),
            };
            let purpose = SessionPurpose::Preparation;
            let mut session = MariaDbSession::connect(&server, purpose).unwrap();
            // A database that no other test uses: they migrate databases at the same time.
            session.run("USE information_schema").unwrap();
            session
        };
        let mut first = connect();
        first.lock(0).unwrap();
        assert!(matches!(connect().lock(0), Err(StoreOpenError::Busy { seconds: 0 })));
        first.run("DO RELEASE_ALL_LOCKS()").unwrap();
        connect().lock(0).unwrap();
    }
}
