// SPDX-License-Identifier: Apache-2.0
//! Static network configuration on virtual media: OpenStack's `network_data.json`.

use std::collections::HashSet;
use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;

use super::netlink::{KernelRoute, RtNetlink};
use super::{LocalInterface, interfaces, parse_mac};

/// The link monitoring interval of a bond in milliseconds.
const BOND_MONITOR_MS: u32 = 100;
/// The kernel's numbers of the bond modes.
const BOND_MODES: &[(&str, u8)] = &[
    ("balance-rr", 0),
    ("active-backup", 1),
    ("balance-xor", 2),
    ("broadcast", 3),
    ("802.3ad", 4),
    ("balance-tlb", 5),
    ("balance-alb", 6),
];

/// The content of `network_data.json`.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct NetworkData {
    #[serde(default)]
    links: Vec<NetworkDataLink>,
    #[serde(default)]
    networks: Vec<NetworkDataNetwork>,
    #[serde(default)]
    services: Vec<NetworkDataService>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
struct NetworkDataLink {
    id: String,
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(alias = "vlan_mac_address")]
    ethernet_mac_address: Option<String>,
    mtu: Option<u32>,
    vlan_id: Option<Value>,
    vlan_link: Option<String>,
    #[serde(default)]
    bond_links: Vec<String>,
    bond_mode: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
struct NetworkDataNetwork {
    link: String,
    #[serde(rename = "type", default)]
    kind: String,
    ip_address: Option<String>,
    netmask: Option<Value>,
    gateway: Option<String>,
    #[serde(default)]
    routes: Vec<NetworkDataRoute>,
    #[serde(default)]
    services: Vec<NetworkDataService>,
    #[serde(default)]
    dns_nameservers: Vec<String>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
struct NetworkDataRoute {
    network: String,
    netmask: Option<Value>,
    gateway: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
struct NetworkDataService {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    address: String,
}

impl NetworkData {
    /// Parses the file. Returns `None` if it contains no networks.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn parse(text: &str) -> Result<Option<Self>, serde_json::Error> {
        let setup: Self = serde_json::from_str(text)?;
        Ok((!setup.networks.is_empty()).then_some(setup))
    }

    /// Returns the kernel modules for its links. The ramdisk has no modprobe for the kernel to call.
    #[must_use]
    pub fn modules(&self) -> Vec<&'static str> {
        let has = |kind: &str| self.links.iter().any(|link| link.kind == kind);
        let needed = [("vlan", "8021q"), ("bond", "bonding")];
        needed.into_iter().filter(|(kind, _)| has(kind)).map(|(_, module)| module).collect()
    }

    /// Returns the DNS servers.
    #[must_use]
    pub fn name_servers(&self) -> Vec<IpAddr> {
        let services = self.networks.iter().flat_map(|network| &network.services);
        let all_services = self.services.iter().chain(services);
        let mut servers: Vec<IpAddr> = all_services
            .filter(|service| service.kind == "dns")
            .filter_map(|service| service.address.parse().ok())
            .collect();
        let listed = self.networks.iter().flat_map(|network| &network.dns_nameservers);
        servers.extend(listed.filter_map(|address| address.parse::<IpAddr>().ok()));
        servers
    }

    /// Configures the links whose hardware is present. `done` contains the indexes of interfaces that
    /// are already configured.
    pub fn apply(&self, netlink: &mut RtNetlink, done: &mut HashSet<u32>) -> AppliedNetworkData {
        let mut applied = AppliedNetworkData::default();
        for link in &self.links {
            let Some(interface) = self.ensure_interface(netlink, link) else { continue };
            if !done.insert(interface.index) {
                continue;
            }
            applied.changed = true;
            let _ = netlink.set_up(interface.index);
            if let Some(mtu) = link.mtu
                && let Err(error) = netlink.set_mtu(interface.index, mtu)
            {
                tracing::warn!(interface = interface.name, mtu, %error, "failed to set MTU");
            }
            for network in self.networks.iter().filter(|network| network.link == link.id) {
                if network.kind == "ipv4_dhcp" {
                    applied.dhcp_interfaces.push(interface.clone());
                }
                configure_network(netlink, &interface, network);
            }
        }
        applied
    }

    /// Returns the interface of a link. VLANs and bonds are created if necessary.
    fn ensure_interface(
        &self,
        netlink: &mut RtNetlink,
        link: &NetworkDataLink,
    ) -> Option<LocalInterface> {
        let present = interfaces();
        let mac = link.ethernet_mac_address.as_deref().and_then(parse_mac);
        let name = interface_name(&link.id);
        let created = match link.kind.as_str() {
            "vlan" => {
                if let Some(interface) = present.iter().find(|interface| interface.name == name) {
                    return Some(interface.clone());
                }
                let parent =
                    self.links.iter().find(|other| Some(&other.id) == link.vlan_link.as_ref())?;
                let parent = self.ensure_interface(netlink, parent)?;
                let id = parse_number(link.vlan_id.as_ref()?)?;
                netlink.add_vlan(&name, parent.index, u16::try_from(id).ok()?)
            }
            "bond" => {
                if let Some(interface) = present.iter().find(|interface| interface.name == name) {
                    return Some(interface.clone());
                }
                let parts: Vec<LocalInterface> = link
                    .bond_links
                    .iter()
                    .filter_map(|id| self.links.iter().find(|other| other.id == *id))
                    .filter_map(|part| {
                        let mac = part.ethernet_mac_address.as_deref().and_then(parse_mac)?;
                        present
                            .iter()
                            .find(|interface| interface.physical && interface.mac == mac)
                            .cloned()
                    })
                    .collect();
                if parts.is_empty() {
                    return None;
                }
                let mode = link.bond_mode.as_deref().unwrap_or("active-backup");
                let mode =
                    BOND_MODES.iter().find(|(name, _)| *name == mode).map_or(1, |mode| mode.1);
                netlink.add_bond(&name, mode, BOND_MONITOR_MS).and_then(|()| {
                    let bond = interface_index(&name).ok_or(std::io::ErrorKind::NotFound)?;
                    for part in &parts {
                        // An enabled interface cannot join a bond.
                        netlink.set_down(part.index)?;
                        netlink.set_master(part.index, bond)?;
                        netlink.set_up(part.index)?;
                    }
                    Ok(())
                })
            }
            _ => {
                return present
                    .into_iter()
                    .find(|interface| interface.physical && Some(interface.mac) == mac);
            }
        };
        if let Err(error) = created {
            tracing::warn!(link = link.id, %error, "failed to create interface of network_data.json");
            return None;
        }
        let interface = interfaces().into_iter().find(|interface| interface.name == name)?;
        if let Some(mac) = mac.filter(|mac| *mac != interface.mac) {
            let _ = netlink.set_mac(interface.index, mac);
        }
        Some(interface)
    }
}

/// The result of applying the configuration.
#[derive(Default)]
pub struct AppliedNetworkData {
    /// Whether any interface was configured.
    pub changed: bool,
    /// Interfaces that need DHCPv4.
    pub dhcp_interfaces: Vec<LocalInterface>,
}

fn configure_network(
    netlink: &mut RtNetlink,
    interface: &LocalInterface,
    network: &NetworkDataNetwork,
) {
    let Some(text) = &network.ip_address else { return };
    let Some((address, prefix)) = parse_address(text, network.netmask.as_ref()) else {
        return tracing::warn!(
            interface = interface.name,
            address = text,
            "invalid address in network_data.json, ignored"
        );
    };
    if let Err(error) = netlink.add_address(interface.index, address, prefix) {
        return tracing::warn!(interface = interface.name, %address, %error, "failed to set static address");
    }
    tracing::info!(interface = interface.name, %address, prefix, "static address assigned");
    let zero: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let gateway = network.gateway.as_ref().and_then(|text| text.parse().ok());
    let mut routes: Vec<KernelRoute> = network.routes.iter().filter_map(kernel_route).collect();
    if gateway.is_some() {
        routes.push(KernelRoute { destination: (zero, 0), gateway, metric: 100 + interface.index });
    }
    // Routes without a gateway come first, because other routes may need them.
    routes.sort_by_key(|route| route.gateway.is_some());
    for route in routes {
        if let Err(error) = netlink.add_route(interface.index, &route) {
            tracing::warn!(interface = interface.name, ?route, %error, "failed to set route");
        }
    }
}

fn kernel_route(route: &NetworkDataRoute) -> Option<KernelRoute> {
    Some(KernelRoute {
        destination: parse_address(&route.network, route.netmask.as_ref())?,
        gateway: route.gateway.as_ref().and_then(|text| text.parse().ok()),
        metric: 50,
    })
}

/// Parses an address with its mask, or in CIDR notation.
fn parse_address(text: &str, mask: Option<&Value>) -> Option<(IpAddr, u8)> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix.to_owned())),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match (prefix, mask) {
        (Some(prefix), _) => prefix.parse().ok()?,
        (None, None) => max,
        (None, Some(mask)) => match mask.as_str().and_then(|text| text.parse::<IpAddr>().ok()) {
            Some(IpAddr::V4(mask)) => u32::from(mask).leading_ones(),
            Some(IpAddr::V6(mask)) => u128::from(mask).leading_ones(),
            None => u32::try_from(parse_number(mask)?).ok()?,
        },
    };
    (prefix <= max).then_some((address, u8::try_from(prefix).ok()?))
}

fn parse_number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Returns a valid interface name for a link id: at most 15 allowed characters.
fn interface_name(id: &str) -> String {
    let name: String =
        id.chars().filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).collect();
    name[..name.len().min(15)].to_owned()
}

fn interface_index(name: &str) -> Option<u32> {
    interfaces()
        .into_iter()
        .find(|interface| interface.name == name)
        .map(|interface| interface.index)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parses_network_data() {
        let text = json!({
            "links": [
                {"id": "eth0", "type": "phy", "ethernet_mac_address": "52:54:00:aa:bb:01", "mtu": 1500},
                {"id": "vlan7", "type": "vlan", "vlan_id": "7", "vlan_link": "eth0", "vlan_mac_address": "52:54:00:aa:bb:01"},
            ],
            "networks": [{
                "id": "n0", "link": "eth0", "type": "ipv4", "ip_address": "192.0.2.7", "netmask": "255.255.255.0",
                "gateway": "192.0.2.1", "routes": [{"network": "198.51.100.0", "netmask": "255.255.255.0", "gateway": "192.0.2.2"}],
            }],
            "services": [{"type": "dns", "address": "192.0.2.53"}],
        });
        let setup = NetworkData::parse(&text.to_string()).unwrap().unwrap();
        assert_eq!(setup.name_servers(), ["192.0.2.53".parse::<IpAddr>().unwrap()]);
        let route = kernel_route(&setup.networks[0].routes[0]).unwrap();
        assert_eq!(route.destination, ("198.51.100.0".parse().unwrap(), 24));
        assert_eq!(NetworkData::parse("{}").unwrap(), None);
    }

    #[test]
    fn parses_prefix_in_all_notations() {
        let read =
            |text, mask: Option<Value>| parse_address(text, mask.as_ref()).map(|pair| pair.1);
        assert_eq!(read("192.0.2.7/26", None), Some(26));
        assert_eq!(read("192.0.2.7", Some(json!("255.255.0.0"))), Some(16));
        assert_eq!(read("2001:db8::7", Some(json!("64"))), Some(64));
        assert_eq!(read("2001:db8::7", None), Some(128));
        assert_eq!(read("192.0.2.7/64", None), None);
    }
}
