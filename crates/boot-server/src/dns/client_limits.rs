// SPDX-License-Identifier: Apache-2.0
//! Limits of DNS queries: in total, per client, and per client and second.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use connection_limits::client_prefix;

/// The number of queries that are forwarded at once.
const MAX_QUERIES: usize = 256;
/// The number of queries of one client that are forwarded at once.
const MAX_QUERIES_PER_CLIENT: usize = 32;
/// The number of queries per second of one client.
const RATE: f64 = 50.0;
/// The number of queries that one client may send at once.
const BURST: f64 = 200.0;
/// The number of clients that are tracked. Idle ones are dropped first.
const MAX_CLIENTS: usize = 4096;

/// The queries of all clients. Clones share the limits.
#[derive(Debug, Clone, Default)]
pub(super) struct DnsClientLimits {
    clients: Arc<Mutex<DnsClients>>,
}

#[derive(Debug, Default)]
struct DnsClients {
    running: usize,
    by_address: HashMap<IpAddr, DnsClient>,
}

#[derive(Debug)]
struct DnsClient {
    running: usize,
    tokens: f64,
    refilled_at: Instant,
}

/// A query that is being handled. Dropping it ends it.
#[derive(Debug)]
pub(super) struct DnsQuerySlot {
    limits: DnsClientLimits,
    client: IpAddr,
}

impl DnsClientLimits {
    /// Admits a query of a client. Returns `None` if a limit is reached; then the query is dropped, and the
    /// client sends it again.
    pub(super) fn admit(&self, client: IpAddr, now: Instant) -> Option<DnsQuerySlot> {
        let client = client_prefix(client);
        let mut clients = self.lock();
        if clients.running >= MAX_QUERIES {
            return None;
        }
        if !clients.by_address.contains_key(&client) && clients.by_address.len() >= MAX_CLIENTS {
            clients.by_address.retain(|_, other| {
                other.refill(now);
                other.running > 0 || other.tokens < BURST
            });
            if clients.by_address.len() >= MAX_CLIENTS {
                return None;
            }
        }
        let entry = clients.by_address.entry(client).or_insert(DnsClient {
            running: 0,
            tokens: BURST,
            refilled_at: now,
        });
        entry.refill(now);
        if entry.tokens < 1.0 || entry.running >= MAX_QUERIES_PER_CLIENT {
            return None;
        }
        entry.tokens -= 1.0;
        entry.running += 1;
        clients.running += 1;
        Some(DnsQuerySlot { limits: self.clone(), client })
    }

    fn lock(&self) -> MutexGuard<'_, DnsClients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DnsClient {
    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.refilled_at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * RATE).min(BURST);
        self.refilled_at = now;
    }
}

impl Drop for DnsQuerySlot {
    fn drop(&mut self) {
        let mut clients = self.limits.lock();
        clients.running = clients.running.saturating_sub(1);
        if let Some(client) = clients.by_address.get_mut(&self.client) {
            client.running = client.running.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn queries_are_limited_per_client_and_in_total() {
        let limits = DnsClientLimits::default();
        let now = Instant::now();
        let client = |number: u8| IpAddr::from([10, 0, 0, number]);
        let held: Vec<_> = (0..MAX_QUERIES_PER_CLIENT)
            .map(|_| limits.admit(client(1), now).expect("within the limit"))
            .collect();
        assert!(limits.admit(client(1), now).is_none(), "too many at once");
        let mut others = Vec::new();
        for number in 2..=8 {
            others.extend(
                (0..MAX_QUERIES_PER_CLIENT).filter_map(|_| limits.admit(client(number), now)),
            );
        }
        assert_eq!(held.len() + others.len(), MAX_QUERIES);
        assert!(limits.admit(client(9), now).is_none(), "too many in total");
        drop((held, others));
        let sent = (0..1000).filter(|_| limits.admit(client(1), now).is_some()).count();
        assert_eq!(sent, BURST as usize - MAX_QUERIES_PER_CLIENT);
        let later = now + Duration::from_secs(1);
        let sent = (0..1000).filter(|_| limits.admit(client(1), later).is_some()).count();
        assert_eq!(sent, RATE as usize);
    }

    #[test]
    fn invented_addresses_do_not_fill_the_memory() {
        let limits = DnsClientLimits::default();
        let now = Instant::now();
        let address = |number: usize| IpAddr::from((0x0a00_0000 + number as u32).to_be_bytes());
        let admitted =
            (0..2 * MAX_CLIENTS).filter(|number| limits.admit(address(*number), now).is_some());
        assert_eq!(admitted.count(), MAX_CLIENTS);
        let later = now + Duration::from_secs(1);
        assert!(
            limits.admit(address(2 * MAX_CLIENTS), later).is_some(),
            "idle clients are dropped"
        );
    }
}
