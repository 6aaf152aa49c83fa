// SPDX-License-Identifier: Apache-2.0
//! Where the database is.

use std::path::PathBuf;

use crate::error::OpenError;

/// How to reach the database.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the key file is, and the SQLite database if no other is named.
    pub data_dir: PathBuf,
    /// `sqlite:PATH`, `postgresql://user:password@host:port/database` or
    /// `mysql://user:password@host:port/database`; none is SQLite in the data directory.
    pub url: Option<String>,
    /// Connections to a server. SQLite has one writer, up to four readers and up to four more for
    /// scans, whatever this says.
    pub connections: usize,
    /// How hard SQLite makes a commit.
    pub synchronous: Synchronous,
}

/// How hard SQLite makes a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Synchronous {
    /// A commit survives loss of power.
    #[default]
    Full,
    /// A commit survives the process; the last ones may be lost with the power.
    Normal,
}

/// The address, taken apart.
pub(crate) enum Address {
    Sqlite(PathBuf),
    Postgres(String),
    MariaDb(String),
}

impl Settings {
    /// SQLite in `data_dir`.
    pub fn in_dir(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            url: None,
            connections: 8,
            synchronous: Synchronous::default(),
        }
    }

    pub(crate) fn address(&self) -> Result<Address, OpenError> {
        let Some(url) = &self.url else {
            return Ok(Address::Sqlite(self.data_dir.join("ferrite.sqlite")));
        };
        match url.split_once(':') {
            // SQLAlchemy's three slashes are what operators coming from Ironic have in their files.
            Some(("sqlite", path)) => {
                let path = path
                    .strip_prefix("//")
                    .map_or(path, |rest| if rest.starts_with("//") { &rest[1..] } else { rest });
                if path.is_empty() {
                    return Err(OpenError::Address { why: "the path is missing".to_owned() });
                }
                Ok(Address::Sqlite(PathBuf::from(path)))
            }
            Some(("postgresql" | "postgres", _)) => Ok(Address::Postgres(url.clone())),
            Some(("mysql" | "mariadb", rest)) => Ok(Address::MariaDb(format!("mysql:{rest}"))),
            Some((scheme, _)) => {
                Err(OpenError::Address { why: format!("{scheme:?} is no database it knows") })
            }
            None => Err(OpenError::Address { why: "it has no scheme".to_owned() }),
        }
    }
}
