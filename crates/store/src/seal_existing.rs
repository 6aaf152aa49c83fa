// SPDX-License-Identifier: Apache-2.0
//! Data migrations that seal secrets stored in plain text by older versions: passwords in URLs, step
//! arguments, and keys that older versions did not recognise as secrets.

use node_model::{DeployTemplate, Node, Runbook, VolumeTarget};

use crate::engine::{DatabaseSession, Dialect};
use crate::error::StoreError;
use crate::key_ring::KeyRing;
use crate::reader::decode_field;
use crate::record::{Columns, StoredRecord, StoredResource, column_list, decode_row};
use crate::secrets::{reveal, reveal_volume_target, seal_node, seal_volume_target};
use crate::tables::node::NodeColumn;
use crate::tables::templates_and_rules::{DeployTemplateColumn, RunbookColumn};
use crate::tables::volume::VolumeTargetColumn;
use crate::value::SqlParam;

/// Records per SELECT.
const BATCH: i64 = 200;

/// The columns of a table that may contain plain-text secrets, and how to seal them.
struct PlaintextSecrets<R: StoredRecord> {
    columns: &'static [R::Column],
    /// SQL condition for rows that may contain secrets: a URL with credentials, or steps.
    condition: &'static str,
    /// Seals the secrets of a record. Returns whether it changed.
    seal: fn(&mut R, &KeyRing) -> Result<bool, StoreError>,
}

/// Seals plain-text secrets in all tables. Rows that cannot be decoded are skipped with a warning, so
/// that they do not prevent the start.
pub(crate) fn seal_existing_secrets(
    session: &mut dyn DatabaseSession,
    keys: &KeyRing,
) -> Result<(), StoreError> {
    overwriting(session, |session| seal_url_passwords(session, keys))
}

/// Seals what is a secret since version 12 of the schema: more keys, signatures in URLs, and secrets in
/// `extra` and `properties`.
pub(crate) fn seal_more_secrets(
    session: &mut dyn DatabaseSession,
    keys: &KeyRing,
) -> Result<(), StoreError> {
    let nodes: PlaintextSecrets<Node> = PlaintextSecrets {
        columns: &[
            NodeColumn::Uuid,
            NodeColumn::Work,
            NodeColumn::Properties,
            NodeColumn::Extra,
            NodeColumn::DriverInfo,
            NodeColumn::InstanceInfo,
            NodeColumn::DriverInternalInfo,
            NodeColumn::Sealed,
        ],
        condition: "uuid IS NOT NULL",
        seal: seal_node_row,
    };
    overwriting(session, |session| {
        nodes.seal_rows(session, keys)?;
        volume_targets("properties IS NOT NULL").seal_rows(session, keys)?;
        templates().seal_rows(session, keys)?;
        runbooks().seal_rows(session, keys)
    })
}

/// Runs `seal` in a mode in which SQLite overwrites freed pages; otherwise the plain text would remain in
/// the file.
fn overwriting(
    session: &mut dyn DatabaseSession,
    seal: impl FnOnce(&mut dyn DatabaseSession) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let is_sqlite = session.dialect() == Dialect::Sqlite;
    if is_sqlite {
        session.run("PRAGMA secure_delete = ON")?;
    }
    seal(session)?;
    if is_sqlite {
        session.run("PRAGMA secure_delete = OFF")?;
    }
    Ok(())
}

fn seal_url_passwords(session: &mut dyn DatabaseSession, keys: &KeyRing) -> Result<(), StoreError> {
    let nodes: PlaintextSecrets<Node> = PlaintextSecrets {
        columns: &[
            NodeColumn::Uuid,
            NodeColumn::Work,
            NodeColumn::DriverInfo,
            NodeColumn::InstanceInfo,
            NodeColumn::DriverInternalInfo,
            NodeColumn::Sealed,
        ],
        condition: "(work IS NOT NULL OR driver_info LIKE '%://%@%'
            OR instance_info LIKE '%://%@%' OR driver_internal_info LIKE '%://%@%')",
        seal: seal_node_row,
    };
    nodes.seal_rows(session, keys)?;
    volume_targets("properties LIKE '%://%@%'").seal_rows(session, keys)?;
    templates().seal_rows(session, keys)?;
    runbooks().seal_rows(session, keys)
}

fn volume_targets(condition: &'static str) -> PlaintextSecrets<VolumeTarget> {
    PlaintextSecrets {
        columns: &[
            VolumeTargetColumn::Uuid,
            VolumeTargetColumn::Properties,
            VolumeTargetColumn::Sealed,
        ],
        condition,
        seal: seal_volume_target_row,
    }
}

fn templates() -> PlaintextSecrets<DeployTemplate> {
    PlaintextSecrets {
        columns: &[DeployTemplateColumn::Uuid, DeployTemplateColumn::Steps],
        condition: "steps IS NOT NULL",
        seal: seal_step_arguments,
    }
}

fn runbooks() -> PlaintextSecrets<Runbook> {
    PlaintextSecrets {
        columns: &[RunbookColumn::Uuid, RunbookColumn::Steps],
        condition: "steps IS NOT NULL",
        seal: seal_step_arguments,
    }
}

impl<R: StoredResource> PlaintextSecrets<R> {
    fn seal_rows(
        &self,
        session: &mut dyn DatabaseSession,
        keys: &KeyRing,
    ) -> Result<(), StoreError> {
        let columns = Columns::<R>::only(self.columns);
        let changed = || columns.columns().filter(|column| column.name != "uuid");
        let lock = if session.dialect().locks_rows() { " FOR UPDATE" } else { "" };
        let select = format!(
            "SELECT id, {} FROM {} WHERE id > ? AND {} ORDER BY id LIMIT ?{lock}",
            column_list(columns.columns()),
            R::TABLE,
            self.condition,
        );
        let set: Vec<_> = changed().map(|column| format!("{} = ?", column.name)).collect();
        let update = format!("UPDATE {} SET {} WHERE uuid = ?", R::TABLE, set.join(", "));
        let mut last: i64 = 0;
        loop {
            let (mut found, mut rows) = (Vec::new(), 0);
            session.query(&select, &[SqlParam::Int(last), SqlParam::Int(BATCH)], &mut |row| {
                let mut record = R::blank();
                let id = decode_field(row, 0, R::TABLE, "id")?;
                match decode_row(&mut record, columns.columns(), row, 1) {
                    Ok(()) => found.push(record),
                    Err(error) => {
                        tracing::warn!(%error, table = R::TABLE, id, "row skipped while sealing");
                    }
                }
                rows += 1;
                last = id;
                Ok(())
            })?;
            for mut record in found {
                match (self.seal)(&mut record, keys) {
                    Ok(false) => {}
                    Ok(true) => {
                        let mut params: Vec<_> =
                            changed().map(|column| (column.bind)(&record)).collect();
                        params.push(SqlParam::id(record.uuid()));
                        session.execute(&update, &params)?;
                    }
                    Err(error) => {
                        let id = record.uuid();
                        tracing::warn!(%error, table = R::TABLE, %id, "row skipped while sealing");
                    }
                }
            }
            if rows < BATCH {
                return Ok(());
            }
        }
    }
}

fn seal_node_row(node: &mut Node, keys: &KeyRing) -> Result<bool, StoreError> {
    let full = reveal(keys, node)?;
    let mut sealed = node.sealed(keys).unwrap_or_else(|| node.clone());
    seal_node(keys, &mut sealed, full)?;
    let is_changed = sealed.driver_info != node.driver_info
        || sealed.instance_info != node.instance_info
        || sealed.driver_internal_info != node.driver_internal_info
        || sealed.extra != node.extra
        || sealed.properties != node.properties
        || sealed.work != node.work;
    *node = sealed;
    Ok(is_changed)
}

fn seal_volume_target_row(target: &mut VolumeTarget, keys: &KeyRing) -> Result<bool, StoreError> {
    let full = reveal_volume_target(keys, target)?;
    let before = target.properties.clone();
    seal_volume_target(keys, target, full)?;
    Ok(target.properties != before)
}

fn seal_step_arguments<R: StoredResource>(
    record: &mut R,
    keys: &KeyRing,
) -> Result<bool, StoreError> {
    match record.sealed(keys) {
        None => Ok(false),
        Some(sealed) => {
            *record = sealed;
            Ok(true)
        }
    }
}
