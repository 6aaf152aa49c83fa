// SPDX-License-Identifier: Apache-2.0
//! The DHCP networks that this process serves, and their leases.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use boot_server::{DhcpLeaseIndex, DhcpLeaseStoreError, read_dhcp_leases};
use node_model::{Mac, Timestamp};
use serde_json::Value;
use store::StoreError;

use crate::services::BootServices;

/// A stored DHCP lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientLease {
    /// The leased address.
    pub address: IpAddr,
    /// The current or last holder.
    pub client: DhcpClient,
    /// End of the lease.
    pub expires_at: Timestamp,
}

/// The holder of a DHCP lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DhcpClient {
    /// A client identified by its MAC address.
    Mac([u8; 6]),
    /// A client with another identifier.
    Other(Vec<u8>),
    /// The address is used by a machine that has no lease for it.
    Conflict,
}

/// The served networks as configured.
#[derive(Debug, Clone, Default)]
pub(crate) struct DhcpNetworks {
    config: Value,
}

/// Where the leases of the DHCP servers are stored.
#[derive(Debug, Clone)]
pub enum DhcpLeaseLocation {
    /// In files of this process, and in memory.
    Files {
        /// The leases by address.
        index: DhcpLeaseIndex,
        /// The files.
        files: Vec<PathBuf>,
    },
    /// In the database, with those of other processes.
    Database,
}

impl BootServices {
    /// Sets the served networks, as configured. Must be called once, when the DHCP servers listen.
    pub fn set_dhcp_networks(&self, networks: Value) {
        // A second call has no effect.
        let _ = self.0.networks.set(DhcpNetworks { config: networks });
    }

    /// Sets where the leases of the DHCP servers are. Must be called once, before they listen.
    pub fn set_dhcp_leases(&self, leases: DhcpLeaseLocation) {
        // A second call has no effect.
        let _ = self.0.leases.set(leases);
    }

    /// Returns the MAC address of the client to which this process leased `address`, or another process on the
    /// same database server.
    pub(crate) async fn lease_holder(&self, address: IpAddr) -> Result<Option<Mac>, StoreError> {
        let (address, now) = (address.to_canonical(), self.0.now());
        let client = match self.0.leases.get() {
            None => None,
            Some(DhcpLeaseLocation::Files { index, .. }) => index.holder(address, now),
            Some(DhcpLeaseLocation::Database) => {
                let lease = self.0.store.read(move |reader| reader.dhcp_lease(address)).await?;
                lease.filter(|lease| lease.expires_at > now).map(|lease| lease.client)
            }
        };
        Ok(client.and_then(|client| DhcpClient::from_client_id(address, client).to_mac()))
    }

    /// Returns the served networks as configured.
    #[must_use]
    pub fn dhcp_networks(&self) -> Value {
        self.0.networks.get().map_or_else(|| Value::Array(Vec::new()), |it| it.config.clone())
    }

    /// Returns all stored leases, unordered.
    ///
    /// # Errors
    /// Fails if a lease file cannot be read, or if the database is not available.
    pub async fn dhcp_leases(&self) -> Result<Vec<ClientLease>, ClientLeasesError> {
        let leases = match self.0.leases.get().cloned() {
            None => Vec::new(),
            Some(DhcpLeaseLocation::Files { files, .. }) => {
                let read = move || {
                    files
                        .iter()
                        .map(|file| read_dhcp_leases(file))
                        .collect::<Result<Vec<_>, _>>()
                        .map(|files| files.into_iter().flatten())
                };
                let records = tokio::task::spawn_blocking(read).await??;
                records.map(|it| ClientLease::new(it.address, it.client, it.expires_at)).collect()
            }
            Some(DhcpLeaseLocation::Database) => {
                let leases = self.0.store.scan(|reader| reader.dhcp_leases()).await?;
                leases
                    .into_iter()
                    .map(|it| ClientLease::new(it.address, it.client, it.expires_at))
                    .collect()
            }
        };
        Ok(leases)
    }
}

/// The leases could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ClientLeasesError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] DhcpLeaseStoreError),
    /// The database cannot be read.
    #[error(transparent)]
    Database(#[from] StoreError),
    /// Reading the files panicked.
    #[error("reading the DHCP leases failed")]
    Panicked(#[from] tokio::task::JoinError),
}

impl ClientLease {
    fn new(address: IpAddr, client: Vec<u8>, expires_at: Timestamp) -> Self {
        Self { address, client: DhcpClient::from_client_id(address, client), expires_at }
    }
}

impl DhcpClient {
    /// Parses the client identifier of a stored lease. For DHCPv4 it is the hardware type (1 for
    /// Ethernet) and the MAC address. For DHCPv6 it is a DUID, of which two types end with a MAC address,
    /// and the four bytes of the IAID.
    pub(crate) fn from_client_id(address: IpAddr, bytes: Vec<u8>) -> Self {
        let mac = match (address, bytes.as_slice()) {
            (_, []) => return Self::Conflict,
            (IpAddr::V4(_), [1, mac @ ..]) => mac.try_into().ok(),
            (IpAddr::V6(_), [0, 1, 0, 1, _, _, _, _, rest @ ..] | [0, 3, 0, 1, rest @ ..]) => {
                rest.get(..6).filter(|_| rest.len() == 10).and_then(|mac| mac.try_into().ok())
            }
            (IpAddr::V4(_) | IpAddr::V6(_), _) => None,
        };
        mac.map_or(Self::Other(bytes), Self::Mac)
    }

    pub(crate) fn to_mac(&self) -> Option<Mac> {
        self.mac()?.parse().ok()
    }

    /// Returns the MAC address if it is known.
    #[must_use]
    pub fn mac(&self) -> Option<String> {
        match self {
            Self::Mac(bytes) => Some(joined_hex(bytes, ":")),
            Self::Other(_) | Self::Conflict => None,
        }
    }
}

impl fmt::Display for DhcpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac(bytes) => f.write_str(&joined_hex(bytes, ":")),
            Self::Other(bytes) => f.write_str(&joined_hex(bytes, "")),
            Self::Conflict => f.write_str("address conflict"),
        }
    }
}

fn joined_hex(bytes: &[u8], separator: &str) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_identifiers_contain_mac_addresses() {
        let v4: IpAddr = [10, 0, 0, 1].into();
        let v6: IpAddr = "fd00::1".parse().unwrap();
        let mac = [0x52, 0x54, 0, 0, 0, 1];
        let with = |start: &[u8], end: &[u8]| [start, &mac, end].concat();
        for (address, bytes, mac) in [
            (v4, with(&[1], &[]), Some("52:54:00:00:00:01")),
            (v4, with(&[32], &[]), None),
            (v4, with(&[1], &[9]), None),
            (v6, with(&[0, 3, 0, 1], &[0, 0, 0, 7]), Some("52:54:00:00:00:01")),
            (v6, with(&[0, 1, 0, 1, 9, 9, 9, 9], &[0, 0, 0, 7]), Some("52:54:00:00:00:01")),
            (v6, with(&[0, 4], &[0, 0, 0, 7]), None),
            (v6, vec![0, 3, 0, 1, 5], None),
        ] {
            let client = DhcpClient::from_client_id(address, bytes);
            assert_eq!(client.mac().as_deref(), mac, "{client}");
        }
        assert_eq!(DhcpClient::from_client_id(v4, Vec::new()), DhcpClient::Conflict);
    }
}
