// SPDX-License-Identifier: Apache-2.0
//! IP networks and the address ranges that DHCP assigns from them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Address families have different widths; ranges never mix them.
const fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The address as a number, left-aligned so that prefixes of both families are compared alike.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// The address of the same family as `like` with this number. Higher bits are ignored.
fn address(like: IpAddr, number: u128) -> IpAddr {
    match like {
        #[expect(clippy::cast_possible_truncation, reason = "an IPv4 address has 32 bits")]
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(number as u32)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(number)),
    }
}

/// An IP network in CIDR notation. Host bits are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CidrNetwork {
    /// First address.
    pub network: IpAddr,
    /// Prefix length.
    pub prefix: u8,
}

impl CidrNetwork {
    /// Parses a network such as `192.0.2.0/24`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (host, prefix) = text.split_once('/')?;
        let host: IpAddr = host.parse().ok()?;
        let is_number = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix: u8 = prefix.parse().ok().filter(|_| is_number)?;
        if prefix > width(host) {
            return None;
        }
        let network = Self { network: host, prefix };
        Some(Self { network: address(host, number(host) & !network.host_mask()), prefix })
    }

    /// Whether the address is in the network.
    #[must_use]
    pub fn contains(&self, other: IpAddr) -> bool {
        self.is_same_family(other) && number(other) & !self.host_mask() == number(self.network)
    }

    /// Whether the address has the IP version of the network.
    #[must_use]
    pub fn is_same_family(&self, other: IpAddr) -> bool {
        width(other) == width(self.network)
    }

    /// Number of hosts minus one: the bits that are not in the prefix.
    fn host_mask(&self) -> u128 {
        let bits = u32::from(width(self.network) - self.prefix);
        if bits == 128 { u128::MAX } else { (1 << bits) - 1 }
    }

    /// The addresses that DHCP assigns if a user gives no range.
    ///
    /// The first tenth of the network, at least nine addresses, is left for servers and routers, and
    /// the last address for broadcasts. IPv6 ranges have at most 65536 addresses. `excluded` are
    /// addresses in use; the range starts after those that are at its beginning.
    /// Returns `None` if the network has fewer than 16 addresses.
    #[must_use]
    pub fn default_range(&self, excluded: &[IpAddr]) -> Option<IpRange> {
        const MIN_HOST_MASK: u128 = 15;
        const MIN_RESERVED: u128 = 10;
        const MAX_IPV6_OFFSET: u128 = 0x1_0000;
        let mask = self.host_mask();
        if mask < MIN_HOST_MASK {
            return None;
        }
        let largest = if self.network.is_ipv6() { mask.min(MAX_IPV6_OFFSET) } else { mask - 1 };
        let base = number(self.network);
        let mut ranges = vec![(base + MIN_RESERVED.max(largest / 10), base + largest)];
        // The longest part without an excluded address.
        for taken in excluded.iter().filter(|taken| self.contains(**taken)).copied().map(number) {
            ranges = ranges
                .into_iter()
                .flat_map(|(begin, end)| {
                    if taken < begin || taken > end {
                        return vec![(begin, end)];
                    }
                    let before = (taken > begin).then(|| (begin, taken - 1));
                    let after = (taken < end).then(|| (taken + 1, end));
                    before.into_iter().chain(after).collect()
                })
                .collect();
        }
        let (begin, end) = ranges.into_iter().max_by_key(|(begin, end)| end - begin)?;
        Some(IpRange { begin: address(self.network, begin), end: address(self.network, end) })
    }
}

impl fmt::Display for CidrNetwork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.network, self.prefix)
    }
}

/// Addresses from the first to the last, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpRange {
    /// First address.
    pub begin: IpAddr,
    /// Last address.
    pub end: IpAddr,
}

impl IpRange {
    /// Whether both ranges have an address in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        width(self.begin) == width(other.begin)
            && number(self.begin) <= number(other.end)
            && number(other.begin) <= number(self.end)
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.begin, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn parses_networks() {
        for (text, expected) in [
            ("192.0.2.0/24", Some("192.0.2.0/24")),
            ("192.0.2.7/24", Some("192.0.2.0/24")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("192.0.2.7/32", Some("192.0.2.7/32")),
            ("2001:db8::1/64", Some("2001:db8::/64")),
            ("::/0", Some("::/0")),
            ("192.0.2.0/33", None),
            ("2001:db8::/129", None),
            ("192.0.2.0", None),
            ("192.0.2.0/", None),
            ("192.0.2.0/+4", None),
            ("192.0.2.0/256", None),
            ("x/24", None),
            ("", None),
        ] {
            let parsed = CidrNetwork::parse(text).map(|network| network.to_string());
            assert_eq!(parsed.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_network_contains_only_its_own_addresses() {
        for (network, address, expected) in [
            ("192.0.2.0/24", "192.0.2.255", true),
            ("192.0.2.0/24", "192.0.3.0", false),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "1.2.3.4", false),
            ("2001:db8::/64", "2001:db8::ffff:1", true),
        ] {
            let network = CidrNetwork::parse(network).unwrap();
            assert_eq!(network.contains(ip(address)), expected, "{network} {address}");
        }
    }

    #[test]
    fn ranges_are_derived_from_the_network() {
        for (network, excluded, expected) in [
            ("192.0.2.0/24", &[][..], Some("192.0.2.25-192.0.2.254")),
            ("192.0.2.0/24", &["192.0.2.1"], Some("192.0.2.25-192.0.2.254")),
            ("192.0.2.0/24", &["192.0.2.254", "192.0.2.30"], Some("192.0.2.31-192.0.2.253")),
            ("10.0.0.0/8", &[], Some("10.25.153.153-10.255.255.254")),
            ("192.0.2.0/28", &[], Some("192.0.2.10-192.0.2.14")),
            ("192.0.2.0/29", &[], None),
            ("192.0.2.1/32", &[], None),
            ("2001:db8::/64", &["2001:db8::1"], Some("2001:db8::1999-2001:db8::1:0")),
            ("2001:db8::/120", &[], Some("2001:db8::19-2001:db8::ff")),
            ("::/0", &[], Some("::1999-::1:0")),
        ] {
            let excluded: Vec<IpAddr> = excluded.iter().map(|text| ip(text)).collect();
            let network = CidrNetwork::parse(network).unwrap();
            let range = network.default_range(&excluded);
            assert_eq!(range.map(|range| range.to_string()).as_deref(), expected, "{network}");
            let is_inside =
                |range: IpRange| network.contains(range.begin) && network.contains(range.end);
            assert!(range.is_none_or(is_inside), "{network}");
        }
    }

    #[test]
    fn ranges_overlap_if_they_share_an_address() {
        let range = |begin, end| IpRange { begin: ip(begin), end: ip(end) };
        let first = range("192.0.2.10", "192.0.2.20");
        assert!(first.overlaps(&range("192.0.2.20", "192.0.2.30")));
        assert!(first.overlaps(&range("192.0.2.1", "192.0.2.254")));
        assert!(!first.overlaps(&range("192.0.2.21", "192.0.2.30")));
        assert!(!first.overlaps(&range("::", "ffff::")));
    }
}
