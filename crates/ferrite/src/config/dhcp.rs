// SPDX-License-Identifier: Apache-2.0
//! The DHCP networks of the configuration, and what the servers make of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use boot_server::{FirstStages, HardwareAddress, dhcp4, dhcp6};
use node_model::Mac;
use serde::{Deserialize, Serialize};

/// DHCP, and TFTP with it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DhcpSection {
    /// Cards that are never answered.
    pub(crate) ignored: Vec<Mac>,
    /// The networks, each a `[[dhcp.networks]]`.
    pub(crate) networks: Vec<Network>,
}

/// A network whose machines are answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Network {
    /// The interface it is reached by. Nothing is answered on any other. Without one it is reached
    /// through relays only, which send to an interface of another network. An interface has one
    /// network of each version of IP: a machine that asks for its first address does not say which
    /// network it is on.
    pub(crate) interface: Option<String>,
    /// Our address on the interface and the length of its prefix, such as `10.0.0.1/24` or
    /// `fd00::1/64`; without an interface any address of the network.
    pub(crate) address: String,
    /// Whom to answer: `off`, nobody; `proxy`, enrolled machines that should boot from the network,
    /// which get their addresses elsewhere; `reserve`, enrolled machines only; `discover`, unknown machines,
    /// which get the inspection ramdisk, and enrolled ones when they should boot from the network.
    #[serde(default)]
    pub(crate) mode: Mode,
    /// The addresses to hand out, such as `10.0.0.100-10.0.0.200`.
    #[serde(default)]
    pub(crate) ranges: Vec<String>,
    /// Addresses for certain cards.
    #[serde(default)]
    pub(crate) hosts: BTreeMap<Mac, IpAddr>,
    /// The gateway that machines are told of.
    pub(crate) gateway: Option<Ipv4Addr>,
    /// The name servers that machines are told of.
    #[serde(default)]
    pub(crate) dns: Vec<IpAddr>,
    /// The time servers that machines are told of.
    #[serde(default)]
    pub(crate) ntp: Vec<Ipv4Addr>,
    /// The domain that machines are told of.
    pub(crate) domain: Option<String>,
    /// The largest packet, if it is not Ethernet's.
    pub(crate) mtu: Option<u16>,
    /// Seconds a lease lasts; 3600 if not given.
    pub(crate) lease_time: Option<u64>,
    /// The TFTP server, if it is not this one.
    pub(crate) tftp_server: Option<IpAddr>,
}

const SECOND_NETWORK: &str = "the interface has another network of the same version of IP, and a \
    machine that asks for its first address does not say which one it is on; give each its own \
    interface, such as a VLAN, or leave the interface out if it is reached through a relay";

/// Whom DHCP answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Nobody.
    #[default]
    Off,
    /// Beside the site's own DHCP.
    Proxy,
    /// Enrolled machines.
    Reserve,
    /// Unknown machines too.
    Discover,
}

/// The shortest lease, in seconds: while a machine boots it does not ask for more time.
const SHORTEST_LEASE: u64 = 120;
/// The smallest packet that every IPv4 network carries (RFC 791).
const SMALLEST_MTU: u16 = 576;

/// What the DHCP servers of both versions are told.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    pub(crate) v4: dhcp4::Settings,
    pub(crate) interfaces6: Vec<dhcp6::Interface>,
    pub(crate) subnets6: Vec<dhcp6::Subnet>,
}

impl From<Mode> for boot_server::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Off => Self::Off,
            Mode::Proxy => Self::Proxy,
            Mode::Reserve => Self::Reserve,
            Mode::Discover => Self::Discover,
        }
    }
}

impl DhcpSection {
    /// What the servers are told, or what is wrong with the section.
    pub(crate) fn servers(&self) -> anyhow::Result<Servers> {
        let mut servers = Servers::default();
        servers.v4.ignored = self.ignored.iter().filter_map(card).collect();
        servers.v4.first_stages = FirstStages::default();
        for network in &self.networks {
            let name = network.interface.as_deref().unwrap_or(&network.address);
            network.add_to(&mut servers).with_context(|| format!("dhcp.networks: {name}"))?;
        }
        let is_served4 = servers.v4.subnets.iter().any(|it| it.mode != boot_server::Mode::Off);
        let is_served6 = servers.subnets6.iter().any(|it| it.mode != boot_server::Mode::Off);
        for (is_served, has_interface, version) in [
            (is_served4, !servers.v4.interfaces.is_empty(), "IPv4"),
            (is_served6, !servers.interfaces6.is_empty(), "IPv6"),
        ] {
            if is_served && !has_interface {
                bail!(
                    "dhcp.networks: every {version} network is reached through relays only, so \
                     there is nothing to listen on; give one an interface, or add the network that \
                     the relays send to with its interface and a mode other than off"
                );
            }
        }
        Ok(servers)
    }

    /// Whether machines that nobody enrolled boot the agent on some network.
    pub(crate) fn discovers(&self) -> bool {
        self.networks.iter().any(|network| network.mode == Mode::Discover)
    }

    /// Our addresses on the networks that are answered, with the interface of each.
    pub(crate) fn own_addresses(&self) -> Vec<(IpAddr, String)> {
        let served = self.networks.iter().filter(|network| network.mode != Mode::Off);
        served
            .filter_map(|network| {
                let (address, _) = network.prefix().ok()?;
                Some((address, network.interface.clone()?))
            })
            .collect()
    }
}

impl Network {
    fn add_to(&self, servers: &mut Servers) -> anyhow::Result<()> {
        let (address, prefix) = self.prefix()?;
        let name = self.interface.as_deref().filter(|_| self.mode != Mode::Off).map(Arc::from);
        match address {
            IpAddr::V4(address) => {
                servers.v4.subnets.push(self.subnet4(address, prefix)?);
                let interfaces = &mut servers.v4.interfaces;
                if interfaces.iter().any(|other| Some(&other.name) == name.as_ref()) {
                    bail!("{SECOND_NETWORK}");
                }
                interfaces.extend(name.map(|name| dhcp4::Interface { name, address }));
            }
            IpAddr::V6(address) => {
                servers.subnets6.push(self.subnet6(address, prefix)?);
                let interfaces = &mut servers.interfaces6;
                if interfaces.iter().any(|other| Some(&other.name) == name.as_ref()) {
                    bail!("{SECOND_NETWORK}");
                }
                interfaces.extend(name.map(|name| dhcp6::Interface { name, address }));
            }
        }
        Ok(())
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
                "address is {text:?}, which is not an address with a prefix, such as 10.0.0.1/24"
            )
        })
    }

    fn lease_time(&self) -> anyhow::Result<Option<Duration>> {
        match self.lease_time {
            Some(seconds) if seconds < SHORTEST_LEASE => bail!(
                "lease_time is {seconds}, and a machine cannot boot in less than {SHORTEST_LEASE} seconds"
            ),
            seconds => Ok(seconds.map(Duration::from_secs)),
        }
    }

    fn subnet4(&self, address: Ipv4Addr, prefix: u8) -> anyhow::Result<dhcp4::Subnet> {
        let mut subnet = dhcp4::Subnet::new(address, prefix, self.mode.into());
        for range in &self.ranges {
            let (first, last) = ends::<Ipv4Addr>(range)?;
            if !subnet.is_usable(first) || !subnet.is_usable(last) {
                bail!("the range {range} is not inside {}", self.address);
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
            let hardware = card(mac).with_context(|| format!("{mac} is not an Ethernet card"))?;
            if !subnet.is_usable(address) {
                bail!("the host {mac} has {address}, which is not inside {}", self.address);
            }
            if subnet.hosts.iter().any(|host| host.address == address) {
                bail!("two hosts have the address {address}");
            }
            subnet.hosts.push(dhcp4::StaticHost { hardware, address });
        }
        if let Some(gateway) = self.gateway.filter(|gateway| !subnet.is_usable(*gateway)) {
            bail!("the gateway {gateway} is not inside {}", self.address);
        }
        if let Some(mtu) = self.mtu.filter(|mtu| *mtu < SMALLEST_MTU) {
            bail!("mtu is {mtu}, and no IPv4 network has less than {SMALLEST_MTU}");
        }
        subnet.gateway = self.gateway;
        subnet.dns = self.dns.iter().map(|dns| v4("dns", *dns)).collect::<anyhow::Result<_>>()?;
        subnet.ntp.clone_from(&self.ntp);
        subnet.domain = self.domain.as_deref().map(Arc::from);
        subnet.mtu = self.mtu;
        subnet.tftp_server = self.tftp_server.map(|it| v4("tftp_server", it)).transpose()?;
        if let Some(time) = self.lease_time()? {
            subnet.lease_time = time;
        }
        Ok(subnet)
    }

    fn subnet6(&self, address: Ipv6Addr, prefix: u8) -> anyhow::Result<dhcp6::Subnet> {
        if !self.hosts.is_empty() || self.gateway.is_some() || !self.ntp.is_empty() {
            bail!("hosts, gateway and ntp are for IPv4 networks only; routers announce themselves");
        }
        if self.domain.is_some() || self.mtu.is_some() {
            bail!("domain and mtu are for IPv4 networks only; routers announce them");
        }
        let mut subnet = dhcp6::Subnet::new(address, prefix, self.mode.into());
        match self.ranges.as_slice() {
            [] => {}
            [range] => {
                let (first, last) = ends::<Ipv6Addr>(range)?;
                if !subnet.contains(first) || !subnet.contains(last) {
                    bail!("the range {range} is not inside {}", self.address);
                }
                subnet.range = Some((first, last));
            }
            _ => bail!("an IPv6 network has one range at most"),
        }
        subnet.dns = self.dns.iter().map(|dns| v6("dns", *dns)).collect::<anyhow::Result<_>>()?;
        subnet.tftp_server = self.tftp_server.map(|it| v6("tftp_server", it)).transpose()?;
        if let Some(time) = self.lease_time()? {
            subnet.lease_time = time;
        }
        Ok(subnet)
    }
}

fn ends<A: std::str::FromStr + PartialOrd>(range: &str) -> anyhow::Result<(A, A)> {
    let ends = range.split_once('-').and_then(|(first, last)| {
        Some((first.trim().parse::<A>().ok()?, last.trim().parse::<A>().ok()?))
    });
    match ends {
        Some((first, last)) if first <= last => Ok((first, last)),
        _ => bail!("the range {range:?} is not first-last, such as 10.0.0.100-10.0.0.200"),
    }
}

fn card(mac: &Mac) -> Option<HardwareAddress> {
    let mut bytes = [0; 6];
    let mut parts = mac.as_str().split(':');
    for byte in &mut bytes {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then(|| HardwareAddress::ethernet(bytes))
}

fn v4(field: &str, address: IpAddr) -> anyhow::Result<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(_) => bail!("{field} is {address}, an IPv6 address, on an IPv4 network"),
    }
}

fn v6(field: &str, address: IpAddr) -> anyhow::Result<Ipv6Addr> {
    match address {
        IpAddr::V4(_) => bail!("{field} is {address}, an IPv4 address, on an IPv6 network"),
        IpAddr::V6(address) => Ok(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(text: &str) -> anyhow::Result<Servers> {
        toml::from_str::<DhcpSection>(text)?.servers()
    }

    #[test]
    fn networks_of_both_versions() {
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
        assert_eq!(modes, [Mode::Discover, Mode::Proxy, Mode::Off].map(boot_server::Mode::from));
        assert_eq!(servers.subnets6[0].mode, boot_server::Mode::Reserve);
        assert_eq!(servers.v4.ignored.len(), 1);
        assert_eq!(servers.v4.subnets[0].hosts[0].address, Ipv4Addr::new(10, 0, 0, 5));
        assert_eq!((servers.interfaces6.len(), servers.subnets6.len()), (1, 1));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            (r#"address = "10.0.0.1""#, "with a prefix"),
            (r#"address = "10.0.0.1/33""#, "with a prefix"),
            ("address = \"10.0.0.1/24\"\nranges = [\"10.0.1.1-10.0.1.9\"]", "not inside"),
            ("address = \"10.0.0.1/24\"\nranges = [\"10.0.0.9-10.0.0.1\"]", "first-last"),
            (
                "address = \"10.0.0.1/24\"\nhosts = { \"52:54:00:aa:bb:01\" = \"10.9.0.5\" }",
                "not inside",
            ),
            ("address = \"fd00::1/64\"\ngateway = \"10.0.0.1\"", "IPv4 networks only"),
            ("address = \"10.0.0.1/24\"\nmode = \"always\"", "always"),
            ("address = \"10.0.0.1/24\"\nlease_time = 0", "lease_time is 0"),
            ("address = \"10.0.0.1/24\"\nmtu = 5", "mtu is 5"),
            ("address = \"10.0.0.1/24\"\ngateway = \"10.9.0.1\"", "not inside"),
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
            ("address = \"10.0.0.1/24\"\nmode = \"reserve\"", "every IPv4 network is reached"),
            ("address = \"fd00::1/64\"\nmode = \"reserve\"", "every IPv6 network is reached"),
            (
                "address = \"10.0.0.1/24\"\ninterface = \"eth1\"\nmode = \"reserve\"\n[[networks]]\n\
                 address = \"10.1.0.1/24\"\ninterface = \"eth1\"\nmode = \"discover\"",
                "each its own interface",
            ),
        ] {
            let error = section(&format!("[[networks]]\n{text}")).unwrap_err();
            assert!(format!("{error:#}").contains(words), "{error:#}");
        }
    }
}
