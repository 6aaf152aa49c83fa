// SPDX-License-Identifier: Apache-2.0
//! DHCPv6 leases. A client is identified by its DUID and the IAID.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use node_model::Timestamp;

use super::config::Dhcp6Subnet;
use crate::dhcp_loop::DurableDhcpLeases;
use crate::dhcp4::fnv1a;
use crate::{DhcpLeaseRecord, DhcpLeaseStore, DhcpLeaseStoreError};

/// How long an advertised address is held for the client's request.
const OFFER_TIME: Duration = Duration::from_secs(60);
/// How long an address that another host uses is not assigned.
const CONFLICT_TIME: Duration = Duration::from_secs(3600);
/// The number of addresses that are tried in a range before it counts as full.
const MAX_TRIES: u128 = 65_536;
/// The maximum number of entries. A range may have 2^64 addresses, and requests with invented DUIDs must
/// not exhaust the memory.
const MAX_LEASES: usize = 65_536;
/// How long an expired DHCP lease is kept. The client gets the same address again even without an entry,
/// because the search starts at an offset that is derived from the client.
const RETENTION: Duration = Duration::from_secs(24 * 3600);
/// The number of new DHCP leases between two purges of expired ones.
const LEASES_PER_PURGE: u32 = 4096;

/// The DHCPv6 leases of one server. Each address has at most one entry, so it has at most one holder.
pub struct DhcpLeases6 {
    by_address: HashMap<Ipv6Addr, DhcpLease6>,
    by_client: HashMap<Box<[u8]>, Ipv6Addr>,
    store: Box<dyn DhcpLeaseStore>,
    is_dirty: bool,
    /// The number of DHCP leases until the next purge. 0 after a restart, so the first lease purges.
    leases_until_purge: u32,
    /// The time at which the next entry expires, if the table is full. Reset when an address is released.
    /// Avoids a search of all entries for each request.
    full_until: Option<Timestamp>,
}

/// The entry of one address.
struct DhcpLease6 {
    client: Box<[u8]>,
    is_leased: bool,
    expires_at: Timestamp,
}

impl DhcpLeases6 {
    /// Loads the DHCP leases from a store.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn load(mut store: Box<dyn DhcpLeaseStore>) -> Result<Self, DhcpLeaseStoreError> {
        let mut by_address = HashMap::new();
        let mut by_client = HashMap::new();
        let mut records = store.load()?;
        // The lease of a client that expires last wins.
        records.sort_by_key(|record| record.expires_at);
        for record in records {
            let IpAddr::V6(address) = record.address else { continue };
            let client: Box<[u8]> = record.client.into();
            // A record without a client is a conflict: another host uses the address.
            let is_leased = !client.is_empty();
            if is_leased {
                by_client.insert(client.clone(), address);
            }
            by_address
                .insert(address, DhcpLease6 { client, is_leased, expires_at: record.expires_at });
        }
        Ok(Self {
            by_address,
            by_client,
            store,
            is_dirty: false,
            leases_until_purge: 0,
            full_until: None,
        })
    }

    /// Makes the recorded DHCP leases durable. Replies may be sent only after that. Returns the addresses that
    /// another process has leased to another client; they must not be assigned.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn commit(&mut self) -> Result<Vec<IpAddr>, DhcpLeaseStoreError> {
        self.is_dirty = false;
        let conflicts = self.store.commit()?;
        let addresses = conflicts.iter().map(|record| record.address).collect();
        self.apply(conflicts);
        Ok(addresses)
    }

    /// Applies what other processes recorded.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn refresh(&mut self) -> Result<(), DhcpLeaseStoreError> {
        let changes = self.store.changes()?;
        self.apply(changes);
        Ok(())
    }

    fn apply(&mut self, mut records: Vec<DhcpLeaseRecord>) {
        records.sort_by_key(|record| record.expires_at);
        for record in records {
            let IpAddr::V6(address) = record.address else { continue };
            let is_leased = !record.client.is_empty();
            let is_known = self.by_address.get(&address).is_some_and(|entry| {
                *entry.client == *record.client
                    && entry.expires_at == record.expires_at
                    && entry.is_leased == is_leased
            });
            if is_known {
                continue;
            }
            if is_leased {
                self.insert(&record.client, address, true, record.expires_at);
            } else {
                let entry = DhcpLease6 {
                    client: Box::default(),
                    is_leased: false,
                    expires_at: record.expires_at,
                };
                if let Some(old) = self.by_address.insert(address, entry)
                    && self.by_client.get(&old.client) == Some(&address)
                {
                    self.by_client.remove(&old.client);
                }
            }
            self.full_until = None;
        }
    }

    /// Returns whether anything was recorded since the last commit.
    #[must_use]
    pub fn needs_commit(&self) -> bool {
        self.is_dirty
    }

    pub(super) fn holds(&self, client: &[u8], address: Ipv6Addr, now: Timestamp) -> bool {
        self.by_address.get(&address).is_some_and(|entry| {
            entry.is_leased && *entry.client == *client && entry.expires_at > now
        })
    }

    pub(super) fn is_available_to(&self, client: &[u8], address: Ipv6Addr, now: Timestamp) -> bool {
        self.by_address
            .get(&address)
            .is_none_or(|entry| entry.expires_at <= now || *entry.client == *client)
    }

    pub(super) fn previous_address(&self, client: &[u8], now: Timestamp) -> Option<Ipv6Addr> {
        let address = *self.by_client.get(client)?;
        self.is_available_to(client, address, now).then_some(address)
    }

    /// Returns a free address of the range. The search starts at an offset that is derived from the client.
    pub(super) fn pick_address(
        &mut self,
        subnet: &Dhcp6Subnet,
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
        let start = u128::from(fnv1a(client)) % total;
        (0..total.min(MAX_TRIES))
            .map(|step| Ipv6Addr::from_bits(first.to_bits() + (start + step) % total))
            .find(|address| {
                *address != server
                    && subnet.contains(*address)
                    && self.is_available_to(client, *address, now)
            })
    }

    /// Returns whether the address has an entry or the table has room for one.
    pub(super) fn has_room_for(&mut self, address: Ipv6Addr, now: Timestamp) -> bool {
        self.by_address.contains_key(&address) || self.has_room(now)
    }

    pub(super) fn offer(&mut self, client: &[u8], address: Ipv6Addr, now: Timestamp) {
        if !self.holds(client, address, now) {
            self.insert(client, address, false, now.plus(OFFER_TIME));
        }
    }

    pub(super) fn lease(
        &mut self,
        client: &[u8],
        address: Ipv6Addr,
        expires_at: Timestamp,
        now: Timestamp,
    ) {
        self.insert(client, address, true, expires_at);
        self.store_record(client, address, expires_at);
        if let Some(remaining) = self.leases_until_purge.checked_sub(1) {
            self.leases_until_purge = remaining;
        } else {
            self.leases_until_purge = LEASES_PER_PURGE;
            self.purge_expired(RETENTION, now);
        }
    }

    pub(super) fn release(&mut self, client: &[u8], address: Ipv6Addr, now: Timestamp) -> bool {
        let was_held = self.holds(client, address, now);
        if was_held {
            self.full_until = None;
            self.lease(client, address, now, now);
        }
        was_held
    }

    pub(super) fn decline(&mut self, client: &[u8], address: Ipv6Addr, now: Timestamp) -> bool {
        // Other processes accept the conflict only for an address that no client holds.
        let was_held = self.release(client, address, now);
        if was_held {
            let expires_at = now.plus(CONFLICT_TIME);
            self.by_client.remove(client);
            self.by_address.insert(
                address,
                DhcpLease6 { client: Box::default(), is_leased: false, expires_at },
            );
            self.store_record(&[], address, expires_at);
        }
        was_held
    }

    /// Returns whether the table has room for another entry, after a purge if it is full.
    fn has_room(&mut self, now: Timestamp) -> bool {
        if self.by_address.len() < MAX_LEASES {
            return true;
        }
        if self.full_until.is_some_and(|expires_at| expires_at > now) {
            return false;
        }
        self.purge_expired(Duration::ZERO, now);
        let is_full = self.by_address.len() >= MAX_LEASES;
        let next_expiry = self.by_address.values().map(|entry| entry.expires_at).min();
        self.full_until = next_expiry.filter(|_| is_full);
        !is_full
    }

    /// Removes DHCP leases that expired at least this long ago, also from the store.
    fn purge_expired(&mut self, ago: Duration, now: Timestamp) {
        self.by_address.retain(|_, entry| entry.expires_at.plus(ago) > now);
        self.by_client.retain(|_, address| self.by_address.contains_key(address));
        self.store.purge(&|record| record.expires_at.plus(ago) <= now);
    }

    fn insert(&mut self, client: &[u8], address: Ipv6Addr, is_leased: bool, expires_at: Timestamp) {
        let entry = DhcpLease6 { client: client.into(), is_leased, expires_at };
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

    fn store_record(&mut self, client: &[u8], address: Ipv6Addr, expires_at: Timestamp) {
        self.is_dirty = true;
        self.store.record(DhcpLeaseRecord {
            address: address.into(),
            client: client.to_vec(),
            expires_at,
        });
    }
}

impl DurableDhcpLeases for DhcpLeases6 {
    fn needs_commit(&self) -> bool {
        self.needs_commit()
    }

    fn commit(&mut self) -> Result<Vec<IpAddr>, DhcpLeaseStoreError> {
        self.commit()
    }

    fn is_stale(&self) -> bool {
        self.store.is_stale()
    }

    fn refresh(&mut self) -> Result<(), DhcpLeaseStoreError> {
        self.refresh()
    }
}

impl std::fmt::Debug for DhcpLeases6 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DhcpLeases6")
            .field("addresses", &self.by_address.len())
            .finish_non_exhaustive()
    }
}
