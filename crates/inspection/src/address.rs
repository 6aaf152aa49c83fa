// SPDX-License-Identifier: Apache-2.0
//! IP networks and addresses as operators and ramdisks write them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of IP addresses, such as `10.10.10.0/24`. Bits beyond the prefix are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    base: IpAddr,
    prefix: u8,
}

/// The text is not a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a network such as 10.10.10.0/24 or 2001:db8::/64")]
pub struct ParseNetworkError(String);

impl Network {
    /// Whether `address` lies in it. An address of the other family never does.
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

impl FromStr for Network {
    type Err = ParseNetworkError;

    /// Takes `address/prefix`, `address/netmask` (IPv4) and a bare address, which is a network of one.
    fn from_str(text: &str) -> Result<Self, ParseNetworkError> {
        let refused = || ParseNetworkError(text.chars().take(80).collect());
        let (address, prefix) = match text.trim().split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text.trim(), None),
        };
        let base: IpAddr = address.parse().map_err(|_| refused())?;
        let longest = if base.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => longest,
            Some(prefix) => prefix_length(prefix, base).ok_or_else(refused)?,
        };
        if prefix > longest { Err(refused()) } else { Ok(Self { base, prefix }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

/// An IP address, also when an IPv6 zone (`fe80::1%eno1`) follows it.
pub(crate) fn parse_address(text: &str) -> Option<IpAddr> {
    text.split('%').next().unwrap_or(text).trim().parse().ok()
}

/// Whether a host name or address means the machine that uses it.
pub(crate) fn is_loopback(host: &str) -> bool {
    match parse_address(host) {
        Some(address) => address.is_loopback(),
        None => matches!(host, "localhost" | "localhost.localdomain"),
    }
}

/// Whether this is what ramdisks send for "no such address".
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
    fn networks_contain_their_addresses() {
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
            let network: Network = network.parse().unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), inside, "{network} {address}");
        }
    }

    #[test]
    fn not_networks() {
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0.0/255.0.255.0", "net", "10.0.0.0/-1"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }

    #[test]
    fn loopback_and_placeholders() {
        for host in ["127.0.0.1", "127.9.9.9", "::1", "localhost"] {
            assert!(is_loopback(host), "{host}");
        }
        assert!(!is_loopback("10.0.0.1") && !is_loopback("bmc-1"));
        assert!(is_unspecified("0.0.0.0") && is_unspecified("::/0") && !is_unspecified("10.0.0.1"));
    }
}
