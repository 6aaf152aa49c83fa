// SPDX-License-Identifier: Apache-2.0
//! Who has which address, and which one a new machine gets.
//!
//! A machine is told apart by its card, not by its client identifier: firmware, iPXE and the ramdisk
//! of one boot send three different identifiers, and would use up three addresses. Only a client
//! without a card address in the header (InfiniBand) goes by its identifier.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use node_model::Timestamp;

use super::config::Subnet;
use super::packet::Packet;
use crate::LeaseRecord;
use crate::dhcp4::code;
use crate::serving::Durable;
use crate::{LeaseBook, LeaseBookError};

/// How long an offered address waits for the client's request. Slow firmware takes ten seconds.
const OFFER_TIME: Duration = Duration::from_secs(60);
/// How long an address that somebody else was found to use is left alone.
const CONFLICT_TIME: Duration = Duration::from_secs(3600);
/// How long the last owner of an address is remembered.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// After so many leases those that ended long ago are forgotten.
const LEASES_PER_CLEANING: u32 = 4096;

/// Whom an address belongs to: the card's kind and bytes, or a zero and the client identifier.
pub(crate) type Client = Box<[u8]>;

/// All leases of one server. An address has one entry, so it never has two owners.
pub struct Leases {
    by_address: HashMap<Ipv4Addr, Lease>,
    by_client: HashMap<Client, Ipv4Addr>,
    book: Box<dyn LeaseBook>,
    is_dirty: bool,
    /// Networks found full: they stay so until then, or until something is given back. Spares a search
    /// of the whole range for every machine that asks in vain.
    full_until: HashMap<Ipv4Addr, Timestamp>,
    /// Leases to give until the next cleaning; after a restart the first one cleans.
    until_cleaning: u32,
}

/// One address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Whose it is, or was last.
    pub client: Box<[u8]>,
    /// Whether it is offered, leased or set aside.
    pub state: LeaseState,
    /// Until when; after that the address is free, and its last owner gets it first.
    pub until: Timestamp,
}

/// What an address is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// Offered, not yet asked for. Not written down: a restart forgets it.
    Offered,
    /// Leased.
    Leased,
    /// Somebody who did not ask us uses it.
    Conflict,
}

impl Leases {
    /// The leases in `book`.
    ///
    /// # Errors
    /// If the book cannot be read.
    pub fn load(mut book: Box<dyn LeaseBook>) -> Result<Self, LeaseBookError> {
        let mut leases = Self {
            by_address: HashMap::new(),
            by_client: HashMap::new(),
            book: Box::new(crate::MemoryLeaseBook::default()),
            is_dirty: false,
            full_until: HashMap::new(),
            until_cleaning: 0,
        };
        let mut newest: HashMap<Client, Timestamp> = HashMap::new();
        for record in book.load()? {
            let IpAddr::V4(address) = record.address else { continue };
            let client = Client::from(record.client);
            let until = record.until;
            if client.is_empty() {
                let lease = Lease { client, state: LeaseState::Conflict, until };
                leases.by_address.insert(address, lease);
                continue;
            }
            if newest.get(&client).is_none_or(|known| *known < until) {
                newest.insert(client.clone(), until);
                leases.by_client.insert(client.clone(), address);
            }
            let lease = Lease { client, state: LeaseState::Leased, until };
            leases.by_address.insert(address, lease);
        }
        leases.book = book;
        Ok(leases)
    }

    /// The entry of an address.
    #[must_use]
    pub fn get(&self, address: Ipv4Addr) -> Option<&Lease> {
        self.by_address.get(&address)
    }

    /// Whether the client has the address leased now.
    #[must_use]
    pub(crate) fn holds(&self, client: &[u8], address: Ipv4Addr, now: Timestamp) -> bool {
        self.by_address.get(&address).is_some_and(|lease| {
            lease.state == LeaseState::Leased && *lease.client == *client && lease.until > now
        })
    }

    /// Somebody answers at an address that was offered: it is set aside for an hour. If it was leased
    /// in the meantime, it is the new owner who answers, and nothing is wrong.
    pub fn conflict(&mut self, address: Ipv4Addr, now: Timestamp) {
        let is_leased = self
            .by_address
            .get(&address)
            .is_some_and(|lease| lease.state == LeaseState::Leased && lease.until > now);
        if !is_leased {
            self.set_aside(address, now);
        }
    }

    /// Nobody gets the address for an hour.
    pub(super) fn set_aside(&mut self, address: Ipv4Addr, now: Timestamp) {
        if let Some(old) = self.by_address.remove(&address) {
            self.forget_client(&old.client, address);
        }
        let until = now.plus(CONFLICT_TIME);
        let lease = Lease { client: Client::default(), state: LeaseState::Conflict, until };
        self.by_address.insert(address, lease);
        // Without a client it is known for a conflict after a restart too.
        self.is_dirty = true;
        self.book.record(LeaseRecord { address: address.into(), client: Vec::new(), until });
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

    /// Whether nobody but `client` has a claim on the address.
    pub(super) fn is_free_for(&self, client: &[u8], address: Ipv4Addr, now: Timestamp) -> bool {
        self.by_address.get(&address).is_none_or(|lease| {
            lease.until <= now || (*lease.client == *client && lease.state != LeaseState::Conflict)
        })
    }

    /// The address the client has or had last, if it is still free for it.
    pub(super) fn last_of(&self, client: &[u8], now: Timestamp) -> Option<Ipv4Addr> {
        let address = *self.by_client.get(client)?;
        self.is_free_for(client, address, now).then_some(address)
    }

    /// An address of the subnet's ranges that nobody has: one never used if there is one, else the one
    /// that has been free for longest. The search begins at a place that follows from the client, so
    /// that a machine gets the same address even when the leases were lost.
    pub(super) fn pick(
        &mut self,
        subnet: &Subnet,
        client: &[u8],
        server: Ipv4Addr,
        now: Timestamp,
    ) -> Option<Ipv4Addr> {
        if self.full_until.get(&subnet.network).is_some_and(|until| *until > now) {
            return None;
        }
        let sizes = subnet.ranges.iter().map(|(first, last)| range_size(*first, *last));
        let total: u64 = sizes.sum();
        if total == 0 {
            return None;
        }
        let start = place_of(client) % total;
        let mut oldest: Option<(Timestamp, Ipv4Addr)> = None;
        let mut soonest: Option<Timestamp> = None;
        for step in 0..total {
            let address = nth_address(subnet, (start + step) % total)?;
            let taken = !subnet.is_usable(address)
                || address == server
                || Some(address) == subnet.gateway
                || subnet.hosts.iter().any(|host| host.address == address);
            if taken {
                continue;
            }
            match self.by_address.get(&address) {
                None => return Some(address),
                Some(lease) if lease.until <= now => {
                    if oldest.is_none_or(|(until, _)| lease.until < until) {
                        oldest = Some((lease.until, address));
                    }
                }
                Some(lease) => {
                    soonest = Some(soonest.map_or(lease.until, |until| until.min(lease.until)));
                }
            }
        }
        if oldest.is_none()
            && let Some(soonest) = soonest
        {
            self.full_until.insert(subnet.network, soonest);
        }
        oldest.map(|(_, address)| address)
    }

    /// Keeps the address for the client until it asks for it. A lease it already has stays as it is.
    pub(super) fn offer(&mut self, client: &[u8], address: Ipv4Addr, now: Timestamp) {
        if !self.holds(client, address, now) {
            self.put(client, address, LeaseState::Offered, now.plus(OFFER_TIME));
        }
    }

    /// Gives the address to the client.
    pub(super) fn lease(
        &mut self,
        client: &[u8],
        address: Ipv4Addr,
        until: Timestamp,
        now: Timestamp,
    ) {
        self.put(client, address, LeaseState::Leased, until);
        self.is_dirty = true;
        self.book.record(LeaseRecord { address: address.into(), client: client.to_vec(), until });
        self.forget_long_ended(now);
    }

    /// The client chose another server: what was offered is free.
    pub(super) fn withdraw_offer(&mut self, client: &[u8], now: Timestamp) {
        let Some(address) = self.by_client.get(client).copied() else { return };
        if let Some(lease) = self.by_address.get_mut(&address)
            && lease.state == LeaseState::Offered
            && *lease.client == *client
        {
            lease.until = now;
            self.full_until.clear();
        }
    }

    /// The client gives its address back; it is remembered as the last owner.
    pub(super) fn release(&mut self, client: &[u8], address: Ipv4Addr, now: Timestamp) -> bool {
        if !self.holds(client, address, now) {
            return false;
        }
        self.full_until.clear();
        self.lease(client, address, now, now);
        true
    }

    /// Now and then, forgets what ended long ago: machines that left, and networks that are no longer.
    fn forget_long_ended(&mut self, now: Timestamp) {
        let Some(fewer) = self.until_cleaning.checked_sub(1) else {
            self.until_cleaning = LEASES_PER_CLEANING;
            self.by_address.retain(|_, lease| lease.until.plus(KEPT) > now);
            self.by_client.retain(|_, address| self.by_address.contains_key(address));
            self.book.forget(&|record| record.until.plus(KEPT) <= now);
            return;
        };
        self.until_cleaning = fewer;
    }

    fn put(&mut self, client: &[u8], address: Ipv4Addr, state: LeaseState, until: Timestamp) {
        let lease = Lease { client: client.into(), state, until };
        if let Some(old) = self.by_address.insert(address, lease)
            && *old.client != *client
        {
            self.forget_client(&old.client, address);
        }
        if let Some(previous) = self.by_client.insert(client.into(), address)
            && previous != address
            // An offer that was overtaken is free at once; a lease is kept until it ends, because
            // the client may still use the address.
            && let Some(lease) = self.by_address.get(&previous)
            && lease.state == LeaseState::Offered
            && *lease.client == *client
        {
            self.by_address.remove(&previous);
            self.full_until.clear();
        }
    }

    fn forget_client(&mut self, client: &[u8], address: Ipv4Addr) {
        if self.by_client.get(client) == Some(&address) {
            self.by_client.remove(client);
        }
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
        f.debug_struct("Leases").field("by_address", &self.by_address).finish_non_exhaustive()
    }
}

/// The bytes by which the sender of a packet is told apart; none if it says nothing of itself.
pub(super) fn client_of(packet: &Packet) -> Option<Client> {
    let card = packet.hardware;
    if card.is_empty() {
        let id = packet.options.get(code::CLIENT_ID).filter(|id| !id.is_empty())?;
        return Some([&[0], id].concat().into());
    }
    Some([&[card.kind()], card.bytes()].concat().into())
}

fn range_size(first: Ipv4Addr, last: Ipv4Addr) -> u64 {
    (u64::from(last.to_bits()) + 1).saturating_sub(u64::from(first.to_bits()))
}

fn nth_address(subnet: &Subnet, mut place: u64) -> Option<Ipv4Addr> {
    for (first, last) in &subnet.ranges {
        let size = range_size(*first, *last);
        if place < size {
            return Some(Ipv4Addr::from_bits(first.to_bits() + place as u32));
        }
        place -= size;
    }
    None
}

/// FNV-1a: the same on every machine and in every version, which the standard hasher is not.
pub(crate) fn place_of(client: &[u8]) -> u64 {
    client.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
