// SPDX-License-Identifier: Apache-2.0
//! Data migration that seals secrets stored in plain text by older versions: passwords in URLs and
//! step arguments.

use node_model::{DeployTemplate, Node, Runbook, VolumeTarget};

use crate::engine::{DatabaseSession, Dialect};
use crate::error::StoreError;
use crate::reader::decode_field;
use crate::record::{Columns, StoredRecord, StoredResource, column_list, decode_row};
use crate::sealing_key::SealingKey;
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
    seal: fn(&mut R, &SealingKey) -> Result<bool, StoreError>,
}

/// Seals plain-text secrets in all tables. Rows that cannot be decoded are skipped with a warning, so
/// that they do not prevent the start.
pub(crate) fn seal_existing_secrets(
    session: &mut dyn DatabaseSession,
    sealing_key: &SealingKey,
) -> Result<(), StoreError> {
    let (before, after) = match session.dialect() {
        // Overwrite freed pages; otherwise the plain text would remain in the file.
        Dialect::Sqlite => (Some("PRAGMA secure_delete = ON"), Some("PRAGMA secure_delete = OFF")),
        Dialect::Postgres | Dialect::MariaDb => (None, None),
    };
    before.map_or(Ok(()), |before| session.run(before))?;
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
    nodes.seal_rows(session, sealing_key)?;
    let targets: PlaintextSecrets<VolumeTarget> = PlaintextSecrets {
        columns: &[
            VolumeTargetColumn::Uuid,
            VolumeTargetColumn::Properties,
            VolumeTargetColumn::Sealed,
        ],
        condition: "properties LIKE '%://%@%'",
        seal: seal_volume_target_row,
    };
    targets.seal_rows(session, sealing_key)?;
    let templates: PlaintextSecrets<DeployTemplate> = PlaintextSecrets {
        columns: &[DeployTemplateColumn::Uuid, DeployTemplateColumn::Steps],
        condition: "steps IS NOT NULL",
        seal: seal_step_arguments,
    };
    templates.seal_rows(session, sealing_key)?;
    let runbooks: PlaintextSecrets<Runbook> = PlaintextSecrets {
        columns: &[RunbookColumn::Uuid, RunbookColumn::Steps],
        condition: "steps IS NOT NULL",
        seal: seal_step_arguments,
    };
    runbooks.seal_rows(session, sealing_key)?;
    after.map_or(Ok(()), |after| session.run(after))
}

impl<R: StoredResource> PlaintextSecrets<R> {
    fn seal_rows(
        &self,
        session: &mut dyn DatabaseSession,
        sealing_key: &SealingKey,
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
                match (self.seal)(&mut record, sealing_key) {
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

fn seal_node_row(node: &mut Node, sealing_key: &SealingKey) -> Result<bool, StoreError> {
    let full = reveal(sealing_key, node)?;
    let mut sealed = node.sealed(sealing_key).unwrap_or_else(|| node.clone());
    seal_node(sealing_key, &mut sealed, full)?;
    let is_changed = sealed.driver_info != node.driver_info
        || sealed.instance_info != node.instance_info
        || sealed.driver_internal_info != node.driver_internal_info
        || sealed.work != node.work;
    *node = sealed;
    Ok(is_changed)
}

fn seal_volume_target_row(
    target: &mut VolumeTarget,
    sealing_key: &SealingKey,
) -> Result<bool, StoreError> {
    let full = reveal_volume_target(sealing_key, target)?;
    let before = target.properties.clone();
    seal_volume_target(sealing_key, target, full)?;
    Ok(target.properties != before)
}

fn seal_step_arguments<R: StoredResource>(
    record: &mut R,
    sealing_key: &SealingKey,
) -> Result<bool, StoreError> {
    match record.sealed(sealing_key) {
        None => Ok(false),
        Some(sealed) => {
            *record = sealed;
            Ok(true)
        }
    }
}
