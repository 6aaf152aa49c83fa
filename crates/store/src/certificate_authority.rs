// SPDX-License-Identifier: Apache-2.0
//! The own certificate authority of an installation. It is in the database, with its key sealed, so
//! that all processes of an installation issue certificates that the same CA file verifies.

use node_model::{Secret, Timestamp};
use uuid::Uuid;

use crate::boot_plans::upsert;
use crate::error::StoreError;
use crate::reader::{StoreReader, decode_field};
use crate::value::{ColumnType as _, SqlParam};
use crate::writer::StoreWriter;

const TABLE: &str = "certificate_authorities";
/// The only row.
const NAME: &str = "server";
/// The owner that the key is sealed for.
const OWNER: Uuid = Uuid::from_u128(0x7c5e_9d0a_61c3_4a55_9a0e_5f0c_0b5c_a001);

/// A certificate authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAuthority {
    /// The certificate, in PEM.
    pub certificate: String,
    /// The private key, in PEM.
    pub key: Secret<String>,
    /// When the certificate expires.
    pub expires_at: Timestamp,
}

impl StoreReader<'_> {
    /// The certificate authority of this installation; `None` if it has none yet.
    pub fn certificate_authority(&mut self) -> Result<Option<StoredAuthority>, StoreError> {
        let shared = self.shared;
        let sql =
            "SELECT certificate, expires_at, sealed FROM certificate_authorities WHERE name = ?";
        let mut found = None;
        self.session.query(sql, &[SqlParam::Text(NAME)], &mut |row| {
            let sealed: Vec<u8> = decode_field(row, 2, TABLE, "sealed")?;
            let key = shared
                .keys
                .unseal(OWNER, &sealed)
                .map_err(|source| StoreError::Unseal { owner: TABLE.to_owned(), source })?;
            let key = String::from_utf8(key)
                .map_err(|_| StoreError::Corrupt { table: TABLE, column: "sealed" })?;
            found = Some(StoredAuthority {
                certificate: decode_field(row, 0, TABLE, "certificate")?,
                expires_at: decode_field(row, 1, TABLE, "expires_at")?,
                key: Secret::new(key),
            });
            Ok(())
        })?;
        Ok(found)
    }
}

impl StoreWriter<'_> {
    /// Stores the certificate authority unless there is one: of several processes that start at the same
    /// time, the first wins.
    pub fn add_certificate_authority(
        &mut self,
        authority: &StoredAuthority,
    ) -> Result<(), StoreError> {
        self.write_authority(authority, "name = {new:name}")
    }

    /// Stores the certificate authority, replacing the previous one.
    pub fn set_certificate_authority(
        &mut self,
        authority: &StoredAuthority,
    ) -> Result<(), StoreError> {
        let change = "certificate = {new:certificate}, expires_at = {new:expires_at}, \
                      sealed = {new:sealed}";
        self.write_authority(authority, change)
    }

    fn write_authority(
        &mut self,
        authority: &StoredAuthority,
        change: &str,
    ) -> Result<(), StoreError> {
        let sealed = self.shared.keys.seal(OWNER, authority.key.reveal().as_bytes());
        let insert = "INSERT INTO certificate_authorities
                      (name, certificate, expires_at, sealed) VALUES (?, ?, ?, ?)";
        let sql = upsert(self.session.dialect(), insert, "name", change);
        self.session
            .execute(
                &sql,
                &[
                    SqlParam::Text(NAME),
                    SqlParam::Text(&authority.certificate),
                    authority.expires_at.bind(),
                    SqlParam::Blob(&sealed),
                ],
            )
            .map(drop)
    }
}
