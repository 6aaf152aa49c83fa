// SPDX-License-Identifier: Apache-2.0
//! Parsing of IP networks and addresses from settings, rules and reports.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An IP network such as `10.10.10.0/24`. Host bits of the base address are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpNetwork {
    base: IpAddr,
    prefix: u8,
}

/// The text is not an IP network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a network such as 10.10.10.0/24 or 2001:db8::/64")]
pub struct ParseNetworkError(String);

impl IpNetwork {
    /// Returns true if `address` is in the network. The other address family never is.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                (base.to_bits() ^ address.to_bits()) & mask == 0
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                (base.to_bits() ^ address.to_bits()) & mask == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for IpNetwork {
    type Err = ParseNetworkError;

    /// Parses `address/prefix`, `address/netmask` (IPv4) or a single address.
    fn from_str(text: &str) -> Result<Self, ParseNetworkError> {
        let invalid = || ParseNetworkError(text.chars().take(80).collect());
        let (address, prefix) = match text.trim().split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text.trim(), None),
        };
        let base: IpAddr = address.parse().map_err(|_| invalid())?;
        let longest = if base.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => longest,
            Some(prefix) => prefix_length(prefix, base).ok_or_else(invalid)?,
        };
        if prefix > longest { Err(invalid()) } else { Ok(Self { base, prefix }) }
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

/// Parses an IP address; an IPv6 zone (`fe80::1%eno1`) is dropped.
pub(crate) fn parse_address(text: &str) -> Option<IpAddr> {
    text.split('%').next().unwrap_or(text).trim().parse().ok()
}

/// Returns true for loopback addresses and names.
pub(crate) fn is_loopback(host: &str) -> bool {
    match parse_address(host) {
        Some(address) => address.is_loopback(),
        None => matches!(host, "localhost" | "localhost.localdomain"),
    }
}

/// Returns true for `0.0.0.0` and `::`, which ramdisks send for a missing address.
pub(crate) fn is_unspecified(text: &str) -> bool {
    let address = text.split('/').next().unwrap_or(text);
    matches!(
        address.parse::<IpAddr>(),
        Ok(IpAddr::V4(Ipv4Addr::UNSPECIFIED) | IpAddr::V6(Ipv6Addr::UNSPECIFIED))
    )
}

fn prefix_length(text: &str, base: IpAddr) -> Option<u8> {
    if let Ok(prefix) = text.parse() {
        return Some(prefix);
    }
    let mask: Ipv4Addr = text.parse().ok().filter(|_| base.is_ipv4())?;
    let bits = mask.to_bits();
    let prefix = bits.leading_ones();
    (prefix + bits.trailing_zeros() >= 32).then_some(u8::try_from(prefix).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contains_only_addresses_of_the_network() {
        for (network, address, inside) in [
            ("10.10.10.0/24", "10.10.10.255", true),
            ("10.10.10.0/24", "10.10.11.0", false),
            ("10.10.10.77/24", "10.10.10.1", true),
            ("10.0.0.0/255.0.0.0", "10.9.8.7", true),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("10.1.1.1", "10.1.1.1", true),
            ("10.1.1.1", "10.1.1.2", false),
            ("2001:db8::/64", "2001:db8::1", true),
            ("2001:db8::/64", "2001:db8:0:1::1", false),
            ("::/0", "fe80::1", true),
            ("::/0", "10.0.0.1", false),
        ] {
            let network: IpNetwork = network.parse().unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), inside, "{network} {address}");
        }
    }

    #[test]
    fn rejects_invalid_networks() {
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0.0/255.0.255.0", "net", "10.0.0.0/-1"] {
            assert!(text.parse::<IpNetwork>().is_err(), "{text}");
        }
    }

    #[test]
    fn recognizes_loopback_and_unspecified_addresses() {
        for host in ["127.0.0.1", "127.9.9.9", "::1", "localhost"] {
            assert!(is_loopback(host), "{host}");
        }
        assert!(!is_loopback("10.0.0.1") && !is_loopback("bmc-1"));
        assert!(is_unspecified("0.0.0.0") && is_unspecified("::/0") && !is_unspecified("10.0.0.1"));
    }
}
