// SPDX-License-Identifier: Apache-2.0
//! The DHCP networks that this process serves, and their leases.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use boot_server::{DhcpLeaseIndex, DhcpLeaseStoreError, read_dhcp_leases};
use node_model::{Mac, Timestamp};
use serde_json::Value;

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

/// The served networks as configured, and their lease files.
#[derive(Debug, Clone, Default)]
pub(crate) struct DhcpNetworks {
    config: Value,
    lease_files: Vec<PathBuf>,
}

impl BootServices {
    /// Sets the served networks, as configured, and their lease files. Must be called once, when the DHCP
    /// servers listen.
    pub fn set_dhcp_networks(&self, networks: Value, lease_files: Vec<PathBuf>) {
        // A second call has no effect.
        let _ = self.0.networks.set(DhcpNetworks { config: networks, lease_files });
    }

    /// Sets the leases of this process's DHCP servers. Must be called once, before they listen.
    pub fn set_dhcp_leases(&self, leases: DhcpLeaseIndex) {
        // A second call has no effect.
        let _ = self.0.leases.set(leases);
    }

    /// Returns the MAC address of the client to which this process leased `address`.
    pub(crate) fn lease_holder(&self, address: IpAddr) -> Option<Mac> {
        let address = address.to_canonical();
        let client = self.0.leases.get()?.holder(address, self.0.now())?;
        DhcpClient::from_client_id(address, client).mac()?.parse().ok()
    }

    /// Returns the served networks as configured.
    #[must_use]
    pub fn dhcp_networks(&self) -> Value {
        self.0.networks.get().map_or_else(|| Value::Array(Vec::new()), |it| it.config.clone())
    }

    /// Returns all stored leases, unordered. Blocks on file IO.
    ///
    /// # Errors
    /// Fails if a lease file cannot be read.
    pub fn dhcp_leases(&self) -> Result<Vec<ClientLease>, DhcpLeaseStoreError> {
        let mut leases = Vec::new();
        for file in self.0.networks.get().map(|it| it.lease_files.as_slice()).unwrap_or_default() {
            leases.extend(read_dhcp_leases(file)?.into_iter().map(|record| ClientLease {
                client: DhcpClient::from_client_id(record.address, record.client),
                address: record.address,
                expires_at: record.expires_at,
            }));
        }
        Ok(leases)
    }
}

impl DhcpClient {
    /// Parses the client identifier of a stored lease. For DHCPv4 it is the hardware type (1 for
    /// Ethernet) and the MAC address. For DHCPv6 it is a DUID, of which two types end with a MAC address,
    /// and the four bytes of the IAID.
    fn from_client_id(address: IpAddr, bytes: Vec<u8>) -> Self {
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
