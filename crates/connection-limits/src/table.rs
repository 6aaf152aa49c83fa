// SPDX-License-Identifier: Apache-2.0
//! The open connections of a server.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::client_prefix;

/// How long a client counts as known after its last authenticated request.
const KNOWN_TIME: Duration = Duration::from_secs(15 * 60);
/// The number of known clients that are kept.
const MAX_KNOWN: usize = 16 * 1024;
/// A waiting connection of a known client counts only this fraction when a connection has to be closed.
const KNOWN_WEIGHT: usize = 8;

/// The limits of a [`ConnectionTable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The number of concurrent connections.
    pub total: usize,
    /// How many of them only known clients use.
    pub reserved: usize,
    /// The number of concurrent connections per client that is not known. See [`client_prefix`].
    pub per_client: usize,
}

/// The open connections of a server.
///
/// A client is known after [`ConnectionSlot::mark_known`], and if it is this host. The limit per client does
/// not apply to known clients.
#[derive(Debug)]
pub struct ConnectionTable {
    limits: ConnectionLimits,
    state: Mutex<TableState>,
}

/// One open connection. Dropping it frees its place in the table.
///
/// At first the connection waits for a request. [`Self::start_work`] and [`Self::finish_work`] enclose the
/// time in which it must not be closed.
#[derive(Debug)]
pub struct ConnectionSlot {
    table: Arc<ConnectionTable>,
    client: IpAddr,
    id: u64,
    closing: Arc<Notify>,
}

#[derive(Debug, Default)]
struct TableState {
    total: usize,
    clients: HashMap<IpAddr, ClientConnections>,
    known: HashMap<IpAddr, Instant>,
    next_number: u64,
    closed_for_others: u64,
    refused: u64,
}

/// The connections of one client.
#[derive(Debug, Default)]
struct ClientConnections {
    open: HashMap<u64, OpenConnection>,
    /// Ids of the waiting connections by the order in which they began to wait.
    waiting: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct OpenConnection {
    /// The key in `waiting`; `None` while a request is processed.
    waiting_since: Option<u64>,
    closing: Arc<Notify>,
}

impl ConnectionTable {
    /// Returns an empty table.
    #[must_use]
    pub fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default() })
    }

    /// Adds a connection, and closes a waiting one if a limit is reached. Returns `None` if a limit is reached
    /// and every connection in question processes a request.
    pub fn admit(self: &Arc<Self>, address: IpAddr, now: Instant) -> Option<ConnectionSlot> {
        let client = client_prefix(address);
        let mut state = self.lock();
        let is_known = state.is_known(client, now);
        let ConnectionLimits { total, reserved, per_client } = self.limits;
        let mut has_room = true;
        if !is_known && state.count(client) >= per_client {
            has_room = state.close_waiting(client);
        }
        let available = if is_known { total } else { total.saturating_sub(reserved) };
        if has_room && state.total >= available {
            has_room = state.close_waiting_of_busiest(now);
        }
        if !has_room {
            state.refused += 1;
            return None;
        }
        let (id, waiting_since) = (state.next_number(), state.next_number());
        let closing = Arc::new(Notify::new());
        let connection =
            OpenConnection { waiting_since: Some(waiting_since), closing: Arc::clone(&closing) };
        let connections = state.clients.entry(client).or_default();
        connections.open.insert(id, connection);
        connections.waiting.insert(waiting_since, id);
        state.total += 1;
        drop(state);
        Some(ConnectionSlot { table: Arc::clone(self), client, id, closing })
    }

    /// Closes the connection that has waited longest of the client with the most waiting connections. For
    /// servers that run out of file descriptors before the table is full. Returns false if none waits.
    pub fn close_one(&self, now: Instant) -> bool {
        self.lock().close_waiting_of_busiest(now)
    }

    /// Returns the number of open connections.
    #[must_use]
    pub fn open(&self) -> usize {
        self.lock().total
    }

    /// Returns how many connections were closed because a limit was reached.
    #[must_use]
    pub fn closed_for_others(&self) -> u64 {
        self.lock().closed_for_others
    }

    /// Returns how many connections were refused because a limit was reached.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.lock().refused
    }

    /// Returns whether a client is known.
    #[must_use]
    pub fn is_known(&self, address: IpAddr, now: Instant) -> bool {
        self.lock().is_known(client_prefix(address), now)
    }

    fn lock(&self) -> MutexGuard<'_, TableState> {
        // Every change is complete before the lock is released, also in a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    /// Waits until the connection has to be closed to make room. It no longer counts then.
    pub async fn closing(&self) {
        self.closing.notified().await;
    }

    /// Protects the connection from being closed. Returns false if it is already being closed.
    #[must_use]
    pub fn start_work(&self) -> bool {
        self.table.lock().set_waiting(self.client, self.id, false)
    }

    /// Makes the connection wait for the next request.
    pub fn finish_work(&self) {
        self.table.lock().set_waiting(self.client, self.id, true);
    }

    /// Records that the client has authenticated, for 15 minutes.
    pub fn mark_known(&self, now: Instant) {
        self.table.lock().mark_known(self.client, now);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.table.lock().remove(self.client, self.id);
    }
}

impl TableState {
    fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn count(&self, client: IpAddr) -> usize {
        self.clients.get(&client).map_or(0, |connections| connections.open.len())
    }

    fn is_known(&self, client: IpAddr, now: Instant) -> bool {
        // Not all of 127.0.0.0/8: only these two are the usual addresses of local clients.
        client == Ipv4Addr::LOCALHOST
            || client == Ipv6Addr::LOCALHOST
            || self.known.get(&client).is_some_and(|until| *until > now)
    }

    fn mark_known(&mut self, client: IpAddr, now: Instant) {
        if self.known.len() >= MAX_KNOWN && !self.known.contains_key(&client) {
            self.known.retain(|_, until| *until > now);
            if self.known.len() >= MAX_KNOWN {
                return;
            }
        }
        self.known.insert(client, now + KNOWN_TIME);
    }

    /// Returns false if the connection is no longer in the table.
    fn set_waiting(&mut self, client: IpAddr, id: u64, is_waiting: bool) -> bool {
        let number = self.next_number();
        let Some(connections) = self.clients.get_mut(&client) else { return false };
        let Some(connection) = connections.open.get_mut(&id) else { return false };
        match (connection.waiting_since, is_waiting) {
            (Some(since), false) => {
                connections.waiting.remove(&since);
                connection.waiting_since = None;
            }
            (None, true) => {
                connections.waiting.insert(number, id);
                connection.waiting_since = Some(number);
            }
            (Some(_), true) | (None, false) => {}
        }
        true
    }

    fn close_waiting_of_busiest(&mut self, now: Instant) -> bool {
        let busiest = self
            .clients
            .iter()
            .filter_map(|(client, connections)| {
                let (oldest, _) = connections.waiting.first_key_value()?;
                let waiting = connections.waiting.len();
                let weight =
                    if self.is_known(*client, now) { waiting } else { waiting * KNOWN_WEIGHT };
                // Of clients with the same number, the one that has waited longest.
                Some((weight, std::cmp::Reverse(*oldest), *client))
            })
            .max_by_key(|(weight, oldest, _)| (*weight, *oldest));
        busiest.is_some_and(|(_, _, client)| self.close_waiting(client))
    }

    /// Closes the connection of the client that has waited longest. Returns false if none waits.
    fn close_waiting(&mut self, client: IpAddr) -> bool {
        let Some((_, id)) =
            self.clients.get(&client).and_then(|connections| connections.waiting.first_key_value())
        else {
            return false;
        };
        let id = *id;
        if let Some(connection) = self.remove(client, id) {
            // Stores a permit if the task does not wait yet.
            connection.closing.notify_one();
            self.closed_for_others += 1;
        }
        true
    }

    fn remove(&mut self, client: IpAddr, id: u64) -> Option<OpenConnection> {
        let connections = self.clients.get_mut(&client)?;
        let connection = connections.open.remove(&id)?;
        if let Some(since) = connection.waiting_since {
            connections.waiting.remove(&since);
        }
        if connections.open.is_empty() {
            self.clients.remove(&client);
        }
        self.total -= 1;
        Some(connection)
    }
}

#[cfg(test)]
mod tests;
