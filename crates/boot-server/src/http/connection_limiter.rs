// SPDX-License-Identifier: Apache-2.0
//! Limits the number of connections, in total and per client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts the open connections.
#[derive(Debug, Default)]
pub(super) struct ConnectionLimiter(Mutex<ConnectionCounts>);

#[derive(Debug, Default)]
struct ConnectionCounts {
    total: usize,
    per_client: HashMap<IpAddr, usize>,
}

/// The permission for one connection, returned on drop.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    limiter: Arc<ConnectionLimiter>,
    client: IpAddr,
}

impl ConnectionLimiter {
    /// Returns a slot for another connection of this client, `None` if a limit is reached.
    pub(super) fn acquire(
        self: &Arc<Self>,
        client: IpAddr,
        max: usize,
        max_per_client: usize,
    ) -> Option<ConnectionSlot> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let client_count = counts.per_client.get(&client).copied().unwrap_or(0);
        if counts.total >= max || client_count >= max_per_client {
            return None;
        }
        counts.total += 1;
        counts.per_client.insert(client, client_count + 1);
        Some(ConnectionSlot { limiter: Arc::clone(self), client })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut counts = self.limiter.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.total -= 1;
        if let Some(count) = counts.per_client.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.per_client.remove(&self.client);
            }
        }
    }
}
