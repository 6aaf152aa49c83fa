// SPDX-License-Identifier: Apache-2.0
//! What the connections to a database share: which server they use, and whether the database is down.
//!
//! When one connection moves to another server, the others follow before their next transaction. While
//! no server accepts connections, one thread tries to connect, and the others wait for it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::thread_time;
use super::workers::{DatabaseServer, ServerSession};
use crate::error::{StoreError, StoreOpenError};

/// The state that all connections to a database share.
pub(crate) struct ServerLink {
    server: DatabaseServer,
    state: Mutex<SharedLinkState>,
    changed: Condvar,
}

#[derive(Default)]
struct SharedLinkState {
    /// The server that the connections use.
    address: Option<String>,
    /// Counts the changes of the server.
    generation: u64,
    /// Why the database is down.
    outage: Option<Arc<StoreOpenError>>,
    is_closed: bool,
}

/// A connection, and the generation in which it was opened.
pub(crate) struct LinkedSession {
    pub(crate) session: Box<dyn ServerSession>,
    generation: u64,
}

impl ServerLink {
    pub(crate) fn new(server: DatabaseServer) -> Self {
        Self { server, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Whether the database is known to be down.
    pub(crate) fn is_down(&self) -> bool {
        self.lock().outage.is_some()
    }

    /// Why the database is down; `None` if it is not known to be.
    pub(crate) fn outage(&self) -> Option<Arc<StoreOpenError>> {
        self.lock().outage.clone()
    }

    /// Whether other connections still use the server of this one.
    pub(crate) fn is_current(&self, session: &LinkedSession) -> bool {
        self.lock().generation == session.generation
    }

    /// Connects. While the database is known to be down, waits for its recovery until `deadline`.
    pub(crate) fn connect_until(&self, deadline: Instant) -> Result<LinkedSession, StoreError> {
        loop {
            if let Some(error) = self.wait_for_recovery(deadline) {
                return Err(StoreError::Unavailable(error));
            }
            match self.connect() {
                Ok(session) => return Ok(session),
                Err(error) if Instant::now() >= deadline => {
                    return Err(StoreError::Unavailable(error));
                }
                Err(_) => {}
            }
        }
    }

    /// Connects at once, and records whether the database is down.
    pub(crate) fn connect(&self) -> Result<LinkedSession, Arc<StoreOpenError>> {
        let connected = self.server.connect();
        let mut state = self.lock();
        let result = match connected {
            Ok(session) => {
                if state.outage.take().is_some() {
                    tracing::info!(server = session.address(), "database is available again");
                }
                if state.address.as_deref() != Some(session.address()) {
                    if let Some(before) = &state.address {
                        tracing::warn!(
                            before,
                            server = session.address(),
                            "connections move to another database server"
                        );
                    }
                    state.address = Some(session.address().to_owned());
                    state.generation += 1;
                }
                Ok(LinkedSession { session, generation: state.generation })
            }
            Err(error) => {
                let error = Arc::new(error);
                if state.outage.is_none() {
                    tracing::error!(
                        error = error_chain::error_chain(&*error),
                        "database is unavailable"
                    );
                }
                state.outage = Some(Arc::clone(&error));
                Err(error)
            }
        };
        drop(state);
        self.changed.notify_all();
        result
    }

    /// A transaction was committed, so the database is not down although a connection failed, for example
    /// because the server has no more of them.
    pub(crate) fn worked(&self) {
        let mut state = self.lock();
        if state.outage.take().is_some() {
            tracing::info!("database is available on other connections");
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits until the database is down. Returns `None` when the link is closed.
    pub(crate) fn wait_for_outage(&self) -> Option<Arc<StoreOpenError>> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(error) = &state.outage {
                return Some(Arc::clone(error));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends [`ServerLink::wait_for_outage`] and the waits for recovery.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits until the database is not known to be down. Returns the reason if it still is.
    fn wait_for_recovery(&self, deadline: Instant) -> Option<Arc<StoreOpenError>> {
        if thread_time::is_simulated() {
            while self.is_down() && Instant::now() < deadline {
                thread_time::sleep(SIMULATED_POLL_INTERVAL);
            }
            return self.lock().outage.clone();
        }
        let time = deadline.saturating_duration_since(Instant::now());
        let waits = |state: &mut SharedLinkState| state.outage.is_some() && !state.is_closed;
        let waited = self.changed.wait_timeout_while(self.lock(), time, waits);
        waited.unwrap_or_else(PoisonError::into_inner).0.outage.clone()
    }

    fn lock(&self) -> MutexGuard<'_, SharedLinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often a thread of a simulation, which cannot be notified, checks for a recovery.
const SIMULATED_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Time between two attempts to connect while the database is down.
pub(crate) const RECONNECT_INTERVAL: Duration = Duration::from_millis(200);
