// SPDX-License-Identifier: Apache-2.0
//! Addresses, VLANs and bonds that a boot medium prescribes: OpenStack's `network_data.json`.

use std::collections::HashSet;
use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;

use super::netlink::{Kernel, Route};
use super::{Card, cards, parse_mac};

/// How often a bond looks whether its cards have a cable, in milliseconds.
const MONITOR: u32 = 100;
/// The kernel's numbers for the ways a bond can work.
const BOND_MODES: &[(&str, u8)] = &[
    ("balance-rr", 0),
    ("active-backup", 1),
    ("balance-xor", 2),
    ("broadcast", 3),
    ("802.3ad", 4),
    ("balance-tlb", 5),
    ("balance-alb", 6),
];

/// A `network_data.json`.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct StaticSetup {
    #[serde(default)]
    links: Vec<Link>,
    #[serde(default)]
    networks: Vec<Network>,
    #[serde(default)]
    services: Vec<Service>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
struct Link {
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
struct Network {
    link: String,
    #[serde(rename = "type", default)]
    kind: String,
    ip_address: Option<String>,
    netmask: Option<Value>,
    gateway: Option<String>,
    #[serde(default)]
    routes: Vec<StaticRoute>,
    #[serde(default)]
    services: Vec<Service>,
    #[serde(default)]
    dns_nameservers: Vec<String>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
struct StaticRoute {
    network: String,
    netmask: Option<Value>,
    gateway: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
struct Service {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    address: String,
}

impl StaticSetup {
    /// Reads one; nothing if it prescribes nothing.
    ///
    /// # Errors
    /// If it is not what OpenStack writes.
    pub fn parse(text: &str) -> Result<Option<Self>, serde_json::Error> {
        let setup: Self = serde_json::from_str(text)?;
        Ok((!setup.networks.is_empty()).then_some(setup))
    }

    /// The modules its links need: the kernel has nobody to ask for them.
    #[must_use]
    pub fn modules(&self) -> Vec<&'static str> {
        let has = |kind: &str| self.links.iter().any(|link| link.kind == kind);
        let needed = [("vlan", "8021q"), ("bond", "bonding")];
        needed.into_iter().filter(|(kind, _)| has(kind)).map(|(_, module)| module).collect()
    }

    /// The name servers.
    #[must_use]
    pub fn name_servers(&self) -> Vec<IpAddr> {
        let services = self.networks.iter().flat_map(|network| &network.services);
        let named = self.services.iter().chain(services);
        let mut servers: Vec<IpAddr> = named
            .filter(|service| service.kind == "dns")
            .filter_map(|service| service.address.parse().ok())
            .collect();
        let listed = self.networks.iter().flat_map(|network| &network.dns_nameservers);
        servers.extend(listed.filter_map(|address| address.parse::<IpAddr>().ok()));
        servers
    }

    /// Sets up what can be set up now. Links that are done are remembered in `done`. True if
    /// anything was done. Cards that are to ask DHCP are in `ask_dhcp`.
    pub fn apply(&self, kernel: &mut Kernel, done: &mut HashSet<u32>) -> Applied {
        let mut applied = Applied::default();
        for link in &self.links {
            let Some(card) = self.ensure(kernel, link) else { continue };
            if !done.insert(card.index) {
                continue;
            }
            applied.changed = true;
            let _ = kernel.set_up(card.index);
            if let Some(mtu) = link.mtu
                && let Err(error) = kernel.set_mtu(card.index, mtu)
            {
                tracing::warn!(card = card.name, mtu, %error, "the MTU could not be set");
            }
            for network in self.networks.iter().filter(|network| network.link == link.id) {
                if network.kind == "ipv4_dhcp" {
                    applied.ask_dhcp.push(card.clone());
                }
                set_up(kernel, &card, network);
            }
        }
        applied
    }

    /// The card of a link, made if it is not made of hardware.
    fn ensure(&self, kernel: &mut Kernel, link: &Link) -> Option<Card> {
        let present = cards();
        let mac = link.ethernet_mac_address.as_deref().and_then(parse_mac);
        let name = kernel_name(&link.id);
        let made = match link.kind.as_str() {
            "vlan" => {
                if let Some(card) = present.iter().find(|card| card.name == name) {
                    return Some(card.clone());
                }
                let parent =
                    self.links.iter().find(|other| Some(&other.id) == link.vlan_link.as_ref())?;
                let parent = self.ensure(kernel, parent)?;
                let id = number(link.vlan_id.as_ref()?)?;
                kernel.add_vlan(&name, parent.index, u16::try_from(id).ok()?)
            }
            "bond" => {
                if let Some(card) = present.iter().find(|card| card.name == name) {
                    return Some(card.clone());
                }
                let parts: Vec<Card> = link
                    .bond_links
                    .iter()
                    .filter_map(|id| self.links.iter().find(|other| other.id == *id))
                    .filter_map(|part| {
                        let mac = part.ethernet_mac_address.as_deref().and_then(parse_mac)?;
                        present.iter().find(|card| card.physical && card.address == mac).cloned()
                    })
                    .collect();
                if parts.is_empty() {
                    return None;
                }
                let wanted = link.bond_mode.as_deref().unwrap_or("active-backup");
                let mode =
                    BOND_MODES.iter().find(|(name, _)| *name == wanted).map_or(1, |mode| mode.1);
                kernel.add_bond(&name, mode, MONITOR).and_then(|()| {
                    let bond = index_of(&name).ok_or(std::io::ErrorKind::NotFound)?;
                    for part in &parts {
                        // A card that is on cannot join.
                        kernel.set_down(part.index)?;
                        kernel.set_master(part.index, bond)?;
                        kernel.set_up(part.index)?;
                    }
                    Ok(())
                })
            }
            _ => {
                return present.into_iter().find(|card| card.physical && Some(card.address) == mac);
            }
        };
        if let Err(error) = made {
            tracing::warn!(link = link.id, %error, "a link of network_data could not be made");
            return None;
        }
        let card = cards().into_iter().find(|card| card.name == name)?;
        if let Some(mac) = mac.filter(|mac| *mac != card.address) {
            let _ = kernel.set_hardware_address(card.index, mac);
        }
        Some(card)
    }
}

/// What was done.
#[derive(Default)]
pub struct Applied {
    /// Whether anything was.
    pub changed: bool,
    /// Cards that are to ask DHCP.
    pub ask_dhcp: Vec<Card>,
}

fn set_up(kernel: &mut Kernel, card: &Card, network: &Network) {
    let Some(written) = &network.ip_address else { return };
    let Some((address, prefix)) = with_prefix(written, network.netmask.as_ref()) else {
        return tracing::warn!(
            card = card.name,
            address = written,
            "network_data has no address here"
        );
    };
    if let Err(error) = kernel.add_address(card.index, address, prefix) {
        return tracing::warn!(card = card.name, %address, %error, "an address could not be set");
    }
    tracing::info!(card = card.name, %address, prefix, "network_data gave an address");
    let zero: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let gateway = network.gateway.as_ref().and_then(|text| text.parse().ok());
    let mut routes: Vec<Route> = network.routes.iter().filter_map(static_route).collect();
    if gateway.is_some() {
        routes.push(Route { destination: (zero, 0), gateway, metric: 100 + card.index });
    }
    // Routes on the link come first: others may lead through them.
    routes.sort_by_key(|route| route.gateway.is_some());
    for route in routes {
        if let Err(error) = kernel.add_route(card.index, &route) {
            tracing::warn!(card = card.name, ?route, %error, "a route could not be set");
        }
    }
}

fn static_route(route: &StaticRoute) -> Option<Route> {
    Some(Route {
        destination: with_prefix(&route.network, route.netmask.as_ref())?,
        gateway: route.gateway.as_ref().and_then(|text| text.parse().ok()),
        metric: 50,
    })
}

/// `192.0.2.7` and its mask, or `192.0.2.7/24`.
fn with_prefix(written: &str, mask: Option<&Value>) -> Option<(IpAddr, u8)> {
    let (address, prefix) = match written.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix.to_owned())),
        None => (written, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match (prefix, mask) {
        (Some(prefix), _) => prefix.parse().ok()?,
        (None, None) => most,
        (None, Some(mask)) => match mask.as_str().and_then(|text| text.parse::<IpAddr>().ok()) {
            Some(IpAddr::V4(mask)) => u32::from(mask).leading_ones(),
            Some(IpAddr::V6(mask)) => u128::from(mask).leading_ones(),
            None => u32::try_from(number(mask)?).ok()?,
        },
    };
    (prefix <= most).then_some((address, u8::try_from(prefix).ok()?))
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// A name the kernel takes: short, and without what it gives a meaning.
fn kernel_name(id: &str) -> String {
    let name: String =
        id.chars().filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).collect();
    name[..name.len().min(15)].to_owned()
}

fn index_of(name: &str) -> Option<u32> {
    cards().into_iter().find(|card| card.name == name).map(|card| card.index)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_nova_writes_is_read() {
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
        let setup = StaticSetup::parse(&text.to_string()).unwrap().unwrap();
        assert_eq!(setup.name_servers(), ["192.0.2.53".parse::<IpAddr>().unwrap()]);
        let route = static_route(&setup.networks[0].routes[0]).unwrap();
        assert_eq!(route.destination, ("198.51.100.0".parse().unwrap(), 24));
        assert_eq!(StaticSetup::parse("{}").unwrap(), None);
    }

    #[test]
    fn prefixes_come_in_three_ways() {
        let read = |text, mask: Option<Value>| with_prefix(text, mask.as_ref()).map(|pair| pair.1);
        assert_eq!(read("192.0.2.7/26", None), Some(26));
        assert_eq!(read("192.0.2.7", Some(json!("255.255.0.0"))), Some(16));
        assert_eq!(read("2001:db8::7", Some(json!("64"))), Some(64));
        assert_eq!(read("2001:db8::7", None), Some(128));
        assert_eq!(read("192.0.2.7/64", None), None);
    }
}
