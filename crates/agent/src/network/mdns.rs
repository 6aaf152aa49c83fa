// SPDX-License-Identifier: Apache-2.0
//! Discovers the server by multicast DNS, if requested: the service
//! `baremetal._openstack._tcp.local`.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::rr::{RData, Record, RecordType};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::dns::{address, decode_records, encode_query};
use super::source_address_for;

const PORT: u16 = 5353;
const GROUP4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
/// The time to wait for replies; doubles with each round of queries.
const MIN_ROUND_TIME: Duration = Duration::from_secs(1);
const MAX_ROUND_TIME: Duration = Duration::from_secs(8);

/// A discovered server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiscoveredServer {
    /// The service name, one of those searched for.
    pub service: String,
    /// The base URL.
    pub url: String,
    /// Settings of the TXT record, such as `ipa_debug`.
    pub settings: BTreeMap<String, String>,
}

/// Searches for one of these services, such as `baremetal`, on all interfaces until the timeout. The
/// first in the list is preferred if it replies within the round.
///
/// # Errors
/// If no server replies.
pub async fn discover(services: &[&str], timeout: Duration) -> io::Result<DiscoveredServer> {
    let until = Instant::now() + timeout;
    let names: Vec<String> =
        services.iter().map(|service| format!("{service}._openstack._tcp.local")).collect();
    let queries: Vec<Vec<u8>> = names
        .iter()
        .flat_map(|name| {
            [RecordType::SRV, RecordType::TXT].map(|service| encode_query(0, name, service, false))
        })
        .flatten()
        .collect();
    let (sender, mut receiver) = mpsc::channel(64);
    let mut known = Vec::new();
    let mut round_time = MIN_ROUND_TIME;
    loop {
        // New sockets in each round: links and addresses may come up late.
        let mut receivers = JoinSet::new();
        for (socket, group) in open_sockets(Path::new("/sys/class/net")) {
            for query in &queries {
                // Fails on an interface without an address.
                let _ = socket.send_to(query, group).await;
            }
            receivers.spawn(forward_messages(Arc::new(socket), sender.clone()));
        }
        let round = (Instant::now() + round_time).min(until);
        while let Ok(Some((message, from))) = timeout_at(round, receiver.recv()).await {
            let records = decode_records(&message);
            known.extend(records.into_iter().map(|record| (record, from)));
            if let Some(server) = assemble_server(services[0], &names[0], &known) {
                return Ok(server);
            }
        }
        let all = services.iter().zip(&names);
        if let Some(server) =
            all.into_iter().find_map(|(service, name)| assemble_server(service, name, &known))
        {
            return Ok(server);
        }
        if Instant::now() >= until {
            let message = format!("no server announces {} on any interface", names.join(" or "));
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
        round_time = (round_time * 2).min(MAX_ROUND_TIME);
    }
}

/// Opens a socket per interface with a link and IP version, with the multicast group to query.
fn open_sockets(folder: &Path) -> Vec<(UdpSocket, SocketAddr)> {
    let mut sockets = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let fact = |name: &str| std::fs::read_to_string(entry.path().join(name)).ok();
        let (Ok(name), Some(index)) = (entry.file_name().into_string(), fact("ifindex")) else {
            continue;
        };
        let connected = fact("carrier").is_some_and(|text| text.trim() == "1");
        let Ok(index) = index.trim().parse() else { continue };
        if name == "lo" || !connected {
            continue;
        }
        let group6 = SocketAddrV6::new(GROUP6, PORT, 0, index);
        sockets.extend(open_socket(&name, (GROUP4, PORT).into()).ok());
        sockets.extend(open_socket(&name, group6.into()).ok());
    }
    sockets
}

fn open_socket(interface: &str, group: SocketAddr) -> io::Result<(UdpSocket, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.bind_device(Some(interface.as_bytes()))?;
    let any: IpAddr = match group {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    socket.bind(&SocketAddr::new(any, 0).into())?;
    Ok((UdpSocket::from_std(socket.into())?, group))
}

async fn forward_messages(socket: Arc<UdpSocket>, sender: mpsc::Sender<(Vec<u8>, IpAddr)>) {
    let mut message = vec![0; 9000];
    loop {
        match socket.recv_from(&mut message).await {
            Ok((length, from)) => {
                if sender.send((message[..length].to_vec(), from.ip())).await.is_err() {
                    return;
                }
            }
            Err(error) => return tracing::debug!(%error, "failed to receive mDNS messages"),
        }
    }
}

/// Builds the URL from the received records and their senders, once they are complete.
fn assemble_server(
    service: &str,
    name: &str,
    records: &[(Record, IpAddr)],
) -> Option<DiscoveredServer> {
    let (port, target, sender_address) = records.iter().find_map(|(record, from)| {
        let RData::SRV(service) = &record.data else { return None };
        let target = service.target.to_utf8().trim_end_matches('.').to_owned();
        same_name(&record.name.to_utf8(), name).then_some((service.port, target, *from))
    })?;
    // The TXT record is in the same message or in the next one.
    let texts = records.iter().find_map(|(record, _)| {
        let RData::TXT(text) = &record.data else { return None };
        same_name(&record.name.to_utf8(), name).then_some(&text.txt_data)
    })?;
    let mut settings: BTreeMap<String, String> = texts
        .iter()
        .filter_map(|part| {
            let text = String::from_utf8_lossy(part);
            let (name, value) = text.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        })
        .collect();
    // The protocol is omitted if it follows from the port.
    let default = if port == 80 { "http" } else { "https" };
    let protocol = settings.remove("protocol").unwrap_or_else(|| default.to_owned());
    let path = settings.remove("path").unwrap_or_default();
    let addresses: Vec<IpAddr> = records
        .iter()
        .filter(|(record, _)| same_name(&record.name.to_utf8(), &target))
        .filter_map(|(record, _)| address(record))
        .filter(|address| !address.is_loopback())
        .collect();
    // A `.local` name is replaced by an address; any other is left to DNS and to certificates.
    let host = if target.to_ascii_lowercase().ends_with(".local") {
        let reachable = addresses.iter().find(|&&address| source_address_for(address).is_some());
        match *reachable.or(addresses.first()).unwrap_or(&sender_address) {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        }
    } else {
        target
    };
    let url = format!("{protocol}://{host}:{port}{}", path.trim_end_matches('/'));
    Some(DiscoveredServer { service: service.to_owned(), url, settings })
}

fn same_name(one: &str, other: &str) -> bool {
    one.trim_end_matches('.').eq_ignore_ascii_case(other.trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::Name;
    use hickory_proto::rr::rdata::{A, AAAA, SRV, TXT};

    use super::*;

    const NAME: &str = "baremetal._openstack._tcp.local";

    fn discovered(
        port: u16,
        target: &str,
        texts: &[&str],
        addresses: &[&str],
    ) -> Option<DiscoveredServer> {
        let sender_address: IpAddr = "192.0.2.9".parse().unwrap();
        let (name, target) = (Name::from_ascii(NAME).unwrap(), Name::from_ascii(target).unwrap());
        let texts = texts.iter().map(|&text| text.to_owned()).collect();
        let mut records = vec![
            Record::from_rdata(name.clone(), 120, RData::SRV(SRV::new(0, 0, port, target.clone()))),
            Record::from_rdata(name, 120, RData::TXT(TXT::new(texts))),
        ];
        records.extend(addresses.iter().map(|address| {
            let data = match address.parse().unwrap() {
                IpAddr::V4(address) => RData::A(A(address)),
                IpAddr::V6(address) => RData::AAAA(AAAA(address)),
            };
            Record::from_rdata(target.clone(), 120, data)
        }));
        let records: Vec<_> = records.into_iter().map(|record| (record, sender_address)).collect();
        assert_eq!(assemble_server("other", "other._openstack._tcp.local", &records), None);
        assemble_server("baremetal", NAME, &records)
    }

    #[test]
    fn builds_url_from_records() {
        for (port, target, texts, addresses, url) in [
            (6385, "host.local", &["protocol=http"][..], &[][..], "http://192.0.2.9:6385"),
            (80, "host.local", &["path=/"], &["192.0.2.7"], "http://192.0.2.7:80"),
            (443, "host.local", &[], &["127.0.0.1", "192.0.2.7"], "https://192.0.2.7:443"),
            (
                443,
                "api.example",
                &["path=/baremetal"],
                &["192.0.2.7"],
                "https://api.example:443/baremetal",
            ),
            (6385, "host.local", &["protocol=https"], &["fd00::1"], "https://[fd00::1]:6385"),
        ] {
            assert_eq!(discovered(port, target, texts, addresses).unwrap().url, url);
        }
        let server = discovered(80, "a.local", &["ipa_ntp_server=192.0.2.3"], &[]).unwrap();
        assert_eq!(server.settings["ipa_ntp_server"], "192.0.2.3");
    }

    #[tokio::test]
    async fn fails_after_timeout() {
        let error = discover(&["unknown-service"], Duration::ZERO).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
