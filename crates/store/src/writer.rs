// SPDX-License-Identifier: Apache-2.0
//! Write access to the database. A `StoreWriter` is one transaction.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};

use node_model::{
    AgentInfo, BiosSetting, ConductorInfo, FirmwareComponent, HistoryEntry, Inventory,
    JournalEntry, NodeId, Timestamp, mask_urls,
};

use crate::error::StoreError;
use crate::reader::StoreReader;
use crate::record::{
    ResourceId, StoredRecord, StoredResource, TableColumn, column_list, inserted_columns,
    updated_columns,
};
use crate::search::serial_column;
use crate::value::{ColumnType, SqlParam};

/// Maximum number of history entries per node.
const HISTORY_PER_NODE: i64 = 300;

/// A transaction. Derefs to [`StoreReader`], whose reads see the transaction's own changes.
///
/// Load, change and save a resource within one write: saving writes the whole row, so a record
/// loaded earlier would overwrite concurrent changes. Load with `get` or `find`, which lock the row;
/// rows of a list are not locked and must be loaded again.
///
/// After an error the closure should return an error too: PostgreSQL rejects all statements after a
/// failed one, and such a transaction is not committed.
pub struct StoreWriter<'a> {
    pub(crate) reader: StoreReader<'a>,
    pub(crate) pending: &'a mut PendingEffects,
}

/// What to do at the end of a transaction.
#[derive(Default)]
pub(crate) struct PendingEffects {
    /// Journal entries to insert just before the commit.
    pub(crate) journal: Vec<JournalEntry>,
    /// Nodes to wake after the commit.
    pub(crate) wakes: Vec<NodeId>,
    /// The highest sequence number among the inserted entries.
    pub(crate) last_seq: i64,
}

impl<'a> Deref for StoreWriter<'a> {
    type Target = StoreReader<'a>;

    fn deref(&self) -> &StoreReader<'a> {
        &self.reader
    }
}

impl<'a> DerefMut for StoreWriter<'a> {
    fn deref_mut(&mut self) -> &mut StoreReader<'a> {
        &mut self.reader
    }
}

impl StoreWriter<'_> {
    /// Inserts a resource.
    pub fn insert<R: StoredResource>(&mut self, record: &R) -> Result<(), StoreError> {
        match record.sealed(&self.shared.keys) {
            None => self.insert_record(record),
            Some(sealed) => self.insert_record(&sealed),
        }
    }

    /// Updates a resource and sets its time of change. Does not touch a node's lease.
    pub fn save<R: StoredResource>(&mut self, record: &mut R) -> Result<(), StoreError> {
        record.touch(self.now());
        let sealed = record.sealed(&self.shared.keys);
        if self.update(sealed.as_ref().unwrap_or(record), "", &[])? {
            Ok(())
        } else {
            Err(StoreError::Missing)
        }
    }

    /// Deletes a resource. Returns whether it existed. The dependent rows of a node are deleted with it,
    /// except its journal.
    pub fn delete<I: ResourceId>(&mut self, id: I) -> Result<bool, StoreError> {
        let found =
            self.session.execute(&I::Resource::statements().delete, &[SqlParam::id(id.uuid())])?;
        Ok(found > 0)
    }

    /// Appends a journal entry. It is inserted at the end of the transaction and not visible to its own
    /// reads.
    pub fn append(&mut self, entry: JournalEntry) {
        self.pending.journal.push(entry);
    }

    /// Wakes a node after the commit.
    pub fn wake(&mut self, node: NodeId) {
        self.pending.wakes.push(node);
    }

    /// Updates only the agent data of a node. Heartbeats are the most frequent write; they do not change
    /// `updated_at`.
    pub fn update_agent(
        &mut self,
        node: NodeId,
        agent: &AgentInfo,
        provision_updated_at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let found = match provision_updated_at {
            None => self.session.execute(
                "UPDATE nodes SET agent = ? WHERE uuid = ?",
                &[agent.bind(), node.bind()],
            )?,
            Some(at) => self.session.execute(
                "UPDATE nodes SET agent = ?, provision_updated_at = ? WHERE uuid = ?",
                &[agent.bind(), at.bind(), node.bind()],
            )?,
        };
        if found == 0 { Err(StoreError::Missing) } else { Ok(()) }
    }

    /// Adds a history entry and deletes the oldest ones beyond the limit.
    pub fn add_history(&mut self, entry: &HistoryEntry) -> Result<(), StoreError> {
        match mask_urls(&entry.event) {
            Cow::Borrowed(_) => self.insert(entry)?,
            Cow::Owned(event) => self.insert(&HistoryEntry { event, ..entry.clone() })?,
        }
        // The derived table is for MariaDB, which rejects LIMIT in this subquery.
        self.session
            .execute(
                "DELETE FROM node_history WHERE node_uuid = ? AND id <= (SELECT id FROM
                 (SELECT id FROM node_history WHERE node_uuid = ? ORDER BY id DESC LIMIT 1 OFFSET ?)
                 AS oldest)",
                &[entry.node_id.bind(), entry.node_id.bind(), SqlParam::Int(HISTORY_PER_NODE)],
            )
            .map(drop)
    }

    /// Replaces the inventory of a node.
    pub fn set_inventory(&mut self, inventory: &Inventory) -> Result<(), StoreError> {
        self.session
            .execute("DELETE FROM inventories WHERE node_uuid = ?", &[inventory.node_id.bind()])?;
        self.insert_record(inventory)?;
        if let Some(serial) = serial_column(&inventory.inventory) {
            self.session.execute(
                "UPDATE inventories SET serial = ? WHERE node_uuid = ?",
                &[SqlParam::Owned(serial), inventory.node_id.bind()],
            )?;
        }
        Ok(())
    }

    /// Replaces the BIOS settings of a node.
    pub fn replace_bios_settings(
        &mut self,
        node: NodeId,
        settings: &[BiosSetting],
    ) -> Result<(), StoreError> {
        self.replace_records(node, settings)
    }

    /// Replaces the firmware components of a node.
    pub fn replace_firmware_components(
        &mut self,
        node: NodeId,
        components: &[FirmwareComponent],
    ) -> Result<(), StoreError> {
        self.replace_records(node, components)
    }

    /// Inserts or updates a conductor on its heartbeat or shutdown. `created_at` is kept.
    pub fn record_conductor_heartbeat(
        &mut self,
        conductor: &ConductorInfo,
    ) -> Result<(), StoreError> {
        let known = self.session.execute(
            "UPDATE conductors SET run_uuid = ?, version = ?, conductor_group = ?, drivers = ?,
             updated_at = ?, online = ? WHERE hostname = ?",
            &[
                conductor.run.bind(),
                conductor.version.bind(),
                conductor.conductor_group.bind(),
                conductor.drivers.bind(),
                conductor.updated_at.bind(),
                conductor.online.bind(),
                conductor.hostname.bind(),
            ],
        )?;
        if known > 0 {
            return Ok(());
        }
        self.insert_record(conductor)
    }

    /// Updates a record if its row also satisfies `condition`. Returns whether a row was found.
    pub(crate) fn update<R: StoredResource>(
        &mut self,
        record: &R,
        condition: &str,
        condition_params: &[SqlParam<'_>],
    ) -> Result<bool, StoreError> {
        let statements = R::statements();
        let bind = |column: &'static TableColumn<R>| (column.bind)(record);
        let conditional = |sql: &'static str| -> Cow<'static, str> {
            if condition.is_empty() { sql.into() } else { [sql, condition].concat().into() }
        };
        let mut params = Vec::with_capacity(R::COLUMNS.len() + 2);
        if R::INDEXED.is_empty() || self.session.dialect().locks_rows() {
            params.extend(updated_columns::<R>().map(bind));
            params.push(SqlParam::id(record.uuid()));
            params.extend_from_slice(condition_params);
            return Ok(self.session.execute(&conditional(&statements.update), &params)? > 0);
        }
        // SQLite rewrites the index of every column named by an UPDATE, whether or not its value
        // changes, and each index adds a page to the write-ahead log. Few saves change an indexed
        // column, so those have a separate statement that compares first.
        params.extend(updated_columns::<R>().filter(|column| !column.is_indexed()).map(bind));
        params.push(SqlParam::id(record.uuid()));
        params.extend_from_slice(condition_params);
        if self.session.execute(&conditional(&statements.update_plain), &params)? == 0 {
            return Ok(false);
        }
        params.clear();
        params.extend(updated_columns::<R>().filter(|column| column.is_indexed()).map(bind));
        params.push(SqlParam::id(record.uuid()));
        for name in R::INDEXED {
            params.extend(R::COLUMNS.iter().filter(|column| column.name == *name).map(bind));
        }
        self.session.execute(&statements.update_indexed, &params)?;
        Ok(true)
    }

    fn insert_record<R: StoredRecord>(&mut self, record: &R) -> Result<(), StoreError> {
        let mut params = Vec::with_capacity(R::COLUMNS.len());
        params.extend(inserted_columns::<R>().map(|column| (column.bind)(record)));
        self.session.execute(&R::statements().insert, &params).map(drop)
    }

    fn replace_records<R: StoredRecord>(
        &mut self,
        node: NodeId,
        records: &[R],
    ) -> Result<(), StoreError> {
        let table = R::TABLE;
        self.session
            .execute(&format!("DELETE FROM {table} WHERE node_uuid = ?"), &[node.bind()])?;
        let columns = column_list(R::COLUMNS.iter());
        // Parameter limits per statement: MariaDB 65,535, SQLite 32,766.
        for part in records.chunks(200) {
            let row = format!("(?{})", ", ?".repeat(R::COLUMNS.len()));
            let rows = vec![row; part.len()].join(", ");
            let mut params = Vec::with_capacity(part.len() * (R::COLUMNS.len() + 1));
            for record in part {
                params.push(node.bind());
                params.extend(R::COLUMNS.iter().map(|column| (column.bind)(record)));
            }
            let sql = format!("INSERT INTO {table} (node_uuid, {columns}) VALUES {rows}");
            self.session.execute(&sql, &params)?;
        }
        Ok(())
    }
}
