// SPDX-License-Identifier: Apache-2.0
//! Asks DHCPv6 where routers say so: for an address if they manage them, else only for name servers
//! (RFC 8415).

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

use super::Card;
use crate::chance;

const CLIENT_PORT: u16 = 546;
const SERVER_PORT: u16 = 547;
const SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
const FIRST_PATIENCE: Duration = Duration::from_secs(1);
const LONGEST_PATIENCE: Duration = Duration::from_secs(30);

const SOLICIT: u8 = 1;
const ADVERTISE: u8 = 2;
const REQUEST: u8 = 3;
const RENEW: u8 = 5;
const REPLY: u8 = 7;
const INFORMATION: u8 = 11;

/// What DHCPv6 gave.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Lease6 {
    pub(super) address: Option<Ipv6Addr>,
    pub(super) name_servers: Vec<IpAddr>,
    renew: Duration,
    valid: Duration,
    server: Vec<u8>,
}

/// Asks and keeps asking. `tell` is called with every lease, and with none when it ran out.
pub(super) async fn keep(card: &Card, with_address: bool, mut tell: impl FnMut(Option<&Lease6>)) {
    loop {
        let mut lease = match obtain(card, with_address).await {
            Ok(lease) => lease,
            Err(error) => {
                tracing::debug!(card = card.name, %error, "DHCPv6 cannot be asked");
                tokio::time::sleep(LONGEST_PATIENCE).await;
                continue;
            }
        };
        tell(Some(&lease));
        loop {
            let until = Instant::now() + lease.valid;
            tokio::time::sleep(lease.renew).await;
            match renew(card, &lease, with_address, until).await {
                Some(renewed) => lease = renewed,
                None => break,
            }
            tell(Some(&lease));
        }
        tell(None);
    }
}

async fn obtain(card: &Card, with_address: bool) -> io::Result<Lease6> {
    let socket = open(card)?;
    let mut patience = FIRST_PATIENCE;
    let begun = Instant::now();
    let first = transaction();
    loop {
        let kind = if with_address { SOLICIT } else { INFORMATION };
        let (address, server) = (None, None);
        let question =
            Question { kind, card, with_address, address, server, begun, transaction: first };
        let answer = ask(&socket, &question, patience).await?;
        let answer = match answer {
            Some((ADVERTISE, offer)) => {
                let question = Question {
                    kind: REQUEST,
                    address: offer.address,
                    server: Some(&offer.server),
                    transaction: transaction(),
                    ..question
                };
                ask(&socket, &question, patience).await?
            }
            other => other,
        };
        if let Some((REPLY, lease)) = answer
            && (lease.address.is_some() || !with_address)
        {
            return Ok(lease);
        }
        patience = (patience * 2).min(LONGEST_PATIENCE).mul_f64(chance::between(0.9, 1.1));
    }
}

async fn renew(card: &Card, lease: &Lease6, with_address: bool, until: Instant) -> Option<Lease6> {
    let socket = open(card).ok()?;
    while Instant::now() < until {
        let question = Question {
            kind: if with_address { RENEW } else { INFORMATION },
            card,
            with_address,
            address: lease.address,
            server: with_address.then_some(lease.server.as_slice()),
            begun: Instant::now(),
            transaction: transaction(),
        };
        if let Ok(Some((REPLY, renewed))) = ask(&socket, &question, LONGEST_PATIENCE).await
            && (renewed.address.is_some() || !with_address)
        {
            return Some(renewed);
        }
    }
    None
}

#[derive(Clone, Copy)]
struct Question<'a> {
    kind: u8,
    card: &'a Card,
    with_address: bool,
    address: Option<Ipv6Addr>,
    server: Option<&'a [u8]>,
    begun: Instant,
    transaction: [u8; 3],
}

impl Question<'_> {
    fn encode(&self) -> Vec<u8> {
        let mut message = vec![self.kind];
        message.extend(self.transaction);
        let mut option = |code: u16, value: &[u8]| {
            message.extend(code.to_be_bytes());
            message.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
            message.extend(value);
        };
        option(1, &identity(self.card));
        if let Some(server) = self.server {
            option(2, server);
        }
        let elapsed = u16::try_from(self.begun.elapsed().as_millis() / 10).unwrap_or(u16::MAX);
        option(8, &elapsed.to_be_bytes());
        // Name servers, and when to ask again.
        option(6, &[0, 23, 0, 32]);
        if self.with_address {
            let mut association = self.card.index.to_be_bytes().to_vec();
            association.extend([0; 8]);
            if let Some(address) = self.address {
                association.extend([0, 5, 0, 24]);
                association.extend(address.octets());
                association.extend([0; 8]);
            }
            option(3, &association);
        }
        message
    }
}

async fn ask(
    socket: &UdpSocket,
    question: &Question<'_>,
    patience: Duration,
) -> io::Result<Option<(u8, Lease6)>> {
    let transaction = question.transaction;
    let target = SocketAddrV6::new(SERVERS, SERVER_PORT, 0, question.card.index);
    let until = Instant::now() + patience;
    if let Err(error) = socket.send_to(&question.encode(), target).await {
        // The link's own address is not there yet.
        tracing::debug!(card = question.card.name, %error, "nothing could be sent");
        tokio::time::sleep_until(until).await;
        return Ok(None);
    }
    let mut message = [0; 1500];
    while let Ok(received) = timeout_at(until, socket.recv_from(&mut message)).await {
        let (length, _) = received?;
        let answer = decode(&message[..length], transaction, &identity(question.card));
        if answer.is_some() {
            return Ok(answer);
        }
    }
    Ok(None)
}

/// Reads an answer to this transaction of this client.
fn decode(message: &[u8], transaction: [u8; 3], client: &[u8]) -> Option<(u8, Lease6)> {
    let (head, options) = message.split_at_checked(4)?;
    let kind = head[0];
    if head[1..] != transaction || !matches!(kind, ADVERTISE | REPLY) {
        return None;
    }
    let find =
        |wanted: u16| split(options).find(|(code, _)| *code == wanted).map(|(_, value)| value);
    if find(1)? != client {
        return None;
    }
    let mut lease = Lease6 {
        server: find(2)?.to_vec(),
        name_servers: find(23)
            .unwrap_or_default()
            .chunks_exact(16)
            .filter_map(address)
            .map(IpAddr::V6)
            .collect(),
        renew: Duration::from_secs(find(32).and_then(number).map_or(86_400, u64::from)),
        valid: Duration::from_secs(86_400),
        address: None,
    };
    if let Some(association) = find(3).filter(|value| value.len() >= 12) {
        let given = split(&association[12..]).find(|(code, value)| *code == 5 && value.len() >= 24);
        if let Some((_, value)) = given {
            let (preferred, valid) = (number(&value[16..20])?, number(&value[20..24])?);
            if valid > 0 {
                lease.address = address(&value[..16]);
                let renew =
                    number(&association[4..8]).filter(|&renew| renew > 0).unwrap_or(preferred / 2);
                lease.renew = Duration::from_secs(u64::from(renew.max(30)));
                lease.valid = Duration::from_secs(u64::from(valid.max(60)));
            }
        }
    }
    Some((kind, lease))
}

/// The options in a message, up to where they make no sense any more.
fn split(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = bytes.split_at_checked(4)?;
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let (value, rest) = rest.split_at_checked(length)?;
        bytes = rest;
        Some((u16::from_be_bytes([head[0], head[1]]), value))
    })
}

fn address(bytes: &[u8]) -> Option<Ipv6Addr> {
    let octets: [u8; 16] = bytes.get(..16)?.try_into().ok()?;
    Some(Ipv6Addr::from(octets))
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.get(..4)?.try_into().ok().map(u32::from_be_bytes)
}

fn transaction() -> [u8; 3] {
    let chance = chance::number().to_be_bytes();
    [chance[0], chance[1], chance[2]]
}

/// Who asks: a card by its hardware address.
fn identity(card: &Card) -> Vec<u8> {
    [&[0, 3, 0, 1][..], &card.address].concat()
}

fn open(card: &Card) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.set_only_v6(true)?;
    socket.bind_device(Some(card.name.as_bytes()))?;
    socket.bind(&SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), CLIENT_PORT).into())?;
    UdpSocket::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLIENT: &[u8] = &[0, 3, 0, 1, 0x52, 0x54, 0, 0xaa, 0xbb, 1];

    fn reply() -> Vec<u8> {
        let mut message = vec![REPLY, 1, 2, 3, 0, 1, 0, 10];
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
    fn a_reply_is_read() {
        let (kind, lease) = decode(&reply(), [1, 2, 3], CLIENT).unwrap();
        assert_eq!(kind, REPLY);
        assert_eq!(lease.address, Some("2001:db8::7".parse().unwrap()));
        assert_eq!(lease.renew, Duration::from_secs(1800));
        assert_eq!(lease.valid, Duration::from_secs(7200));
        assert_eq!(lease.name_servers, ["2001:db8::53".parse::<IpAddr>().unwrap()]);
        assert_eq!(decode(&reply(), [1, 2, 4], CLIENT), None);
        assert_eq!(decode(&reply(), [1, 2, 3], &CLIENT[1..]), None);
    }

    proptest! {
        #[test]
        fn no_message_is_too_strange(cut in 0_usize..90, at in 0_usize..90, byte in any::<u8>()) {
            let mut message = reply();
            if let Some(place) = message.get_mut(at) {
                *place = byte;
            }
            message.truncate(cut);
            let _ = decode(&message, [1, 2, 3], CLIENT);
        }
    }
}
