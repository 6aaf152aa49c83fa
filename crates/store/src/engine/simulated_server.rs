// SPDX-License-Identifier: Apache-2.0
//! A database server of a simulation: an SQLite file behind a connection whose failures the simulation decides.
//!
//! All processes of a simulation share the file. Transactions run one after the other, and no simulated
//! time passes within one, so the isolation of real servers is not simulated.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use super::sqlite::{Sqlite, SqliteSession};
use super::thread_time;
use super::workers::{RecoveryAction, ServerSession};
use super::{CONNECT_TIMEOUT, DatabaseRow, DatabaseSession, Dialect};
use crate::clock::HostClocks;
use crate::error::{ErrorSource, StoreError, StoreOpenError};
use crate::settings::SqliteSynchronous;
use crate::value::SqlParam;

/// How often a request without response checks whether the connection works again.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The connection of one process to the server, which the simulation controls.
pub trait DatabaseLink: Send + Sync {
    /// Whether packets arrive now.
    fn state(&self) -> DatabaseLinkState;
    /// How long the next request takes until its response arrives.
    fn response_time(&self) -> Duration;
    /// What happens to the next COMMIT.
    fn next_commit(&self) -> SimulatedCommit;
    /// Called when a transaction was committed.
    fn committed(&self);
    /// The clock of the server in microseconds since 1970.
    fn server_clock(&self) -> i64;
}

/// Whether packets arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatabaseLinkState {
    /// They arrive.
    Up,
    /// They are lost.
    Silent,
    /// The connection is refused at once.
    Refused,
}

/// What happens to a COMMIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SimulatedCommit {
    /// It is executed and confirmed.
    Confirmed,
    /// The connection breaks before the server has executed it.
    LostBefore,
    /// The connection breaks after the server has executed it.
    LostAfter,
    /// It is confirmed and not executed, as no server may do: a test of a simulation's checks.
    Forgotten,
}

/// A simulated server, as one process sees it.
#[derive(Clone)]
pub struct SimulatedServer {
    /// The SQLite file.
    pub path: PathBuf,
    /// The connection to the server.
    pub link: Arc<dyn DatabaseLink>,
    /// The clocks of the host of the process.
    pub clocks: HostClocks,
}

impl SimulatedServer {
    pub(crate) fn with_first_session<T>(
        &self,
        prepare: impl FnOnce(&mut dyn DatabaseSession) -> Result<T, StoreOpenError>,
    ) -> Result<T, StoreOpenError> {
        let connection = self.open()?;
        let link = Arc::clone(&self.link);
        let prepared = Sqlite::in_transaction(&connection, |session| {
            prepare(&mut FirstSession { session, clock: link.server_clock() })
        })?;
        self.link.committed();
        Ok(prepared)
    }

    fn open(&self) -> Result<Connection, StoreOpenError> {
        let connection = Sqlite::connect(&self.path, SqliteSynchronous::Normal)?;
        // A crash of the simulation loses nothing that is needed.
        let unsynchronised = connection.pragma_update(None, "synchronous", "OFF");
        unsynchronised.map_err(|error| self.connect_error(Arc::new(error)))?;
        Ok(connection)
    }

    fn connect_error(&self, source: ErrorSource) -> StoreOpenError {
        StoreOpenError::Connect { what: "simulated server".to_owned(), source }
    }
}

impl std::fmt::Debug for SimulatedServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimulatedServer").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The session that prepares the database, with the clock of the server.
struct FirstSession<'a> {
    session: &'a mut dyn DatabaseSession,
    clock: i64,
}

impl DatabaseSession for FirstSession<'_> {
    fn dialect(&self) -> Dialect {
        self.session.dialect()
    }

    fn query(
        &mut self,
        sql: &str,
        params: &[SqlParam<'_>],
        each: &mut dyn FnMut(&dyn DatabaseRow) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.session.query(sql, params, each)
    }

    fn execute(&mut self, sql: &str, params: &[SqlParam<'_>]) -> Result<u64, StoreError> {
        self.session.execute(sql, params)
    }

    fn run(&mut self, sql: &str) -> Result<(), StoreError> {
        self.session.run(sql)
    }

    fn known_clock(&self) -> Option<i64> {
        Some(self.clock)
    }
}

/// A connection to a simulated server.
pub(crate) struct SimulatedSession {
    connection: Connection,
    link: Arc<dyn DatabaseLink>,
    response_timeout: Duration,
    in_transaction: bool,
    is_broken: bool,
    is_commit_unknown: bool,
}

impl SimulatedSession {
    pub(crate) fn connect(
        server: &SimulatedServer,
        response_timeout: Duration,
    ) -> Result<Self, StoreOpenError> {
        if !wait_for_response(&*server.link, CONNECT_TIMEOUT) {
            return Err(server.connect_error(no_response()));
        }
        Ok(Self {
            connection: server.open()?,
            link: Arc::clone(&server.link),
            response_timeout,
            in_transaction: false,
            is_broken: false,
            is_commit_unknown: false,
        })
    }

    /// Sends a request that begins a transaction, or reads without one.
    fn request(&mut self) -> Result<(), StoreError> {
        if self.is_broken || !wait_for_response(&*self.link, self.response_timeout) {
            self.is_broken = true;
            return Err(StoreError::Unavailable(no_response()));
        }
        Ok(())
    }

    fn run_now(&mut self, sql: &str) -> Result<(), StoreError> {
        SqliteSession(&self.connection).run(sql)
    }
}

/// Waits for the response to a request. Returns false if there is none in time.
fn wait_for_response(link: &dyn DatabaseLink, timeout: Duration) -> bool {
    thread_time::sleep(link.response_time());
    let mut waited = Duration::ZERO;
    loop {
        match link.state() {
            DatabaseLinkState::Up => return true,
            DatabaseLinkState::Refused => return false,
            DatabaseLinkState::Silent if waited >= timeout => return false,
            DatabaseLinkState::Silent => thread_time::sleep(POLL_INTERVAL),
        }
        waited += POLL_INTERVAL;
    }
}

fn no_response() -> ErrorSource {
    Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(
        "the simulated server does not respond",
    ))
}

impl DatabaseSession for SimulatedSession {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn query(
        &mut self,
        sql: &str,
        params: &[SqlParam<'_>],
        each: &mut dyn FnMut(&dyn DatabaseRow) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if !self.in_transaction {
            self.request()?;
        }
        // SQLite locks the whole database.
        let sql = sql.strip_suffix(" FOR UPDATE").unwrap_or(sql);
        SqliteSession(&self.connection).query(sql, params, each)
    }

    fn execute(&mut self, sql: &str, params: &[SqlParam<'_>]) -> Result<u64, StoreError> {
        SqliteSession(&self.connection).execute(sql, params)
    }

    fn run(&mut self, sql: &str) -> Result<(), StoreError> {
        self.run_now(sql)
    }

    fn known_clock(&self) -> Option<i64> {
        Some(self.link.server_clock())
    }
}

impl ServerSession for SimulatedSession {
    fn begin(&mut self) -> Result<(), StoreError> {
        self.is_commit_unknown = false;
        self.request()?;
        self.run_now("BEGIN IMMEDIATE")?;
        self.in_transaction = true;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        self.in_transaction = false;
        let commit = self.link.next_commit();
        if matches!(commit, SimulatedCommit::LostBefore | SimulatedCommit::Forgotten) {
            self.run_now("ROLLBACK")?;
        } else {
            self.run_now("COMMIT")?;
            self.link.committed();
        }
        let is_confirmed =
            matches!(commit, SimulatedCommit::Confirmed | SimulatedCommit::Forgotten)
                && wait_for_response(&*self.link, self.response_timeout);
        if is_confirmed {
            return Ok(());
        }
        self.is_broken = true;
        self.is_commit_unknown = true;
        Err(StoreError::Unavailable(no_response()))
    }

    fn rollback(&mut self) -> Result<(), StoreError> {
        if std::mem::take(&mut self.in_transaction) { self.run_now("ROLLBACK") } else { Ok(()) }
    }

    fn take_recovery_action(&mut self) -> RecoveryAction {
        if self.is_broken { RecoveryAction::Reconnect } else { RecoveryAction::None }
    }

    fn is_commit_unknown(&self) -> bool {
        self.is_commit_unknown
    }

    fn address(&self) -> &str {
        "simulated server"
    }
}
