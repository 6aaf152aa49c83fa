// SPDX-License-Identifier: Apache-2.0
//! Finds the server by multicast DNS, where the machine was told to: the service
//! `baremetal._openstack._tcp.local`.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::dns::{Record, TYPE_SRV, TYPE_TXT, decode, encode_question};
use super::source_towards;

const PORT: u16 = 5353;
const GROUP4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
/// The first answer is waited for this long, then twice as long, and so on.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);
const LONGEST_PATIENCE: Duration = Duration::from_secs(8);

/// A server that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Which of the kinds it is.
    pub kind: String,
    /// Where it is.
    pub url: String,
    /// What else it says, by names such as `ipa_debug`.
    pub settings: BTreeMap<String, String>,
}

/// Looks for a service of one of these kinds, such as `baremetal`, on all networks at once, for as
/// long as the bound says. One that comes first in the list is preferred, if it answers soon.
///
/// # Errors
/// If nobody answers.
pub async fn find(kinds: &[&str], bound: Duration) -> io::Result<Found> {
    let until = Instant::now() + bound;
    let names: Vec<String> =
        kinds.iter().map(|kind| format!("{kind}._openstack._tcp.local")).collect();
    let questions: Vec<Vec<u8>> = names
        .iter()
        .flat_map(|name| [TYPE_SRV, TYPE_TXT].map(|kind| encode_question(0, name, kind, false)))
        .flatten()
        .collect();
    let (tell, mut heard) = mpsc::channel(64);
    let mut known = Vec::new();
    let mut patience = FIRST_PATIENCE;
    loop {
        // Anew every time: cables and addresses come late.
        let mut listening = JoinSet::new();
        for (socket, group) in sockets(Path::new("/sys/class/net")) {
            for question in &questions {
                // A card without an address cannot ask.
                let _ = socket.send_to(question, group).await;
            }
            listening.spawn(listen(Arc::new(socket), tell.clone()));
        }
        let round = (Instant::now() + patience).min(until);
        while let Ok(Some((message, from))) = timeout_at(round, heard.recv()).await {
            let records: Vec<Record> = decode(&message).unwrap_or_default();
            known.extend(records.into_iter().map(|record| (record, from)));
            if let Some(found) = assemble(kinds[0], &names[0], &known) {
                return Ok(found);
            }
        }
        let all = kinds.iter().zip(&names);
        if let Some(found) = all.into_iter().find_map(|(kind, name)| assemble(kind, name, &known)) {
            return Ok(found);
        }
        if Instant::now() >= until {
            let why = format!("nobody offers {} on any network", names.join(" or "));
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        patience = (patience * 2).min(LONGEST_PATIENCE);
    }
}

/// A socket for every network that is there and every version of IP, and whom to ask by it.
fn sockets(folder: &Path) -> Vec<(UdpSocket, SocketAddr)> {
    let mut found = Vec::new();
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
        found.extend(open(&name, (GROUP4, PORT).into()).ok());
        found.extend(open(&name, group6.into()).ok());
    }
    found
}

fn open(card: &str, group: SocketAddr) -> io::Result<(UdpSocket, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.bind_device(Some(card.as_bytes()))?;
    let any: IpAddr = match group {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    socket.bind(&SocketAddr::new(any, 0).into())?;
    Ok((UdpSocket::from_std(socket.into())?, group))
}

async fn listen(socket: Arc<UdpSocket>, tell: mpsc::Sender<(Vec<u8>, IpAddr)>) {
    let mut message = vec![0; 9000];
    loop {
        match socket.recv_from(&mut message).await {
            Ok((length, from)) => {
                if tell.send((message[..length].to_vec(), from.ip())).await.is_err() {
                    return;
                }
            }
            Err(error) => return tracing::debug!(%error, "mDNS cannot be heard"),
        }
    }
}

/// A URL out of the records heard so far, if they are enough. With each is who said it.
fn assemble(kind: &str, name: &str, records: &[(Record, IpAddr)]) -> Option<Found> {
    let (port, target, speaker) = records.iter().find_map(|(record, from)| match record {
        Record::Service { name: of, port, target } if same(of, name) => {
            Some((*port, target.trim_end_matches('.'), *from))
        }
        Record::Service { .. }
        | Record::Address { .. }
        | Record::Pointer { .. }
        | Record::Text { .. } => None,
    })?;
    // What is said about the service comes with it, or right after.
    let texts = records.iter().find_map(|(record, _)| match record {
        Record::Text { name: of, parts } if same(of, name) => Some(parts),
        Record::Text { .. }
        | Record::Service { .. }
        | Record::Address { .. }
        | Record::Pointer { .. } => None,
    })?;
    let mut settings: BTreeMap<String, String> = texts
        .iter()
        .filter_map(|part| part.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    // What follows from the port is not said.
    let usual = if port == 80 { "http" } else { "https" };
    let protocol = settings.remove("protocol").unwrap_or_else(|| usual.to_owned());
    let path = settings.remove("path").unwrap_or_default();
    let addresses: Vec<IpAddr> = records
        .iter()
        .filter_map(|(record, _)| match record {
            Record::Address { name: of, address } if same(of, target) => Some(*address),
            Record::Address { .. }
            | Record::Service { .. }
            | Record::Text { .. }
            | Record::Pointer { .. } => None,
        })
        .filter(|address| !address.is_loopback())
        .collect();
    // A name of this network's own stands for an address; any other is for DNS, and in certificates.
    let host = if target.to_ascii_lowercase().ends_with(".local") {
        let reached = addresses.iter().find(|&&address| source_towards(address).is_some());
        match *reached.or(addresses.first()).unwrap_or(&speaker) {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        }
    } else {
        target.to_owned()
    };
    let url = format!("{protocol}://{host}:{port}{}", path.trim_end_matches('/'));
    Some(Found { kind: kind.to_owned(), url, settings })
}

fn same(one: &str, other: &str) -> bool {
    one.trim_end_matches('.').eq_ignore_ascii_case(other.trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "baremetal._openstack._tcp.local";

    fn found(port: u16, target: &str, texts: &[&str], addresses: &[&str]) -> Option<Found> {
        let speaker: IpAddr = "192.0.2.9".parse().unwrap();
        let mut records = vec![
            Record::Service { name: NAME.to_owned(), port, target: target.to_owned() },
            Record::Text {
                name: NAME.to_owned(),
                parts: texts.iter().map(|&text| text.to_owned()).collect(),
            },
        ];
        records.extend(addresses.iter().map(|address| Record::Address {
            name: target.to_owned(),
            address: address.parse().unwrap(),
        }));
        let records: Vec<_> = records.into_iter().map(|record| (record, speaker)).collect();
        assert_eq!(assemble("other", "other._openstack._tcp.local", &records), None);
        assemble("baremetal", NAME, &records)
    }

    #[test]
    fn records_become_a_url() {
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
            assert_eq!(found(port, target, texts, addresses).unwrap().url, url);
        }
        let found = found(80, "a.local", &["ipa_ntp_server=192.0.2.3"], &[]).unwrap();
        assert_eq!(found.settings["ipa_ntp_server"], "192.0.2.3");
    }

    #[tokio::test]
    async fn nobody_is_waited_for_without_end() {
        let nobody = find(&["nobody-offers-this"], Duration::ZERO).await.unwrap_err();
        assert_eq!(nobody.kind(), io::ErrorKind::NotFound);
    }
}
