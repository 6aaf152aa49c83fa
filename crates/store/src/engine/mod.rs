// SPDX-License-Identifier: Apache-2.0
//! The interface of the three database engines, and their SQL differences.
//!
//! Code above this module is synchronous and written once, with `?` as placeholder. An engine owns
//! the connections and decides on which thread a closure runs:
//!
//! - SQLite runs point reads on the caller's thread. They take some microseconds and hit a page
//!   cache in this process; a thread switch costs several times that. Scans run on blocking threads
//!   with separate connections.
//! - SQLite writes on one thread, with many closures per commit, because each commit is one fsync.
//! - PostgreSQL and MariaDB run every closure on a small pool of threads with one blocking
//!   connection each, because they mostly wait for the network.

pub(crate) mod commit_marker;
pub(crate) mod job;
pub(crate) mod mariadb;
pub(crate) mod postgres;
mod server_link;
mod server_urls;
pub(crate) mod simulated_pool;
pub(crate) mod simulated_server;
pub(crate) mod sqlite;
pub(crate) mod thread_time;
mod tls;
pub(crate) mod workers;

use std::time::Duration;

use crate::error::StoreError;
use crate::value::{CorruptValue, SqlParam, SqlValue};

/// Timeout of a connection to one server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of the search for a server that accepts writes.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(10);
/// A server that has not responded this long after it should have cancelled a statement hangs.
pub(crate) const RESPONSE_GRACE: Duration = Duration::from_secs(5);
/// A server that does not respond to this many probes is unreachable.
const KEEPALIVE_PROBES: u32 = 3;
/// Time between two probes of an idle connection.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Kind of database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dialect {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    MariaDb,
}

/// A connection, usually inside a transaction.
pub(crate) trait DatabaseSession {
    /// Kind of database.
    fn dialect(&self) -> Dialect;

    /// Runs a query and calls `each` for every row.
    fn query(
        &mut self,
        sql: &str,
        params: &[SqlParam<'_>],
        each: &mut dyn FnMut(&dyn DatabaseRow) -> Result<(), StoreError>,
    ) -> Result<(), StoreError>;

    /// Runs a statement. Returns the number of matched rows.
    fn execute(&mut self, sql: &str, params: &[SqlParam<'_>]) -> Result<u64, StoreError>;

    /// Runs a one-off statement without preparing it.
    fn run(&mut self, sql: &str) -> Result<(), StoreError>;

    /// The clock of a simulated server in microseconds since 1970; `None` if it has to be queried.
    fn known_clock(&self) -> Option<i64> {
        None
    }
}

/// A result row.
pub(crate) trait DatabaseRow {
    /// The value of the column at this zero-based index.
    fn value(&self, column: usize) -> Result<SqlValue<'_>, CorruptValue>;
}

impl Dialect {
    /// Name of the SQL function that returns the position of a substring.
    pub(crate) const fn position_function(self) -> &'static str {
        match self {
            Self::Sqlite | Self::MariaDb => "INSTR",
            Self::Postgres => "STRPOS",
        }
    }

    /// `ORDER BY` suffix that sorts NULL first when ascending and last when descending.
    pub(crate) const fn nulls_first(self, descending: bool) -> &'static str {
        match (self, descending) {
            (Self::Sqlite | Self::MariaDb, _) => "",
            (Self::Postgres, false) => " NULLS FIRST",
            (Self::Postgres, true) => " NULLS LAST",
        }
    }

    /// The query for the clock of a server in microseconds since 1970. SQLite uses the clock of the host.
    pub(crate) const fn clock_query(self) -> Option<&'static str> {
        match self {
            Self::Sqlite => None,
            Self::Postgres => {
                Some("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)")
            }
            Self::MariaDb => {
                Some("SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))")
            }
        }
    }

    /// Whether rows must be locked with `FOR UPDATE` before they are changed.
    pub(crate) const fn locks_rows(self) -> bool {
        match self {
            Self::Sqlite => false,
            Self::Postgres | Self::MariaDb => true,
        }
    }
}

/// A `Duplicate` error, with the field taken from the name of the violated index. Unique indexes are
/// named `<table>_<field>_unique`; SQLite reports `table.column` instead.
pub(crate) fn duplicate_error(violated: &str) -> StoreError {
    const FIELDS: [&str; 8] = [
        "instance_uuid",
        "boot_index",
        "connector_id",
        "hostname",
        "address",
        "component",
        "name",
        "uuid",
    ];
    let stem = violated.strip_suffix("_unique").unwrap_or(violated);
    let what = FIELDS.into_iter().find(|field| stem.ends_with(field)).unwrap_or("key");
    StoreError::Duplicate { what }
}

/// `host:port`, with IPv6 addresses in brackets, for messages.
pub(crate) fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// How long a client waits for the response to a statement; `None` without a limit. The server cancels
/// the statement after `statement_timeout`, so a server that has not responded some time later hangs.
fn response_timeout(statement_timeout: Duration, grace: Duration) -> Option<Duration> {
    (!statement_timeout.is_zero()).then(|| statement_timeout + grace)
}
