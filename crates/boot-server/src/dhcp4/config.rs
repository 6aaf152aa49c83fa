// SPDX-License-Identifier: Apache-2.0
//! The settings of the DHCPv4 server.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use crate::{DhcpMode, FirstStageLoaders, HardwareAddress};

/// The settings of the DHCPv4 server.
#[derive(Debug, Clone, Default)]
pub struct Dhcp4Settings {
    /// The interfaces to listen on.
    pub interfaces: Vec<Dhcp4Interface>,
    /// The subnets of direct and relayed clients.
    pub subnets: Vec<Dhcp4Subnet>,
    /// Hardware addresses that never get a reply.
    pub ignored: HashSet<HardwareAddress>,
    /// The boot loaders that firmware loads by TFTP.
    pub first_stage_loaders: FirstStageLoaders,
}

/// The default of [`Dhcp4Subnet::unknown_share`].
pub const DEFAULT_UNKNOWN_SHARE: u8 = 75;

/// One interface the server listens on.
#[derive(Debug, Clone)]
pub struct Dhcp4Interface {
    /// The name, for example `eth1`.
    pub name: Arc<str>,
    /// The server's address on it, sent to clients as server identifier.
    pub address: Ipv4Addr,
}

/// One subnet and the configuration of its clients.
#[derive(Debug, Clone)]
pub struct Dhcp4Subnet {
    /// Any address of the subnet.
    pub network: Ipv4Addr,
    /// The prefix length.
    pub prefix: u8,
    /// Which clients get a reply, directly or through relays.
    pub mode: DhcpMode,
    /// The first and last address of each dynamic range. Empty if only reserved addresses are assigned.
    pub ranges: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Static reservations.
    pub reservations: Vec<StaticReservation>,
    /// The default gateway.
    pub gateway: Option<Ipv4Addr>,
    /// DNS servers.
    pub dns: Vec<Ipv4Addr>,
    /// NTP servers.
    pub ntp: Vec<Ipv4Addr>,
    /// The domain name.
    pub domain: Option<Arc<str>>,
    /// The MTU, if it is not the default of Ethernet.
    pub mtu: Option<u16>,
    /// The duration of a DHCP lease.
    pub lease_time: Duration,
    /// The TFTP server; `None` for this server's address.
    pub tftp_server: Option<Ipv4Addr>,
    /// The percentage of the dynamic addresses that unknown machines may hold. The rest is left for known
    /// machines.
    pub unknown_share: u8,
}

/// A static reservation: hardware address to IP address.
#[derive(Debug, Clone)]
pub struct StaticReservation {
    /// The hardware address.
    pub hardware: HardwareAddress,
    /// The reserved address.
    pub address: Ipv4Addr,
}

impl Dhcp4Settings {
    /// Returns the subnet that contains an address, the smallest one if several do.
    #[must_use]
    pub fn subnet_containing(&self, address: Ipv4Addr) -> Option<&Dhcp4Subnet> {
        let matching = self.subnets.iter().filter(|subnet| subnet.contains(address));
        matching.max_by_key(|subnet| subnet.prefix)
    }

    /// Returns the mode of the subnet that the interface's address is in.
    pub(super) fn interface_mode(&self, interface: &Dhcp4Interface) -> DhcpMode {
        self.subnet_containing(interface.address).map_or(DhcpMode::Off, |subnet| subnet.mode)
    }

    /// Returns whether a subnet that is reached only through relays is in proxy mode.
    pub(super) fn has_relayed_proxy_subnet(&self) -> bool {
        let is_relayed_only = |subnet: &&Dhcp4Subnet| {
            !self.interfaces.iter().any(|interface| subnet.contains(interface.address))
        };
        self.subnets.iter().filter(is_relayed_only).any(|subnet| subnet.mode == DhcpMode::Proxy)
    }
}

impl Dhcp4Subnet {
    /// Returns a subnet without ranges and options. The lease time is one hour: provisioning is short, and
    /// the addresses of removed machines become free within the hour.
    #[must_use]
    pub fn new(network: Ipv4Addr, prefix: u8, mode: DhcpMode) -> Self {
        Self {
            network,
            prefix: prefix.min(32),
            mode,
            ranges: Vec::new(),
            reservations: Vec::new(),
            gateway: None,
            dns: Vec::new(),
            ntp: Vec::new(),
            domain: None,
            mtu: None,
            lease_time: Duration::from_secs(3600),
            tftp_server: None,
            unknown_share: DEFAULT_UNKNOWN_SHARE,
        }
    }

    /// Returns how many dynamic addresses unknown machines may hold, at least one; without a limit if their
    /// share is 100.
    pub(super) fn unknown_limit(&self) -> usize {
        if self.unknown_share >= 100 {
            return usize::MAX;
        }
        let total: u64 = self.ranges.iter().map(|(first, last)| range_size(*first, *last)).sum();
        let limit = total * u64::from(self.unknown_share) / 100;
        usize::try_from(limit.max(1)).unwrap_or(usize::MAX)
    }

    /// Returns the netmask.
    #[must_use]
    pub fn mask(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0))
    }

    /// Returns the broadcast address.
    #[must_use]
    pub fn broadcast(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network.to_bits() | !self.mask().to_bits())
    }

    /// Returns whether the address is in this subnet.
    #[must_use]
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        let mask = self.mask().to_bits();
        address.to_bits() & mask == self.network.to_bits() & mask
    }

    /// Returns whether a host can use the address: in the subnet, and neither its network nor its broadcast
    /// address.
    #[must_use]
    pub fn is_usable(&self, address: Ipv4Addr) -> bool {
        let first = Ipv4Addr::from_bits(self.network.to_bits() & self.mask().to_bits());
        let has_broadcast = self.prefix < 31;
        self.contains(address)
            && !(has_broadcast && (address == first || address == self.broadcast()))
    }

    /// Returns whether the address is in a dynamic range.
    #[must_use]
    pub fn in_range(&self, address: Ipv4Addr) -> bool {
        self.is_usable(address)
            && self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&address))
    }

    /// Returns the static reservation of a hardware address.
    #[must_use]
    pub fn reservation(&self, hardware: HardwareAddress) -> Option<&StaticReservation> {
        self.reservations.iter().find(|reservation| reservation.hardware == hardware)
    }
}

/// Returns the number of addresses from the first to the last.
pub(super) fn range_size(first: Ipv4Addr, last: Ipv4Addr) -> u64 {
    (u64::from(last.to_bits()) + 1).saturating_sub(u64::from(first.to_bits()))
}
