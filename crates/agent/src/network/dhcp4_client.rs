// SPDX-License-Identifier: Apache-2.0
//! Asks DHCP for a card's IPv4 address and keeps it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout, timeout_at};

use super::Card;
use super::dhcp4::{Answer, Kind, Lease, Question};
use crate::chance;

const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;
/// The first answer is waited for this long, then twice as long, and so on.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);
const LONGEST_PATIENCE: Duration = Duration::from_secs(16);

/// What happens to a card's address.
pub(super) enum Change {
    /// It has this one now, or still.
    Has(Lease),
    /// It lost it.
    Lost(Lease),
}

/// Gets an address and keeps it, for ever.
pub(super) async fn keep(card: &Card, mut tell: impl FnMut(Change)) {
    loop {
        let (server, lease) = match obtain(card).await {
            Ok(obtained) => obtained,
            Err(error) => {
                tracing::warn!(card = card.name, %error, "DHCP cannot be asked");
                tokio::time::sleep(LONGEST_PATIENCE).await;
                continue;
            }
        };
        tell(Change::Has(lease.clone()));
        let last = renew_until_lost(card, server, lease, &mut tell).await;
        tracing::warn!(card = card.name, address = %last.address, "the DHCP lease ran out");
        tell(Change::Lost(last));
    }
}

/// The whole of discover, offer, request and acknowledgement, as often as it takes.
async fn obtain(card: &Card) -> io::Result<(Ipv4Addr, Lease)> {
    let socket = open(card, Ipv4Addr::UNSPECIFIED)?;
    let begun = Instant::now();
    let mut patience = FIRST_PATIENCE;
    // The same throughout: dnsmasq answers the first question only after three seconds, in which it
    // makes sure that nobody else has the address.
    let transaction = chance::number();
    loop {
        let seconds = u16::try_from(begun.elapsed().as_secs()).unwrap_or(u16::MAX);
        let question = |kind, wanted, server| Question {
            kind,
            transaction,
            hardware: card.address,
            seconds,
            own: None,
            wanted,
            server,
        };
        let discover = question(Kind::Discover, None, None);
        if let Some(offer) = ask(&socket, card, &discover, Ipv4Addr::BROADCAST, patience).await?
            && offer.kind == Kind::Offer
        {
            let wanted = Some(offer.lease.address);
            let request = question(Kind::Request, wanted, Some(offer.server));
            let answer = ask(&socket, card, &request, Ipv4Addr::BROADCAST, patience).await?;
            if let Some(answer) = answer
                && answer.kind == Kind::Acknowledge
            {
                return Ok((answer.server, answer.lease));
            }
        }
        // A little chance in it: a rack that is switched on asks all at once.
        patience = (patience * 2).min(LONGEST_PATIENCE).mul_f64(chance::between(0.9, 1.1));
    }
}

/// Renews as long as a server agrees; returns the lease that ran out or was taken away.
async fn renew_until_lost(
    card: &Card,
    mut server: Ipv4Addr,
    mut lease: Lease,
    tell: &mut impl FnMut(Change),
) -> Lease {
    loop {
        let begun = Instant::now();
        tokio::time::sleep(lease.renew).await;
        let renewed = loop {
            let elapsed = begun.elapsed();
            if elapsed >= lease.time {
                return lease;
            }
            let target = if elapsed < lease.rebind { server } else { Ipv4Addr::BROADCAST };
            let question = Question {
                kind: Kind::Request,
                transaction: chance::number(),
                hardware: card.address,
                seconds: 0,
                own: Some(lease.address),
                wanted: None,
                server: None,
            };
            let answer = match open(card, lease.address) {
                Ok(socket) => ask(&socket, card, &question, target, LONGEST_PATIENCE).await,
                Err(error) => Err(error),
            };
            match answer {
                Ok(Some(answer)) if answer.kind == Kind::Refuse => return lease,
                Ok(Some(answer)) if answer.kind == Kind::Acknowledge => break answer,
                Ok(_) => {}
                Err(error) => tracing::debug!(card = card.name, %error, "renewal failed"),
            }
            let rest = lease.time.saturating_sub(begun.elapsed());
            tokio::time::sleep((rest / 2).clamp(Duration::from_secs(1), Duration::from_secs(60)))
                .await;
        };
        server = renewed.server;
        lease = renewed.lease;
        tell(Change::Has(lease.clone()));
    }
}

/// Sends a question and waits for the answer to it.
async fn ask(
    socket: &UdpSocket,
    card: &Card,
    question: &Question,
    target: Ipv4Addr,
    patience: Duration,
) -> io::Result<Option<Answer>> {
    let target = SocketAddrV4::new(target, SERVER_PORT);
    match timeout(patience, socket.send_to(&question.encode(), target)).await {
        Ok(Ok(_)) => {}
        // The cable was pulled, perhaps only for a moment.
        Ok(Err(error)) => {
            tracing::debug!(card = card.name, %error, "nothing could be sent");
            tokio::time::sleep(patience).await;
            return Ok(None);
        }
        Err(_) => return Ok(None),
    }
    let until = Instant::now() + patience;
    let mut message = [0; 1500];
    while let Ok(received) = timeout_at(until, socket.recv_from(&mut message)).await {
        let (length, _) = received?;
        let answer = Answer::decode(&message[..length], question.transaction, card.address);
        if answer.is_some() {
            return Ok(answer);
        }
    }
    Ok(None)
}

/// A socket on one card only.
fn open(card: &Card, own: Ipv4Addr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.set_broadcast(true)?;
    socket.bind_device(Some(card.name.as_bytes()))?;
    socket.bind(&SocketAddr::new(IpAddr::V4(own), CLIENT_PORT).into())?;
    UdpSocket::from_std(socket.into())
}
