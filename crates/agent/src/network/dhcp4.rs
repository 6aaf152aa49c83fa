// SPDX-License-Identifier: Apache-2.0
//! The messages of the DHCPv4 client, on top of `dhcp-codec`.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use dhcp_codec::HardwareAddress;
use dhcp_codec::v4::{
    ClasslessRoute, Dhcp4MessageType, Dhcp4Options, Dhcp4Packet, MIN_MAX_MESSAGE_BYTES,
    classless_routes, option_code,
};

use super::netlink::KernelRoute;

/// The largest message that the client accepts: an Ethernet frame without the IP and UDP headers.
const MAX_MESSAGE_SIZE: u16 = 1472;
const REQUESTED_OPTIONS: [u8; 13] = [
    option_code::SUBNET_MASK,
    option_code::ROUTER,
    option_code::DNS_SERVER,
    option_code::HOST_NAME,
    option_code::DOMAIN_NAME,
    option_code::INTERFACE_MTU,
    option_code::BROADCAST_ADDRESS,
    option_code::NTP_SERVER,
    option_code::LEASE_TIME,
    option_code::SERVER_ID,
    option_code::RENEWAL_TIME,
    option_code::REBINDING_TIME,
    option_code::CLASSLESS_ROUTES,
];
/// The prefix length if the server sends no subnet mask.
const DEFAULT_PREFIX: u8 = 24;
/// The lease time if the server sends none.
const DEFAULT_LEASE_SECONDS: u32 = 86_400;
const MIN_LEASE_SECONDS: u32 = 60;
const MIN_RENEW_SECONDS: u32 = 30;
/// The smallest MTU that IPv4 requires every host to accept.
const MIN_MTU: u16 = 576;

/// A message of the client.
pub(super) struct Dhcp4ClientMessage {
    pub(super) message_type: Dhcp4MessageType,
    pub(super) transaction_id: u32,
    pub(super) mac: [u8; 6],
    /// Seconds since the client started to request an address.
    pub(super) seconds: u16,
    /// The address that the client uses, when it renews.
    pub(super) own_address: Option<Ipv4Addr>,
    pub(super) requested_address: Option<Ipv4Addr>,
    /// The server whose offer was chosen.
    pub(super) server: Option<Ipv4Addr>,
}

impl Dhcp4ClientMessage {
    pub(super) fn encode(&self) -> Vec<u8> {
        let hardware = HardwareAddress::ethernet(self.mac);
        let mut packet = Dhcp4Packet::request(self.message_type, self.transaction_id, hardware);
        packet.seconds = self.seconds;
        packet.client_address = self.own_address.unwrap_or(Ipv4Addr::UNSPECIFIED);
        // Without an address only broadcasts are received.
        packet.broadcast = self.own_address.is_none();
        let options = &mut packet.options;
        let client_id = [&[hardware.hardware_type()][..], hardware.bytes()].concat();
        options.set(option_code::CLIENT_ID, client_id);
        options.set_addresses(option_code::REQUESTED_ADDRESS, self.requested_address.as_slice());
        options.set_addresses(option_code::SERVER_ID, self.server.as_slice());
        options.set(option_code::MAX_MESSAGE_SIZE, MAX_MESSAGE_SIZE.to_be_bytes());
        options.set(option_code::VENDOR_CLASS, "ferrite-agent");
        options.set(option_code::PARAMETER_REQUEST_LIST, REQUESTED_OPTIONS);
        packet.encode(MIN_MAX_MESSAGE_BYTES)
    }
}

/// A reply of a server: an offer, an acknowledgement or a refusal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Dhcp4ServerReply {
    pub(super) message_type: Dhcp4MessageType,
    pub(super) server: Ipv4Addr,
    pub(super) lease: Dhcp4Lease,
}

/// A DHCPv4 lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dhcp4Lease {
    /// The assigned address.
    pub address: Ipv4Addr,
    /// The prefix length.
    pub prefix: u8,
    /// Routes.
    pub routes: Vec<KernelRoute>,
    /// DNS servers.
    pub name_servers: Vec<IpAddr>,
    /// The host name of the machine.
    pub hostname: Option<String>,
    /// NTP servers.
    pub time_servers: Vec<Ipv4Addr>,
    /// The MTU.
    pub mtu: Option<u16>,
    /// The lease time.
    pub time: Duration,
    /// When to renew with the same server.
    pub renew: Duration,
    /// When to rebind with any server.
    pub rebind: Duration,
}

impl Dhcp4ServerReply {
    /// Decodes a reply, `None` if it is invalid or for another transaction or interface.
    pub(super) fn decode(message: &[u8], transaction_id: u32, mac: [u8; 6]) -> Option<Self> {
        let hardware = HardwareAddress::ethernet(mac);
        let packet = Dhcp4Packet::decode_reply(message, transaction_id, hardware)?;
        let message_type = packet.message_type().filter(|message_type| {
            use Dhcp4MessageType::{Ack, Nak, Offer};
            matches!(message_type, Offer | Ack | Nak)
        })?;
        let server = packet.options.get_addresses(option_code::SERVER_ID).next();
        Some(Self {
            message_type,
            server: server.unwrap_or(Ipv4Addr::UNSPECIFIED),
            lease: Dhcp4Lease::from_packet(&packet),
        })
    }
}

impl Dhcp4Lease {
    fn from_packet(packet: &Dhcp4Packet) -> Self {
        let options = &packet.options;
        let mask = options.get_addresses(option_code::SUBNET_MASK).next();
        let seconds = |code, default: u32| options.get_u32(code).unwrap_or(default);
        let time = seconds(option_code::LEASE_TIME, DEFAULT_LEASE_SECONDS).max(MIN_LEASE_SECONDS);
        let renew = seconds(option_code::RENEWAL_TIME, time / 2).clamp(MIN_RENEW_SECONDS, time);
        let rebind = seconds(option_code::REBINDING_TIME, time / 8 * 7).clamp(renew, time);
        let duration = |seconds| Duration::from_secs(u64::from(seconds));
        Self {
            address: packet.your_address,
            prefix: mask.map_or(DEFAULT_PREFIX, |mask| mask.to_bits().leading_ones() as u8),
            routes: routes(options),
            name_servers: options.get_addresses(option_code::DNS_SERVER).map(IpAddr::V4).collect(),
            hostname: printable_text(options, option_code::HOST_NAME),
            time_servers: options.get_addresses(option_code::NTP_SERVER).collect(),
            mtu: options.get_u16(option_code::INTERFACE_MTU).filter(|&mtu| mtu >= MIN_MTU),
            time: duration(time),
            renew: duration(renew),
            rebind: duration(rebind),
        }
    }
}

/// Returns the classless routes, or a default route if there are none (RFC 3442).
fn routes(options: &Dhcp4Options) -> Vec<KernelRoute> {
    if let Some(value) = options.get(option_code::CLASSLESS_ROUTES) {
        return classless_routes(value).into_iter().map(kernel_route).collect();
    }
    let gateway = options.get_addresses(option_code::ROUTER).next();
    gateway.map(default_route).into_iter().collect()
}

fn kernel_route(route: ClasslessRoute) -> KernelRoute {
    KernelRoute {
        destination: (route.destination.into(), route.prefix_length),
        gateway: route.gateway.map(IpAddr::V4),
        metric: 0,
    }
}

fn default_route(gateway: Ipv4Addr) -> KernelRoute {
    KernelRoute {
        destination: (Ipv4Addr::UNSPECIFIED.into(), 0),
        gateway: Some(gateway.into()),
        metric: 0,
    }
}

/// Returns a text option. Values that are not printable ASCII are ignored, because they are written to
/// files and to the console.
fn printable_text(options: &Dhcp4Options, code: u8) -> Option<String> {
    let text = String::from_utf8_lossy(options.get(code)?).trim_end_matches('\0').to_owned();
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAC: [u8; 6] = [0x52, 0x54, 0, 0xaa, 0xbb, 1];

    fn reply(options: &[u8]) -> Vec<u8> {
        let hardware = HardwareAddress::ethernet(MAC);
        let mut packet = Dhcp4Packet::request(Dhcp4MessageType::Offer, 7, hardware);
        packet.is_request = false;
        packet.your_address = Ipv4Addr::new(10, 0, 2, 15);
        let mut message = packet.encode(MIN_MAX_MESSAGE_BYTES);
        message.truncate(240);
        message.extend(options);
        message
    }

    #[test]
    fn decodes_an_acknowledgement() {
        let message = reply(&[
            53, 1, 5, 54, 4, 10, 0, 2, 2, 1, 4, 255, 255, 255, 0, 3, 4, 10, 0, 2, 2, 6, 4, 10, 0,
            2, 3, 51, 4, 0, 1, 0x51, 0x80, 15, 3, b'l', b'a', b'b', 255,
        ]);
        let decoded = Dhcp4ServerReply::decode(&message, 7, MAC).unwrap();
        assert_eq!(decoded.message_type, Dhcp4MessageType::Ack);
        assert_eq!(decoded.server, Ipv4Addr::new(10, 0, 2, 2));
        assert_eq!(decoded.lease.address, Ipv4Addr::new(10, 0, 2, 15));
        assert_eq!(decoded.lease.prefix, 24);
        assert_eq!(decoded.lease.routes, [default_route(Ipv4Addr::new(10, 0, 2, 2))]);
        assert_eq!(decoded.lease.renew, Duration::from_secs(43_200));
        assert_eq!(Dhcp4ServerReply::decode(&message, 8, MAC), None);
        assert_eq!(Dhcp4ServerReply::decode(&message, 7, [0; 6]), None);
    }

    #[test]
    fn ignores_hardware_type_and_length() {
        let mut message = reply(&[53, 1, 5, 255]);
        for (hardware_type, length) in [(6, 6), (1, 16), (0, 0), (32, 20)] {
            message[1..3].copy_from_slice(&[hardware_type, length]);
            let decoded = Dhcp4ServerReply::decode(&message, 7, MAC);
            let address = decoded.map(|decoded| decoded.lease.address);
            assert_eq!(address, Some(Ipv4Addr::new(10, 0, 2, 15)), "{hardware_type} {length}");
            assert_eq!(Dhcp4ServerReply::decode(&message, 7, [0; 6]), None);
        }
    }

    #[test]
    fn ignores_a_truncated_last_option() {
        let message = reply(&[53, 1, 5, 3, 4, 10, 0, 2, 2, 6, 4, 10, 0]);
        let lease = Dhcp4ServerReply::decode(&message, 7, MAC).unwrap().lease;
        assert_eq!(lease.routes, [default_route(Ipv4Addr::new(10, 0, 2, 2))]);
        assert!(lease.name_servers.is_empty());
    }

    #[test]
    fn classless_routes_replace_the_gateway() {
        let message = reply(&[
            53, 1, 2, 3, 4, 9, 9, 9, 9, 121, 14, 24, 192, 168, 7, 0, 0, 0, 0, 0, 10, 0, 2, 2, 8,
            99, 255,
        ]);
        let routes = Dhcp4ServerReply::decode(&message, 7, MAC).unwrap().lease.routes;
        assert_eq!(routes.len(), 2);
        assert_eq!(routes[0].destination, ("192.168.7.0".parse().unwrap(), 24));
        assert_eq!(routes[0].gateway, None);
        assert_eq!(routes[1], default_route(Ipv4Addr::new(10, 0, 2, 2)));
    }

    #[test]
    fn encodes_a_request() {
        let message = Dhcp4ClientMessage {
            message_type: Dhcp4MessageType::Request,
            transaction_id: 7,
            mac: MAC,
            seconds: 3,
            own_address: None,
            requested_address: Some(Ipv4Addr::new(10, 0, 2, 15)),
            server: Some(Ipv4Addr::new(10, 0, 2, 2)),
        };
        let bytes = message.encode();
        assert_eq!(bytes.len(), 300);
        let packet = Dhcp4Packet::decode(&bytes).unwrap();
        assert!(packet.broadcast && packet.is_request);
        let codes: Vec<u8> = packet.options.iter().map(|(code, _)| code).collect();
        assert_eq!(codes, [53, 61, 50, 54, 57, 60, 55]);
        assert_eq!(packet.options.get(61), Some(&[&[1][..], &MAC].concat()[..]));
    }

    proptest! {
        #[test]
        fn decoder_never_panics(options in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Dhcp4ServerReply::decode(&reply(&options), 7, MAC);
            let _ = Dhcp4ServerReply::decode(&options, 7, MAC);
        }
    }
}
