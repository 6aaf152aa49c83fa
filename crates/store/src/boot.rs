// SPDX-License-Identifier: Apache-2.0
//! What machines should boot, and which way of booting works for which model.
//!
//! A boot plan is sealed as a whole: its kernel parameters may hold a token, and its key opens its
//! files to whoever has it. The key is found again by its digest.

use node_model::{BootCard, BootExperience, BootPlan, BootWay, Mac, NodeId};
use sha2::{Digest as _, Sha256};

use crate::engine::Dialect;
use crate::error::Error;
use crate::query::Where;
use crate::reader::{Reader, field};
use crate::value::{Field, Param};
use crate::writer::Writer;

impl Reader<'_> {
    /// What a machine should boot now.
    pub fn boot_plan(&mut self, node: NodeId) -> Result<Option<BootPlan>, Error> {
        let sql = "SELECT node_uuid, sealed FROM boot_plans WHERE node_uuid = ?";
        self.sealed_plan(sql, node.bind())
    }

    /// The plan whose files this key opens.
    pub fn boot_plan_by_key(&mut self, key: &str) -> Result<Option<BootPlan>, Error> {
        let sql = "SELECT node_uuid, sealed FROM boot_plans WHERE key_digest = ?";
        self.sealed_plan(sql, Param::Owned(digest(key)))
    }

    /// What is known about these cards. Cards of unknown machines are left out. A plan that cannot be
    /// opened counts as none: it must not keep other machines from booting.
    pub fn boot_cards(&mut self, addresses: &[Mac]) -> Result<Vec<BootCard>, Error> {
        let sql = "SELECT ports.address, ports.node_uuid, nodes.name, ports.pxe_enabled, \
                   boot_plans.sealed FROM ports JOIN nodes ON nodes.uuid = ports.node_uuid \
                   LEFT JOIN boot_plans ON boot_plans.node_uuid = ports.node_uuid"
            .to_owned();
        let mut statement = Where::new(self.session.dialect(), sql);
        statement.any_of("ports.address", addresses.iter().map(Field::bind));
        let shared = self.shared;
        let mut cards = Vec::new();
        self.session.query(&statement.sql, &statement.params, &mut |row| {
            let node_id: NodeId = field(row, 1, "ports", "node_uuid")?;
            let sealed: Option<Vec<u8>> = field(row, 4, "boot_plans", "sealed")?;
            let plan = sealed.and_then(|sealed| match open(shared, node_id, &sealed) {
                Ok(plan) => Some(plan),
                Err(error) => {
                    tracing::warn!(node = %node_id, %error, "the boot plan cannot be opened");
                    None
                }
            });
            cards.push(BootCard {
                address: field(row, 0, "ports", "address")?,
                node_id,
                node_name: field(row, 2, "nodes", "name")?,
                pxe_enabled: field(row, 3, "ports", "pxe_enabled")?,
                plan,
            });
            Ok(())
        })?;
        Ok(cards)
    }

    /// What is known about booting machines of this model, by way.
    pub fn boot_experience(&mut self, model: &str) -> Result<Vec<BootExperience>, Error> {
        const TABLE: &str = "boot_experience";
        let sql = "SELECT way, worked, failed, tried_at FROM boot_experience WHERE model = ? \
                   ORDER BY way";
        let mut found = Vec::new();
        self.session.query(sql, &[Param::Text(model)], &mut |row| {
            let way: String = field(row, 0, TABLE, "way")?;
            found.push(BootExperience {
                model: model.to_owned(),
                way: way.parse().map_err(|()| Error::Corrupt { table: TABLE, column: "way" })?,
                worked: field(row, 1, TABLE, "worked")?,
                failed: field(row, 2, TABLE, "failed")?,
                tried_at: field(row, 3, TABLE, "tried_at")?,
            });
            Ok(())
        })?;
        Ok(found)
    }

    fn sealed_plan(&mut self, sql: &str, param: Param<'_>) -> Result<Option<BootPlan>, Error> {
        let shared = self.shared;
        let mut plan = None;
        self.session.query(sql, &[param], &mut |row| {
            let node: NodeId = field(row, 0, "boot_plans", "node_uuid")?;
            let sealed: Vec<u8> = field(row, 1, "boot_plans", "sealed")?;
            plan = Some(open(shared, node, &sealed)?);
            Ok(())
        })?;
        Ok(plan)
    }
}

impl Writer<'_> {
    /// Says what a machine should boot now, in place of what was said before.
    pub fn set_boot_plan(&mut self, plan: &BootPlan) -> Result<(), Error> {
        self.remove_boot_plan(plan.node_id)?;
        let plain = serde_json::to_vec(plan).expect("a boot plan has only names as keys");
        let sealed = self.shared.vault.seal(plan.node_id.0, &plain);
        self.session
            .execute(
                "INSERT INTO boot_plans (node_uuid, key_digest, made_at, expires_at, sealed)
                 VALUES (?, ?, ?, ?, ?)",
                &[
                    plan.node_id.bind(),
                    Param::Owned(digest(&plan.key)),
                    plan.made_at.bind(),
                    plan.expires_at.bind(),
                    Param::Blob(&sealed),
                ],
            )
            .map(drop)
    }

    /// From now on the machine boots its disk; says whether that is new.
    pub fn remove_boot_plan(&mut self, node: NodeId) -> Result<bool, Error> {
        let removed =
            self.session.execute("DELETE FROM boot_plans WHERE node_uuid = ?", &[node.bind()])?;
        Ok(removed > 0)
    }

    /// Remembers whether a machine of this model booted by this way.
    pub fn note_boot(&mut self, model: &str, way: BootWay, worked: bool) -> Result<(), Error> {
        let now = self.now();
        let (change, first) = if worked {
            ("worked = boot_experience.worked + 1, failed = 0", (1, 0))
        } else {
            ("failed = boot_experience.failed + 1", (0, 1))
        };
        let sql = upsert(
            self.session.dialect(),
            "INSERT INTO boot_experience (model, way, worked, failed, tried_at)
             VALUES (?, ?, ?, ?, ?)",
            "model, way",
            &format!("{change}, tried_at = {{new:tried_at}}"),
        );
        self.session
            .execute(
                &sql,
                &[
                    Param::Text(model),
                    Param::Text(way.as_str()),
                    Param::Int(first.0),
                    Param::Int(first.1),
                    now.bind(),
                ],
            )
            .map(drop)
    }
}

/// `insert`, which makes `change` instead if there is a row with the same `key` already. In
/// `change`, `{new:x}` is what would have been inserted into the column `x`.
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

/// What a key is found by: a stolen database does not give the keys away.
fn digest(key: &str) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(key.as_bytes()) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn open(shared: &crate::store::Shared, node: NodeId, sealed: &[u8]) -> Result<BootPlan, Error> {
    let plain = shared
        .vault
        .open_sealed(node.0, sealed)
        .map_err(|source| Error::Vault { owner: node.to_string(), source })?;
    serde_json::from_slice(&plain)
        .map_err(|_| Error::Corrupt { table: "boot_plans", column: "sealed" })
}
