// SPDX-License-Identifier: Apache-2.0
//! Sealing what was written before it counted as a secret: passwords in URLs, and the arguments of
//! steps. Done once, as a migration.

use node_model::{DeployTemplate, Node, Runbook, VolumeTarget};

use crate::engine::{Dialect, Session};
use crate::error::Error;
use crate::reader::field;
use crate::record::{Columns, Record, Resource, load, names};
use crate::seal::{reveal, reveal_volume_target, seal_node, seal_volume_target};
use crate::tables::node::NodeColumn;
use crate::tables::recipes::{DeployTemplateColumn, RunbookColumn};
use crate::tables::volume::VolumeTargetColumn;
use crate::value::Param;
use crate::vault::Vault;

/// How many records are looked at at a time.
const AT_ONCE: i64 = 200;

/// Where secrets are found in the records of a table, and how they are sealed there.
struct Place<R: Record> {
    columns: &'static [R::Column],
    /// Which rows may hold some: a URL with a login, or steps, of which there are few.
    condition: &'static str,
    /// Says whether the record is another than before.
    seal: fn(&mut R, &Vault) -> Result<bool, Error>,
}

/// Seals what is in clear. Rows that cannot be read stay as they are: they are no reason not to start.
pub(crate) fn reseal(session: &mut dyn Session, vault: &Vault) -> Result<(), Error> {
    let (before, after) = match session.dialect() {
        // Or what was there before would stay in the file, where nothing refers to it.
        Dialect::Sqlite => (Some("PRAGMA secure_delete = ON"), Some("PRAGMA secure_delete = OFF")),
        Dialect::Postgres | Dialect::MariaDb => (None, None),
    };
    before.map_or(Ok(()), |before| session.run(before))?;
    let nodes: Place<Node> = Place {
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
        seal: of_node,
    };
    nodes.reseal(session, vault)?;
    let targets: Place<VolumeTarget> = Place {
        columns: &[
            VolumeTargetColumn::Uuid,
            VolumeTargetColumn::Properties,
            VolumeTargetColumn::Sealed,
        ],
        condition: "properties LIKE '%://%@%'",
        seal: of_volume_target,
    };
    targets.reseal(session, vault)?;
    let templates: Place<DeployTemplate> = Place {
        columns: &[DeployTemplateColumn::Uuid, DeployTemplateColumn::Steps],
        condition: "steps IS NOT NULL",
        seal: of_steps,
    };
    templates.reseal(session, vault)?;
    let runbooks: Place<Runbook> = Place {
        columns: &[RunbookColumn::Uuid, RunbookColumn::Steps],
        condition: "steps IS NOT NULL",
        seal: of_steps,
    };
    runbooks.reseal(session, vault)?;
    after.map_or(Ok(()), |after| session.run(after))
}

impl<R: Resource> Place<R> {
    fn reseal(&self, session: &mut dyn Session, vault: &Vault) -> Result<(), Error> {
        let columns = Columns::<R>::of(self.columns);
        let changed = || columns.columns().filter(|column| column.name != "uuid");
        let lock = if session.dialect().locks_rows() { " FOR UPDATE" } else { "" };
        let select = format!(
            "SELECT id, {} FROM {} WHERE id > ? AND {} ORDER BY id LIMIT ?{lock}",
            names(columns.columns()),
            R::TABLE,
            self.condition,
        );
        let set: Vec<_> = changed().map(|column| format!("{} = ?", column.name)).collect();
        let update = format!("UPDATE {} SET {} WHERE uuid = ?", R::TABLE, set.join(", "));
        let mut last: i64 = 0;
        loop {
            let (mut found, mut rows) = (Vec::new(), 0);
            session.query(&select, &[Param::Int(last), Param::Int(AT_ONCE)], &mut |row| {
                let mut record = R::blank();
                let id = field(row, 0, R::TABLE, "id")?;
                match load(&mut record, columns.columns(), row, 1) {
                    Ok(()) => found.push(record),
                    Err(error) => tracing::warn!(%error, id, "secrets were not looked for"),
                }
                rows += 1;
                last = id;
                Ok(())
            })?;
            for mut record in found {
                match (self.seal)(&mut record, vault) {
                    Ok(false) => {}
                    Ok(true) => {
                        let mut params: Vec<_> =
                            changed().map(|column| (column.bind)(&record)).collect();
                        params.push(Param::id(record.uuid()));
                        session.execute(&update, &params)?;
                    }
                    Err(error) => tracing::warn!(%error, "secrets were not looked for"),
                }
            }
            if rows < AT_ONCE {
                return Ok(());
            }
        }
    }
}

fn of_node(node: &mut Node, vault: &Vault) -> Result<bool, Error> {
    let full = reveal(vault, node)?;
    let mut sealed = node.sealed(vault).unwrap_or_else(|| node.clone());
    seal_node(vault, &mut sealed, full)?;
    let is_changed = sealed.driver_info != node.driver_info
        || sealed.instance_info != node.instance_info
        || sealed.driver_internal_info != node.driver_internal_info
        || sealed.work != node.work;
    *node = sealed;
    Ok(is_changed)
}

fn of_volume_target(target: &mut VolumeTarget, vault: &Vault) -> Result<bool, Error> {
    let full = reveal_volume_target(vault, target)?;
    let before = target.properties.clone();
    seal_volume_target(vault, target, full)?;
    Ok(target.properties != before)
}

fn of_steps<R: Resource>(record: &mut R, vault: &Vault) -> Result<bool, Error> {
    match record.sealed(vault) {
        None => Ok(false),
        Some(sealed) => {
            *record = sealed;
            Ok(true)
        }
    }
}
