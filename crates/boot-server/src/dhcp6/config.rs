// SPDX-License-Identifier: Apache-2.0
//! What the DHCPv6 server is told.

use std::collections::HashSet;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use crate::{FirstStages, HardwareAddress, Mode};

/// The whole configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The server's identity, kept for good: clients renew by it.
    pub duid: Vec<u8>,
    /// Where to listen.
    pub interfaces: Vec<Interface>,
    /// The networks machines are on.
    pub subnets: Vec<Subnet>,
    /// Cards that are never answered.
    pub ignored: HashSet<HardwareAddress>,
    /// What firmware loads first by TFTP.
    pub first_stages: FirstStages,
}

/// One interface the server listens on.
#[derive(Debug, Clone)]
pub struct Interface {
    /// Its name.
    pub name: Arc<str>,
    /// Our global address on it: where TFTP is, and by which a direct client's network is found.
    pub address: Ipv6Addr,
}

/// One network and what its machines are told.
#[derive(Debug, Clone)]
pub struct Subnet {
    /// Any address of the network.
    pub network: Ipv6Addr,
    /// The length of its prefix.
    pub prefix: u8,
    /// Whom to answer there, directly or through relays.
    pub mode: Mode,
    /// First and last address to hand out; none for a stateless network.
    pub range: Option<(Ipv6Addr, Ipv6Addr)>,
    /// Name servers.
    pub dns: Vec<Ipv6Addr>,
    /// How long an address may be used.
    pub lease_time: Duration,
    /// The TFTP server, if it is not the DHCP server itself.
    pub tftp_server: Option<Ipv6Addr>,
}

impl Settings {
    /// The network an address is on; the smallest if there are several.
    #[must_use]
    pub fn subnet_of(&self, address: Ipv6Addr) -> Option<&Subnet> {
        let around = self.subnets.iter().filter(|subnet| subnet.contains(address));
        around.max_by_key(|subnet| subnet.prefix)
    }

    /// Whom to answer on the interface's own network.
    pub(super) fn mode_of(&self, interface: &Interface) -> Mode {
        self.subnet_of(interface.address).map_or(Mode::Off, |subnet| subnet.mode)
    }
}

impl Subnet {
    /// A stateless network with nothing set.
    #[must_use]
    pub fn new(network: Ipv6Addr, prefix: u8, mode: Mode) -> Self {
        Self {
            network,
            prefix: prefix.min(128),
            mode,
            range: None,
            dns: Vec::new(),
            lease_time: Duration::from_secs(3600),
            tftp_server: None,
        }
    }

    /// Whether the address is on this network.
    #[must_use]
    pub fn contains(&self, address: Ipv6Addr) -> bool {
        let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
        address.to_bits() & mask == self.network.to_bits() & mask
    }

    /// Whether the range holds the address.
    #[must_use]
    pub fn in_range(&self, address: Ipv6Addr) -> bool {
        self.contains(address)
            && self.range.is_some_and(|(first, last)| (first..=last).contains(&address))
    }
}
