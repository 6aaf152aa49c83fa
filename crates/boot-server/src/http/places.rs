// SPDX-License-Identifier: Apache-2.0
//! How many connections there are, in all and per client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The connections that there are.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    per_client: HashMap<IpAddr, usize>,
}

/// A place for one connection, given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    client: IpAddr,
}

impl Places {
    /// A place for one more connection of this client, if there may be one.
    pub(super) fn enter(
        self: &Arc<Self>,
        client: IpAddr,
        most: usize,
        most_per_client: usize,
    ) -> Option<Place> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_client = taken.per_client.get(&client).copied().unwrap_or(0);
        if taken.all >= most || of_client >= most_per_client {
            return None;
        }
        taken.all += 1;
        taken.per_client.insert(client, of_client + 1);
        Some(Place { places: Arc::clone(self), client })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        if let Some(count) = taken.per_client.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                taken.per_client.remove(&self.client);
            }
        }
    }
}
