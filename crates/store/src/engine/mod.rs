// SPDX-License-Identifier: Apache-2.0
//! What the three databases have in common, and the few words in which they differ.
//!
//! Everything above this module is written once, synchronously, with `?` for placeholders. An
//! engine owns connections and decides on which thread a closure runs:
//!
//! - SQLite reads on the caller's thread. A point read takes some microseconds and touches a page
//!   cache in this process; handing it to another thread and back costs several times that. Scans
//!   take long enough to be worth a thread that may block, and have connections of their own.
//! - SQLite writes on one thread, many closures to a commit, because one commit is one disk flush.
//! - PostgreSQL and MariaDB run every closure on a small set of threads with a blocking connection
//!   each, because their time is spent waiting for the network.

pub(crate) mod job;
pub(crate) mod mariadb;
pub(crate) mod postgres;
pub(crate) mod sqlite;
pub(crate) mod workers;

use crate::error::Error;
use crate::value::{Damaged, Param, Value};

/// Which database it is.
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
pub(crate) trait Session {
    /// Which database it is.
    fn dialect(&self) -> Dialect;

    /// Runs a query and gives every row to `each`.
    fn query(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<(), Error>,
    ) -> Result<(), Error>;

    /// Runs a statement and says how many rows it found.
    fn execute(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64, Error>;

    /// Runs a statement that is needed once, without keeping it prepared.
    fn run(&mut self, sql: &str) -> Result<(), Error>;
}

/// A row of a query's result.
pub(crate) trait Row {
    /// The value of a column, counted from zero.
    fn value(&self, column: usize) -> Result<Value<'_>, Damaged>;
}

impl Dialect {
    /// The function that finds a text in another.
    pub(crate) const fn position_of(self) -> &'static str {
        match self {
            Self::Sqlite | Self::MariaDb => "INSTR",
            Self::Postgres => "STRPOS",
        }
    }

    /// What makes missing values sort before all others (and after them backwards).
    pub(crate) const fn nulls_first(self, descending: bool) -> &'static str {
        match (self, descending) {
            (Self::Sqlite | Self::MariaDb, _) => "",
            (Self::Postgres, false) => " NULLS FIRST",
            (Self::Postgres, true) => " NULLS LAST",
        }
    }

    /// Whether rows must be locked when they are read to be changed.
    pub(crate) const fn locks_rows(self) -> bool {
        match self {
            Self::Sqlite => false,
            Self::Postgres | Self::MariaDb => true,
        }
    }
}

/// The name of the field in `Duplicate`, from the name an engine gives to the violated index or
/// column. Every unique index is named `<table>_<field>_unique`; SQLite names the columns instead.
pub(crate) fn duplicate(violated: &str) -> Error {
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
    Error::Duplicate { what }
}

/// A server's place, for people.
pub(crate) fn place(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}
