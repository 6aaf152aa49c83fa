// SPDX-License-Identifier: Apache-2.0
//! The network interfaces of this host and their addresses, from the kernel.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use machine_inventory::netlink::{self, Netlink};

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostInterface {
    pub(crate) name: String,
    /// The MAC addresses: the current one, and the permanent one if it differs.
    pub(crate) macs: Vec<[u8; 6]>,
    pub(crate) is_up: bool,
    pub(crate) is_loopback: bool,
    /// The addresses that can be used now, in the order of the kernel.
    pub(crate) addresses: Vec<InterfaceAddress>,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InterfaceAddress {
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
}

const GET_LINK: u16 = 18;
const LINK_MESSAGE: usize = 16;
const LINK_ADDRESS: u16 = 1;
const LINK_NAME: u16 = 3;
const LINK_PERMANENT_ADDRESS: u16 = 54;
const FLAG_UP: u32 = 0x1;
const FLAG_LOOPBACK: u32 = 0x8;
const GET_ADDRESS: u16 = 22;
const ADDRESS_MESSAGE: usize = 8;
const ADDRESS: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;
const ADDRESS_FLAGS: u16 = 8;
/// Duplicate address detection failed, deprecated, tentative: no new connection can use the address.
const UNUSABLE: u32 = 0x08 | 0x20 | 0x40;
const FAMILY_V4: u8 = 2;
const FAMILY_V6: u8 = 10;

/// Returns all interfaces, ordered by index.
pub(crate) fn host_interfaces() -> io::Result<Vec<HostInterface>> {
    let route = Netlink::route()?;
    let mut by_index = BTreeMap::new();
    route.request(GET_LINK, netlink::DUMP, &[0; LINK_MESSAGE], |message| {
        by_index.extend(parse_link(message));
    })?;
    route.request(GET_ADDRESS, netlink::DUMP, &[0; ADDRESS_MESSAGE], |message| {
        if let Some((index, address)) = parse_address(message)
            && let Some(interface) = by_index.get_mut(&index)
        {
            interface.addresses.push(address);
        }
    })?;
    Ok(by_index.into_values().collect())
}

fn parse_link(message: &[u8]) -> Option<(u32, HostInterface)> {
    let index = u32::from_ne_bytes(*message.get(4..8)?.first_chunk()?);
    let flags = u32::from_ne_bytes(*message.get(8..12)?.first_chunk()?);
    let attributes = message.get(LINK_MESSAGE..)?;
    let name = netlink::attribute(attributes, LINK_NAME).and_then(netlink::text_attribute)?;
    let mut macs: Vec<[u8; 6]> = Vec::new();
    for attribute in [LINK_ADDRESS, LINK_PERMANENT_ADDRESS] {
        let mac = netlink::attribute(attributes, attribute).and_then(|mac| mac.try_into().ok());
        macs.extend(mac.filter(|mac| *mac != [0; 6] && !macs.contains(mac)));
    }
    let (is_up, is_loopback) = (flags & FLAG_UP != 0, flags & FLAG_LOOPBACK != 0);
    Some((index, HostInterface { name, macs, is_up, is_loopback, addresses: Vec::new() }))
}

/// Parses an address message. Returns `None` for addresses that cannot be used.
fn parse_address(message: &[u8]) -> Option<(u32, InterfaceAddress)> {
    let [family, prefix, flags, _] = *message.first_chunk()?;
    let index = u32::from_ne_bytes(*message.get(4..8)?.first_chunk()?);
    let attributes = message.get(ADDRESS_MESSAGE..)?;
    let all_flags = netlink::attribute(attributes, ADDRESS_FLAGS).and_then(<[u8]>::first_chunk);
    let flags = all_flags.map_or(u32::from(flags), |flags| u32::from_ne_bytes(*flags));
    if flags & UNUSABLE != 0 {
        return None;
    }
    // On a point-to-point link, `IFA_LOCAL` is this host's address.
    let bytes = netlink::attribute(attributes, ADDRESS_LOCAL)
        .or_else(|| netlink::attribute(attributes, ADDRESS))?;
    let address = match family {
        FAMILY_V4 => IpAddr::from(Ipv4Addr::from(*bytes.first_chunk::<4>()?)),
        FAMILY_V6 => IpAddr::from(Ipv6Addr::from(*bytes.first_chunk::<16>()?)),
        _ => return None,
    };
    Some((index, InterfaceAddress { address, prefix }))
}

impl fmt::Display for HostInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for mac in &self.macs {
            let octets: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
            write!(f, " {}", octets.join(":"))?;
        }
        if !self.is_up {
            f.write_str(" (down)")?;
        }
        for InterfaceAddress { address, prefix } in &self.addresses {
            write!(f, " {address}/{prefix}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_loopback_of_the_running_kernel() {
        let interfaces = host_interfaces().unwrap();
        let loopback = interfaces.iter().find(|interface| interface.name == "lo").unwrap();
        assert!(loopback.is_loopback && loopback.macs.is_empty());
    }

    #[test]
    fn parses_messages_of_the_kernel() {
        let mut link = vec![0; LINK_MESSAGE];
        link[4] = 3;
        link[8] = 1;
        netlink::push_attribute(&mut link, LINK_ADDRESS, &[2, 0, 0, 0, 0, 1]);
        netlink::push_attribute(&mut link, LINK_NAME, b"eth1\0");
        netlink::push_attribute(&mut link, LINK_PERMANENT_ADDRESS, &[2, 0, 0, 0, 0, 2]);
        let (index, mut interface) = parse_link(&link).unwrap();
        assert_eq!((index, interface.macs.len(), interface.is_up), (3, 2, true));
        let message = |flags: u8, attribute: u16| {
            let mut message = vec![FAMILY_V4, 24, flags, 0, 3, 0, 0, 0];
            netlink::push_attribute(&mut message, attribute, &[10, 0, 0, 7]);
            parse_address(&message)
        };
        let found = message(0, ADDRESS_LOCAL).unwrap();
        assert_eq!(message(0, ADDRESS), Some(found));
        assert_eq!(message(0x40, ADDRESS), None, "tentative");
        interface.addresses.push(found.1);
        assert_eq!(interface.to_string(), "eth1 02:00:00:00:00:01 02:00:00:00:00:02 10.0.0.7/24");
        assert_eq!(parse_address(&[FAMILY_V4]), None);
        assert_eq!(parse_link(&[0; 7]), None);
    }
}
