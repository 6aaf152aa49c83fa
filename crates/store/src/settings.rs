// SPDX-License-Identifier: Apache-2.0
//! Settings of the store.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::RESPONSE_GRACE;
use crate::engine::workers::{DatabaseProduct, DatabaseServer};
use crate::error::StoreOpenError;
use crate::key_source::{KEY_FILE, KeyFile, KeySource};

/// The file of the embedded database in the data directory.
pub const SQLITE_FILE: &str = "ferrite.sqlite";

/// The statement timeouts that both servers support; they round shorter ones to none.
const STATEMENT_TIMEOUTS: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(24 * 60 * 60);

/// Settings of the store.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// Directory of the key file, and of the SQLite database, unless set otherwise.
    pub data_dir: PathBuf,
    /// `sqlite:PATH`, `postgresql://user:password@host:port/database` or
    /// `mysql://user:password@host:port/database`; `None` is SQLite in the data directory. Servers may be
    /// given as `host:port,host:port`: the first that accepts writes is used.
    pub url: Option<String>,
    /// Number of connections to a server. SQLite ignores it and has one writer, up to four
    /// connections for point reads and up to two for scans.
    pub connections: usize,
    /// Statements that take longer are cancelled by a server; zero does not limit them.
    pub statement_timeout: Duration,
    /// Durability of SQLite commits.
    pub synchronous: SqliteSynchronous,
    /// How far the clock of this host may differ from that of a database server. With a greater difference
    /// the store does not open.
    pub clock_tolerance: Duration,
    /// Where the sealing keys come from; by default the file `secrets.key` in the data directory.
    pub key_source: Option<Arc<dyn KeySource>>,
}

/// Durability of SQLite commits, as `PRAGMA synchronous`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SqliteSynchronous {
    /// A commit survives a power failure.
    #[default]
    Full,
    /// A commit survives a crash of the process; a power failure may lose the latest ones.
    Normal,
}

/// A parsed database URL.
pub(crate) enum DatabaseAddress {
    Sqlite(PathBuf),
    Server(DatabaseServer),
}

impl StoreSettings {
    /// Default settings: SQLite in `data_dir`.
    pub fn in_dir(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            url: None,
            connections: 8,
            statement_timeout: Duration::from_secs(30),
            synchronous: SqliteSynchronous::default(),
            clock_tolerance: Duration::from_secs(10),
            key_source: None,
        }
    }

    /// Whether the database is on a server, which several processes can use.
    pub fn uses_server(&self) -> Result<bool, StoreOpenError> {
        Ok(!matches!(self.address()?, DatabaseAddress::Sqlite(_)))
    }

    pub(crate) fn key_source(&self) -> Arc<dyn KeySource> {
        match &self.key_source {
            Some(source) => Arc::clone(source),
            None => Arc::new(KeyFile(self.data_dir.join(KEY_FILE))),
        }
    }

    fn server(
        &self,
        product: DatabaseProduct,
        url: String,
    ) -> Result<DatabaseAddress, StoreOpenError> {
        let statement_timeout = self.statement_timeout;
        if !statement_timeout.is_zero() && !STATEMENT_TIMEOUTS.contains(&statement_timeout) {
            return Err(StoreOpenError::StatementTimeout { timeout: statement_timeout });
        }
        let response_grace = RESPONSE_GRACE;
        Ok(DatabaseAddress::Server(DatabaseServer {
            product,
            url,
            statement_timeout,
            response_grace,
        }))
    }

    pub(crate) fn address(&self) -> Result<DatabaseAddress, StoreOpenError> {
        let Some(url) = &self.url else {
            return Ok(DatabaseAddress::Sqlite(self.data_dir.join(SQLITE_FILE)));
        };
        match url.split_once(':') {
            // Ironic's configuration has SQLAlchemy URLs with three slashes.
            Some(("sqlite", path)) => {
                let path = path
                    .strip_prefix("//")
                    .map_or(path, |rest| if rest.starts_with("//") { &rest[1..] } else { rest });
                if path.is_empty() {
                    return Err(StoreOpenError::Address { why: "the path is missing".to_owned() });
                }
                Ok(DatabaseAddress::Sqlite(PathBuf::from(path)))
            }
            Some(("postgresql" | "postgres", _)) => {
                self.server(DatabaseProduct::Postgres, url.clone())
            }
            Some(("mysql" | "mariadb", rest)) => {
                self.server(DatabaseProduct::MariaDb, format!("mysql:{rest}"))
            }
            Some((scheme, _)) => {
                Err(StoreOpenError::Address { why: format!("unknown scheme {scheme:?}") })
            }
            None => Err(StoreOpenError::Address { why: "the scheme is missing".to_owned() }),
        }
    }
}
