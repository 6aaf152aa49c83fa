// SPDX-License-Identifier: Apache-2.0
//! Boot plans, and which boot methods work for which machine models.
//!
//! A boot plan is sealed as a whole: its kernel parameters may contain a token, and its key grants
//! access to its files. Plans are looked up by the digest of the key.

use node_model::{BootMethod, BootMethodStats, BootPlan, BootPort, Mac, NodeId};
use sha2::{Digest as _, Sha256};

use crate::engine::Dialect;
use crate::error::StoreError;
use crate::query::SqlBuilder;
use crate::reader::{StoreReader, decode_field};
use crate::value::{ColumnType, SqlParam};
use crate::writer::StoreWriter;

impl StoreReader<'_> {
    /// The boot plan of a node.
    pub fn boot_plan(&mut self, node: NodeId) -> Result<Option<BootPlan>, StoreError> {
        let sql = "SELECT node_uuid, sealed FROM boot_plans WHERE node_uuid = ?";
        self.sealed_plan(sql, node.bind())
    }

    /// The boot plan with this key.
    pub fn boot_plan_by_key(&mut self, key: &str) -> Result<Option<BootPlan>, StoreError> {
        let sql = "SELECT node_uuid, sealed FROM boot_plans WHERE key_digest = ?";
        self.sealed_plan(sql, SqlParam::Owned(key_digest(key)))
    }

    /// The ports with these MAC addresses, with their nodes and boot plans. Unknown addresses are left
    /// out. A plan that cannot be decrypted is treated as missing, so that it does not stop other
    /// machines from booting.
    pub fn boot_ports(&mut self, macs: &[Mac]) -> Result<Vec<BootPort>, StoreError> {
        let sql = "SELECT ports.address, ports.node_uuid, nodes.name, ports.pxe_enabled, \
                   boot_plans.sealed FROM ports JOIN nodes ON nodes.uuid = ports.node_uuid \
                   LEFT JOIN boot_plans ON boot_plans.node_uuid = ports.node_uuid"
            .to_owned();
        let mut statement = SqlBuilder::new(self.session.dialect(), sql);
        statement.in_list("ports.address", macs.iter().map(ColumnType::bind));
        let shared = self.shared;
        let mut ports = Vec::new();
        self.session.query(&statement.sql, &statement.params, &mut |row| {
            let node_id: NodeId = decode_field(row, 1, "ports", "node_uuid")?;
            let sealed: Option<Vec<u8>> = decode_field(row, 4, "boot_plans", "sealed")?;
            let plan = sealed.and_then(|sealed| match unseal_plan(shared, node_id, &sealed) {
                Ok(plan) => Some(plan),
                Err(error) => {
                    tracing::warn!(node = %node_id, %error, "boot plan decryption failed");
                    None
                }
            });
            ports.push(BootPort {
                mac: decode_field(row, 0, "ports", "address")?,
                node_id,
                node_name: decode_field(row, 2, "nodes", "name")?,
                pxe_enabled: decode_field(row, 3, "ports", "pxe_enabled")?,
                plan,
            });
            Ok(())
        })?;
        Ok(ports)
    }

    /// Boot statistics of a machine model, by boot method.
    pub fn boot_method_stats(&mut self, model: &str) -> Result<Vec<BootMethodStats>, StoreError> {
        const TABLE: &str = "boot_method_stats";
        let sql = "SELECT method, worked, failed, tried_at FROM boot_method_stats WHERE model = ? \
                   ORDER BY method";
        let mut found = Vec::new();
        self.session.query(sql, &[SqlParam::Text(model)], &mut |row| {
            let method: String = decode_field(row, 0, TABLE, "method")?;
            found.push(BootMethodStats {
                model: model.to_owned(),
                method: method
                    .parse()
                    .map_err(|()| StoreError::Corrupt { table: TABLE, column: "method" })?,
                worked: decode_field(row, 1, TABLE, "worked")?,
                failed: decode_field(row, 2, TABLE, "failed")?,
                tried_at: decode_field(row, 3, TABLE, "tried_at")?,
            });
            Ok(())
        })?;
        Ok(found)
    }

    fn sealed_plan(
        &mut self,
        sql: &str,
        param: SqlParam<'_>,
    ) -> Result<Option<BootPlan>, StoreError> {
        let shared = self.shared;
        let mut plan = None;
        self.session.query(sql, &[param], &mut |row| {
            let node: NodeId = decode_field(row, 0, "boot_plans", "node_uuid")?;
            let sealed: Vec<u8> = decode_field(row, 1, "boot_plans", "sealed")?;
            plan = Some(unseal_plan(shared, node, &sealed)?);
            Ok(())
        })?;
        Ok(plan)
    }
}

impl StoreWriter<'_> {
    /// Stores the boot plan of a node, replacing the previous one.
    pub fn set_boot_plan(&mut self, plan: &BootPlan) -> Result<(), StoreError> {
        self.remove_boot_plan(plan.node_id)?;
        let plain = serde_json::to_vec(plan).expect("a boot plan serialises to JSON");
        let sealed = self.shared.keys.seal(plan.node_id.0, &plain);
        self.session
            .execute(
                "INSERT INTO boot_plans (node_uuid, key_digest, created_at, expires_at, sealed)
                 VALUES (?, ?, ?, ?, ?)",
                &[
                    plan.node_id.bind(),
                    SqlParam::Owned(key_digest(&plan.key)),
                    plan.created_at.bind(),
                    plan.expires_at.bind(),
                    SqlParam::Blob(&sealed),
                ],
            )
            .map(drop)
    }

    /// Deletes the boot plan of a node, which then boots from disk. Returns whether there was one.
    pub fn remove_boot_plan(&mut self, node: NodeId) -> Result<bool, StoreError> {
        let removed =
            self.session.execute("DELETE FROM boot_plans WHERE node_uuid = ?", &[node.bind()])?;
        Ok(removed > 0)
    }

    /// Records whether a machine of this model booted with this method.
    pub fn record_boot_result(
        &mut self,
        model: &str,
        method: BootMethod,
        worked: bool,
    ) -> Result<(), StoreError> {
        let now = self.now();
        let (change, first) = if worked {
            ("worked = boot_method_stats.worked + 1, failed = 0", (1, 0))
        } else {
            ("failed = boot_method_stats.failed + 1", (0, 1))
        };
        let sql = upsert(
            self.session.dialect(),
            "INSERT INTO boot_method_stats (model, method, worked, failed, tried_at)
             VALUES (?, ?, ?, ?, ?)",
            "model, method",
            &format!("{change}, tried_at = {{new:tried_at}}"),
        );
        self.session
            .execute(
                &sql,
                &[
                    SqlParam::Text(model),
                    SqlParam::Text(method.as_str()),
                    SqlParam::Int(first.0),
                    SqlParam::Int(first.1),
                    now.bind(),
                ],
            )
            .map(drop)
    }
}

/// `insert`, or `change` if a row with the same `key` exists. In `change`, `{new:x}` is the value
/// that would have been inserted into column `x`.
pub(crate) fn upsert(dialect: Dialect, insert: &str, key: &str, change: &str) -> String {
    match dialect {
        Dialect::Sqlite | Dialect::Postgres => {
            let change = change.replace("{new:", "excluded.").replace('}', "");
            format!("{insert} ON CONFLICT ({key}) DO UPDATE SET {change}")
        }
        Dialect::MariaDb => {
            let change = change.replace("{new:", "VALUES(").replace('}', ")");
            format!("{insert} ON DUPLICATE KEY UPDATE {change}")
        }
    }
}

/// SHA-256 of a boot key in hex. The database contains no usable keys.
fn key_digest(key: &str) -> String {
    hex::encode(Sha256::digest(key.as_bytes()))
}

fn unseal_plan(
    shared: &crate::store::StoreShared,
    node: NodeId,
    sealed: &[u8],
) -> Result<BootPlan, StoreError> {
    let plain = shared
        .keys
        .unseal(node.0, sealed)
        .map_err(|source| StoreError::Unseal { owner: node.to_string(), source })?;
    serde_json::from_slice(&plain)
        .map_err(|_| StoreError::Corrupt { table: "boot_plans", column: "sealed" })
}
