// SPDX-License-Identifier: Apache-2.0
//! The settings of the DHCPv6 server.

use std::collections::HashSet;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use crate::{DhcpMode, FirstStageLoaders, HardwareAddress};

/// The settings of the DHCPv6 server.
#[derive(Debug, Clone)]
pub struct Dhcp6Settings {
    /// The server's DUID. It must not change between restarts, because clients renew with it.
    pub duid: Vec<u8>,
    /// The interfaces to listen on.
    pub interfaces: Vec<Dhcp6Interface>,
    /// The subnets of direct and relayed clients.
    pub subnets: Vec<Dhcp6Subnet>,
    /// Hardware addresses that never get a reply.
    pub ignored: HashSet<HardwareAddress>,
    /// The boot loaders that firmware loads by TFTP.
    pub first_stage_loaders: FirstStageLoaders,
}

/// One interface the server listens on.
#[derive(Debug, Clone)]
pub struct Dhcp6Interface {
    /// The name, for example `eth1`.
    pub name: Arc<str>,
    /// The server's global address on it: the TFTP server, and the key to a direct client's subnet.
    pub address: Ipv6Addr,
}

/// One subnet and the configuration of its clients.
#[derive(Debug, Clone)]
pub struct Dhcp6Subnet {
    /// Any address of the subnet.
    pub network: Ipv6Addr,
    /// The prefix length.
    pub prefix: u8,
    /// Which clients get a reply, directly or through relays.
    pub mode: DhcpMode,
    /// The first and last dynamic address; `None` for a stateless subnet.
    pub range: Option<(Ipv6Addr, Ipv6Addr)>,
    /// DNS servers.
    pub dns: Vec<Ipv6Addr>,
    /// The duration of a DHCP lease.
    pub lease_time: Duration,
    /// The TFTP server; `None` for this server's address.
    pub tftp_server: Option<Ipv6Addr>,
}

impl Dhcp6Settings {
    /// Returns the subnet that contains an address, the smallest one if several do.
    #[must_use]
    pub fn subnet_containing(&self, address: Ipv6Addr) -> Option<&Dhcp6Subnet> {
        let matching = self.subnets.iter().filter(|subnet| subnet.contains(address));
        matching.max_by_key(|subnet| subnet.prefix)
    }

    /// Returns the mode of the subnet that the interface's address is in.
    pub(super) fn interface_mode(&self, interface: &Dhcp6Interface) -> DhcpMode {
        self.subnet_containing(interface.address).map_or(DhcpMode::Off, |subnet| subnet.mode)
    }
}

impl Dhcp6Subnet {
    /// Returns a stateless subnet without options.
    #[must_use]
    pub fn new(network: Ipv6Addr, prefix: u8, mode: DhcpMode) -> Self {
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

    /// Returns whether the address is in this subnet.
    #[must_use]
    pub fn contains(&self, address: Ipv6Addr) -> bool {
        let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
        address.to_bits() & mask == self.network.to_bits() & mask
    }

    /// Returns whether the address is in the range.
    #[must_use]
    pub fn in_range(&self, address: Ipv6Addr) -> bool {
        self.contains(address)
            && self.range.is_some_and(|(first, last)| (first..=last).contains(&address))
    }
}
