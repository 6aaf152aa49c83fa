// SPDX-License-Identifier: Apache-2.0
//! The networks on which DHCP is answered and the leases there, for whoever wants to look.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use boot_server::{LeaseBookError, read_leases};
use node_model::Timestamp;
use serde_json::Value;

use crate::services::BootServices;

/// A lease, as it is written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseKept {
    /// The address.
    pub address: IpAddr,
    /// Who has it, or had it last.
    pub client: Client,
    /// Until when.
    pub until: Timestamp,
}

/// Who has a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Client {
    /// A card.
    Card([u8; 6]),
    /// Somebody who is told apart by other bytes.
    Other(Vec<u8>),
    /// Somebody uses the address who did not ask us.
    Nobody,
}

/// The networks as the configuration has them, and where their leases are written down.
#[derive(Debug, Clone, Default)]
pub(crate) struct Networks {
    told: Value,
    books: Vec<PathBuf>,
}

impl BootServices {
    /// Says which networks are answered, as the configuration has them, and in which files their
    /// leases are. To be said once, when the servers listen.
    pub fn answers_on(&self, networks: Value, books: Vec<PathBuf>) {
        // Said twice, the first stays.
        let _ = self.0.networks.set(Networks { told: networks, books });
    }

    /// The networks that are answered, as the configuration has them.
    #[must_use]
    pub fn networks(&self) -> Value {
        self.0.networks.get().map_or_else(|| Value::Array(Vec::new()), |it| it.told.clone())
    }

    /// All leases that are written down, in no order. Reads files: not for an asynchronous thread.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn leases(&self) -> Result<Vec<LeaseKept>, LeaseBookError> {
        let mut leases = Vec::new();
        for book in self.0.networks.get().map(|it| it.books.as_slice()).unwrap_or_default() {
            leases.extend(read_leases(book)?.into_iter().map(|record| LeaseKept {
                client: Client::of(record.address, record.client),
                address: record.address,
                until: record.until,
            }));
        }
        Ok(leases)
    }
}

impl Client {
    /// In DHCPv4 a client is the kind of its card, 1 for Ethernet, and the card's address. In DHCPv6
    /// it is a DUID, of which two kinds end with a card's address, and four bytes more.
    fn of(address: IpAddr, bytes: Vec<u8>) -> Self {
        let card = match (address, bytes.as_slice()) {
            (_, []) => return Self::Nobody,
            (IpAddr::V4(_), [1, card @ ..]) => card.try_into().ok(),
            (IpAddr::V6(_), [0, 1, 0, 1, _, _, _, _, rest @ ..] | [0, 3, 0, 1, rest @ ..]) => {
                rest.get(..6).filter(|_| rest.len() == 10).and_then(|card| card.try_into().ok())
            }
            (IpAddr::V4(_) | IpAddr::V6(_), _) => None,
        };
        card.map_or(Self::Other(bytes), Self::Card)
    }

    /// The card's address, if it is known.
    #[must_use]
    pub fn mac(&self) -> Option<String> {
        match self {
            Self::Card(bytes) => Some(written(bytes, ":")),
            Self::Other(_) | Self::Nobody => None,
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Card(bytes) => f.write_str(&written(bytes, ":")),
            Self::Other(bytes) => f.write_str(&written(bytes, "")),
            Self::Nobody => f.write_str("somebody who did not ask"),
        }
    }
}

fn written(bytes: &[u8], separator: &str) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_found_in_what_servers_tell_clients_apart_by() {
        let v4: IpAddr = [10, 0, 0, 1].into();
        let v6: IpAddr = "fd00::1".parse().unwrap();
        let card = [0x52, 0x54, 0, 0, 0, 1];
        let with = |start: &[u8], end: &[u8]| [start, &card, end].concat();
        for (address, bytes, mac) in [
            (v4, with(&[1], &[]), Some("52:54:00:00:00:01")),
            (v4, with(&[32], &[]), None),
            (v4, with(&[1], &[9]), None),
            (v6, with(&[0, 3, 0, 1], &[0, 0, 0, 7]), Some("52:54:00:00:00:01")),
            (v6, with(&[0, 1, 0, 1, 9, 9, 9, 9], &[0, 0, 0, 7]), Some("52:54:00:00:00:01")),
            (v6, with(&[0, 4], &[0, 0, 0, 7]), None),
            (v6, vec![0, 3, 0, 1, 5], None),
        ] {
            let client = Client::of(address, bytes);
            assert_eq!(client.mac().as_deref(), mac, "{client}");
        }
        assert_eq!(Client::of(v4, Vec::new()), Client::Nobody);
    }
}
