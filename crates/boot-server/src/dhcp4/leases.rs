// SPDX-License-Identifier: Apache-2.0
//! DHCPv4 leases and the choice of addresses.
//!
//! Clients are identified by hardware address, not by client identifier: firmware, iPXE and the ramdisk
//! of one boot send three different identifiers and would use three addresses. Only a client without a
//! hardware address in the header (InfiniBand) is identified by its client identifier.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use dhcp_codec::v4::{Dhcp4Packet, option_code};
use node_model::Timestamp;

use super::config::{Dhcp4Subnet, range_size};
use super::unknown_holders::UnknownHolders;
use crate::dhcp_loop::DurableDhcpLeases;
use crate::{DhcpLeaseRecord, DhcpLeaseStore, DhcpLeaseStoreError};

/// How long an offered address is held for the client's request. Slow firmware takes ten seconds.
const OFFER_TIME: Duration = Duration::from_secs(60);
/// The same for unknown machines, of which every host can invent any number.
const UNKNOWN_OFFER_TIME: Duration = Duration::from_secs(20);
/// How long an address that another host uses is not assigned.
const CONFLICT_TIME: Duration = Duration::from_secs(3600);
/// How long an expired DHCP lease is kept, so that the client gets the same address again.
const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
/// The number of new DHCP leases between two purges of expired ones.
const LEASES_PER_PURGE: u32 = 4096;

/// The key of a client: hardware type and address, or a zero byte and the client identifier.
pub(crate) type DhcpClientKey = Box<[u8]>;

/// The DHCPv4 leases of one server. Each address has at most one entry, so it has at most one holder.
pub struct DhcpLeases4 {
    by_address: HashMap<Ipv4Addr, DhcpLease4>,
    by_client: HashMap<DhcpClientKey, Ipv4Addr>,
    store: Box<dyn DhcpLeaseStore>,
    is_dirty: bool,
    /// Subnets without a free address, with the time at which one expires. Cleared when an address is
    /// released. Avoids a search of the whole range for each request.
    full_until: HashMap<Ipv4Addr, Timestamp>,
    unknown_holders: UnknownHolders,
    /// The number of DHCP leases until the next purge. 0 after a restart, so the first lease purges.
    leases_until_purge: u32,
}

/// The entry of one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DhcpLease4 {
    /// The key of the current or last holder.
    pub client: Box<[u8]>,
    /// The state.
    pub state: DhcpLeaseState,
    /// The end of the lease or offer. After it any client may get the address, the last holder first.
    pub expires_at: Timestamp,
    /// The network address of the subnet if the holder is an unknown machine.
    pub unknown_on: Option<Ipv4Addr>,
}

/// Who gets an address.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaseHolder<'a> {
    /// The key of the client.
    pub(super) client: &'a [u8],
    /// The network address of the subnet if the machine is unknown.
    pub(super) unknown_on: Option<Ipv4Addr>,
}

/// The state of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DhcpLeaseState {
    /// Offered and not yet requested. Not stored, so a restart drops it.
    Offered,
    /// Leased.
    Leased,
    /// Used by a host that did not get it from this server.
    Conflict,
}

impl DhcpLeases4 {
    /// Loads the DHCP leases from a store.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn load(mut store: Box<dyn DhcpLeaseStore>) -> Result<Self, DhcpLeaseStoreError> {
        let mut leases = Self {
            by_address: HashMap::new(),
            by_client: HashMap::new(),
            store: Box::new(crate::InMemoryDhcpLeaseStore::default()),
            is_dirty: false,
            full_until: HashMap::new(),
            unknown_holders: UnknownHolders::default(),
            leases_until_purge: 0,
        };
        let mut newest: HashMap<DhcpClientKey, Timestamp> = HashMap::new();
        for record in store.load()? {
            let IpAddr::V4(address) = record.address else { continue };
            let client = DhcpClientKey::from(record.client);
            let expires_at = record.expires_at;
            if client.is_empty() {
                let state = DhcpLeaseState::Conflict;
                let lease = DhcpLease4 { client, state, expires_at, unknown_on: None };
                leases.by_address.insert(address, lease);
                continue;
            }
            if newest.get(&client).is_none_or(|known| *known < expires_at) {
                newest.insert(client.clone(), expires_at);
                leases.by_client.insert(client.clone(), address);
            }
            let state = DhcpLeaseState::Leased;
            let lease = DhcpLease4 { client, state, expires_at, unknown_on: None };
            leases.unknown_holders.add_loaded(address, expires_at);
            leases.by_address.insert(address, lease);
        }
        leases.store = store;
        Ok(leases)
    }

    /// Returns the entry of an address.
    #[must_use]
    pub fn get(&self, address: Ipv4Addr) -> Option<&DhcpLease4> {
        self.by_address.get(&address)
    }

    /// Returns whether the client holds an unexpired lease of the address.
    #[must_use]
    pub(crate) fn holds(&self, client: &[u8], address: Ipv4Addr, now: Timestamp) -> bool {
        self.by_address.get(&address).is_some_and(|lease| {
            lease.state == DhcpLeaseState::Leased
                && *lease.client == *client
                && lease.expires_at > now
        })
    }

    /// Quarantines an offered address for which a host replied to a probe. Does nothing if it was leased in the
    /// meantime, because then the new holder replied.
    pub fn report_conflict(&mut self, address: Ipv4Addr, now: Timestamp) {
        let is_leased = self
            .by_address
            .get(&address)
            .is_some_and(|lease| lease.state == DhcpLeaseState::Leased && lease.expires_at > now);
        if !is_leased {
            self.quarantine(address, now);
        }
    }

    /// Makes an address unavailable for one hour.
    pub(super) fn quarantine(&mut self, address: Ipv4Addr, now: Timestamp) {
        self.remove_entry(address);
        let expires_at = now.plus(CONFLICT_TIME);
        let lease = DhcpLease4 {
            client: DhcpClientKey::default(),
            state: DhcpLeaseState::Conflict,
            expires_at,
            unknown_on: None,
        };
        self.by_address.insert(address, lease);
        // A record without a client is loaded as a conflict after a restart.
        self.is_dirty = true;
        self.store.record(DhcpLeaseRecord {
            address: address.into(),
            client: Vec::new(),
            expires_at,
        });
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

    /// Replaces entries by records of other processes. Their holders count as unknown machines, as after a
    /// restart.
    fn apply(&mut self, mut records: Vec<DhcpLeaseRecord>) {
        // The lease of a client that expires last wins.
        records.sort_by_key(|record| record.expires_at);
        for DhcpLeaseRecord { address, client, expires_at } in records {
            let IpAddr::V4(address) = address else { continue };
            let state =
                if client.is_empty() { DhcpLeaseState::Conflict } else { DhcpLeaseState::Leased };
            let is_known = self.by_address.get(&address).is_some_and(|lease| {
                *lease.client == *client && lease.state == state && lease.expires_at == expires_at
            });
            if is_known {
                continue;
            }
            if client.is_empty() {
                self.remove_entry(address);
                let client = DhcpClientKey::default();
                let lease = DhcpLease4 { client, state, expires_at, unknown_on: None };
                self.by_address.insert(address, lease);
            } else {
                let holder = LeaseHolder { client: &client, unknown_on: None };
                self.insert(holder, address, state, expires_at);
                self.unknown_holders.add_loaded(address, expires_at);
            }
            self.full_until.clear();
        }
    }

    fn remove_entry(&mut self, address: Ipv4Addr) {
        if let Some(old) = self.by_address.remove(&address) {
            self.unknown_holders.remove(old.unknown_on, address, old.expires_at);
            self.unlink_client(&old.client, address);
        }
    }

    /// Returns whether anything was recorded since the last commit.
    #[must_use]
    pub fn needs_commit(&self) -> bool {
        self.is_dirty
    }

    /// Returns whether no other client has an unexpired claim on the address.
    pub(super) fn is_available_to(&self, client: &[u8], address: Ipv4Addr, now: Timestamp) -> bool {
        self.by_address.get(&address).is_none_or(|lease| {
            lease.expires_at <= now
                || (*lease.client == *client && lease.state != DhcpLeaseState::Conflict)
        })
    }

    /// Returns whether an unknown client may get an address of the subnet: it holds one already, or unknown
    /// clients hold less than their share.
    pub(super) fn unknown_may_lease(
        &mut self,
        subnet: &Dhcp4Subnet,
        client: &[u8],
        now: Timestamp,
    ) -> bool {
        let held = self.by_client.get(client).and_then(|address| self.by_address.get(address));
        held.is_some_and(|lease| *lease.client == *client && lease.expires_at > now)
            || self.unknown_holders.count(subnet, now) < subnet.unknown_limit()
    }

    /// Returns the current or last address of the client if it is still available to it.
    pub(super) fn previous_address(&self, client: &[u8], now: Timestamp) -> Option<Ipv4Addr> {
        let address = *self.by_client.get(client)?;
        self.is_available_to(client, address, now).then_some(address)
    }

    /// Returns a free dynamic address: one that was never used, else the one that expired first. The
    /// search starts at an offset that is derived from the client, so that a client gets the same address
    /// even if the DHCP leases were lost.
    pub(super) fn pick_address(
        &mut self,
        subnet: &Dhcp4Subnet,
        client: &[u8],
        server: Ipv4Addr,
        now: Timestamp,
    ) -> Option<Ipv4Addr> {
        if self.full_until.get(&subnet.network).is_some_and(|expires_at| *expires_at > now) {
            return None;
        }
        let sizes = subnet.ranges.iter().map(|(first, last)| range_size(*first, *last));
        let total: u64 = sizes.sum();
        if total == 0 {
            return None;
        }
        let start = fnv1a(client) % total;
        let mut expired_first: Option<(Timestamp, Ipv4Addr)> = None;
        let mut next_expiry: Option<Timestamp> = None;
        for step in 0..total {
            let address = nth_address(subnet, (start + step) % total)?;
            let taken = !subnet.is_usable(address)
                || address == server
                || Some(address) == subnet.gateway
                || subnet.reservations.iter().any(|host| host.address == address);
            if taken {
                continue;
            }
            match self.by_address.get(&address) {
                None => return Some(address),
                Some(lease) if lease.expires_at <= now => {
                    if expired_first.is_none_or(|(expires_at, _)| lease.expires_at < expires_at) {
                        expired_first = Some((lease.expires_at, address));
                    }
                }
                Some(lease) => {
                    next_expiry =
                        Some(next_expiry.map_or(lease.expires_at, |expires_at| {
                            expires_at.min(lease.expires_at)
                        }));
                }
            }
        }
        if expired_first.is_none()
            && let Some(next_expiry) = next_expiry
        {
            self.full_until.insert(subnet.network, next_expiry);
        }
        expired_first.map(|(_, address)| address)
    }

    /// Holds the address for the client until it requests it. An existing lease is unchanged.
    pub(super) fn offer(&mut self, holder: LeaseHolder<'_>, address: Ipv4Addr, now: Timestamp) {
        if !self.holds(holder.client, address, now) {
            let is_unknown = holder.unknown_on.is_some();
            let time = if is_unknown { UNKNOWN_OFFER_TIME } else { OFFER_TIME };
            self.insert(holder, address, DhcpLeaseState::Offered, now.plus(time));
        }
    }

    /// Leases the address to the client.
    pub(super) fn lease(
        &mut self,
        holder: LeaseHolder<'_>,
        address: Ipv4Addr,
        expires_at: Timestamp,
        now: Timestamp,
    ) {
        self.insert(holder, address, DhcpLeaseState::Leased, expires_at);
        self.is_dirty = true;
        self.store.record(DhcpLeaseRecord {
            address: address.into(),
            client: holder.client.to_vec(),
            expires_at,
        });
        self.purge_expired(now);
    }

    /// Frees the address that was offered to the client, which chose another server.
    pub(super) fn withdraw_offer(&mut self, client: &[u8], now: Timestamp) {
        let Some(address) = self.by_client.get(client).copied() else { return };
        if let Some(lease) = self.by_address.get_mut(&address)
            && lease.state == DhcpLeaseState::Offered
            && *lease.client == *client
        {
            self.unknown_holders.remove(lease.unknown_on, address, lease.expires_at);
            lease.expires_at = now;
            self.full_until.clear();
        }
    }

    /// Ends the lease. The client stays recorded as the last holder. Returns false if it held no lease.
    pub(super) fn release(&mut self, client: &[u8], address: Ipv4Addr, now: Timestamp) -> bool {
        if !self.holds(client, address, now) {
            return false;
        }
        self.full_until.clear();
        self.lease(LeaseHolder { client, unknown_on: None }, address, now, now);
        true
    }

    /// Periodically removes DHCP leases that expired long ago.
    fn purge_expired(&mut self, now: Timestamp) {
        let Some(remaining) = self.leases_until_purge.checked_sub(1) else {
            self.leases_until_purge = LEASES_PER_PURGE;
            self.by_address.retain(|_, lease| lease.expires_at.plus(RETENTION) > now);
            self.by_client.retain(|_, address| self.by_address.contains_key(address));
            self.store.purge(&|record| record.expires_at.plus(RETENTION) <= now);
            return;
        };
        self.leases_until_purge = remaining;
    }

    fn insert(
        &mut self,
        holder: LeaseHolder<'_>,
        address: Ipv4Addr,
        state: DhcpLeaseState,
        expires_at: Timestamp,
    ) {
        let LeaseHolder { client, unknown_on } = holder;
        let lease = DhcpLease4 { client: client.into(), state, expires_at, unknown_on };
        if let Some(old) = self.by_address.insert(address, lease) {
            self.unknown_holders.remove(old.unknown_on, address, old.expires_at);
            if *old.client != *client {
                self.unlink_client(&old.client, address);
            }
        }
        if let Some(network) = unknown_on {
            self.unknown_holders.add(network, address, expires_at);
        }
        if let Some(previous) = self.by_client.insert(client.into(), address)
            && previous != address
            // A superseded offer is freed at once. A superseded lease is kept until it expires, because the
            // client may still use the address.
            && let Some(lease) = self.by_address.get(&previous)
            && lease.state == DhcpLeaseState::Offered
            && *lease.client == *client
        {
            self.unknown_holders.remove(lease.unknown_on, previous, lease.expires_at);
            self.by_address.remove(&previous);
            self.full_until.clear();
        }
    }

    fn unlink_client(&mut self, client: &[u8], address: Ipv4Addr) {
        if self.by_client.get(client) == Some(&address) {
            self.by_client.remove(client);
        }
    }
}

impl DurableDhcpLeases for DhcpLeases4 {
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

impl std::fmt::Debug for DhcpLeases4 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DhcpLeases4").field("by_address", &self.by_address).finish_non_exhaustive()
    }
}

/// Returns the key of the client that sent a packet, `None` if the packet identifies no client.
pub(super) fn client_key(packet: &Dhcp4Packet) -> Option<DhcpClientKey> {
    let hardware = packet.hardware;
    if hardware.is_empty() {
        let id = packet.options.get(option_code::CLIENT_ID).filter(|id| !id.is_empty())?;
        return Some([&[0], id].concat().into());
    }
    Some([&[hardware.hardware_type()], hardware.bytes()].concat().into())
}

/// Returns the address at this offset in the concatenated ranges of the subnet.
fn nth_address(subnet: &Dhcp4Subnet, mut offset: u64) -> Option<Ipv4Addr> {
    for (first, last) in &subnet.ranges {
        let size = range_size(*first, *last);
        if offset < size {
            return Some(Ipv4Addr::from_bits(first.to_bits() + offset as u32));
        }
        offset -= size;
    }
    None
}

/// Returns the FNV-1a hash. Unlike the standard library's hasher it is stable across versions.
pub(crate) fn fnv1a(client: &[u8]) -> u64 {
    client.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
