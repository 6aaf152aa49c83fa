// SPDX-License-Identifier: Apache-2.0
//! DNS client: a static program cannot use the resolver of libc.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, Record, RecordType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::AgentNetwork;
use crate::entropy;

const PORT: u16 = 53;
/// The timeout of a query, and the number of queries to each server.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 3;

/// A name cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// No DNS server is configured.
    #[error(
        "cannot resolve {name}: no DNS server configured; use an IP address in the URL, or provide a DNS server by DHCP"
    )]
    NoServer {
        /// The name.
        name: String,
    },
    /// Not a host name.
    #[error("{name:?} is not a host name")]
    InvalidName {
        /// The invalid name.
        name: String,
    },
    /// No server returned an address.
    #[error("cannot resolve {name}: no address from the DNS servers {servers:?}")]
    NoAddress {
        /// The name.
        name: String,
        /// The queried servers.
        servers: Vec<IpAddr>,
    },
}

/// Returns the addresses of a name, IPv4 first.
///
/// # Errors
/// If the name cannot be resolved.
pub async fn resolve(network: &AgentNetwork, name: &str) -> Result<Vec<IpAddr>, DnsError> {
    if let Ok(address) = name.trim_matches(['[', ']']).parse() {
        return Ok(vec![address]);
    }
    if name.eq_ignore_ascii_case("localhost") {
        return Ok(vec![Ipv4Addr::LOCALHOST.into()]);
    }
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let from_hosts = search_hosts_file(&hosts, name);
    if !from_hosts.is_empty() {
        return Ok(from_hosts);
    }
    let servers = network.name_servers();
    if servers.is_empty() {
        return Err(DnsError::NoServer { name: name.to_owned() });
    }
    resolve_with(&servers.iter().map(|&ip| SocketAddr::new(ip, PORT)).collect::<Vec<_>>(), name)
        .await
}

async fn resolve_with(servers: &[SocketAddr], name: &str) -> Result<Vec<IpAddr>, DnsError> {
    let id = entropy::random_u32() as u16;
    let query = |record_type| {
        encode_query(id, name, record_type, true)
            .ok_or_else(|| DnsError::InvalidName { name: name.to_owned() })
    };
    let (four, six) = (query(RecordType::A)?, query(RecordType::AAAA)?);
    for attempt in 0..ATTEMPTS * servers.len() {
        let server = servers[attempt % servers.len()];
        let (four, six) = tokio::join!(query_server(server, &four), query_server(server, &six));
        let mut addresses = Vec::new();
        for message in [four, six].into_iter().flatten() {
            addresses.extend(decode_records(&message).iter().filter_map(address));
        }
        if !addresses.is_empty() {
            return Ok(addresses);
        }
    }
    let servers = servers.iter().map(SocketAddr::ip).collect();
    Err(DnsError::NoAddress { name: name.to_owned(), servers })
}

/// Returns the servers in a `resolv.conf`.
#[must_use]
pub fn parse_resolv_conf(text: &str) -> Vec<IpAddr> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver")?.trim().parse().ok())
        .collect()
}

/// Writes the servers to `resolv.conf`, for other programs in the ramdisk.
pub(super) fn write_resolv_conf(path: &Path, servers: &[IpAddr]) {
    let text: String = servers.iter().map(|server| format!("nameserver {server}\n")).collect();
    if let Err(error) = std::fs::write(path, text) {
        tracing::debug!(%error, path = %path.display(), "failed to write resolv.conf");
    }
}

fn search_hosts_file(text: &str, name: &str) -> Vec<IpAddr> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split('#').next()?.split_ascii_whitespace();
            let address = fields.next()?.parse().ok()?;
            fields.any(|field| field.eq_ignore_ascii_case(name)).then_some(address)
        })
        .collect()
}

/// Sends a query to a server, and again over TCP if the reply is truncated.
async fn query_server(server: SocketAddr, query: &[u8]) -> Option<Vec<u8>> {
    let over_udp = async {
        let any: IpAddr = match server.ip() {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0)).await?;
        socket.connect(server).await?;
        socket.send(query).await?;
        let mut message = vec![0; 4096];
        loop {
            let length = socket.recv(&mut message).await?;
            if length > 3 && message[..2] == query[..2] {
                message.truncate(length);
                return io::Result::Ok(message);
            }
        }
    };
    let reply = timeout(QUERY_TIMEOUT, over_udp).await.ok()?.ok()?;
    const TRUNCATED: u8 = 2;
    if reply[2] & TRUNCATED == 0 {
        return Some(reply);
    }
    let over_tcp = async {
        let mut stream = TcpStream::connect(server).await?;
        let length = u16::try_from(query.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        stream.write_all(&[&length.to_be_bytes(), query].concat()).await?;
        let length = usize::from(stream.read_u16().await?);
        let mut message = vec![0; length];
        stream.read_exact(&mut message).await?;
        io::Result::Ok(message)
    };
    timeout(QUERY_TIMEOUT, over_tcp).await.ok()?.ok()
}

/// Encodes a query, `None` if the name is invalid.
pub(super) fn encode_query(
    id: u16,
    name: &str,
    record_type: RecordType,
    recursive: bool,
) -> Option<Vec<u8>> {
    // Falls back to ASCII for names that IDNA rejects, such as those with underscores.
    let mut name = Name::from_str_relaxed(name).ok()?;
    name.set_fqdn(true);
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = recursive;
    message.add_query(Query::query(name, record_type));
    message.to_vec().ok()
}

/// Decodes the records of all sections of a message. Returns none if the message is malformed.
pub(super) fn decode_records(message: &[u8]) -> Vec<Record> {
    Message::from_vec(message)
        .map(|mut message| message.take_all_sections().collect())
        .unwrap_or_default()
}

/// Returns the address of an A or AAAA record.
pub(super) fn address(record: &Record) -> Option<IpAddr> {
    record.data.ip_addr()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reply(query: &[u8]) -> Vec<u8> {
        let mut message = query.to_vec();
        message[2] = 0x81;
        let address = query[query.len() - 3] == 1;
        message[7] = u8::from(address);
        if address {
            message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, 7]);
        }
        message
    }

    #[tokio::test]
    async fn resolves_names() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        tokio::spawn(async move {
            let mut message = [0; 512];
            loop {
                let (length, from) = server.recv_from(&mut message).await.unwrap();
                server.send_to(&reply(&message[..length]), from).await.unwrap();
            }
        });
        let addresses = resolve_with(&[address], "api.example").await.unwrap();
        assert_eq!(addresses, ["192.0.2.7".parse::<IpAddr>().unwrap()]);
        assert!(matches!(
            resolve_with(&[address], "a..b").await,
            Err(DnsError::InvalidName { .. })
        ));
    }

    #[test]
    fn parses_hosts_and_resolv_conf() {
        let hosts = "127.0.0.1 localhost\n192.0.2.1 api.example api # ours\n";
        assert_eq!(search_hosts_file(hosts, "API"), ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        assert!(search_hosts_file(hosts, "ours").is_empty());
        assert_eq!(
            parse_resolv_conf("search x\nnameserver 192.0.2.53\nnameserver fe80::1%eth0\n").len(),
            1
        );
    }

    proptest! {
        #[test]
        fn decoder_never_panics(message in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_records(&message);
        }
    }
}
