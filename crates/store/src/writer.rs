// SPDX-License-Identifier: Apache-2.0
//! Everything that can be written. A `Writer` is one transaction.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};

use node_model::{
    Agent, BiosSetting, ConductorInfo, FirmwareComponent, HistoryEntry, Inventory, JournalEntry,
    NodeId, Timestamp, mask_urls,
};

use crate::error::Error;
use crate::reader::Reader;
use crate::record::{Column, Identifies, Record, Resource, names, saved, written};
use crate::search::serial_column;
use crate::value::{Field, Param};

/// How many lines of history are kept for a node.
const HISTORY_PER_NODE: i64 = 300;

/// A transaction. Reads are available too, and see what it has written.
///
/// A resource is loaded, changed and saved within one write: saving writes the whole row, so a
/// record that was loaded earlier would undo what others changed since. Loaded means by `get` or
/// `find`, which lock the row; the rows of a list are not locked, and must be loaded again.
///
/// After an error the closure should end with an error too: PostgreSQL refuses everything that
/// follows a failed statement, and a transaction that goes on regardless is not committed there.
pub struct Writer<'a> {
    pub(crate) reader: Reader<'a>,
    pub(crate) pending: &'a mut Pending,
}

/// What a transaction wants to happen at its end.
#[derive(Default)]
pub(crate) struct Pending {
    /// Entries to be written just before the commit.
    pub(crate) journal: Vec<JournalEntry>,
    /// Nodes that want attention after the commit.
    pub(crate) wakes: Vec<NodeId>,
    /// The highest number among the entries written.
    pub(crate) last_seq: i64,
    /// Whether the commit has been sent, so that its failure leaves open whether it happened.
    pub(crate) in_commit: bool,
}

impl<'a> Deref for Writer<'a> {
    type Target = Reader<'a>;

    fn deref(&self) -> &Reader<'a> {
        &self.reader
    }
}

impl<'a> DerefMut for Writer<'a> {
    fn deref_mut(&mut self) -> &mut Reader<'a> {
        &mut self.reader
    }
}

impl Writer<'_> {
    /// Adds a resource.
    pub fn insert<R: Resource>(&mut self, record: &R) -> Result<(), Error> {
        match record.sealed(&self.shared.vault) {
            None => self.insert_record(record),
            Some(sealed) => self.insert_record(&sealed),
        }
    }

    /// Writes a resource back, and the time of the change into it. A node's lease is left as it is.
    pub fn save<R: Resource>(&mut self, record: &mut R) -> Result<(), Error> {
        record.touch(self.now());
        let sealed = record.sealed(&self.shared.vault);
        if self.update(sealed.as_ref().unwrap_or(record), "", &[])? {
            Ok(())
        } else {
            Err(Error::Missing)
        }
    }

    /// Removes a resource; says whether it was there. What belongs to a node goes with it, except
    /// its journal.
    pub fn delete<I: Identifies>(&mut self, id: I) -> Result<bool, Error> {
        let found = self.session.execute(&I::Of::statements().delete, &[Param::id(id.uuid())])?;
        Ok(found > 0)
    }

    /// Adds an entry to the journal. It is written at the end of the transaction; reads within the
    /// same transaction do not see it.
    pub fn append(&mut self, entry: JournalEntry) {
        self.pending.journal.push(entry);
    }

    /// Asks for attention to a node once the transaction is committed.
    pub fn wake(&mut self, node: NodeId) {
        self.pending.wakes.push(node);
    }

    /// Notes what the agent on a node said, and nothing else: heartbeats are the most frequent
    /// write, and `updated_at` does not follow them.
    pub fn touch_agent(
        &mut self,
        node: NodeId,
        agent: &Agent,
        provision_updated_at: Option<Timestamp>,
    ) -> Result<(), Error> {
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
        if found == 0 { Err(Error::Missing) } else { Ok(()) }
    }

    /// Adds a line to a node's history and drops the oldest beyond what is kept.
    pub fn add_history(&mut self, entry: &HistoryEntry) -> Result<(), Error> {
        match mask_urls(&entry.event) {
            Cow::Borrowed(_) => self.insert(entry)?,
            Cow::Owned(event) => self.insert(&HistoryEntry { event, ..entry.clone() })?,
        }
        // The derived table is for MariaDB, which does not take a LIMIT directly below an IN.
        self.session
            .execute(
                "DELETE FROM node_history WHERE node_uuid = ? AND id <= (SELECT id FROM
                 (SELECT id FROM node_history WHERE node_uuid = ? ORDER BY id DESC LIMIT 1 OFFSET ?)
                 AS oldest)",
                &[entry.node_id.bind(), entry.node_id.bind(), Param::Int(HISTORY_PER_NODE)],
            )
            .map(drop)
    }

    /// Replaces what the last inspection of a node found.
    pub fn set_inventory(&mut self, inventory: &Inventory) -> Result<(), Error> {
        self.session
            .execute("DELETE FROM inventories WHERE node_uuid = ?", &[inventory.node_id.bind()])?;
        self.insert_record(inventory)?;
        if let Some(serial) = serial_column(&inventory.inventory) {
            self.session.execute(
                "UPDATE inventories SET serial = ? WHERE node_uuid = ?",
                &[Param::Owned(serial), inventory.node_id.bind()],
            )?;
        }
        Ok(())
    }

    /// Replaces the firmware settings of a node.
    pub fn replace_bios_settings(
        &mut self,
        node: NodeId,
        settings: &[BiosSetting],
    ) -> Result<(), Error> {
        self.replace(node, settings)
    }

    /// Replaces the list of firmware of a node.
    pub fn replace_firmware_components(
        &mut self,
        node: NodeId,
        components: &[FirmwareComponent],
    ) -> Result<(), Error> {
        self.replace(node, components)
    }

    /// Notes that a conductor lives (or says goodbye). Its first appearance keeps its date.
    pub fn heartbeat_conductor(&mut self, conductor: &ConductorInfo) -> Result<(), Error> {
        let known = self.session.execute(
            "UPDATE conductors SET run_uuid = ?, conductor_group = ?, drivers = ?, updated_at = ?,
             online = ? WHERE hostname = ?",
            &[
                conductor.run.bind(),
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

    /// Writes a record back if its row also fulfils `condition`; says whether it did.
    pub(crate) fn update<R: Resource>(
        &mut self,
        record: &R,
        condition: &str,
        condition_params: &[Param<'_>],
    ) -> Result<bool, Error> {
        let statements = R::statements();
        let bind = |column: &'static Column<R>| (column.bind)(record);
        let conditional = |sql: &'static str| -> Cow<'static, str> {
            if condition.is_empty() { sql.into() } else { [sql, condition].concat().into() }
        };
        let mut params = Vec::with_capacity(R::COLUMNS.len() + 2);
        if R::INDEXED.is_empty() || self.session.dialect().locks_rows() {
            params.extend(saved::<R>().map(bind));
            params.push(Param::id(record.uuid()));
            params.extend_from_slice(condition_params);
            return Ok(self.session.execute(&conditional(&statements.update), &params)? > 0);
        }
        // SQLite rewrites the index of every column that an UPDATE names, whether or not its value
        // changes, and each touched index is a page more in the write-ahead log. Few saves change
        // any of those columns, so they have a statement of their own that looks first.
        params.extend(saved::<R>().filter(|column| !column.is_indexed()).map(bind));
        params.push(Param::id(record.uuid()));
        params.extend_from_slice(condition_params);
        if self.session.execute(&conditional(&statements.update_plain), &params)? == 0 {
            return Ok(false);
        }
        params.clear();
        params.extend(saved::<R>().filter(|column| column.is_indexed()).map(bind));
        params.push(Param::id(record.uuid()));
        for name in R::INDEXED {
            params.extend(R::COLUMNS.iter().filter(|column| column.name == *name).map(bind));
        }
        self.session.execute(&statements.update_indexed, &params)?;
        Ok(true)
    }

    fn insert_record<R: Record>(&mut self, record: &R) -> Result<(), Error> {
        let mut params = Vec::with_capacity(R::COLUMNS.len());
        params.extend(written::<R>().map(|column| (column.bind)(record)));
        self.session.execute(&R::statements().insert, &params).map(drop)
    }

    fn replace<R: Record>(&mut self, node: NodeId, records: &[R]) -> Result<(), Error> {
        let table = R::TABLE;
        self.session
            .execute(&format!("DELETE FROM {table} WHERE node_uuid = ?"), &[node.bind()])?;
        let columns = names(R::COLUMNS.iter());
        // MariaDB takes at most 65,535 parameters in a statement, SQLite 32,766.
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
