// SPDX-License-Identifier: Apache-2.0
//! The provisioning network: how this host's address on it is found, and the placeholders that stand for
//! it in other settings.

use std::net::IpAddr;

use anyhow::{Context as _, bail};
use node_model::Mac;
use serde::{Deserialize, Serialize};
use toml::Value;

use super::Config;
use crate::network_interfaces::{HostInterface, InterfaceAddress};

/// This host's address on the provisioning network, found by the interface. Other settings refer to it:
/// `{provisioning_host}` is the address in listen addresses and URLs (IPv6 in brackets),
/// `{provisioning_address}` the address, `{provisioning_prefix}` its prefix length and
/// `{provisioning_interface}` the name of the interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ProvisioningSection {
    /// Name of the interface.
    pub(crate) interface: Option<String>,
    /// MAC addresses of which the interface has one, if its name is not set. Replicas on different hosts can
    /// share such a configuration.
    pub(crate) mac_addresses: Vec<Mac>,
    /// The address, if it is known and may appear after the start, such as one of keepalived.
    pub(crate) address: Option<IpAddr>,
    /// The network that contains the address, such as `10.0.0.0/24`, if the interface has several. By default
    /// IPv4 is preferred. Link-local addresses are never used.
    pub(crate) network: Option<String>,
    /// Seconds to wait at start until the interface has the address.
    pub(crate) timeout: u64,
}

/// This host's address on the provisioning network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProvisioningAddress {
    pub(crate) interface: String,
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
}

impl Default for ProvisioningSection {
    fn default() -> Self {
        Self {
            interface: None,
            mac_addresses: Vec::new(),
            address: None,
            network: None,
            timeout: 600,
        }
    }
}

impl ProvisioningSection {
    /// Whether an address has to be found.
    pub(crate) fn is_set(&self) -> bool {
        self.interface.is_some()
            || !self.mac_addresses.is_empty()
            || self.address.is_some()
            || self.network.is_some()
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        if let Some(network) = self.network()?
            && let Some(address) = self.address
            && !network.contains(address)
        {
            bail!("provisioning.address {address} is outside provisioning.network");
        }
        for mac in &self.mac_addresses {
            mac_bytes(mac).with_context(|| {
                format!("provisioning.mac_addresses: {mac} is not an Ethernet address")
            })?;
        }
        Ok(())
    }

    fn network(&self) -> anyhow::Result<Option<AddressPrefix>> {
        let Some(text) = &self.network else { return Ok(None) };
        let parsed = AddressPrefix::parse(text);
        Ok(Some(parsed.with_context(|| {
            format!("provisioning.network is {text:?}; it must be a network such as 10.0.0.0/24")
        })?))
    }

    /// Returns the address on the first interface that has a matching one. The error is the reason why
    /// there is none.
    pub(crate) fn find(&self, interfaces: &[HostInterface]) -> Result<ProvisioningAddress, String> {
        let network = self.network().map_err(|error| error.to_string())?;
        let candidates: Vec<&HostInterface> =
            interfaces.iter().filter(|interface| self.matches(interface)).collect();
        let found = candidates.iter().find_map(|interface| {
            let usable = interface.addresses.iter().filter(|own| match self.address {
                Some(address) => own.address == address,
                None => {
                    !is_link_local(own.address)
                        && network.is_none_or(|network| network.contains(own.address))
                }
            });
            let InterfaceAddress { address, prefix } =
                *usable.min_by_key(|own| own.address.is_ipv6())?;
            Some(ProvisioningAddress { interface: interface.name.clone(), address, prefix })
        });
        found.filter(|_| self.is_set()).ok_or_else(|| self.reason(&candidates))
    }

    fn matches(&self, interface: &HostInterface) -> bool {
        match &self.interface {
            Some(name) => interface.name == *name,
            None if self.mac_addresses.is_empty() => {
                !interface.is_loopback || self.address.is_some()
            }
            None => {
                let macs = self.mac_addresses.iter().filter_map(mac_bytes);
                macs.into_iter().any(|mac| interface.macs.contains(&mac))
            }
        }
    }

    fn reason(&self, candidates: &[&HostInterface]) -> String {
        let what = match (&self.interface, self.mac_addresses.as_slice()) {
            (Some(name), _) => format!("the interface {name}"),
            (None, []) => "an interface".to_owned(),
            (None, macs) => {
                let macs: Vec<&str> = macs.iter().map(Mac::as_str).collect();
                format!("an interface with the MAC address {}", macs.join(" or "))
            }
        };
        let address = match (self.address, &self.network) {
            (Some(address), _) => format!("the address {address}"),
            (None, Some(network)) => format!("an address in {network}"),
            (None, None) => "an address".to_owned(),
        };
        let has_selector = self.interface.is_some() || !self.mac_addresses.is_empty();
        if candidates.is_empty() && has_selector {
            format!("this host does not have {what}")
        } else if has_selector && candidates.iter().all(|candidate| !candidate.is_up) {
            format!("{what} is down")
        } else {
            format!("{what} with {address} was not found")
        }
    }
}

impl ProvisioningAddress {
    /// Stands for the address until it is found. Only settings that do not depend on it are used then.
    pub(super) fn stand_in() -> Self {
        Self { interface: "lo".to_owned(), address: IpAddr::from([127, 0, 0, 1]), prefix: 8 }
    }

    /// Replaces the placeholders in all texts of a value. Returns whether there was one.
    pub(super) fn substitute(&self, value: &mut Value) -> anyhow::Result<bool> {
        match value {
            Value::String(text) => self.substitute_text(text),
            Value::Array(values) => values
                .iter_mut()
                .try_fold(false, |found, value| Ok(self.substitute(value)? | found)),
            Value::Table(table) => table
                .iter_mut()
                .try_fold(false, |found, (_, value)| Ok(self.substitute(value)? | found)),
            Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {
                Ok(false)
            }
        }
    }

    fn substitute_text(&self, text: &mut String) -> anyhow::Result<bool> {
        const START: &str = "{provisioning_";
        if !text.contains(START) {
            return Ok(false);
        }
        let host = match self.address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        let mut replaced = text.clone();
        for (name, value) in [
            ("{provisioning_host}", host),
            ("{provisioning_address}", self.address.to_string()),
            ("{provisioning_prefix}", self.prefix.to_string()),
            ("{provisioning_interface}", self.interface.clone()),
        ] {
            replaced = replaced.replace(name, &value);
        }
        if replaced.contains(START) {
            bail!(
                "{text:?} has an unknown placeholder; use {{provisioning_host}}, \
                 {{provisioning_address}}, {{provisioning_prefix}} or {{provisioning_interface}}"
            );
        }
        *text = replaced;
        Ok(true)
    }
}

impl Config {
    /// This host's address on the provisioning network, if one is configured and found.
    pub(crate) fn provisioning_ip(&self) -> Option<IpAddr> {
        self.provisioning_address.as_ref().map(|found| found.address)
    }
}

/// A network address with its prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AddressPrefix {
    address: IpAddr,
    prefix: u8,
}

impl AddressPrefix {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
        (prefix <= if address.is_ipv4() { 32 } else { 128 }).then_some(Self { address, prefix })
    }

    fn contains(self, address: IpAddr) -> bool {
        let prefix = u32::from(self.prefix);
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
                network.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
                network.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn mac_bytes(mac: &Mac) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut parts = mac.as_str().split(':');
    for byte in &mut bytes {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, last: u8, addresses: &[(&str, u8)]) -> HostInterface {
        HostInterface {
            name: name.to_owned(),
            macs: vec![[2, 0, 0, 0, 0, last]],
            is_up: true,
            is_loopback: name == "lo",
            addresses: addresses
                .iter()
                .map(|(address, prefix)| InterfaceAddress {
                    address: address.parse().unwrap(),
                    prefix: *prefix,
                })
                .collect(),
        }
    }

    fn find(text: &str) -> Result<String, String> {
        let section: ProvisioningSection = toml::from_str(text).unwrap();
        section.check().unwrap();
        let mut down = interface("eth3", 3, &[]);
        down.is_up = false;
        let found = section.find(&[
            interface("lo", 0, &[("127.0.0.1", 8)]),
            interface("eth0", 9, &[("198.51.100.7", 24)]),
            interface("eth1", 1, &[("fe80::1", 64), ("fd00::1", 64), ("10.0.0.1", 24)]),
            interface("eth2", 2, &[("fe80::2", 64)]),
            down,
        ])?;
        Ok(format!("{} {}/{}", found.interface, found.address, found.prefix))
    }

    #[test]
    fn addresses_are_found_by_interface_mac_address_or_network() {
        for (text, expected) in [
            ("interface = \"eth1\"", "eth1 10.0.0.1/24"),
            ("interface = \"eth1\"\nnetwork = \"fd00::/64\"", "eth1 fd00::1/64"),
            ("mac_addresses = [\"02:00:00:00:00:77\", \"02:00:00:00:00:01\"]", "eth1 10.0.0.1/24"),
            (
                "interface = \"eth0\"\nmac_addresses = [\"02:00:00:00:00:01\"]",
                "eth0 198.51.100.7/24",
            ),
            ("address = \"10.0.0.1\"", "eth1 10.0.0.1/24"),
            ("address = \"127.0.0.1\"", "lo 127.0.0.1/8"),
            ("network = \"10.0.0.0/8\"", "eth1 10.0.0.1/24"),
            ("interface = \"lo\"", "lo 127.0.0.1/8"),
        ] {
            assert_eq!(find(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn the_reason_is_stated() {
        for (text, expected) in [
            ("interface = \"eth7\"", "this host does not have the interface eth7"),
            ("interface = \"eth2\"", "the interface eth2 with an address was not found"),
            ("interface = \"eth3\"", "the interface eth3 is down"),
            (
                "interface = \"eth1\"\nnetwork = \"10.9.0.0/24\"",
                "the interface eth1 with an address in 10.9.0.0/24 was not found",
            ),
            ("address = \"10.0.0.9\"", "an interface with the address 10.0.0.9 was not found"),
            (
                "mac_addresses = [\"02:00:00:00:00:77\"]",
                "this host does not have an interface with the MAC address 02:00:00:00:00:77",
            ),
        ] {
            assert_eq!(find(text).unwrap_err(), expected, "{text}");
        }
        for (text, expected) in [
            ("network = \"10.0.0.0\"", "provisioning.network"),
            ("network = \"10.0.0.0/24\"\naddress = \"10.0.1.1\"", "outside provisioning.network"),
        ] {
            let section: ProvisioningSection = toml::from_str(text).unwrap();
            let error = section.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn placeholders_are_replaced() {
        let found = ProvisioningAddress {
            interface: "eth1".to_owned(),
            address: "fd00::1".parse().unwrap(),
            prefix: 64,
        };
        for (text, expected) in [
            ("https://{provisioning_host}:6183", "https://[fd00::1]:6183"),
            ("{provisioning_address}/{provisioning_prefix}", "fd00::1/64"),
            ("{provisioning_interface}", "eth1"),
            ("{other}", "{other}"),
        ] {
            let mut value = Value::Array(vec![Value::from(text)]);
            assert_eq!(found.substitute(&mut value).unwrap(), text != "{other}");
            assert_eq!(value[0].as_str(), Some(expected));
        }
        let error = found.substitute(&mut Value::from("{provisioning_ip}:1")).unwrap_err();
        assert!(error.to_string().contains("unknown placeholder"), "{error}");
    }
}
