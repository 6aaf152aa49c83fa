// SPDX-License-Identifier: Apache-2.0
//! MariaDB over its blocking client.

use std::sync::Arc;
use std::time::Duration;

use mysql::consts::CapabilityFlags;
use mysql::prelude::Queryable as _;
use mysql::{Conn, Opts, OptsBuilder, Params};

use super::workers::{ServerSession, Trouble};
use super::{Dialect, Row, Session, duplicate, place};
use crate::error::{Cause, Error, OpenError};
use crate::value::{Damaged, Param, Value};

const DUPLICATE_KEY: u16 = 1062;
const DUPLICATE_KEY_WITH_NAME: u16 = 1586;
const PARENT_IN_USE: u16 = 1451;
const PARENT_MISSING: u16 = 1452;
const DATA_TOO_LONG: u16 = 1406;
const LOCK_WAIT_TIMEOUT: u16 = 1205;
const DEADLOCK: u16 = 1213;
const CHANGED_SINCE_READ: u16 = 1020;
/// The server is going down or has dropped the connection.
const SHUTDOWN: u16 = 1053;
const CONNECTION_KILLED: u16 = 1927;

const NOT_SUPPORTED: u16 = 1235;

/// How long a process waits for another that prepares the database, in seconds.
const MIGRATION_WAIT: u32 = 120;

/// A connection.
pub(crate) struct MariaDbSession {
    connection: Conn,
    trouble: Trouble,
}

impl MariaDbSession {
    /// Connects.
    pub(crate) fn connect(url: &str) -> Result<Self, OpenError> {
        let options = Opts::from_url(url).map_err(|error| OpenError::Address {
            why: hidden(mysql::Error::UrlError(error)).to_string(),
        })?;
        let what = format!(
            "{} on {}",
            options.get_db_name().unwrap_or("(no name)"),
            place(&options.get_ip_or_hostname(), options.get_tcp_port())
        );
        let options = OptsBuilder::from_opts(options)
            .tcp_connect_timeout(Some(Duration::from_secs(10)))
            .stmt_cache_size(256)
            // An UPDATE that changes nothing still says that it found the row.
            .additional_capabilities(CapabilityFlags::CLIENT_FOUND_ROWS)
            .init(vec![
                "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
                "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'",
                "SET SESSION innodb_lock_wait_timeout = 10",
            ]);
        let connection = Conn::new(options)
            .map_err(|error| OpenError::Connect { what, source: hidden(error) })?;
        Ok(Self { connection, trouble: Trouble::None })
    }

    /// Runs `prepare` while no other process does. MariaDB commits every change of the schema by
    /// itself, so this is a lock and not a transaction.
    pub(crate) fn alone<T>(
        mut self,
        prepare: impl FnOnce(&mut dyn Session) -> Result<T, OpenError>,
    ) -> Result<T, OpenError> {
        self.lock(MIGRATION_WAIT)?;
        prepare(&mut self)
    }

    /// Takes the lock, which ends with the connection.
    fn lock(&mut self, seconds: u32) -> Result<(), OpenError> {
        let sql = format!("SELECT GET_LOCK(CONCAT('ferrite migrations ', DATABASE()), {seconds})");
        match self.connection.query_first::<Option<i64>, _>(sql) {
            Ok(Some(Some(1))) => Ok(()),
            Ok(_) => Err(OpenError::Busy { seconds }),
            // Some versions have no such lock in a Galera cluster; in others it is a member's own.
            Err(mysql::Error::MySqlError(error)) if error.code == NOT_SUPPORTED => {
                tracing::warn!(
                    "this cluster has no locks: let one process start first after an upgrade"
                );
                Ok(())
            }
            Err(error) => Err(OpenError::Prepare(self.failed(error))),
        }
    }

    fn failed(&mut self, error: mysql::Error) -> Error {
        let mysql::Error::MySqlError(server) = &error else {
            self.trouble = Trouble::Lost;
            return Error::Unavailable(hidden(error));
        };
        match server.code {
            // "Duplicate entry 'x' for key 'nodes_name_unique'"
            DUPLICATE_KEY | DUPLICATE_KEY_WITH_NAME => {
                let key = server.message.trim_end_matches('\'').rsplit(['\'', '.']).next();
                duplicate(key.unwrap_or_default())
            }
            PARENT_IN_USE | PARENT_MISSING => Error::Reference,
            DATA_TOO_LONG => Error::Unfit(hidden(error)),
            LOCK_WAIT_TIMEOUT | DEADLOCK | CHANGED_SINCE_READ => {
                self.trouble = Trouble::Again;
                Error::Contended(hidden(error))
            }
            SHUTDOWN | CONNECTION_KILLED => {
                self.trouble = Trouble::Lost;
                Error::Unavailable(hidden(error))
            }
            _ => Error::Unavailable(hidden(error)),
        }
    }
}

impl ServerSession for MariaDbSession {
    fn begin(&mut self) -> Result<(), Error> {
        self.run("START TRANSACTION")
    }

    fn commit(&mut self) -> Result<(), Error> {
        if self.trouble == Trouble::Again {
            // After a deadlock the server has undone the transaction already, and a commit would
            // keep only what came after.
            self.rollback()?;
            self.trouble = Trouble::Again;
            let cause: Cause = Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(
                "the transaction was undone",
            ));
            return Err(Error::Contended(cause));
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

impl Session for MariaDbSession {
    fn dialect(&self) -> Dialect {
        Dialect::MariaDb
    }

    fn query(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<(), Error>,
    ) -> Result<(), Error> {
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
            Ok(Err(error)) | Err(error) => Err(self.failed(error)),
        }
    }

    fn execute(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64, Error> {
        let done =
            self.connection.exec_iter(sql, positional(params)).map(|result| result.affected_rows());
        done.map_err(|error| self.failed(error))
    }

    fn run(&mut self, sql: &str) -> Result<(), Error> {
        let done = self.connection.query_drop(sql);
        done.map_err(|error| self.failed(error))
    }
}

impl Row for mysql::Row {
    fn value(&self, column: usize) -> Result<Value<'_>, Damaged> {
        match self.as_ref(column).ok_or(Damaged)? {
            mysql::Value::NULL => Ok(Value::Null),
            mysql::Value::Int(number) => Ok(Value::Int(*number)),
            mysql::Value::UInt(number) => {
                i64::try_from(*number).map(Value::Int).map_err(|_| Damaged)
            }
            mysql::Value::Bytes(bytes) => Ok(Value::Bytes(bytes)),
            mysql::Value::Float(_)
            | mysql::Value::Double(_)
            | mysql::Value::Date(..)
            | mysql::Value::Time(..) => Err(Damaged),
        }
    }
}

fn positional(params: &[Param<'_>]) -> Params {
    if params.is_empty() {
        return Params::Empty;
    }
    let values = params.iter().map(|param| match param {
        Param::Null => mysql::Value::NULL,
        Param::Int(number) => mysql::Value::Int(*number),
        Param::Blob(bytes) => mysql::Value::Bytes(bytes.to_vec()),
        Param::Text(_) | Param::Owned(_) | Param::Id(_) => {
            mysql::Value::Bytes(param.as_text().unwrap_or_default().as_bytes().to_vec())
        }
    });
    Params::Positional(values.collect())
}

/// The client's errors are not all shareable between threads; their words are. The names of the
/// client's own types, which it puts around them, say nothing to an operator.
fn hidden(error: mysql::Error) -> Cause {
    let words = match error {
        mysql::Error::MySqlError(error) => format!("{} (error {})", error.message, error.code),
        mysql::Error::DriverError(error) => error.to_string(),
        mysql::Error::IoError(error) => error.to_string(),
        mysql::Error::CodecError(error) => error.to_string(),
        mysql::Error::UrlError(error) => error.to_string(),
        error @ (mysql::Error::FromValueError(_) | mysql::Error::FromRowError(_)) => {
            error.to_string()
        }
    };
    Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_prepares_the_database_at_a_time() {
        let Ok(url) = std::env::var("FERRITE_TEST_MARIADB") else {
            let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|how| how == "required");
            assert!(!required, "FERRITE_TEST_MARIADB is not set, but servers are required");
            return;
        };
        let url = format!("{}/", url.rsplit_once('/').unwrap().0);
        let connect = || {
            let mut session = MariaDbSession::connect(&url).unwrap();
            // Nobody else's: other tests prepare databases meanwhile.
            session.run("USE information_schema").unwrap();
            session
        };
        let mut first = connect();
        first.lock(0).unwrap();
        assert!(matches!(connect().lock(0), Err(OpenError::Busy { seconds: 0 })));
        first.run("DO RELEASE_ALL_LOCKS()").unwrap();
        connect().lock(0).unwrap();
    }
}
