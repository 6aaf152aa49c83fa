// SPDX-License-Identifier: Apache-2.0
//! What the DHCPv4 server is told: interfaces, subnets, ranges, hosts, and whom to leave alone.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use crate::{FirstStages, HardwareAddress, Mode};

/// The whole configuration.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Where to listen.
    pub interfaces: Vec<Interface>,
    /// The networks addresses are given in, for direct and for relayed clients.
    pub subnets: Vec<Subnet>,
    /// Cards that are never answered.
    pub ignored: HashSet<HardwareAddress>,
    /// What firmware loads first by TFTP.
    pub first_stages: FirstStages,
}

/// One interface the server listens on.
#[derive(Debug, Clone)]
pub struct Interface {
    /// Its name, such as `eth1`.
    pub name: Arc<str>,
    /// Our address on it, which clients see as the server's.
    pub address: Ipv4Addr,
}

/// One network and what its machines are told.
#[derive(Debug, Clone)]
pub struct Subnet {
    /// Any address of the network.
    pub network: Ipv4Addr,
    /// The length of its prefix.
    pub prefix: u8,
    /// Whom to answer there, directly or through relays.
    pub mode: Mode,
    /// First and last address of each range to hand out; none for a network of reserved addresses only.
    pub ranges: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Addresses for certain cards.
    pub hosts: Vec<StaticHost>,
    /// The gateway.
    pub gateway: Option<Ipv4Addr>,
    /// Name servers.
    pub dns: Vec<Ipv4Addr>,
    /// Time servers.
    pub ntp: Vec<Ipv4Addr>,
    /// The domain.
    pub domain: Option<Arc<str>>,
    /// The largest packet on this network, if it is not Ethernet's.
    pub mtu: Option<u16>,
    /// How long a lease is.
    pub lease_time: Duration,
    /// The TFTP server, if it is not the DHCP server itself.
    pub tftp_server: Option<Ipv4Addr>,
}

/// A card with an address of its own.
#[derive(Debug, Clone)]
pub struct StaticHost {
    /// The card.
    pub hardware: HardwareAddress,
    /// Its address.
    pub address: Ipv4Addr,
}

impl Settings {
    /// The network an address is on; the smallest if there are several.
    #[must_use]
    pub fn subnet_of(&self, address: Ipv4Addr) -> Option<&Subnet> {
        let around = self.subnets.iter().filter(|subnet| subnet.contains(address));
        around.max_by_key(|subnet| subnet.prefix)
    }

    /// Whom to answer on the interface's own network.
    pub(super) fn mode_of(&self, interface: &Interface) -> Mode {
        self.subnet_of(interface.address).map_or(Mode::Off, |subnet| subnet.mode)
    }

    /// Whether a network that is reached through relays only is served beside its own DHCP.
    pub(super) fn has_distant_proxy(&self) -> bool {
        let is_distant = |subnet: &&Subnet| {
            !self.interfaces.iter().any(|interface| subnet.contains(interface.address))
        };
        self.subnets.iter().filter(is_distant).any(|subnet| subnet.mode == Mode::Proxy)
    }
}

impl Subnet {
    /// A network with nothing set but an hour's lease: provisioning is short, and addresses of machines
    /// that left come back the same hour.
    #[must_use]
    pub fn new(network: Ipv4Addr, prefix: u8, mode: Mode) -> Self {
        Self {
            network,
            prefix: prefix.min(32),
            mode,
            ranges: Vec::new(),
            hosts: Vec::new(),
            gateway: None,
            dns: Vec::new(),
            ntp: Vec::new(),
            domain: None,
            mtu: None,
            lease_time: Duration::from_secs(3600),
            tftp_server: None,
        }
    }

    /// The netmask.
    #[must_use]
    pub fn mask(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0))
    }

    /// The address of all machines on the network.
    #[must_use]
    pub fn broadcast(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network.to_bits() | !self.mask().to_bits())
    }

    /// Whether the address is on this network.
    #[must_use]
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        let mask = self.mask().to_bits();
        address.to_bits() & mask == self.network.to_bits() & mask
    }

    /// Whether a machine may have the address: on the network, and not the network's own first or last.
    #[must_use]
    pub fn is_usable(&self, address: Ipv4Addr) -> bool {
        let first = Ipv4Addr::from_bits(self.network.to_bits() & self.mask().to_bits());
        let has_ends = self.prefix < 31;
        self.contains(address) && !(has_ends && (address == first || address == self.broadcast()))
    }

    /// Whether a range holds the address.
    #[must_use]
    pub fn in_range(&self, address: Ipv4Addr) -> bool {
        self.is_usable(address)
            && self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&address))
    }

    /// The host entry of a card.
    #[must_use]
    pub fn host(&self, hardware: HardwareAddress) -> Option<&StaticHost> {
        self.hosts.iter().find(|host| host.hardware == hardware)
    }
}
