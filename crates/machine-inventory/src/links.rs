// SPDX-License-Identifier: Apache-2.0
//! Network links and their addresses, from rtnetlink.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;

use crate::ethtool;
use crate::netlink::{self, Netlink};

/// Network links by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct NetworkLinks {
    links: BTreeMap<String, NetworkLink>,
}

/// One network link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NetworkLink {
    /// Interface index.
    pub(crate) index: Option<NonZeroU32>,
    /// Whether the link has a carrier (`IFF_LOWER_UP`).
    pub(crate) has_carrier: bool,
    /// Permanent MAC address, if the driver reports it.
    pub(crate) permanent_mac: Option<Vec<u8>>,
    /// The first IPv4 address.
    pub(crate) ipv4: Option<Ipv4Addr>,
    /// The first IPv6 address.
    pub(crate) ipv6: Option<Ipv6Addr>,
    /// Highest supported speed in Mbit/s.
    pub(crate) max_speed_mbps: Option<u64>,
}

const GET_LINK: u16 = 18;
const GET_ADDRESS: u16 = 22;
const LINK_MESSAGE: usize = 16;
const LOWER_UP: u32 = 0x1_0000;
const LINK_NAME: u16 = 3;
const LINK_PERMANENT_ADDRESS: u16 = 54;
const ADDRESS_MESSAGE: usize = 8;
const ADDRESS: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;
const FAMILY_V4: u8 = 2;
const FAMILY_V6: u8 = 10;

impl NetworkLinks {
    /// Queries the kernel. Values it does not report are `None`.
    pub(crate) fn query() -> Self {
        let mut links = Self::query_without_speeds();
        for (name, max_speed_mbps) in ethtool::max_link_speeds() {
            if let Some(link) = links.links.get_mut(&name) {
                link.max_speed_mbps = Some(max_speed_mbps);
            }
        }
        links
    }

    /// Queries links and addresses, but not the speeds.
    pub(crate) fn query_without_speeds() -> Self {
        let mut by_index = BTreeMap::new();
        if let Ok(route) = Netlink::route() {
            let _ = route.request(GET_LINK, netlink::DUMP, &[0; LINK_MESSAGE], |message| {
                if let Some((index, name, link)) = parse_link(message) {
                    by_index.insert(index, (name, link));
                }
            });
            let _ = route.request(GET_ADDRESS, netlink::DUMP, &[0; ADDRESS_MESSAGE], |message| {
                add_address(message, &mut by_index);
            });
        }
        Self { links: by_index.into_values().collect() }
    }

    pub(crate) fn get(&self, name: &str) -> NetworkLink {
        self.links.get(name).cloned().unwrap_or_default()
    }
}

fn parse_link(message: &[u8]) -> Option<(u32, String, NetworkLink)> {
    let index = u32::from_ne_bytes(*message.get(4..8)?.first_chunk()?);
    let flags = u32::from_ne_bytes(*message.get(8..12)?.first_chunk()?);
    let attributes = message.get(LINK_MESSAGE..)?;
    let name = netlink::attribute(attributes, LINK_NAME).and_then(netlink::text_attribute)?;
    let permanent_mac = netlink::attribute(attributes, LINK_PERMANENT_ADDRESS)
        .filter(|mac| mac.iter().any(|byte| *byte != 0))
        .map(<[u8]>::to_vec);
    let (number, has_carrier) = (NonZeroU32::new(index), flags & LOWER_UP != 0);
    Some((
        index,
        name,
        NetworkLink { index: number, has_carrier, permanent_mac, ..NetworkLink::default() },
    ))
}

fn add_address(message: &[u8], links: &mut BTreeMap<u32, (String, NetworkLink)>) -> Option<()> {
    let family = *message.first()?;
    let index = u32::from_ne_bytes(*message.get(4..8)?.first_chunk()?);
    let attributes = message.get(ADDRESS_MESSAGE..)?;
    let (_, link) = links.get_mut(&index)?;
    // On a point-to-point link, `IFA_LOCAL` is this machine's address.
    let address = netlink::attribute(attributes, ADDRESS_LOCAL)
        .or_else(|| netlink::attribute(attributes, ADDRESS))?;
    match family {
        FAMILY_V4 => link.ipv4 = link.ipv4.or(Some(Ipv4Addr::from(*address.first_chunk::<4>()?))),
        FAMILY_V6 => link.ipv6 = link.ipv6.or(Some(Ipv6Addr::from(*address.first_chunk::<16>()?))),
        _ => {}
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_loopback_of_running_kernel() {
        let links = NetworkLinks::query();
        let loopback = links.get("lo");
        assert_eq!(loopback.permanent_mac, None);
        assert!(loopback.ipv4.is_none_or(|address| address.is_loopback()));
        assert!(links.links.contains_key("lo"));
    }

    #[test]
    fn keeps_first_address_of_link() {
        let mut links = BTreeMap::from([(2, ("eth0".to_owned(), NetworkLink::default()))]);
        for last in [5_u8, 6] {
            let mut message = vec![FAMILY_V4, 24, 0, 0, 2, 0, 0, 0];
            netlink::push_attribute(&mut message, ADDRESS, &[10, 0, 0, last]);
            netlink::push_attribute(&mut message, ADDRESS_LOCAL, &[10, 0, 1, last]);
            add_address(&message, &mut links);
        }
        assert_eq!(links[&2].1.ipv4, Some(Ipv4Addr::new(10, 0, 1, 5)));
    }
}
