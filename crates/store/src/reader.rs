// SPDX-License-Identifier: Apache-2.0
//! Everything that can be read.

use std::sync::Arc;

use node_model::{
    BiosSetting, ConductorInfo, FirmwareComponent, Inventory, Mac, Node, NodeId, ProvisionState,
    Timestamp,
};
use uuid::Uuid;

use crate::engine::{Row, Session};
use crate::error::Error;
use crate::query::{Place, Query, Where, found};
use crate::record::{Columns, Filter as _, Identifies, Record, Resource, load, names};
use crate::store::Shared;
use crate::value::{Field, Param, Value};

/// A view of the database. Inside a write it also sees what the write has done so far.
///
/// Outside a write every statement sees what was committed when it began.
pub struct Reader<'a> {
    pub(crate) session: &'a mut dyn Session,
    pub(crate) shared: &'a Arc<Shared>,
    /// Whether rows read by id or by a unique column are about to be changed.
    pub(crate) locking: bool,
}

impl Reader<'_> {
    /// The resource with this id. Inside a write the row is locked until the write ends, so what is
    /// checked here still holds when it is saved.
    pub fn get<I: Identifies>(&mut self, id: I) -> Result<Option<I::Of>, Error> {
        let statements = I::Of::statements();
        let sql =
            if self.locking { &statements.select_by_id_locked } else { &statements.select_by_id };
        let found = self.one(sql, &[Param::id(id.uuid())])?;
        self.unsealed(found)
    }

    /// The resource with this value in a unique column: a name, an address, an instance. Inside a
    /// write the row is locked as by [`Reader::get`].
    pub fn find<R: Resource>(
        &mut self,
        column: R::Column,
        value: &str,
    ) -> Result<Option<R>, Error> {
        let column = R::COLUMNS[R::index(column)].name;
        let lock = if self.locking { " FOR UPDATE" } else { "" };
        let sql = format!("{} WHERE {column} = ?{lock}", R::statements().select);
        let found = self.one(&sql, &[Param::Text(value)])?;
        self.unsealed(found)
    }

    /// Gives the rows of a list to `each`, in order. All rows are decoded into the same record, so
    /// `each` clones what it keeps; a list of thousands allocates next to nothing.
    ///
    /// A list locks nothing, inside a write either: on servers others may change its rows before
    /// the write ends. A row of a list that is to be changed must be loaded again with
    /// [`Reader::get`], and looked at again, before it is saved.
    pub fn list<R: Resource>(
        &mut self,
        query: &Query<R>,
        mut each: impl FnMut(&R),
    ) -> Result<(), Error> {
        let after = match query.page.marker {
            None => None,
            Some(marker) => Some(found(self.place(query, marker)?)?),
        };
        let statement = query.statement(self.session.dialect(), after);
        let shared = self.shared;
        self.rows(&statement, query.select, |record: &mut R, _| {
            unseal(record, shared)?;
            each(record);
            Ok(())
        })
    }

    /// The rows of a list. As with [`Reader::list`], a row that is to be changed must be loaded
    /// again with [`Reader::get`] before it is saved.
    pub fn collect<R: Resource + Clone>(&mut self, query: &Query<R>) -> Result<Vec<R>, Error> {
        let mut rows = Vec::new();
        self.list(query, |row| rows.push(row.clone()))?;
        Ok(rows)
    }

    /// How many rows pass `filter`.
    pub fn count<R: Resource>(&mut self, filter: &R::Filter) -> Result<u64, Error> {
        let sql = format!("SELECT COUNT(*) FROM {}", R::TABLE);
        let mut statement = Where::new(self.session.dialect(), sql);
        filter.conditions(&mut statement);
        self.number(&statement.sql, &statement.params, R::TABLE)
    }

    /// Nodes that wanted to be looked at by now and that nobody holds a lease on, the longest
    /// overdue first.
    pub fn node_ids_due(&mut self, now: Timestamp, limit: u32) -> Result<Vec<NodeId>, Error> {
        self.column(
            "SELECT uuid FROM nodes WHERE due_at <= ? AND (lease_until IS NULL OR lease_until <= ?) \
             ORDER BY due_at LIMIT ?",
            &[now.bind(), now.bind(), Param::Int(i64::from(limit))],
            "nodes",
        )
    }

    /// When the next node wants to be looked at, of those that do not want to yet.
    pub fn next_due_after(&mut self, now: Timestamp) -> Result<Option<Timestamp>, Error> {
        let found: Vec<Timestamp> = self.column(
            "SELECT due_at FROM nodes WHERE due_at > ? ORDER BY due_at LIMIT 1",
            &[now.bind()],
            "nodes",
        )?;
        Ok(found.first().copied())
    }

    /// How many nodes are in one of `states`.
    pub fn nodes_in_states(&mut self, states: &[ProvisionState]) -> Result<u64, Error> {
        let sql = "SELECT COUNT(*) FROM nodes".to_owned();
        let mut statement = Where::new(self.session.dialect(), sql);
        statement.any_of("provision_state", states.iter().map(Field::bind));
        self.number(&statement.sql, &statement.params, "nodes")
    }

    /// How many nodes each shard has; nodes without a shard under none, which comes first.
    pub fn shards(&mut self) -> Result<Vec<(Option<String>, u64)>, Error> {
        let mut shards = Vec::new();
        let nulls = self.session.dialect().nulls_first(false);
        let sql = format!("SELECT shard, COUNT(*) FROM nodes GROUP BY shard ORDER BY shard{nulls}");
        self.session.query(&sql, &[], &mut |row| {
            shards.push((field(row, 0, "nodes", "shard")?, count(row, 1, "nodes")?));
            Ok(())
        })?;
        Ok(shards)
    }

    /// The nodes that have a port with one of these addresses. More than one answer means that the
    /// addresses belong to different machines.
    pub fn nodes_by_macs(&mut self, macs: &[Mac]) -> Result<Vec<NodeId>, Error> {
        let sql = "SELECT DISTINCT node_uuid FROM ports".to_owned();
        let mut statement = Where::new(self.session.dialect(), sql);
        statement.any_of("address", macs.iter().map(Field::bind));
        self.column(&statement.sql, &statement.params, "ports")
    }

    /// Walks over all nodes in portions, for periodic work: the `limit` nodes after `row` (zero at
    /// first). Gives the row to go on from, or none when there was none left.
    pub fn nodes_after(
        &mut self,
        row: i64,
        limit: u32,
        select: Columns<Node>,
        mut each: impl FnMut(&Node),
    ) -> Result<Option<i64>, Error> {
        let sql = format!(
            "SELECT {}, id FROM nodes WHERE id > ? ORDER BY id LIMIT ?",
            names(select.columns())
        );
        let mut statement = Where::new(self.session.dialect(), sql);
        statement.params.extend([Param::Int(row), Param::Int(i64::from(limit))]);
        let place_of_id = select.columns().count();
        let mut last = None;
        self.rows(&statement, select, |node: &mut Node, row| {
            last = Some(field(row, place_of_id, "nodes", "id")?);
            each(node);
            Ok(())
        })?;
        Ok(last)
    }

    /// Firmware settings of a node, by name.
    pub fn bios_settings(&mut self, node: NodeId) -> Result<Vec<BiosSetting>, Error> {
        self.of_node(node, "name")
    }

    /// Firmware of a node, by component.
    pub fn firmware_components(&mut self, node: NodeId) -> Result<Vec<FirmwareComponent>, Error> {
        self.of_node(node, "component")
    }

    /// What the last inspection of a node found.
    pub fn inventory(&mut self, node: NodeId) -> Result<Option<Inventory>, Error> {
        self.of_node(node, "id").map(|mut found| found.pop())
    }

    /// The nodes that were inspected, those first whose inventory was stored first.
    pub fn inventory_owners(&mut self) -> Result<Vec<NodeId>, Error> {
        self.column("SELECT node_uuid FROM inventories ORDER BY id", &[], "inventories")
    }

    /// Every conductor that ever said it lives, by name.
    pub fn conductors(&mut self) -> Result<Vec<ConductorInfo>, Error> {
        let sql = format!("{} ORDER BY hostname", ConductorInfo::statements().select);
        let mut conductors = Vec::new();
        let statement = Where::new(self.session.dialect(), sql);
        self.rows(&statement, Columns::ALL, |conductor: &mut ConductorInfo, _| {
            conductors.push(conductor.clone());
            Ok(())
        })?;
        Ok(conductors)
    }

    /// The time, as the store sees it.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.shared.clock)()
    }

    fn unsealed<R: Resource>(&self, mut found: Option<R>) -> Result<Option<R>, Error> {
        if let Some(record) = &mut found {
            unseal(record, self.shared)?;
        }
        Ok(found)
    }

    /// The first row of a statement that selects every column.
    pub(crate) fn one<R: Record>(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Option<R>, Error> {
        let mut found = None;
        self.session.query(sql, params, &mut |row| {
            let mut record = R::blank();
            load(&mut record, R::COLUMNS.iter(), row, 0)?;
            found = Some(record);
            Ok(())
        })?;
        Ok(found)
    }

    /// The rows of a statement that selects `select` first.
    fn rows<R: Record>(
        &mut self,
        statement: &Where<'_>,
        select: Columns<R>,
        mut each: impl FnMut(&mut R, &dyn Row) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let columns: Vec<_> = select.columns().collect();
        let mut record = R::blank();
        self.session.query(&statement.sql, &statement.params, &mut |row| {
            load(&mut record, columns.iter().copied(), row, 0)?;
            each(&mut record, row)
        })
    }

    /// The values of a statement that selects one column.
    pub(crate) fn column<T: Field>(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
        table: &'static str,
    ) -> Result<Vec<T>, Error> {
        let mut values = Vec::new();
        self.session.query(sql, params, &mut |row| {
            values.push(field(row, 0, table, "uuid or due_at")?);
            Ok(())
        })?;
        Ok(values)
    }

    fn number(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
        table: &'static str,
    ) -> Result<u64, Error> {
        let mut number = 0;
        self.session.query(sql, params, &mut |row| {
            number = count(row, 0, table)?;
            Ok(())
        })?;
        Ok(number)
    }

    fn of_node<R: Record + Clone>(&mut self, node: NodeId, order: &str) -> Result<Vec<R>, Error> {
        let sql = format!("{} WHERE node_uuid = ? ORDER BY {order}", R::statements().select);
        let mut statement = Where::new(self.session.dialect(), sql);
        statement.params.push(node.bind());
        let mut found = Vec::new();
        self.rows(&statement, Columns::ALL, |record: &mut R, _| {
            found.push(record.clone());
            Ok(())
        })?;
        Ok(found)
    }

    fn place<R: Resource>(
        &mut self,
        query: &Query<R>,
        marker: Uuid,
    ) -> Result<Option<Place>, Error> {
        let corrupt = |_| Error::Corrupt { table: R::TABLE, column: "id" };
        let mut place = None;
        let sql = query.page.marker_statement();
        self.session.query(&sql, &[Param::id(marker)], &mut |row| {
            place = Some(Place {
                row: row.value(0).and_then(Value::int).map_err(corrupt)?,
                value: row.value(1).and_then(Value::to_param).map_err(corrupt)?,
            });
            Ok(())
        })?;
        Ok(place)
    }
}

fn unseal<R: Resource>(record: &mut R, shared: &Shared) -> Result<(), Error> {
    let end = record.unseal(&shared.vault);
    end.map_err(|source| Error::Vault { owner: record.uuid().to_string(), source })
}

/// One field of a row that is not decoded as a record.
pub(crate) fn field<T: Field>(
    row: &dyn Row,
    index: usize,
    table: &'static str,
    column: &'static str,
) -> Result<T, Error> {
    row.value(index).and_then(T::read).map_err(|_| Error::Corrupt { table, column })
}

fn count(row: &dyn Row, index: usize, table: &'static str) -> Result<u64, Error> {
    let number: i64 = field(row, index, table, "COUNT(*)")?;
    Ok(u64::try_from(number).unwrap_or(0))
}
