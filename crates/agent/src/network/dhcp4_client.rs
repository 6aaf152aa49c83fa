// SPDX-License-Identifier: Apache-2.0
//! DHCPv4 client: acquires an address for an interface and renews it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use dhcp_codec::v4::{CLIENT_PORT, Dhcp4MessageType, SERVER_PORT};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout, timeout_at};

use super::LocalInterface;
use super::dhcp4::{Dhcp4ClientMessage, Dhcp4Lease, Dhcp4ServerReply};
use crate::entropy;

/// The time to wait for a reply; doubles with each attempt.
const MIN_REPLY_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_REPLY_TIMEOUT: Duration = Duration::from_secs(16);
/// Accepted replies to a discover: also a late reply to an earlier request.
const DISCOVER_REPLIES: &[Dhcp4MessageType] = &[Dhcp4MessageType::Offer, Dhcp4MessageType::Ack];
/// Accepted replies to a request. Offers of other servers may still arrive.
const REQUEST_REPLIES: &[Dhcp4MessageType] = &[Dhcp4MessageType::Ack, Dhcp4MessageType::Nak];

/// A change of an interface's lease.
pub(super) enum LeaseChange {
    /// The lease was acquired or renewed.
    Active(Dhcp4Lease),
    /// The lease expired or was revoked.
    Lost(Dhcp4Lease),
}

/// Acquires and renews a lease forever.
pub(super) async fn maintain_lease(
    interface: &LocalInterface,
    mut on_change: impl FnMut(LeaseChange),
) {
    loop {
        let (server, lease) = match acquire_lease(interface).await {
            Ok(acquired) => acquired,
            Err(error) => {
                tracing::warn!(interface = interface.name, %error, "DHCP request failed, will retry");
                tokio::time::sleep(MAX_REPLY_TIMEOUT).await;
                continue;
            }
        };
        on_change(LeaseChange::Active(lease.clone()));
        let last = renew_until_lost(interface, server, lease, &mut on_change).await;
        tracing::warn!(interface = interface.name, address = %last.address, "DHCP lease lost");
        on_change(LeaseChange::Lost(last));
    }
}

/// Repeats discover, offer, request and acknowledgement until it succeeds.
async fn acquire_lease(interface: &LocalInterface) -> io::Result<(Ipv4Addr, Dhcp4Lease)> {
    let socket = open_socket(interface, Ipv4Addr::UNSPECIFIED)?;
    let started = Instant::now();
    let mut timeout_after = MIN_REPLY_TIMEOUT;
    // The same id in all attempts: dnsmasq replies to the first discover only after three seconds,
    // because it pings the address first.
    let transaction = entropy::random_u32();
    let broadcast = SocketAddrV4::new(Ipv4Addr::BROADCAST, SERVER_PORT);
    loop {
        let seconds = u16::try_from(started.elapsed().as_secs()).unwrap_or(u16::MAX);
        let message = |message_type, requested_address, server| Dhcp4ClientMessage {
            message_type,
            transaction_id: transaction,
            mac: interface.mac,
            seconds,
            own_address: None,
            requested_address,
            server,
        };
        let discover = message(Dhcp4MessageType::Discover, None, None);
        let mut reply =
            exchange(&socket, interface, &discover, broadcast, timeout_after, DISCOVER_REPLIES)
                .await?;
        if let Some(offer) = reply.take_if(|reply| reply.message_type == Dhcp4MessageType::Offer) {
            let address = Some(offer.lease.address);
            let request = message(Dhcp4MessageType::Request, address, Some(offer.server));
            reply =
                exchange(&socket, interface, &request, broadcast, timeout_after, REQUEST_REPLIES)
                    .await?;
        }
        // A slow server may acknowledge an earlier request.
        if let Some(reply) = reply
            && reply.message_type == Dhcp4MessageType::Ack
        {
            return Ok((reply.server, reply.lease));
        }
        // Randomized, because all machines of a rack may start at the same time.
        timeout_after =
            (timeout_after * 2).min(MAX_REPLY_TIMEOUT).mul_f64(entropy::random_between(0.9, 1.1));
    }
}

/// Renews the lease until it expires or is revoked. Returns the last lease.
async fn renew_until_lost(
    interface: &LocalInterface,
    mut server: Ipv4Addr,
    mut lease: Dhcp4Lease,
    on_change: &mut impl FnMut(LeaseChange),
) -> Dhcp4Lease {
    loop {
        let started = Instant::now();
        tokio::time::sleep(lease.renew).await;
        let renewed = loop {
            let elapsed = started.elapsed();
            if elapsed >= lease.time {
                return lease;
            }
            let target = if elapsed < lease.rebind { server } else { Ipv4Addr::BROADCAST };
            let target = SocketAddrV4::new(target, SERVER_PORT);
            let message = Dhcp4ClientMessage {
                message_type: Dhcp4MessageType::Request,
                transaction_id: entropy::random_u32(),
                mac: interface.mac,
                seconds: 0,
                own_address: Some(lease.address),
                requested_address: None,
                server: None,
            };
            let reply = match open_socket(interface, lease.address) {
                Ok(socket) => {
                    exchange(
                        &socket,
                        interface,
                        &message,
                        target,
                        MAX_REPLY_TIMEOUT,
                        REQUEST_REPLIES,
                    )
                    .await
                }
                Err(error) => Err(error),
            };
            match reply {
                Ok(Some(reply)) if reply.message_type == Dhcp4MessageType::Nak => return lease,
                Ok(Some(reply)) if reply.message_type == Dhcp4MessageType::Ack => break reply,
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(interface = interface.name, %error, "DHCP renewal failed");
                }
            }
            let rest = lease.time.saturating_sub(started.elapsed());
            tokio::time::sleep((rest / 2).clamp(Duration::from_secs(1), Duration::from_secs(60)))
                .await;
        };
        server = renewed.server;
        lease = renewed.lease;
        on_change(LeaseChange::Active(lease.clone()));
    }
}

/// Sends a message and waits for a reply of one of the accepted types. Other replies are ignored.
async fn exchange(
    socket: &UdpSocket,
    interface: &LocalInterface,
    message: &Dhcp4ClientMessage,
    target: SocketAddrV4,
    timeout_after: Duration,
    accepted: &[Dhcp4MessageType],
) -> io::Result<Option<Dhcp4ServerReply>> {
    match timeout(timeout_after, socket.send_to(&message.encode(), target)).await {
        Ok(Ok(_)) => {}
        // The link may be down for a short time only.
        Ok(Err(error)) => {
            tracing::debug!(interface = interface.name, %error, "failed to send DHCP request");
            tokio::time::sleep(timeout_after).await;
            return Ok(None);
        }
        Err(_) => return Ok(None),
    }
    let until = Instant::now() + timeout_after;
    let mut buffer = [0; 1500];
    while let Ok(received) = timeout_at(until, socket.recv_from(&mut buffer)).await {
        let (length, _) = received?;
        let reply =
            Dhcp4ServerReply::decode(&buffer[..length], message.transaction_id, interface.mac);
        if reply.as_ref().is_some_and(|reply| accepted.contains(&reply.message_type)) {
            return Ok(reply);
        }
    }
    Ok(None)
}

/// Opens a socket that is bound to the interface.
fn open_socket(interface: &LocalInterface, address: Ipv4Addr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.set_broadcast(true)?;
    socket.bind_device(Some(interface.name.as_bytes()))?;
    socket.bind(&SocketAddr::new(IpAddr::V4(address), CLIENT_PORT).into())?;
    UdpSocket::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use dhcp_codec::HardwareAddress;
    use dhcp_codec::v4::{Dhcp4Packet, MIN_MAX_MESSAGE_BYTES, option_code};

    use super::*;

    const MAC: [u8; 6] = [0x52, 0x54, 0, 0xaa, 0xbb, 1];

    fn server_reply(message_type: Dhcp4MessageType, server: u8) -> Vec<u8> {
        let hardware = HardwareAddress::ethernet(MAC);
        let mut packet = Dhcp4Packet::request(message_type, 7, hardware);
        packet.is_request = false;
        packet.your_address = Ipv4Addr::new(192, 0, 2, 100 + server);
        let server = Ipv4Addr::new(192, 0, 2, server);
        packet.options.set_addresses(option_code::SERVER_ID, &[server]);
        packet.encode(MIN_MAX_MESSAGE_BYTES)
    }

    /// Returns the result of `exchange` if these replies arrive in this order.
    async fn exchange_result(
        accepted: &[Dhcp4MessageType],
        replies: &[Vec<u8>],
    ) -> Option<(Dhcp4MessageType, Ipv4Addr)> {
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let SocketAddr::V4(target) = server.local_addr().unwrap() else { panic!("IPv4 address") };
        for reply in replies {
            server.send_to(reply, client.local_addr().unwrap()).await.unwrap();
        }
        let interface = LocalInterface {
            index: 1,
            name: "lo".to_owned(),
            mac: MAC,
            has_carrier: true,
            physical: true,
        };
        let message = Dhcp4ClientMessage {
            message_type: Dhcp4MessageType::Request,
            transaction_id: 7,
            mac: MAC,
            seconds: 0,
            own_address: None,
            requested_address: None,
            server: None,
        };
        let timeout_after = Duration::from_millis(if replies.is_empty() { 10 } else { 5000 });
        let reply =
            exchange(&client, &interface, &message, target, timeout_after, accepted).await.unwrap();
        reply.map(|reply| (reply.message_type, reply.server))
    }

    #[tokio::test]
    async fn ignores_offers_of_other_servers() {
        let first = Ipv4Addr::new(192, 0, 2, 1);
        let second = server_reply(Dhcp4MessageType::Offer, 2);
        let replies = [second.clone(), second.clone(), server_reply(Dhcp4MessageType::Ack, 1)];
        assert_eq!(
            exchange_result(REQUEST_REPLIES, &replies).await,
            Some((Dhcp4MessageType::Ack, first))
        );
        let replies = [second, server_reply(Dhcp4MessageType::Nak, 1)];
        assert_eq!(
            exchange_result(REQUEST_REPLIES, &replies).await,
            Some((Dhcp4MessageType::Nak, first))
        );
        assert_eq!(exchange_result(REQUEST_REPLIES, &[]).await, None);
    }

    #[tokio::test]
    async fn accepts_late_acknowledgement() {
        let first = Ipv4Addr::new(192, 0, 2, 1);
        let replies = [
            server_reply(Dhcp4MessageType::Nak, 2),
            server_reply(Dhcp4MessageType::Ack, 1),
            server_reply(Dhcp4MessageType::Offer, 1),
        ];
        assert_eq!(
            exchange_result(DISCOVER_REPLIES, &replies).await,
            Some((Dhcp4MessageType::Ack, first))
        );
    }
}
