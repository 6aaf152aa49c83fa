// SPDX-License-Identifier: Apache-2.0
//! Who has which IPv6 address. A client is its DUID and the number of its interface association.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use node_model::Timestamp;

use super::config::Subnet;
use crate::dhcp4::place_of;
use crate::serving::Durable;
use crate::{LeaseBook, LeaseBookError, LeaseRecord};

const OFFER_TIME: Duration = Duration::from_secs(60);
const CONFLICT_TIME: Duration = Duration::from_secs(3600);
/// Ranges are large; after this many taken addresses the range is as good as full.
const MOST_TRIES: u128 = 65_536;

/// The most addresses in use at a time: a range may hold 2^64, and a flood of made-up clients must not
/// fill the memory.
const MOST_ENTRIES: usize = 65_536;
/// How long an address that ended is remembered. Its owner gets it again all the same: a client's place
/// in the range follows from its identity.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// After so many leases those that ended long ago are forgotten.
const LEASES_PER_CLEANING: u32 = 4096;

/// All leases of one server. An address has one entry, so it never has two owners.
pub struct Leases {
    by_address: HashMap<Ipv6Addr, Entry>,
    by_client: HashMap<Box<[u8]>, Ipv6Addr>,
    book: Box<dyn LeaseBook>,
    is_dirty: bool,
    /// Leases to give until the next cleaning; after a restart the first one cleans.
    until_cleaning: u32,
    /// There is no room before then, unless something is given back. Spares a search of all entries
    /// for every client that asks in vain.
    full_until: Option<Timestamp>,
}

struct Entry {
    client: Box<[u8]>,
    is_leased: bool,
    until: Timestamp,
}

impl Leases {
    /// The leases in `book`.
    ///
    /// # Errors
    /// If the book cannot be read.
    pub fn load(mut book: Box<dyn LeaseBook>) -> Result<Self, LeaseBookError> {
        let mut by_address = HashMap::new();
        let mut by_client = HashMap::new();
        let mut records = book.load()?;
        // The newest lease of a client is the one it is given again.
        records.sort_by_key(|record| record.until);
        for record in records {
            let IpAddr::V6(address) = record.address else { continue };
            let client: Box<[u8]> = record.client.into();
            // An address without a client was found in use by another.
            let is_leased = !client.is_empty();
            if is_leased {
                by_client.insert(client.clone(), address);
            }
            by_address.insert(address, Entry { client, is_leased, until: record.until });
        }
        Ok(Self {
            by_address,
            by_client,
            book,
            is_dirty: false,
            until_cleaning: 0,
            full_until: None,
        })
    }

    /// Makes what was leased durable; only then may the replies be sent.
    ///
    /// # Errors
    /// If the book cannot be written.
    pub fn commit(&mut self) -> Result<(), LeaseBookError> {
        self.is_dirty = false;
        self.book.commit()
    }

    /// Whether there is anything to commit.
    #[must_use]
    pub fn needs_commit(&self) -> bool {
        self.is_dirty
    }

    pub(super) fn holds(&self, client: &[u8], address: Ipv6Addr, now: Timestamp) -> bool {
        self.by_address
            .get(&address)
            .is_some_and(|entry| entry.is_leased && *entry.client == *client && entry.until > now)
    }

    pub(super) fn is_free_for(&self, client: &[u8], address: Ipv6Addr, now: Timestamp) -> bool {
        self.by_address
            .get(&address)
            .is_none_or(|entry| entry.until <= now || *entry.client == *client)
    }

    pub(super) fn last_of(&self, client: &[u8], now: Timestamp) -> Option<Ipv6Addr> {
        let address = *self.by_client.get(client)?;
        self.is_free_for(client, address, now).then_some(address)
    }

    /// A free address of the range, at a place that follows from the client.
    pub(super) fn pick(
        &mut self,
        subnet: &Subnet,
        client: &[u8],
        server: Ipv6Addr,
        now: Timestamp,
    ) -> Option<Ipv6Addr> {
        let (first, last) = subnet.range?;
        if !self.has_room(now) {
            return None;
        }
        let span = last.to_bits().checked_sub(first.to_bits())?;
        let total = span.saturating_add(1);
        let start = u128::from(place_of(client)) % total;
        (0..total.min(MOST_TRIES))
            .map(|step| Ipv6Addr::from_bits(first.to_bits() + (start + step) % total))
            .find(|address| {
                *address != server
                    && subnet.contains(*address)
                    && self.is_free_for(client, *address, now)
            })
    }

    /// Whether an entry for the address can be had: it has one, or there is room for another.
    pub(super) fn can_hold(&mut self, address: Ipv6Addr, now: Timestamp) -> bool {
        self.by_address.contains_key(&address) || self.has_room(now)
    }

    pub(super) fn offer(&mut self, client: &[u8], address: Ipv6Addr, now: Timestamp) {
        if !self.holds(client, address, now) {
            self.put(client, address, false, now.plus(OFFER_TIME));
        }
    }

    pub(super) fn lease(
        &mut self,
        client: &[u8],
        address: Ipv6Addr,
        until: Timestamp,
        now: Timestamp,
    ) {
        self.put(client, address, true, until);
        self.record(client, address, until);
        if let Some(fewer) = self.until_cleaning.checked_sub(1) {
            self.until_cleaning = fewer;
        } else {
            self.until_cleaning = LEASES_PER_CLEANING;
            self.forget_ended(KEPT, now);
        }
    }

    pub(super) fn release(&mut self, client: &[u8], address: Ipv6Addr, now: Timestamp) -> bool {
        let held = self.holds(client, address, now);
        if held {
            self.full_until = None;
            self.lease(client, address, now, now);
        }
        held
    }

    pub(super) fn decline(&mut self, client: &[u8], address: Ipv6Addr, now: Timestamp) -> bool {
        let held = self.holds(client, address, now);
        if held {
            let until = now.plus(CONFLICT_TIME);
            self.by_client.remove(client);
            self.by_address
                .insert(address, Entry { client: Box::default(), is_leased: false, until });
            self.record(&[], address, until);
        }
        held
    }

    /// Whether there is room for another entry; what has ended is forgotten for it.
    fn has_room(&mut self, now: Timestamp) -> bool {
        if self.by_address.len() < MOST_ENTRIES {
            return true;
        }
        if self.full_until.is_some_and(|until| until > now) {
            return false;
        }
        self.forget_ended(Duration::ZERO, now);
        let is_full = self.by_address.len() >= MOST_ENTRIES;
        let soonest = self.by_address.values().map(|entry| entry.until).min();
        self.full_until = soonest.filter(|_| is_full);
        !is_full
    }

    /// Forgets, here and in the book, what ended at least so long ago.
    fn forget_ended(&mut self, ago: Duration, now: Timestamp) {
        self.by_address.retain(|_, entry| entry.until.plus(ago) > now);
        self.by_client.retain(|_, address| self.by_address.contains_key(address));
        self.book.forget(&|record| record.until.plus(ago) <= now);
    }

    fn put(&mut self, client: &[u8], address: Ipv6Addr, is_leased: bool, until: Timestamp) {
        let entry = Entry { client: client.into(), is_leased, until };
        if let Some(old) = self.by_address.insert(address, entry)
            && *old.client != *client
            && self.by_client.get(&old.client) == Some(&address)
        {
            self.by_client.remove(&old.client);
        }
        if let Some(previous) = self.by_client.insert(client.into(), address)
            && previous != address
            && self
                .by_address
                .get(&previous)
                .is_some_and(|entry| !entry.is_leased && *entry.client == *client)
        {
            self.by_address.remove(&previous);
        }
    }

    fn record(&mut self, client: &[u8], address: Ipv6Addr, until: Timestamp) {
        self.is_dirty = true;
        self.book.record(LeaseRecord { address: address.into(), client: client.to_vec(), until });
    }
}

impl Durable for Leases {
    fn needs_commit(&self) -> bool {
        self.needs_commit()
    }

    fn commit(&mut self) -> Result<(), LeaseBookError> {
        self.commit()
    }
}

impl std::fmt::Debug for Leases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leases").field("addresses", &self.by_address.len()).finish_non_exhaustive()
    }
}
