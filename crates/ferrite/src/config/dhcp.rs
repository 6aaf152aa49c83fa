// SPDX-License-Identifier: Apache-2.0
//! DHCP networks in the configuration, and their conversion to server settings.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use boot_server::{FirstStageLoaders, HardwareAddress, dhcp4, dhcp6};
use node_model::Mac;
use serde::{Deserialize, Serialize};

/// DHCP and TFTP.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DhcpSection {
    /// MAC addresses that get no reply.
    pub(crate) ignored: Vec<Mac>,
    /// The networks, each a `[[dhcp.networks]]`.
    pub(crate) networks: Vec<DhcpNetwork>,
}

/// A network that is served.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DhcpNetwork {
    /// The interface of the network, such as `eth1` or `{provisioning_interface}`; requests on other interfaces are ignored. A network without an
    /// interface is served through relays, which send to an interface of another network. An interface
    /// can have one network per IP version, because a client without an address does not state its
    /// network.
    pub(crate) interface: Option<String>,
    /// The server's address and prefix length on the interface, such as `10.0.0.1/24`, `fd00::1/64` or
    /// `{provisioning_address}/24`; without an interface any address of the network.
    pub(crate) address: String,
    /// Which machines get replies: `off` none; `proxy` enrolled machines that should boot from the
    /// network and get their addresses from another server; `reserve` enrolled machines only;
    /// `discover` unknown machines, which boot the inspection ramdisk, and enrolled ones that should
    /// boot from the network; `all` every machine, enrolled ones as with `reserve` and unknown ones as with
    /// `discover`.
    #[serde(default)]
    pub(crate) mode: DhcpModeSetting,
    /// Address ranges for leases, such as `10.0.0.100-10.0.0.200`.
    #[serde(default)]
    pub(crate) ranges: Vec<String>,
    /// Static reservations: MAC to address.
    #[serde(default)]
    pub(crate) hosts: BTreeMap<Mac, IpAddr>,
    /// Default gateway.
    pub(crate) gateway: Option<Ipv4Addr>,
    /// DNS servers.
    #[serde(default)]
    pub(crate) dns: Vec<IpAddr>,
    /// Forward DNS queries of machines on this network, on port 53 of `address`; machines get it as their DNS
    /// server instead of `dns`. See `[dns]`.
    #[serde(default)]
    pub(crate) serve_dns: bool,
    /// NTP servers.
    #[serde(default)]
    pub(crate) ntp: Vec<Ipv4Addr>,
    /// DNS domain.
    pub(crate) domain: Option<String>,
    /// MTU, if it differs from Ethernet's.
    pub(crate) mtu: Option<u16>,
    /// Lease time in seconds; 3600 by default.
    pub(crate) lease_time: Option<u64>,
    /// Percentage of the IPv4 addresses in `ranges` that unknown machines may hold in the modes `discover` and
    /// `all`, 1 to 100; 75 by default. The others are left for enrolled machines, whatever an attacker requests.
    pub(crate) unknown_share: Option<u8>,
    /// Another TFTP server.
    pub(crate) tftp_server: Option<IpAddr>,
}

const SECOND_NETWORK_ERROR: &str = "the interface has another network of the same IP version, and a client \
    without an address does not state its network; give each network its own interface, such as a \
    VLAN, or omit the interface if the network is served through a relay";

/// Which machines get DHCP replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DhcpModeSetting {
    /// None.
    #[default]
    Off,
    /// In addition to another DHCP server.
    Proxy,
    /// Enrolled machines.
    Reserve,
    /// Unknown machines, and enrolled ones that boot from the network.
    Discover,
    /// All machines.
    All,
}

/// Minimum lease time: firmware does not renew leases while a machine boots.
const MIN_LEASE_SECONDS: u64 = 120;
/// Minimum MTU of IPv4 (RFC 791).
const MIN_MTU: u16 = 576;

/// Settings of the DHCP servers of both IP versions.
#[derive(Debug, Default)]
pub(crate) struct DhcpServerConfig {
    pub(crate) v4: dhcp4::Dhcp4Settings,
    pub(crate) interfaces6: Vec<dhcp6::Dhcp6Interface>,
    pub(crate) subnets6: Vec<dhcp6::Dhcp6Subnet>,
}

impl DhcpServerConfig {
    /// Returns a function that checks whether an address is on a served network.
    pub(crate) fn client_check(&self) -> Arc<dyn Fn(IpAddr) -> bool + Send + Sync> {
        let (subnets4, subnets6) = (self.v4.subnets.clone(), self.subnets6.clone());
        Arc::new(move |address| match address {
            IpAddr::V4(address) => subnets4.iter().any(|subnet| subnet.contains(address)),
            IpAddr::V6(address) => subnets6.iter().any(|subnet| subnet.contains(address)),
        })
    }
}

impl From<DhcpModeSetting> for boot_server::DhcpMode {
    fn from(mode: DhcpModeSetting) -> Self {
        match mode {
            DhcpModeSetting::Off => Self::Off,
            DhcpModeSetting::Proxy => Self::Proxy,
            DhcpModeSetting::Reserve => Self::Reserve,
            DhcpModeSetting::Discover => Self::Discover,
            DhcpModeSetting::All => Self::All,
        }
    }
}

impl DhcpSection {
    /// Converts the section to server settings. Fails if it is invalid.
    pub(crate) fn server_config(&self) -> anyhow::Result<DhcpServerConfig> {
        let mut servers = DhcpServerConfig::default();
        servers.v4.ignored = self.ignored.iter().filter_map(ethernet_address).collect();
        servers.v4.first_stage_loaders = FirstStageLoaders::default();
        for network in &self.networks {
            let name = network.interface.as_deref().unwrap_or(&network.address);
            network.add_to(&mut servers).with_context(|| format!("dhcp.networks: {name}"))?;
        }
        let is_served4 = servers.v4.subnets.iter().any(|it| it.mode != boot_server::DhcpMode::Off);
        let is_served6 = servers.subnets6.iter().any(|it| it.mode != boot_server::DhcpMode::Off);
        for (is_served, has_interface, version) in [
            (is_served4, !servers.v4.interfaces.is_empty(), "IPv4"),
            (is_served6, !servers.interfaces6.is_empty(), "IPv6"),
        ] {
            if is_served && !has_interface {
                bail!(
                    "dhcp.networks: no {version} network has an interface to listen on; give one an \
                     interface, or add the network that the relays send to, with its interface and a \
                     mode other than off"
                );
            }
        }
        Ok(servers)
    }

    /// Whether unknown machines boot from a network.
    pub(crate) fn discovers(&self) -> bool {
        let boots = |mode| boot_server::DhcpMode::from(mode).boots_unknown_machines();
        self.networks.iter().any(|network| boots(network.mode))
    }

    /// The networks with a DNS forwarder, with their addresses.
    pub(crate) fn dns_networks(&self) -> Vec<(IpAddr, &DhcpNetwork)> {
        let served = self.networks.iter().filter(|network| network.serve_dns);
        served.filter_map(|network| Some((network.prefix().ok()?.0, network))).collect()
    }

    /// The server's addresses on served networks with their interfaces.
    pub(crate) fn server_addresses(&self) -> Vec<(IpAddr, String)> {
        let served = self.networks.iter().filter(|network| network.mode != DhcpModeSetting::Off);
        served
            .filter_map(|network| {
                let (address, _) = network.prefix().ok()?;
                Some((address, network.interface.clone()?))
            })
            .collect()
    }
}

impl DhcpNetwork {
    fn add_to(&self, servers: &mut DhcpServerConfig) -> anyhow::Result<()> {
        let (address, prefix) = self.prefix()?;
        self.check_dns()?;
        let name =
            self.interface.as_deref().filter(|_| self.mode != DhcpModeSetting::Off).map(Arc::from);
        match address {
            IpAddr::V4(address) => {
                servers.v4.subnets.push(self.subnet4(address, prefix)?);
                let interfaces = &mut servers.v4.interfaces;
                if interfaces.iter().any(|other| Some(&other.name) == name.as_ref()) {
                    bail!("{SECOND_NETWORK_ERROR}");
                }
                interfaces.extend(name.map(|name| dhcp4::Dhcp4Interface { name, address }));
            }
            IpAddr::V6(address) => {
                servers.subnets6.push(self.subnet6(address, prefix)?);
                let interfaces = &mut servers.interfaces6;
                if interfaces.iter().any(|other| Some(&other.name) == name.as_ref()) {
                    bail!("{SECOND_NETWORK_ERROR}");
                }
                interfaces.extend(name.map(|name| dhcp6::Dhcp6Interface { name, address }));
            }
        }
        Ok(())
    }

    fn check_dns(&self) -> anyhow::Result<()> {
        if !self.serve_dns {
            return Ok(());
        }
        if !self.dns.is_empty() {
            bail!("serve_dns and dns exclude each other; set one of them");
        }
        if self.interface.is_none() {
            bail!("serve_dns requires an interface; for a relayed network set dns");
        }
        match self.mode {
            DhcpModeSetting::Off | DhcpModeSetting::Proxy => {
                bail!("serve_dns requires a mode that assigns addresses: reserve, discover or all")
            }
            DhcpModeSetting::Reserve | DhcpModeSetting::Discover | DhcpModeSetting::All => Ok(()),
        }
    }

    fn prefix(&self) -> anyhow::Result<(IpAddr, u8)> {
        let text = &self.address;
        let parsed = text.split_once('/').and_then(|(address, prefix)| {
            let address: IpAddr = address.parse().ok()?;
            let prefix: u8 = prefix.parse().ok()?;
            (prefix <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, prefix))
        });
        parsed.with_context(|| {
            format!(
                "address is {text:?}; it must be an address with a prefix length, such as 10.0.0.1/24"
            )
        })
    }

    fn lease_time(&self) -> anyhow::Result<Option<Duration>> {
        match self.lease_time {
            Some(seconds) if seconds < MIN_LEASE_SECONDS => bail!(
                "lease_time is {seconds}; it must be at least {MIN_LEASE_SECONDS} seconds, the time a \
                 machine needs to boot"
            ),
            seconds => Ok(seconds.map(Duration::from_secs)),
        }
    }

    fn subnet4(&self, address: Ipv4Addr, prefix: u8) -> anyhow::Result<dhcp4::Dhcp4Subnet> {
        let mut subnet = dhcp4::Dhcp4Subnet::new(address, prefix, self.mode.into());
        for range in &self.ranges {
            let (first, last) = parse_range::<Ipv4Addr>(range)?;
            if !subnet.is_usable(first) || !subnet.is_usable(last) {
                bail!("the range {range} is outside {}", self.address);
            }
            let overlaps = |other: &(Ipv4Addr, Ipv4Addr)| first <= other.1 && other.0 <= last;
            if subnet.ranges.iter().any(overlaps) {
                bail!("the range {range} overlaps another one");
            }
            subnet.ranges.push((first, last));
        }
        for (mac, address) in &self.hosts {
            let IpAddr::V4(address) = *address else {
                bail!("the host {mac} has an IPv6 address on an IPv4 network");
            };
            let hardware = ethernet_address(mac)
                .with_context(|| format!("{mac} is not an Ethernet address"))?;
            if !subnet.is_usable(address) {
                bail!("the host {mac} has {address}, which is outside {}", self.address);
            }
            if subnet.reservations.iter().any(|host| host.address == address) {
                bail!("two hosts have the address {address}");
            }
            subnet.reservations.push(dhcp4::StaticReservation { hardware, address });
        }
        if let Some(gateway) = self.gateway.filter(|gateway| !subnet.is_usable(*gateway)) {
            bail!("the gateway {gateway} is outside {}", self.address);
        }
        if let Some(mtu) = self.mtu.filter(|mtu| *mtu < MIN_MTU) {
            bail!("mtu is {mtu}; it must be at least {MIN_MTU}");
        }
        subnet.gateway = self.gateway;
        subnet.dns =
            self.dns.iter().map(|dns| require_ipv4("dns", *dns)).collect::<anyhow::Result<_>>()?;
        if self.serve_dns {
            subnet.dns = vec![address];
        }
        subnet.ntp.clone_from(&self.ntp);
        subnet.domain = self.domain.as_deref().map(Arc::from);
        subnet.mtu = self.mtu;
        subnet.tftp_server =
            self.tftp_server.map(|it| require_ipv4("tftp_server", it)).transpose()?;
        if let Some(time) = self.lease_time()? {
            subnet.lease_time = time;
        }
        match self.unknown_share {
            None => {}
            Some(share @ 1..=100) => subnet.unknown_share = share,
            Some(share) => bail!("unknown_share is {share}; it is a percentage from 1 to 100"),
        }
        Ok(subnet)
    }

    fn subnet6(&self, address: Ipv6Addr, prefix: u8) -> anyhow::Result<dhcp6::Dhcp6Subnet> {
        if !self.hosts.is_empty() || self.gateway.is_some() || !self.ntp.is_empty() {
            bail!(
                "hosts, gateway and ntp are for IPv4 networks only; IPv6 uses router advertisements"
            );
        }
        if self.domain.is_some() || self.mtu.is_some() {
            bail!("domain and mtu are for IPv4 networks only; IPv6 uses router advertisements");
        }
        let mut subnet = dhcp6::Dhcp6Subnet::new(address, prefix, self.mode.into());
        match self.ranges.as_slice() {
            [] => {}
            [range] => {
                let (first, last) = parse_range::<Ipv6Addr>(range)?;
                if !subnet.contains(first) || !subnet.contains(last) {
                    bail!("the range {range} is outside {}", self.address);
                }
                subnet.range = Some((first, last));
            }
            _ => bail!("an IPv6 network can have only one range"),
        }
        subnet.dns =
            self.dns.iter().map(|dns| require_ipv6("dns", *dns)).collect::<anyhow::Result<_>>()?;
        if self.serve_dns {
            subnet.dns = vec![address];
        }
        subnet.tftp_server =
            self.tftp_server.map(|it| require_ipv6("tftp_server", it)).transpose()?;
        if let Some(time) = self.lease_time()? {
            subnet.lease_time = time;
        }
        Ok(subnet)
    }
}

fn parse_range<A: std::str::FromStr + PartialOrd>(range: &str) -> anyhow::Result<(A, A)> {
    let ends = range.split_once('-').and_then(|(first, last)| {
        Some((first.trim().parse::<A>().ok()?, last.trim().parse::<A>().ok()?))
    });
    match ends {
        Some((first, last)) if first <= last => Ok((first, last)),
        _ => bail!("the range {range:?} is not first-last, such as 10.0.0.100-10.0.0.200"),
    }
}

fn ethernet_address(mac: &Mac) -> Option<HardwareAddress> {
    let mut bytes = [0; 6];
    let mut parts = mac.as_str().split(':');
    for byte in &mut bytes {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then(|| HardwareAddress::ethernet(bytes))
}

fn require_ipv4(field: &str, address: IpAddr) -> anyhow::Result<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(_) => bail!("{field} is {address}, an IPv6 address, on an IPv4 network"),
    }
}

fn require_ipv6(field: &str, address: IpAddr) -> anyhow::Result<Ipv6Addr> {
    match address {
        IpAddr::V4(_) => bail!("{field} is {address}, an IPv4 address, on an IPv6 network"),
        IpAddr::V6(address) => Ok(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(text: &str) -> anyhow::Result<DhcpServerConfig> {
        toml::from_str::<DhcpSection>(text)?.server_config()
    }

    #[test]
    fn converts_networks_of_both_ip_versions() {
        let servers = section(
            r#"
            ignored = ["52:54:00:00:00:99"]
            [[networks]]
            interface = "eth1"
            address = "10.0.0.1/24"
            mode = "discover"
            ranges = ["10.0.0.100-10.0.0.200"]
            hosts = { "52:54:00:aa:bb:01" = "10.0.0.5" }
            [[networks]]
            interface = "eth1"
            address = "fd00::1/64"
            mode = "reserve"
            [[networks]]
            address = "10.1.0.0/16"
            mode = "proxy"
            [[networks]]
            interface = "eth1"
            address = "10.2.0.1/16"
            "#,
        )
        .unwrap();
        assert_eq!(servers.v4.interfaces.len(), 1);
        let modes: Vec<_> = servers.v4.subnets.iter().map(|subnet| subnet.mode).collect();
        assert_eq!(
            modes,
            [DhcpModeSetting::Discover, DhcpModeSetting::Proxy, DhcpModeSetting::Off]
                .map(boot_server::DhcpMode::from)
        );
        assert_eq!(servers.subnets6[0].mode, boot_server::DhcpMode::Reserve);
        assert_eq!(servers.v4.ignored.len(), 1);
        assert_eq!(servers.v4.subnets[0].reservations[0].address, Ipv4Addr::new(10, 0, 0, 5));
        assert_eq!((servers.interfaces6.len(), servers.subnets6.len()), (1, 1));
    }

    #[test]
    fn rejects_invalid_networks() {
        for (text, expected) in [
            (r#"address = "10.0.0.1""#, "with a prefix length"),
            (r#"address = "10.0.0.1/33""#, "with a prefix length"),
            ("address = \"10.0.0.1/24\"\nranges = [\"10.0.1.1-10.0.1.9\"]", "is outside"),
            ("address = \"10.0.0.1/24\"\nranges = [\"10.0.0.9-10.0.0.1\"]", "first-last"),
            (
                "address = \"10.0.0.1/24\"\nhosts = { \"52:54:00:aa:bb:01\" = \"10.9.0.5\" }",
                "is outside",
            ),
            ("address = \"fd00::1/64\"\ngateway = \"10.0.0.1\"", "IPv4 networks only"),
            ("address = \"10.0.0.1/24\"\nmode = \"always\"", "always"),
            ("address = \"10.0.0.1/24\"\nlease_time = 0", "lease_time is 0"),
            ("address = \"10.0.0.1/24\"\nunknown_share = 0", "unknown_share is 0"),
            ("address = \"10.0.0.1/24\"\nmtu = 5", "mtu is 5"),
            ("address = \"10.0.0.1/24\"\ngateway = \"10.9.0.1\"", "is outside"),
            (
                "address = \"10.0.0.1/24\"\nranges = [\"10.0.0.5-10.0.0.9\", \"10.0.0.9-10.0.0.12\"]",
                "overlaps",
            ),
            (
                "address = \"10.0.0.1/24\"\nhosts = { \"52:54:00:aa:bb:01\" = \"10.0.0.5\", \
                 \"52:54:00:aa:bb:02\" = \"10.0.0.5\" }",
                "two hosts",
            ),
            ("address = \"fd00::1/64\"\ndomain = \"example.org\"", "IPv4 networks only"),
            ("address = \"fd00::1/64\"\nmtu = 9000", "IPv4 networks only"),
            ("address = \"fd00::1/64\"\ndns = [\"10.0.0.1\"]", "dns is 10.0.0.1"),
            ("address = \"10.0.0.1/24\"\ndns = [\"fd00::1\"]", "dns is fd00::1"),
            ("address = \"10.0.0.1/24\"\ntftp_server = \"fd00::1\"", "tftp_server is fd00::1"),
            ("address = \"fd00::1/64\"\ntftp_server = \"10.0.0.1\"", "tftp_server is 10.0.0.1"),
            (
                "address = \"10.0.0.1/24\"\nmode = \"all\"\nserve_dns = true",
                "requires an interface",
            ),
            (
                "address = \"10.0.0.1/24\"\ninterface = \"eth1\"\nmode = \"all\"\nserve_dns = true\n\
                 dns = [\"10.0.0.2\"]",
                "exclude each other",
            ),
            (
                "address = \"10.0.0.1/24\"\ninterface = \"eth1\"\nmode = \"proxy\"\nserve_dns = true",
                "a mode that assigns addresses",
            ),
            ("address = \"10.0.0.1/24\"\nmode = \"reserve\"", "no IPv4 network has an interface"),
            ("address = \"fd00::1/64\"\nmode = \"reserve\"", "no IPv6 network has an interface"),
            (
                "address = \"10.0.0.1/24\"\ninterface = \"eth1\"\nmode = \"reserve\"\n[[networks]]\n\
                 address = \"10.1.0.1/24\"\ninterface = \"eth1\"\nmode = \"discover\"",
                "each network its own interface",
            ),
        ] {
            let error = section(&format!("[[networks]]\n{text}")).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
    }
}
