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
/// What may answer the first question: also what answers a request that was given up.
const HOPED_FIRST: &[Kind] = &[Kind::Offer, Kind::Acknowledge];
/// What may answer a request. Offers of other servers still come in then.
const HOPED_AFTER: &[Kind] = &[Kind::Acknowledge, Kind::Refuse];

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
    let everybody = SocketAddrV4::new(Ipv4Addr::BROADCAST, SERVER_PORT);
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
        let mut answer = ask(&socket, card, &discover, everybody, patience, HOPED_FIRST).await?;
        if let Some(offer) = answer.take_if(|answer| answer.kind == Kind::Offer) {
            let wanted = Some(offer.lease.address);
            let request = question(Kind::Request, wanted, Some(offer.server));
            answer = ask(&socket, card, &request, everybody, patience, HOPED_AFTER).await?;
        }
        // A server that is slow may acknowledge what was requested a while ago.
        if let Some(answer) = answer
            && answer.kind == Kind::Acknowledge
        {
            return Ok((answer.server, answer.lease));
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
            let target = SocketAddrV4::new(target, SERVER_PORT);
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
                Ok(socket) => {
                    ask(&socket, card, &question, target, LONGEST_PATIENCE, HOPED_AFTER).await
                }
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

/// Sends a question and waits for an answer of a kind that is hoped for; others are passed over.
async fn ask(
    socket: &UdpSocket,
    card: &Card,
    question: &Question,
    target: SocketAddrV4,
    patience: Duration,
    hoped: &[Kind],
) -> io::Result<Option<Answer>> {
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
        if answer.as_ref().is_some_and(|answer| hoped.contains(&answer.kind)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: [u8; 6] = [0x52, 0x54, 0, 0xaa, 0xbb, 1];

    fn said(kind: Kind, server: u8) -> Vec<u8> {
        let mut message = vec![0; 240];
        message[0] = 2;
        message[4..8].copy_from_slice(&7_u32.to_be_bytes());
        message[16..20].copy_from_slice(&[192, 0, 2, 100 + server]);
        message[28..34].copy_from_slice(&CARD);
        message[236..240].copy_from_slice(&[99, 130, 83, 99]);
        message.extend([53, 1, kind as u8, 54, 4, 192, 0, 2, server, 255]);
        message
    }

    /// What `ask` makes of a network where these answers come, in this order.
    async fn heard(hoped: &[Kind], answers: &[Vec<u8>]) -> Option<(Kind, Ipv4Addr)> {
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let SocketAddr::V4(target) = server.local_addr().unwrap() else { panic!("it is IPv4") };
        for answer in answers {
            server.send_to(answer, client.local_addr().unwrap()).await.unwrap();
        }
        let card = Card {
            index: 1,
            name: "lo".to_owned(),
            address: CARD,
            has_carrier: true,
            physical: true,
        };
        let question = Question {
            kind: Kind::Request,
            transaction: 7,
            hardware: CARD,
            seconds: 0,
            own: None,
            wanted: None,
            server: None,
        };
        let patience = Duration::from_millis(if answers.is_empty() { 10 } else { 5000 });
        let answer = ask(&client, &card, &question, target, patience, hoped).await.unwrap();
        answer.map(|answer| (answer.kind, answer.server))
    }

    #[tokio::test]
    async fn offers_of_other_servers_are_no_answer_to_a_request() {
        let first = Ipv4Addr::new(192, 0, 2, 1);
        let second = said(Kind::Offer, 2);
        let answers = [second.clone(), second.clone(), said(Kind::Acknowledge, 1)];
        assert_eq!(heard(HOPED_AFTER, &answers).await, Some((Kind::Acknowledge, first)));
        let answers = [second, said(Kind::Refuse, 1)];
        assert_eq!(heard(HOPED_AFTER, &answers).await, Some((Kind::Refuse, first)));
        assert_eq!(heard(HOPED_AFTER, &[]).await, None);
    }

    #[tokio::test]
    async fn a_late_acknowledgement_counts() {
        let first = Ipv4Addr::new(192, 0, 2, 1);
        let answers = [said(Kind::Refuse, 2), said(Kind::Acknowledge, 1), said(Kind::Offer, 1)];
        assert_eq!(heard(HOPED_FIRST, &answers).await, Some((Kind::Acknowledge, first)));
    }
}
