// SPDX-License-Identifier: Apache-2.0
//! Read access to the database.

use std::sync::Arc;

use node_model::{
    BiosSetting, ConductorInfo, FirmwareComponent, Inventory, Mac, Node, NodeId, Timestamp,
};
use uuid::Uuid;

use crate::engine::{DatabaseRow, DatabaseSession};
use crate::error::StoreError;
use crate::query::{PageMarker, ResourceQuery, SqlBuilder};
use crate::record::{
    Columns, ResourceFilter as _, ResourceId, StoredRecord, StoredResource, column_list, decode_row,
};
use crate::store::StoreShared;
use crate::tables::node::DueFilter;
use crate::value::{ColumnType, SqlParam, SqlValue};

/// Read access to the database. Inside a write it also sees the write's own changes.
///
/// Outside a write each statement sees what was committed when it began.
pub struct StoreReader<'a> {
    pub(crate) session: &'a mut dyn DatabaseSession,
    pub(crate) shared: &'a Arc<StoreShared>,
    /// Whether reads by id or unique column lock the row.
    pub(crate) locking: bool,
}

impl StoreReader<'_> {
    /// The resource with this id. Inside a write the row is locked until the write ends, so checks made
    /// here still hold on save.
    pub fn get<I: ResourceId>(&mut self, id: I) -> Result<Option<I::Resource>, StoreError> {
        let statements = I::Resource::statements();
        let sql =
            if self.locking { &statements.select_by_id_locked } else { &statements.select_by_id };
        let found = self.query_one(sql, &[SqlParam::id(id.uuid())])?;
        self.unseal_found(found)
    }

    /// The resource with this value in a unique column, such as a name or an address. Inside a write the
    /// row is locked as by [`StoreReader::get`].
    pub fn find<R: StoredResource>(
        &mut self,
        column: R::Column,
        value: &str,
    ) -> Result<Option<R>, StoreError> {
        let column = R::COLUMNS[R::index(column)].name;
        let lock = if self.locking { " FOR UPDATE" } else { "" };
        let sql = format!("{} WHERE {column} = ?{lock}", R::statements().select);
        let found = self.query_one(&sql, &[SqlParam::Text(value)])?;
        self.unseal_found(found)
    }

    /// Calls `each` for the rows of a list, in order. All rows are decoded into the same record to avoid
    /// allocations, so `each` must clone what it keeps.
    ///
    /// A list never locks rows: on servers other processes may change them before a write ends. A listed
    /// row must be loaded again with [`StoreReader::get`], and checked again, before it is saved.
    pub fn list<R: StoredResource>(
        &mut self,
        query: &ResourceQuery<R>,
        mut each: impl FnMut(&R),
    ) -> Result<(), StoreError> {
        let after = match query.page.marker {
            None => None,
            Some(marker) => {
                Some(self.page_marker(query, marker)?.ok_or(StoreError::MarkerNotFound)?)
            }
        };
        let statement = query.statement(self.session.dialect(), after);
        let shared = self.shared;
        self.query_rows(&statement, query.select, |record: &mut R, _| {
            unseal_record(record, shared)?;
            each(record);
            Ok(())
        })
    }

    /// The rows of a list. As with [`StoreReader::list`], a row must be loaded again with
    /// [`StoreReader::get`] before it is saved.
    pub fn collect<R: StoredResource + Clone>(
        &mut self,
        query: &ResourceQuery<R>,
    ) -> Result<Vec<R>, StoreError> {
        let mut rows = Vec::new();
        self.list(query, |row| rows.push(row.clone()))?;
        Ok(rows)
    }

    /// Number of rows that match `filter`.
    pub fn count<R: StoredResource>(&mut self, filter: &R::Filter) -> Result<u64, StoreError> {
        let sql = format!("SELECT COUNT(*) FROM {}", R::TABLE);
        let mut statement = SqlBuilder::new(self.session.dialect(), sql);
        filter.add_conditions(&mut statement);
        self.query_count(&statement.sql, &statement.params, R::TABLE)
    }

    /// Due nodes of `filter` without a valid lease, longest overdue first.
    pub fn node_ids_due(
        &mut self,
        now: Timestamp,
        filter: &DueFilter,
        limit: u32,
    ) -> Result<Vec<NodeId>, StoreError> {
        let sql = "SELECT uuid FROM nodes".to_owned();
        let mut statement = SqlBuilder::new(self.session.dialect(), sql);
        statement.and("due_at <= ?").and("(lease_until IS NULL OR lease_until <= ?)");
        statement.params.extend([now.bind(), now.bind()]);
        filter.add_conditions(&mut statement);
        statement.sql.push_str(" ORDER BY due_at LIMIT ?");
        statement.params.push(SqlParam::Int(i64::from(limit)));
        self.query_column(&statement.sql, &statement.params, "nodes", "uuid")
    }

    /// When the next node of `filter` becomes due, of those that are not due yet.
    pub fn next_due_after(
        &mut self,
        now: Timestamp,
        filter: &DueFilter,
    ) -> Result<Option<Timestamp>, StoreError> {
        let sql = "SELECT due_at FROM nodes".to_owned();
        let mut statement = SqlBuilder::new(self.session.dialect(), sql);
        statement.and("due_at > ?");
        statement.params.push(now.bind());
        filter.add_conditions(&mut statement);
        statement.sql.push_str(" ORDER BY due_at LIMIT 1");
        let found: Vec<Timestamp> =
            self.query_column(&statement.sql, &statement.params, "nodes", "due_at")?;
        Ok(found.first().copied())
    }

    /// Number of nodes per shard; nodes without a shard come first, under `None`.
    pub fn shards(&mut self) -> Result<Vec<(Option<String>, u64)>, StoreError> {
        let mut shards = Vec::new();
        let nulls = self.session.dialect().nulls_first(false);
        let sql = format!("SELECT shard, COUNT(*) FROM nodes GROUP BY shard ORDER BY shard{nulls}");
        self.session.query(&sql, &[], &mut |row| {
            shards.push((decode_field(row, 0, "nodes", "shard")?, decode_count(row, 1, "nodes")?));
            Ok(())
        })?;
        Ok(shards)
    }

    /// The nodes that have a port with one of these MAC addresses. More than one result means that the
    /// addresses belong to different nodes.
    pub fn nodes_by_macs(&mut self, macs: &[Mac]) -> Result<Vec<NodeId>, StoreError> {
        let sql = "SELECT DISTINCT node_uuid FROM ports".to_owned();
        let mut statement = SqlBuilder::new(self.session.dialect(), sql);
        statement.in_list("address", macs.iter().map(ColumnType::bind));
        self.query_column(&statement.sql, &statement.params, "ports", "node_uuid")
    }

    /// Iterates over all nodes in batches: calls `each` for the `limit` nodes after row id `row` (0 to
    /// start). Returns the row id to continue from, or `None` at the end.
    pub fn nodes_after(
        &mut self,
        row: i64,
        limit: u32,
        select: Columns<Node>,
        mut each: impl FnMut(&Node),
    ) -> Result<Option<i64>, StoreError> {
        let sql = format!(
            "SELECT {}, id FROM nodes WHERE id > ? ORDER BY id LIMIT ?",
            column_list(select.columns())
        );
        let mut statement = SqlBuilder::new(self.session.dialect(), sql);
        statement.params.extend([SqlParam::Int(row), SqlParam::Int(i64::from(limit))]);
        let id_index = select.columns().count();
        let mut last = None;
        self.query_rows(&statement, select, |node: &mut Node, row| {
            last = Some(decode_field(row, id_index, "nodes", "id")?);
            each(node);
            Ok(())
        })?;
        Ok(last)
    }

    /// BIOS settings of a node, by name.
    pub fn bios_settings(&mut self, node: NodeId) -> Result<Vec<BiosSetting>, StoreError> {
        self.records_of_node(node, "name")
    }

    /// Firmware components of a node, by component.
    pub fn firmware_components(
        &mut self,
        node: NodeId,
    ) -> Result<Vec<FirmwareComponent>, StoreError> {
        self.records_of_node(node, "component")
    }

    /// The inventory from the last inspection of a node.
    pub fn inventory(&mut self, node: NodeId) -> Result<Option<Inventory>, StoreError> {
        self.records_of_node(node, "id").map(|mut found| found.pop())
    }

    /// Nodes with an inventory, in the order in which the inventories were first stored.
    pub fn nodes_with_inventory(&mut self) -> Result<Vec<NodeId>, StoreError> {
        let sql = "SELECT node_uuid FROM inventories ORDER BY id";
        self.query_column(sql, &[], "inventories", "node_uuid")
    }

    /// All conductors that ever sent a heartbeat, by host name.
    pub fn conductors(&mut self) -> Result<Vec<ConductorInfo>, StoreError> {
        let sql = format!("{} ORDER BY hostname", ConductorInfo::statements().select);
        let mut conductors = Vec::new();
        let statement = SqlBuilder::new(self.session.dialect(), sql);
        self.query_rows(&statement, Columns::ALL, |conductor: &mut ConductorInfo, _| {
            conductors.push(conductor.clone());
            Ok(())
        })?;
        Ok(conductors)
    }

    /// The current time of the store's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.shared.clock)()
    }

    fn unseal_found<R: StoredResource>(
        &self,
        mut found: Option<R>,
    ) -> Result<Option<R>, StoreError> {
        if let Some(record) = &mut found {
            unseal_record(record, self.shared)?;
        }
        Ok(found)
    }

    /// The last row of a statement that selects all columns.
    pub(crate) fn query_one<R: StoredRecord>(
        &mut self,
        sql: &str,
        params: &[SqlParam<'_>],
    ) -> Result<Option<R>, StoreError> {
        let mut found = None;
        self.session.query(sql, params, &mut |row| {
            let mut record = R::blank();
            decode_row(&mut record, R::COLUMNS.iter(), row, 0)?;
            found = Some(record);
            Ok(())
        })?;
        Ok(found)
    }

    /// Calls `each` for the rows of a statement that selects the columns of `select` first.
    fn query_rows<R: StoredRecord>(
        &mut self,
        statement: &SqlBuilder<'_>,
        select: Columns<R>,
        mut each: impl FnMut(&mut R, &dyn DatabaseRow) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let columns: Vec<_> = select.columns().collect();
        let mut record = R::blank();
        self.session.query(&statement.sql, &statement.params, &mut |row| {
            decode_row(&mut record, columns.iter().copied(), row, 0)?;
            each(&mut record, row)
        })
    }

    /// The values of a statement that selects one column.
    pub(crate) fn query_column<T: ColumnType>(
        &mut self,
        sql: &str,
        params: &[SqlParam<'_>],
        table: &'static str,
        column: &'static str,
    ) -> Result<Vec<T>, StoreError> {
        let mut values = Vec::new();
        self.session.query(sql, params, &mut |row| {
            values.push(decode_field(row, 0, table, column)?);
            Ok(())
        })?;
        Ok(values)
    }

    pub(crate) fn query_count(
        &mut self,
        sql: &str,
        params: &[SqlParam<'_>],
        table: &'static str,
    ) -> Result<u64, StoreError> {
        let mut number = 0;
        self.session.query(sql, params, &mut |row| {
            number = decode_count(row, 0, table)?;
            Ok(())
        })?;
        Ok(number)
    }

    fn records_of_node<R: StoredRecord + Clone>(
        &mut self,
        node: NodeId,
        order: &str,
    ) -> Result<Vec<R>, StoreError> {
        let sql = format!("{} WHERE node_uuid = ? ORDER BY {order}", R::statements().select);
        let mut statement = SqlBuilder::new(self.session.dialect(), sql);
        statement.params.push(node.bind());
        let mut found = Vec::new();
        self.query_rows(&statement, Columns::ALL, |record: &mut R, _| {
            found.push(record.clone());
            Ok(())
        })?;
        Ok(found)
    }

    fn page_marker<R: StoredResource>(
        &mut self,
        query: &ResourceQuery<R>,
        marker: Uuid,
    ) -> Result<Option<PageMarker>, StoreError> {
        let corrupt = |column| move |_| StoreError::Corrupt { table: R::TABLE, column };
        let mut page_marker = None;
        let sql = query.page.marker_statement();
        self.session.query(&sql, &[SqlParam::id(marker)], &mut |row| {
            page_marker = Some(PageMarker {
                row: row.value(0).and_then(SqlValue::int).map_err(corrupt("id"))?,
                value: row
                    .value(1)
                    .and_then(SqlValue::to_param)
                    .map_err(corrupt(query.page.sort_column()))?,
            });
            Ok(())
        })?;
        Ok(page_marker)
    }
}

fn unseal_record<R: StoredResource>(
    record: &mut R,
    shared: &StoreShared,
) -> Result<(), StoreError> {
    let end = record.unseal(&shared.keys);
    end.map_err(|source| StoreError::Unseal { owner: record.uuid().to_string(), source })
}

/// Decodes one field of a row.
pub(crate) fn decode_field<T: ColumnType>(
    row: &dyn DatabaseRow,
    index: usize,
    table: &'static str,
    column: &'static str,
) -> Result<T, StoreError> {
    row.value(index).and_then(T::read).map_err(|_| StoreError::Corrupt { table, column })
}

fn decode_count(
    row: &dyn DatabaseRow,
    index: usize,
    table: &'static str,
) -> Result<u64, StoreError> {
    let number: i64 = decode_field(row, index, table, "COUNT(*)")?;
    Ok(u64::try_from(number).unwrap_or(0))
}
