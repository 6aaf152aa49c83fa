// SPDX-License-Identifier: Apache-2.0
//! DHCP messages as a client writes and reads them (RFC 2131, 2132, 3442).

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::netlink::Route;

const COOKIE: [u8; 4] = [99, 130, 83, 99];
const HEADER: usize = 240;
/// The smallest message old relays pass on.
const SMALLEST: usize = 300;

/// The kinds of message a client sends and receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Discover = 1,
    Offer = 2,
    Request = 3,
    Acknowledge = 5,
    Refuse = 6,
}

/// What a client says.
pub(super) struct Question {
    pub(super) kind: Kind,
    pub(super) transaction: u32,
    pub(super) hardware: [u8; 6],
    pub(super) seconds: u16,
    /// The address the client has, when it renews.
    pub(super) own: Option<Ipv4Addr>,
    /// The address it asks for.
    pub(super) wanted: Option<Ipv4Addr>,
    /// The server whose offer it takes.
    pub(super) server: Option<Ipv4Addr>,
}

impl Question {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut message = vec![0; HEADER];
        message[0] = 1;
        message[1] = 1;
        message[2] = 6;
        message[4..8].copy_from_slice(&self.transaction.to_be_bytes());
        message[8..10].copy_from_slice(&self.seconds.to_be_bytes());
        if let Some(own) = self.own {
            message[12..16].copy_from_slice(&own.octets());
        } else {
            // Without an address only broadcasts are heard.
            message[10] = 0x80;
        }
        message[28..34].copy_from_slice(&self.hardware);
        message[236..240].copy_from_slice(&COOKIE);
        let mut option = |code: u8, value: &[u8]| {
            message.push(code);
            message.push(u8::try_from(value.len()).unwrap_or(u8::MAX));
            message.extend(value);
        };
        option(53, &[self.kind as u8]);
        let mut identity = vec![1];
        identity.extend(self.hardware);
        option(61, &identity);
        if let Some(wanted) = self.wanted {
            option(50, &wanted.octets());
        }
        if let Some(server) = self.server {
            option(54, &server.octets());
        }
        option(57, &1472_u16.to_be_bytes());
        option(60, b"ferrite-agent");
        option(55, &[1, 3, 6, 12, 15, 26, 28, 42, 51, 54, 58, 59, 121]);
        message.push(255);
        message.resize(message.len().max(SMALLEST), 0);
        message
    }
}

/// What a server says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    pub(super) kind: Kind,
    pub(super) server: Ipv4Addr,
    pub(super) lease: Lease,
}

/// What a card was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    /// The card's address.
    pub address: Ipv4Addr,
    /// The length of its network's prefix.
    pub prefix: u8,
    /// Routes.
    pub routes: Vec<Route>,
    /// Name servers.
    pub name_servers: Vec<IpAddr>,
    /// A name for the machine.
    pub hostname: Option<String>,
    /// Time servers.
    pub time_servers: Vec<Ipv4Addr>,
    /// The largest packet.
    pub mtu: Option<u16>,
    /// How long all this holds.
    pub time: Duration,
    /// When to ask the same server again.
    pub renew: Duration,
    /// When to ask any server.
    pub rebind: Duration,
}

impl Answer {
    /// Reads an answer to this transaction; nothing if it is none, or not meant for this card.
    pub(super) fn decode(message: &[u8], transaction: u32, hardware: [u8; 6]) -> Option<Self> {
        let meant = message.len() > HEADER
            && message[0] == 2
            && message[4..8] == transaction.to_be_bytes()
            && message[28..34] == hardware
            && message[236..240] == COOKIE;
        if !meant {
            return None;
        }
        let options = Options(&message[HEADER..]);
        let kind = match options.find(53)?.first()? {
            2 => Kind::Offer,
            5 => Kind::Acknowledge,
            6 => Kind::Refuse,
            _ => return None,
        };
        let address = first_address(&message[16..20])?;
        let prefix = options
            .find(1)
            .and_then(|mask| Some(u32::from(first_address(&mask)?).leading_ones()))
            .map_or(24, |ones| ones as u8);
        let seconds = |code| {
            let value: [u8; 4] = options.find(code)?.try_into().ok()?;
            Some(u64::from(u32::from_be_bytes(value)))
        };
        let text = |code| {
            let value = options.find(code)?;
            let text = String::from_utf8_lossy(&value).trim_end_matches('\0').to_owned();
            // These end up in files and on the console.
            (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())).then_some(text)
        };
        let addresses =
            |code| options.find(code).map_or_else(Vec::new, |value| all_addresses(&value));
        let time = seconds(51).unwrap_or(86_400).max(60);
        let renew = seconds(58).unwrap_or(time / 2).clamp(30, time);
        let routes = match options.find(121) {
            Some(value) => classless_routes(&value),
            None => addresses(3).first().map(|&gateway| everywhere(gateway)).into_iter().collect(),
        };
        Some(Self {
            kind,
            server: options
                .find(54)
                .and_then(|value| first_address(&value))
                .unwrap_or(Ipv4Addr::UNSPECIFIED),
            lease: Lease {
                address,
                prefix,
                routes,
                name_servers: addresses(6).into_iter().map(IpAddr::V4).collect(),
                hostname: text(12),
                time_servers: addresses(42),
                mtu: options
                    .find(26)
                    .and_then(|value| Some(u16::from_be_bytes(value.try_into().ok()?)))
                    .filter(|&mtu| mtu >= 576),
                time: Duration::from_secs(time),
                renew: Duration::from_secs(renew),
                rebind: Duration::from_secs(seconds(59).unwrap_or(time / 8 * 7).clamp(renew, time)),
            },
        })
    }
}

struct Options<'a>(&'a [u8]);

impl Options<'_> {
    /// The value of an option; one that comes in parts is put together.
    fn find(&self, wanted: u8) -> Option<Vec<u8>> {
        let mut found: Option<Vec<u8>> = None;
        let mut rest = self.0;
        while let Some((&code, after)) = rest.split_first() {
            match code {
                0 => rest = after,
                255 => break,
                code => {
                    // What is cut off is lost; what came before it counts.
                    let Some((&length, after)) = after.split_first() else { break };
                    let Some((value, after)) = after.split_at_checked(usize::from(length)) else {
                        break;
                    };
                    if code == wanted {
                        found.get_or_insert_default().extend(value);
                    }
                    rest = after;
                }
            }
        }
        found
    }
}

fn first_address(bytes: &[u8]) -> Option<Ipv4Addr> {
    let octets: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    Some(Ipv4Addr::from(octets))
}

fn all_addresses(bytes: &[u8]) -> Vec<Ipv4Addr> {
    bytes.chunks_exact(4).filter_map(first_address).collect()
}

fn everywhere(gateway: Ipv4Addr) -> Route {
    Route {
        destination: (Ipv4Addr::UNSPECIFIED.into(), 0),
        gateway: Some(gateway.into()),
        metric: 0,
    }
}

fn classless_routes(mut bytes: &[u8]) -> Vec<Route> {
    let mut routes = Vec::new();
    while let Some((&prefix, after)) = bytes.split_first() {
        let significant = usize::from(prefix).div_ceil(8);
        let Some((network, after)) = after.split_at_checked(significant) else { break };
        let Some((gateway, after)) = after.split_at_checked(4) else { break };
        bytes = after;
        if prefix > 32 {
            break;
        }
        let mut octets = [0; 4];
        octets[..significant].copy_from_slice(network);
        let gateway = first_address(gateway).filter(|gateway| !gateway.is_unspecified());
        routes.push(Route {
            destination: (Ipv4Addr::from(octets).into(), prefix),
            gateway: gateway.map(IpAddr::V4),
            metric: 0,
        });
    }
    routes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CARD: [u8; 6] = [0x52, 0x54, 0, 0xaa, 0xbb, 1];

    fn answer(options: &[u8]) -> Vec<u8> {
        let mut message = vec![0; HEADER];
        message[0] = 2;
        message[4..8].copy_from_slice(&7_u32.to_be_bytes());
        message[16..20].copy_from_slice(&[10, 0, 2, 15]);
        message[28..34].copy_from_slice(&CARD);
        message[236..240].copy_from_slice(&COOKIE);
        message.extend(options);
        message
    }

    #[test]
    fn an_answer_is_read() {
        let message = answer(&[
            53, 1, 5, 54, 4, 10, 0, 2, 2, 1, 4, 255, 255, 255, 0, 3, 4, 10, 0, 2, 2, 6, 4, 10, 0,
            2, 3, 51, 4, 0, 1, 0x51, 0x80, 15, 3, b'l', b'a', b'b', 255,
        ]);
        let read = Answer::decode(&message, 7, CARD).unwrap();
        assert_eq!(read.kind, Kind::Acknowledge);
        assert_eq!(read.server, Ipv4Addr::new(10, 0, 2, 2));
        assert_eq!(read.lease.prefix, 24);
        assert_eq!(read.lease.routes, [everywhere(Ipv4Addr::new(10, 0, 2, 2))]);
        assert_eq!(read.lease.renew, Duration::from_secs(43_200));
        assert_eq!(Answer::decode(&message, 8, CARD), None);
        assert_eq!(Answer::decode(&message, 7, [0; 6]), None);
    }

    #[test]
    fn classless_routes_replace_the_gateway() {
        let message = answer(&[
            53, 1, 2, 3, 4, 9, 9, 9, 9, 121, 14, 24, 192, 168, 7, 0, 0, 0, 0, 0, 10, 0, 2, 2, 8,
            99, 255,
        ]);
        let routes = Answer::decode(&message, 7, CARD).unwrap().lease.routes;
        assert_eq!(routes.len(), 2);
        assert_eq!(routes[0].destination, ("192.168.7.0".parse().unwrap(), 24));
        assert_eq!(routes[0].gateway, None);
        assert_eq!(routes[1], everywhere(Ipv4Addr::new(10, 0, 2, 2)));
    }

    proptest! {
        #[test]
        fn no_message_is_too_strange(options in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Answer::decode(&answer(&options), 7, CARD);
            let _ = Answer::decode(&options, 7, CARD);
        }
    }
}
