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
    /// through relays only.
    pub(crate) interface: Option<String>,
    /// Our address on the interface and the length of its prefix, such as `10.0.0.1/24` or
    /// `fd00::1/64`; without an interface any address of the network.
    pub(crate) address: String,
    /// Whom to answer: `off`, nobody; `proxy`, machines that should boot from the network, which get
    /// their addresses elsewhere; `reserve`, enrolled machines only; `discover`, unknown machines,
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
        Ok(servers)
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
        let mode = self.mode.into();
        match address {
            IpAddr::V4(address) => {
                servers.v4.subnets.push(self.subnet4(address, prefix)?);
                servers.v4.interfaces.extend(
                    self.interface.as_deref().map(|name| dhcp4::Interface {
                        name: Arc::from(name),
                        address,
                        mode,
                    }),
                );
            }
            IpAddr::V6(address) => {
                servers.subnets6.push(self.subnet6(address, prefix)?);
                servers.interfaces6.extend(
                    self.interface.as_deref().map(|name| dhcp6::Interface {
                        name: Arc::from(name),
                        address,
                        mode,
                    }),
                );
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

    fn subnet4(&self, address: Ipv4Addr, prefix: u8) -> anyhow::Result<dhcp4::Subnet> {
        let mut subnet = dhcp4::Subnet::new(address, prefix);
        for range in &self.ranges {
            let (first, last) = ends::<Ipv4Addr>(range)?;
            if !subnet.is_usable(first) || !subnet.is_usable(last) {
                bail!("the range {range} is not inside {}", self.address);
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
            subnet.hosts.push(dhcp4::StaticHost { hardware, address, name: None });
        }
        subnet.gateway = self.gateway;
        subnet.dns = self.dns.iter().filter_map(|dns| v4(*dns)).collect();
        subnet.ntp.clone_from(&self.ntp);
        subnet.domain = self.domain.as_deref().map(Arc::from);
        subnet.mtu = self.mtu;
        subnet.tftp_server = self.tftp_server.and_then(v4);
        if let Some(seconds) = self.lease_time {
            subnet.lease_time = Duration::from_secs(seconds);
        }
        Ok(subnet)
    }

    fn subnet6(&self, address: Ipv6Addr, prefix: u8) -> anyhow::Result<dhcp6::Subnet> {
        if !self.hosts.is_empty() || self.gateway.is_some() || !self.ntp.is_empty() {
            bail!("hosts, gateway and ntp are for IPv4 networks only; routers announce themselves");
        }
        let mut subnet = dhcp6::Subnet::new(address, prefix);
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
        subnet.dns = self.dns.iter().filter_map(|dns| v6(*dns)).collect();
        subnet.tftp_server = self.tftp_server.and_then(v6);
        if let Some(seconds) = self.lease_time {
            subnet.lease_time = Duration::from_secs(seconds);
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

fn v4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

fn v6(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(address),
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
            "#,
        )
        .unwrap();
        assert_eq!(servers.v4.interfaces.len(), 1);
        assert_eq!(servers.v4.subnets.len(), 2);
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
        ] {
            let error = section(&format!("[[networks]]\n{text}")).unwrap_err();
            assert!(format!("{error:#}").contains(words), "{error:#}");
        }
    }
}
