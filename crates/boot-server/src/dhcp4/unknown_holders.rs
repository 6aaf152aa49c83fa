// SPDX-License-Identifier: Apache-2.0
//! The addresses that unknown machines hold. Every host on the network can invent machines, so these get only
//! a share of each range.

use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;

use node_model::Timestamp;

use super::config::Dhcp4Subnet;

/// Addresses by their expiry.
type HeldAddresses = BTreeSet<(Timestamp, Ipv4Addr)>;

/// The addresses that unknown machines hold, by subnet.
#[derive(Debug, Default)]
pub(super) struct UnknownHolders {
    by_subnet: HashMap<Ipv4Addr, HeldAddresses>,
    /// Leases from before a restart. Their holders count as unknown until they renew.
    loaded: HeldAddresses,
}

impl UnknownHolders {
    /// Adds a lease from before a restart.
    pub(super) fn add_loaded(&mut self, address: Ipv4Addr, expires_at: Timestamp) {
        self.loaded.insert((expires_at, address));
    }

    /// Adds an address of an unknown machine on the subnet with this network address.
    pub(super) fn add(&mut self, network: Ipv4Addr, address: Ipv4Addr, expires_at: Timestamp) {
        self.by_subnet.entry(network).or_default().insert((expires_at, address));
    }

    /// Removes an address whose entry changes.
    pub(super) fn remove(
        &mut self,
        network: Option<Ipv4Addr>,
        address: Ipv4Addr,
        expires_at: Timestamp,
    ) {
        match network {
            None => {
                self.loaded.remove(&(expires_at, address));
            }
            Some(network) => {
                if let Some(held) = self.by_subnet.get_mut(&network) {
                    held.remove(&(expires_at, address));
                }
            }
        }
    }

    /// Returns the number of addresses of the subnet that unknown machines hold.
    pub(super) fn count(&mut self, subnet: &Dhcp4Subnet, now: Timestamp) -> usize {
        remove_expired(&mut self.loaded, now);
        let loaded = self.loaded.iter().filter(|(_, address)| subnet.in_range(*address)).count();
        let held = self.by_subnet.get_mut(&subnet.network).map_or(0, |held| {
            remove_expired(held, now);
            held.len()
        });
        loaded + held
    }
}

fn remove_expired(held: &mut HeldAddresses, now: Timestamp) {
    while held.first().is_some_and(|(expires_at, _)| *expires_at <= now) {
        held.pop_first();
    }
}
