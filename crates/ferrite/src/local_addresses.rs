// SPDX-License-Identifier: Apache-2.0
//! The IP addresses of this host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// IP version.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpFamily {
    pub(crate) fn has(self, ip: IpAddr) -> bool {
        ip.is_ipv4() == (self == Self::V4)
    }
}

/// The source address of the default route. No packet is sent: connecting a UDP socket only selects the
/// address.
pub(crate) fn default_route_address(family: IpFamily) -> Option<IpAddr> {
    // Documentation addresses (RFC 5737, RFC 3849), which are never local.
    let (any, remote): (SocketAddr, SocketAddr) = match family {
        IpFamily::V4 => ((Ipv4Addr::UNSPECIFIED, 0).into(), ([192, 0, 2, 1], 9).into()),
        IpFamily::V6 => {
            let remote = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
            ((Ipv6Addr::UNSPECIFIED, 0).into(), (remote, 9).into())
        }
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(remote).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
}

/// The addresses of this host that are neither loopback nor link-local.
pub(crate) fn host_addresses(family: IpFamily) -> Vec<IpAddr> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    match family {
        IpFamily::V4 => parse_fib_trie(&read("/proc/net/fib_trie")),
        IpFamily::V6 => parse_if_inet6(&read("/proc/net/if_inet6")),
    }
}

/// Finds the usable local addresses in `/proc/net/fib_trie`: each is a line `|-- ADDRESS` that is followed
/// by `/32 host LOCAL`. The file has them twice.
fn parse_fib_trie(text: &str) -> Vec<IpAddr> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut addresses = Vec::new();
    for pair in lines.windows(2).filter(|pair| pair[1] == "/32 host LOCAL") {
        let address = pair[0].strip_prefix("|-- ").and_then(|ip| ip.parse::<Ipv4Addr>().ok());
        let Some(address) = address.filter(|ip| !ip.is_loopback() && !ip.is_link_local()) else {
            continue;
        };
        if !addresses.contains(&IpAddr::from(address)) {
            addresses.push(address.into());
        }
    }
    addresses
}

/// Finds the addresses of global scope in `/proc/net/if_inet6`: address, interface index, prefix length,
/// scope, flags and name.
fn parse_if_inet6(text: &str) -> Vec<IpAddr> {
    const GLOBAL_SCOPE: &str = "00";
    let addresses = text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [address, _, _, GLOBAL_SCOPE, ..] = fields[..] else { return None };
        let bits = u128::from_str_radix(address, 16).ok()?;
        Some(IpAddr::from(Ipv6Addr::from_bits(bits)))
    });
    addresses.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_addresses_of_the_kernel() {
        let fib_trie = "Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 127.0.0.1
        /32 host LOCAL
     |-- 10.1.0.0
        /24 link UNICAST
     |-- 10.1.0.7
        /32 host LOCAL
     |-- 10.1.0.255
        /32 link BROADCAST
Local:
     |-- 10.1.0.7
        /32 host LOCAL
     |-- 10.2.0.7
        /32 host LOCAL
";
        let expected = [IpAddr::from([10, 1, 0, 7]), IpAddr::from([10, 2, 0, 7])];
        assert_eq!(parse_fib_trie(fib_trie), expected);
        assert_eq!(parse_fib_trie("Main:\n"), [] as [IpAddr; 0]);
        let if_inet6 = "00000000000000000000000000000001 01 80 10 80 lo
fe800000000000000000000000000001 02 40 20 80 eth0
20010db8000000000000000000000007 02 40 00 80 eth0
";
        assert_eq!(parse_if_inet6(if_inet6), ["2001:db8::7".parse::<IpAddr>().unwrap()]);
    }
}
