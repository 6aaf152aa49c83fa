// SPDX-License-Identifier: Apache-2.0
//! DHCPv6 client (RFC 8415), used where router advertisements request it: for an address, or only for
//! DNS servers.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use dhcp_codec::HardwareAddress;
use dhcp_codec::v6::{
    ALL_SERVERS_AND_RELAYS, CLIENT_PORT, Dhcp6Message, Dhcp6MessageType, Dhcp6Options, IaAddress,
    IdentityAssociation, SERVER_PORT, link_layer_duid, option_code,
};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

use super::LocalInterface;
use crate::entropy;

const MIN_REPLY_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// The renewal time if the server sends none.
const DEFAULT_RENEW_SECONDS: u32 = 86_400;
const DEFAULT_VALID_SECONDS: u32 = 86_400;
const MIN_RENEW_SECONDS: u32 = 30;
const MIN_VALID_SECONDS: u32 = 60;

/// A DHCPv6 lease.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Dhcp6Lease {
    pub(super) address: Option<Ipv6Addr>,
    pub(super) name_servers: Vec<IpAddr>,
    renew: Duration,
    valid: Duration,
    server: Vec<u8>,
}

/// Acquires and renews a lease forever. `on_lease` is called with every lease, and with `None` when it
/// expired.
pub(super) async fn maintain_lease(
    interface: &LocalInterface,
    with_address: bool,
    mut on_lease: impl FnMut(Option<&Dhcp6Lease>),
) {
    loop {
        let mut lease = match acquire_lease(interface, with_address).await {
            Ok(lease) => lease,
            Err(error) => {
                tracing::debug!(interface = interface.name, %error, "DHCPv6 request failed, will retry");
                tokio::time::sleep(MAX_REPLY_TIMEOUT).await;
                continue;
            }
        };
        on_lease(Some(&lease));
        loop {
            let until = Instant::now() + lease.valid;
            tokio::time::sleep(lease.renew).await;
            match renew_lease(interface, &lease, with_address, until).await {
                Some(renewed) => lease = renewed,
                None => break,
            }
            on_lease(Some(&lease));
        }
        on_lease(None);
    }
}

async fn acquire_lease(interface: &LocalInterface, with_address: bool) -> io::Result<Dhcp6Lease> {
    let socket = open_socket(interface)?;
    let mut timeout_after = MIN_REPLY_TIMEOUT;
    let started = Instant::now();
    let first_transaction = random_transaction_id();
    loop {
        let message_type = if with_address {
            Dhcp6MessageType::Solicit
        } else {
            Dhcp6MessageType::InformationRequest
        };
        let (address, server) = (None, None);
        let message = Dhcp6ClientMessage {
            message_type,
            interface,
            with_address,
            address,
            server,
            started,
            transaction: first_transaction,
        };
        let reply = exchange(&socket, &message, timeout_after).await?;
        let reply = match reply {
            Some((Dhcp6MessageType::Advertise, offer)) => {
                let message = Dhcp6ClientMessage {
                    message_type: Dhcp6MessageType::Request,
                    address: offer.address,
                    server: Some(&offer.server),
                    transaction: random_transaction_id(),
                    ..message
                };
                exchange(&socket, &message, timeout_after).await?
            }
            other => other,
        };
        if let Some((Dhcp6MessageType::Reply, lease)) = reply
            && (lease.address.is_some() || !with_address)
        {
            return Ok(lease);
        }
        timeout_after =
            (timeout_after * 2).min(MAX_REPLY_TIMEOUT).mul_f64(entropy::random_between(0.9, 1.1));
    }
}

async fn renew_lease(
    interface: &LocalInterface,
    lease: &Dhcp6Lease,
    with_address: bool,
    until: Instant,
) -> Option<Dhcp6Lease> {
    let socket = open_socket(interface).ok()?;
    while Instant::now() < until {
        let message = Dhcp6ClientMessage {
            message_type: if with_address {
                Dhcp6MessageType::Renew
            } else {
                Dhcp6MessageType::InformationRequest
            },
            interface,
            with_address,
            address: lease.address,
            server: with_address.then_some(lease.server.as_slice()),
            started: Instant::now(),
            transaction: random_transaction_id(),
        };
        if let Ok(Some((Dhcp6MessageType::Reply, renewed))) =
            exchange(&socket, &message, MAX_REPLY_TIMEOUT).await
            && (renewed.address.is_some() || !with_address)
        {
            return Some(renewed);
        }
    }
    None
}

#[derive(Clone, Copy)]
struct Dhcp6ClientMessage<'a> {
    message_type: Dhcp6MessageType,
    interface: &'a LocalInterface,
    with_address: bool,
    address: Option<Ipv6Addr>,
    server: Option<&'a [u8]>,
    started: Instant,
    transaction: u32,
}

impl Dhcp6ClientMessage<'_> {
    fn encode(&self) -> Vec<u8> {
        let mut options = Dhcp6Options::default();
        options.add(option_code::CLIENT_ID, client_duid(self.interface));
        if let Some(server) = self.server {
            options.add(option_code::SERVER_ID, server);
        }
        let hundredths = self.started.elapsed().as_millis() / 10;
        let elapsed = u16::try_from(hundredths).unwrap_or(u16::MAX);
        options.add(option_code::ELAPSED_TIME, elapsed.to_be_bytes());
        let requested = [option_code::DNS_SERVERS, option_code::INFORMATION_REFRESH_TIME];
        let requested: Vec<u8> = requested.into_iter().flat_map(u16::to_be_bytes).collect();
        options.add(option_code::OPTION_REQUEST, requested);
        if self.with_address {
            let iaid = self.interface.index.to_be_bytes();
            let mut association = IdentityAssociation { iaid, ..Default::default() };
            if let Some(address) = self.address {
                association.add_address(IaAddress {
                    address,
                    preferred_lifetime: 0,
                    valid_lifetime: 0,
                });
            }
            options.add(option_code::IA_NA, association.encode());
        }
        Dhcp6Message { message_type: self.message_type, transaction_id: self.transaction, options }
            .encode()
    }
}

async fn exchange(
    socket: &UdpSocket,
    message: &Dhcp6ClientMessage<'_>,
    timeout_after: Duration,
) -> io::Result<Option<(Dhcp6MessageType, Dhcp6Lease)>> {
    let transaction = message.transaction;
    let target = SocketAddrV6::new(ALL_SERVERS_AND_RELAYS, SERVER_PORT, 0, message.interface.index);
    let until = Instant::now() + timeout_after;
    if let Err(error) = socket.send_to(&message.encode(), target).await {
        // The interface has no link-local address yet.
        tracing::debug!(interface = message.interface.name, %error, "failed to send DHCPv6 request");
        tokio::time::sleep_until(until).await;
        return Ok(None);
    }
    let mut buffer = [0; 1500];
    while let Ok(received) = timeout_at(until, socket.recv_from(&mut buffer)).await {
        let (length, _) = received?;
        let reply = decode(&buffer[..length], transaction, &client_duid(message.interface));
        if reply.is_some() {
            return Ok(reply);
        }
    }
    Ok(None)
}

/// Decodes an advertisement or reply, `None` if it is invalid or for another transaction or client.
fn decode(
    bytes: &[u8],
    transaction_id: u32,
    client_duid: &[u8],
) -> Option<(Dhcp6MessageType, Dhcp6Lease)> {
    let message = Dhcp6Message::decode_reply(bytes, transaction_id, client_duid)?;
    let options = &message.options;
    let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
    let refresh = options.get_u32(option_code::INFORMATION_REFRESH_TIME);
    let mut lease = Dhcp6Lease {
        server: options.get(option_code::SERVER_ID)?.to_vec(),
        name_servers: options.get_addresses(option_code::DNS_SERVERS).map(IpAddr::V6).collect(),
        renew: seconds(refresh.unwrap_or(DEFAULT_RENEW_SECONDS)),
        valid: seconds(DEFAULT_VALID_SECONDS),
        address: None,
    };
    if let Some(association) = IdentityAssociation::first_in_reply(options)
        && let Some(assigned) = association.addresses().next()
        && assigned.valid_lifetime > 0
    {
        // T1 is 0 if the server leaves the renewal time to the client.
        let renew = match association.renew_after {
            0 => assigned.preferred_lifetime / 2,
            renew_after => renew_after,
        };
        lease.address = Some(assigned.address);
        lease.renew = seconds(renew.max(MIN_RENEW_SECONDS));
        lease.valid = seconds(assigned.valid_lifetime.max(MIN_VALID_SECONDS));
    }
    Some((message.message_type, lease))
}

/// Returns a random 24-bit transaction ID.
fn random_transaction_id() -> u32 {
    entropy::random_u32() >> 8
}

fn client_duid(interface: &LocalInterface) -> Vec<u8> {
    link_layer_duid(HardwareAddress::ethernet(interface.mac))
}

fn open_socket(interface: &LocalInterface) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.set_only_v6(true)?;
    socket.bind_device(Some(interface.name.as_bytes()))?;
    socket.bind(&SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), CLIENT_PORT).into())?;
    UdpSocket::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLIENT: &[u8] = &[0, 3, 0, 1, 0x52, 0x54, 0, 0xaa, 0xbb, 1];

    fn reply() -> Vec<u8> {
        let mut message = vec![Dhcp6MessageType::Reply.number(), 1, 2, 3, 0, 1, 0, 10];
        message.extend(CLIENT);
        message.extend([0, 2, 0, 2, 9, 9]);
        message.extend([0, 23, 0, 16]);
        message.extend("2001:db8::53".parse::<Ipv6Addr>().unwrap().octets());
        message.extend([0, 3, 0, 40, 0, 0, 0, 2, 0, 0, 7, 8, 0, 0, 0, 0, 0, 5, 0, 24]);
        message.extend("2001:db8::7".parse::<Ipv6Addr>().unwrap().octets());
        message.extend([0, 0, 14, 16, 0, 0, 28, 32]);
        message
    }

    #[test]
    fn decodes_a_reply() {
        let (message_type, lease) = decode(&reply(), 0x01_0203, CLIENT).unwrap();
        assert_eq!(message_type, Dhcp6MessageType::Reply);
        assert_eq!(lease.address, Some("2001:db8::7".parse().unwrap()));
        assert_eq!(lease.renew, Duration::from_secs(1800));
        assert_eq!(lease.valid, Duration::from_secs(7200));
        assert_eq!(lease.name_servers, ["2001:db8::53".parse::<IpAddr>().unwrap()]);
        assert_eq!(decode(&reply(), 0x01_0204, CLIENT), None);
        assert_eq!(decode(&reply(), 0x01_0203, &CLIENT[1..]), None);
    }

    #[test]
    fn ignores_a_truncated_last_option() {
        let complete = decode(&reply(), 0x01_0203, CLIENT).unwrap();
        let message = [reply(), vec![0, 24, 0, 9, 3, b'l']].concat();
        assert_eq!(decode(&message, 0x01_0203, CLIENT), Some(complete));
        // The option with the address is truncated: the DNS servers remain.
        let message = &reply()[..reply().len() - 1];
        let (_, lease) = decode(message, 0x01_0203, CLIENT).unwrap();
        assert_eq!(lease.address, None);
        assert_eq!(lease.name_servers, ["2001:db8::53".parse::<IpAddr>().unwrap()]);
    }

    proptest! {
        #[test]
        fn decoder_never_panics(cut in 0_usize..90, at in 0_usize..90, byte in any::<u8>()) {
            let mut message = reply();
            if let Some(target) = message.get_mut(at) {
                *target = byte;
            }
            message.truncate(cut);
            let _ = decode(&message, 0x01_0203, CLIENT);
        }
    }
}
