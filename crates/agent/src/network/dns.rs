// SPDX-License-Identifier: Apache-2.0
//! Finds the addresses of names: a static program cannot use the system's own way.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::Network;
use crate::chance;

const PORT: u16 = 53;
/// How long one server is waited for, and how often each is asked.
const PATIENCE: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 3;

pub(super) const TYPE_A: u16 = 1;
pub(super) const TYPE_PTR: u16 = 12;
pub(super) const TYPE_TXT: u16 = 16;
pub(super) const TYPE_AAAA: u16 = 28;
pub(super) const TYPE_SRV: u16 = 33;

/// Why a name has no address.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// Nobody can be asked.
    #[error(
        "there is no name server to ask for {name}; write an address into the URL or let DHCP name a server"
    )]
    NoServer {
        /// The name.
        name: String,
    },
    /// It is not a name.
    #[error("{name:?} is not a host name")]
    NoName {
        /// What it is.
        name: String,
    },
    /// The servers know none.
    #[error("the name servers {servers:?} know no address of {name}")]
    Unknown {
        /// The name.
        name: String,
        /// Who was asked.
        servers: Vec<IpAddr>,
    },
}

/// The addresses of a name, IPv4 first.
///
/// # Errors
/// If nobody knows any.
pub async fn resolve(network: &Network, name: &str) -> Result<Vec<IpAddr>, DnsError> {
    if let Ok(address) = name.trim_matches(['[', ']']).parse() {
        return Ok(vec![address]);
    }
    if name.eq_ignore_ascii_case("localhost") {
        return Ok(vec![Ipv4Addr::LOCALHOST.into()]);
    }
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let known = in_hosts_file(&hosts, name);
    if !known.is_empty() {
        return Ok(known);
    }
    let servers = network.name_servers();
    if servers.is_empty() {
        return Err(DnsError::NoServer { name: name.to_owned() });
    }
    resolve_with(&servers.iter().map(|&ip| SocketAddr::new(ip, PORT)).collect::<Vec<_>>(), name)
        .await
}

async fn resolve_with(servers: &[SocketAddr], name: &str) -> Result<Vec<IpAddr>, DnsError> {
    let id = chance::number() as u16;
    let question = |kind| {
        encode_question(id, name, kind, true)
            .ok_or_else(|| DnsError::NoName { name: name.to_owned() })
    };
    let (four, six) = (question(TYPE_A)?, question(TYPE_AAAA)?);
    for attempt in 0..ATTEMPTS * servers.len() {
        let server = servers[attempt % servers.len()];
        let (four, six) = tokio::join!(ask(server, &four), ask(server, &six));
        let mut addresses = Vec::new();
        for message in [four, six].into_iter().flatten() {
            addresses.extend(
                decode(&message).into_iter().flatten().filter_map(|record| record.address()),
            );
        }
        if !addresses.is_empty() {
            return Ok(addresses);
        }
    }
    let servers = servers.iter().map(SocketAddr::ip).collect();
    Err(DnsError::Unknown { name: name.to_owned(), servers })
}

/// The name servers a `resolv.conf` names.
#[must_use]
pub fn servers_in(text: &str) -> Vec<IpAddr> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver")?.trim().parse().ok())
        .collect()
}

/// Writes the name servers down for other programs in the ramdisk.
pub(super) fn write_resolv_conf(path: &Path, servers: &[IpAddr]) {
    let text: String = servers.iter().map(|server| format!("nameserver {server}\n")).collect();
    if let Err(error) = std::fs::write(path, text) {
        tracing::debug!(%error, "the name servers could not be written down");
    }
}

fn in_hosts_file(text: &str, name: &str) -> Vec<IpAddr> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split('#').next()?.split_ascii_whitespace();
            let address = words.next()?.parse().ok()?;
            words.any(|word| word.eq_ignore_ascii_case(name)).then_some(address)
        })
        .collect()
}

/// One question to one server; over TCP if the answer is too long for UDP.
async fn ask(server: SocketAddr, question: &[u8]) -> Option<Vec<u8>> {
    let over_udp = async {
        let any: IpAddr = match server.ip() {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0)).await?;
        socket.connect(server).await?;
        socket.send(question).await?;
        let mut message = vec![0; 4096];
        loop {
            let length = socket.recv(&mut message).await?;
            if length > 3 && message[..2] == question[..2] {
                message.truncate(length);
                return io::Result::Ok(message);
            }
        }
    };
    let answer = timeout(PATIENCE, over_udp).await.ok()?.ok()?;
    const TRUNCATED: u8 = 2;
    if answer[2] & TRUNCATED == 0 {
        return Some(answer);
    }
    let over_tcp = async {
        let mut stream = TcpStream::connect(server).await?;
        let length = u16::try_from(question.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        stream.write_all(&[&length.to_be_bytes(), question].concat()).await?;
        let length = usize::from(stream.read_u16().await?);
        let mut message = vec![0; length];
        stream.read_exact(&mut message).await?;
        io::Result::Ok(message)
    };
    timeout(PATIENCE, over_tcp).await.ok()?.ok()
}

/// A question, or nothing if it is no name.
pub(super) fn encode_question(id: u16, name: &str, kind: u16, recursive: bool) -> Option<Vec<u8>> {
    let mut message = Vec::with_capacity(18 + name.len());
    message.extend(id.to_be_bytes());
    message.extend([u8::from(recursive), 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?;
        message.push(length);
        message.extend(label.as_bytes());
    }
    message.push(0);
    message.extend(kind.to_be_bytes());
    message.extend([0, 1]);
    Some(message)
}

/// What a server knows about a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Record {
    Address { name: String, address: IpAddr },
    Pointer { name: String, target: String },
    Service { name: String, port: u16, target: String },
    Text { name: String, parts: Vec<String> },
}

impl Record {
    fn address(self) -> Option<IpAddr> {
        match self {
            Self::Address { address, .. } => Some(address),
            Self::Pointer { .. } | Self::Service { .. } | Self::Text { .. } => None,
        }
    }
}

/// The records in an answer that are of use here; nothing if it cannot be read.
pub(super) fn decode(message: &[u8]) -> Option<Vec<Record>> {
    let number = |at: usize| Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]));
    let questions = number(4)?;
    let records = u32::from(number(6)?) + u32::from(number(8)?) + u32::from(number(10)?);
    let mut at = 12;
    for _ in 0..questions {
        at = read_name(message, at)?.1 + 4;
    }
    let mut found = Vec::new();
    for _ in 0..records {
        let (name, after) = read_name(message, at)?;
        let kind = number(after)?;
        let length = usize::from(number(after + 8)?);
        let start = after + 10;
        let data = message.get(start..start + length)?;
        at = start + length;
        let name = name.to_ascii_lowercase();
        found.extend(match (kind, data.len()) {
            (TYPE_A, 4) => {
                let octets: [u8; 4] = data.try_into().ok()?;
                Some(Record::Address { name, address: Ipv4Addr::from(octets).into() })
            }
            (TYPE_AAAA, 16) => {
                let octets: [u8; 16] = data.try_into().ok()?;
                Some(Record::Address { name, address: Ipv6Addr::from(octets).into() })
            }
            (TYPE_PTR, _) => Some(Record::Pointer { name, target: read_name(message, start)?.0 }),
            (TYPE_SRV, 7..) => Some(Record::Service {
                name,
                port: number(start + 4)?,
                target: read_name(message, start + 6)?.0,
            }),
            (TYPE_TXT, _) => Some(Record::Text { name, parts: texts(data) }),
            _ => None,
        });
    }
    Some(found)
}

fn texts(mut data: &[u8]) -> Vec<String> {
    let mut parts = Vec::new();
    while let Some((&length, rest)) = data.split_first() {
        let Some((part, rest)) = rest.split_at_checked(usize::from(length)) else { break };
        parts.push(String::from_utf8_lossy(part).into_owned());
        data = rest;
    }
    parts
}

/// A name and where what follows it starts.
fn read_name(message: &[u8], start: usize) -> Option<(String, usize)> {
    let mut name = String::new();
    let mut at = start;
    let mut after = None;
    // Names refer back to others; a hostile one would do so for ever.
    for _ in 0..128 {
        let length = usize::from(*message.get(at)?);
        match length {
            0 => return Some((name, after.unwrap_or(at + 1))),
            1..=63 => {
                if !name.is_empty() {
                    name.push('.');
                }
                name.push_str(&String::from_utf8_lossy(message.get(at + 1..at + 1 + length)?));
                at += 1 + length;
            }
            0xc0.. => {
                after.get_or_insert(at + 2);
                at = (length & 0x3f) << 8 | usize::from(*message.get(at + 1)?);
            }
            _ => return None,
        }
        if name.len() > 255 {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(question: &[u8]) -> Vec<u8> {
        let mut message = question.to_vec();
        message[2] = 0x81;
        let address = question[question.len() - 3] == TYPE_A as u8;
        message[7] = u8::from(address);
        if address {
            message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, 7]);
        }
        message
    }

    #[tokio::test]
    async fn a_server_is_asked() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        tokio::spawn(async move {
            let mut message = [0; 512];
            loop {
                let (length, from) = server.recv_from(&mut message).await.unwrap();
                server.send_to(&answer(&message[..length]), from).await.unwrap();
            }
        });
        let found = resolve_with(&[address], "api.example").await.unwrap();
        assert_eq!(found, ["192.0.2.7".parse::<IpAddr>().unwrap()]);
        assert!(matches!(resolve_with(&[address], "a..b").await, Err(DnsError::NoName { .. })));
    }

    #[test]
    fn files_are_read() {
        let hosts = "127.0.0.1 localhost\n192.0.2.1 api.example api # ours\n";
        assert_eq!(in_hosts_file(hosts, "API"), ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        assert!(in_hosts_file(hosts, "ours").is_empty());
        assert_eq!(
            servers_in("search x\nnameserver 192.0.2.53\nnameserver fe80::1%eth0\n").len(),
            1
        );
    }

    proptest! {
        #[test]
        fn no_message_is_too_strange(message in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&message);
        }
    }
}
