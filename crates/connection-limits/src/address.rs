// SPDX-License-Identifier: Apache-2.0
//! The part of an address that identifies a client.

use std::net::{IpAddr, Ipv6Addr};

/// Returns the address under which limits count a client: an IPv4 address, also if it is mapped to IPv6, or
/// the first 64 bits of an IPv6 address, because every host can choose the rest freely.
#[must_use]
pub fn client_prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) if address.is_loopback() => IpAddr::V6(address),
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_ipv6_clients_by_their_network() {
        for (address, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2::1", "2001:db8:1:2::"),
            ("2001:db8:1:3::1", "2001:db8:1:3::"),
            ("::1", "::1"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(client_prefix(address).to_string(), expected);
        }
    }
}
