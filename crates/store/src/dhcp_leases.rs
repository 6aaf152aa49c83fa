// SPDX-License-Identifier: Apache-2.0
//! DHCP leases that several processes share. An address has one row, so it has one holder.

use std::net::IpAddr;

use node_model::Timestamp;

use crate::engine::DatabaseRow;
use crate::error::StoreError;
use crate::reader::{StoreReader, decode_field};
use crate::value::{ColumnType, SqlParam};
use crate::writer::StoreWriter;

const TABLE: &str = "dhcp_leases";
const COLUMNS: &str = "address, client, expires_at";

/// A DHCP lease. If `expires_at` is in the past, the address is free and `client` is its last holder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredDhcpLease {
    /// The address.
    pub address: IpAddr,
    /// The DHCP server's key of the client; empty if a host without a lease uses the address.
    pub client: Vec<u8>,
    /// The end of the lease.
    pub expires_at: Timestamp,
}

impl StoreReader<'_> {
    /// All leases, in no particular order.
    pub fn dhcp_leases(&mut self) -> Result<Vec<StoredDhcpLease>, StoreError> {
        self.query_dhcp_leases("1 = ?", SqlParam::Int(1))
    }

    /// The leases that were changed at this time or later, by the clocks of the processes that changed them.
    pub fn dhcp_leases_changed_since(
        &mut self,
        since: Timestamp,
    ) -> Result<Vec<StoredDhcpLease>, StoreError> {
        self.query_dhcp_leases("changed_at >= ?", since.bind())
    }

    /// The lease of an address.
    pub fn dhcp_lease(&mut self, address: IpAddr) -> Result<Option<StoredDhcpLease>, StoreError> {
        let found = self.query_dhcp_leases("address = ?", SqlParam::Owned(address.to_string()))?;
        Ok(found.into_iter().next())
    }

    fn query_dhcp_leases(
        &mut self,
        condition: &str,
        param: SqlParam<'_>,
    ) -> Result<Vec<StoredDhcpLease>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM dhcp_leases WHERE {condition}");
        let mut found = Vec::new();
        self.session.query(&sql, &[param], &mut |row| {
            found.push(decode_lease(row)?);
            Ok(())
        })?;
        Ok(found)
    }
}

impl StoreWriter<'_> {
    /// Leases an address to a client. Returns the lease of another client if that one has not expired; then
    /// nothing is changed. Fails with [`StoreError::Duplicate`] if another process has just leased an address
    /// that never had a lease; the caller tries again.
    pub fn lease_dhcp_address(
        &mut self,
        lease: &StoredDhcpLease,
    ) -> Result<Option<StoredDhcpLease>, StoreError> {
        let now = self.now();
        let (address, client) = (lease.address.to_string(), hex::encode(&lease.client));
        let updated = self.session.execute(
            "UPDATE dhcp_leases SET client = ?, expires_at = ?, changed_at = ?
             WHERE address = ? AND (expires_at <= ? OR client = ?)",
            &[
                SqlParam::Text(&client),
                lease.expires_at.bind(),
                now.bind(),
                SqlParam::Text(&address),
                now.bind(),
                SqlParam::Text(&client),
            ],
        )?;
        if updated > 0 {
            return Ok(None);
        }
        if let Some(holder) = self.dhcp_lease(lease.address)? {
            return Ok(Some(holder));
        }
        self.session.execute(
            "INSERT INTO dhcp_leases (address, client, expires_at, changed_at) VALUES (?, ?, ?, ?)",
            &[
                SqlParam::Text(&address),
                SqlParam::Text(&client),
                lease.expires_at.bind(),
                now.bind(),
            ],
        )?;
        Ok(None)
    }

    /// Deletes the leases that expired before this time.
    pub fn delete_expired_dhcp_leases(&mut self, before: Timestamp) -> Result<(), StoreError> {
        self.session
            .execute("DELETE FROM dhcp_leases WHERE expires_at < ?", &[before.bind()])
            .map(|_| ())
    }
}

fn decode_lease(row: &dyn DatabaseRow) -> Result<StoredDhcpLease, StoreError> {
    let address: String = decode_field(row, 0, TABLE, "address")?;
    let client: String = decode_field(row, 1, TABLE, "client")?;
    let corrupt = |column| StoreError::Corrupt { table: TABLE, column };
    Ok(StoredDhcpLease {
        address: address.parse().map_err(|_| corrupt("address"))?,
        client: hex::decode(client).map_err(|_| corrupt("client"))?,
        expires_at: decode_field(row, 2, TABLE, "expires_at")?,
    })
}
