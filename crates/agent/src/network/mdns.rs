// SPDX-License-Identifier: Apache-2.0
//! Finds the server by multicast DNS, where the machine was told to: the service
//! `baremetal._openstack._tcp.local`.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

use super::dns::{Record, TYPE_PTR, TYPE_SRV, TYPE_TXT, decode, encode_question};

const GROUP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(224, 0, 0, 251)), 5353);
const ATTEMPTS: u32 = 5;
const PATIENCE: Duration = Duration::from_secs(2);

/// A server that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Where it is.
    pub url: String,
    /// What else it says, by names such as `ipa_debug`.
    pub settings: BTreeMap<String, String>,
}

/// Looks for a service of a kind: `baremetal`.
///
/// # Errors
/// If the network cannot be used, or nobody answers.
pub async fn find(kind: &str) -> io::Result<Found> {
    let name = format!("{kind}._openstack._tcp.local");
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    let mut known = Vec::new();
    for attempt in 0..ATTEMPTS {
        for kind in [TYPE_SRV, TYPE_TXT, TYPE_PTR] {
            if let Some(question) = encode_question(0, &name, kind, false) {
                socket.send_to(&question, GROUP).await?;
            }
        }
        let until = Instant::now() + PATIENCE * (attempt + 1);
        let mut message = [0; 9000];
        while let Ok(received) = timeout_at(until, socket.recv_from(&mut message)).await {
            let (length, from) = received?;
            known.extend(decode(&message[..length]).unwrap_or_default());
            if let Some(found) = assemble(&name, &known, from.ip()) {
                return Ok(found);
            }
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("nobody offers {name} on this network")))
}

/// A URL out of the records heard so far, if they are enough.
fn assemble(name: &str, records: &[Record], speaker: IpAddr) -> Option<Found> {
    let ours = |other: &str| {
        other.trim_end_matches('.').eq_ignore_ascii_case(name)
            || other.to_ascii_lowercase().ends_with(&format!(".{name}"))
    };
    let (instance, port, target) = records.iter().find_map(|record| match record {
        Record::Service { name, port, target } if ours(name) => Some((name, port, target)),
        Record::Service { .. }
        | Record::Address { .. }
        | Record::Pointer { .. }
        | Record::Text { .. } => None,
    })?;
    let mut settings: BTreeMap<String, String> = records
        .iter()
        .filter_map(|record| match record {
            Record::Text { name, parts } if name == instance => Some(parts),
            Record::Text { .. }
            | Record::Service { .. }
            | Record::Address { .. }
            | Record::Pointer { .. } => None,
        })
        .flatten()
        .filter_map(|part| part.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let protocol = settings.remove("protocol").unwrap_or_else(|| "http".to_owned());
    let path = settings.remove("path").unwrap_or_default();
    let address = records.iter().find_map(|record| match record {
        Record::Address { name, address } if name.eq_ignore_ascii_case(target) => Some(*address),
        Record::Address { .. }
        | Record::Service { .. }
        | Record::Text { .. }
        | Record::Pointer { .. } => None,
    });
    // A certificate is for the name; otherwise the address spares another question.
    let host = match address.unwrap_or(speaker) {
        _ if protocol == "https" => target.clone(),
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    Some(Found {
        url: format!("{protocol}://{host}:{port}{}", path.trim_end_matches('/')),
        settings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_become_a_url() {
        let name = "baremetal._openstack._tcp.local";
        let records = [
            Record::Service { name: name.to_owned(), port: 6385, target: "host.local".to_owned() },
            Record::Text {
                name: name.to_owned(),
                parts: vec!["path=/".to_owned(), "ipa_ntp_server=192.0.2.3".to_owned()],
            },
        ];
        let found = assemble(name, &records, "192.0.2.9".parse().unwrap()).unwrap();
        assert_eq!(found.url, "http://192.0.2.9:6385");
        assert_eq!(found.settings["ipa_ntp_server"], "192.0.2.3");
        assert_eq!(assemble("other", &records, "192.0.2.9".parse().unwrap()), None);
    }
}
