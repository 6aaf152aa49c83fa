// SPDX-License-Identifier: Apache-2.0
//! Cabling: LLDP neighbours of nodes, next to the configured `local_link_connection`.
//!
//! The rows are written when an inspection ends, so that the network view need not parse
//! inventories.

use node_model::{CableEnd, Neighbour, NodeId};

use crate::engine::DatabaseRow;
use crate::error::StoreError;
use crate::query::SqlBuilder;
use crate::reader::{StoreReader, decode_field};
use crate::value::ColumnType;
use crate::writer::StoreWriter;

const TABLE: &str = "neighbours";

/// The columns that [`decode_cable_end`] expects first.
const CABLE_END_COLUMNS: &str = "nodes.uuid, nodes.name, ports.uuid, ports.local_link_connection, \
                   neighbour_observations.observed_at";

/// Selects cables.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CableFilter {
    /// Cables of the switch with this id or name.
    pub switch: Option<String>,
    /// Cables of this node.
    pub node: Option<NodeId>,
}

impl StoreReader<'_> {
    /// Cables with an LLDP neighbour, by switch and port.
    pub fn detected_cables(&mut self, filter: &CableFilter) -> Result<Vec<CableEnd>, StoreError> {
        let sql = format!(
            "SELECT {CABLE_END_COLUMNS}, neighbours.address, interface, switch_id, switch_name, \
             switch_description, management_addresses, port_id, port_description, detail \
             FROM neighbours JOIN nodes ON nodes.uuid = neighbours.node_uuid \
             LEFT JOIN neighbour_observations ON neighbour_observations.node_uuid = neighbours.node_uuid \
             LEFT JOIN ports ON ports.address = neighbours.address \
             AND ports.node_uuid = neighbours.node_uuid"
        );
        let mut statement = SqlBuilder::new(self.session.dialect(), sql);
        statement.equals("neighbours.node_uuid", filter.node.as_ref().map(ColumnType::bind));
        if let Some(switch) = &filter.switch {
            statement.and("(switch_id = ? OR switch_name = ?)");
            statement.params.extend([switch.bind(), switch.bind()]);
        }
        statement.sql.push_str(" ORDER BY switch_id, port_id, neighbours.id");
        let mut found = Vec::new();
        self.session.query(&statement.sql, &statement.params, &mut |row| {
            found.push(decode_cable_end(row, Some(decode_neighbour(row)?))?);
            Ok(())
        })?;
        Ok(found)
    }

    /// Ports with a `local_link_connection` but without an LLDP neighbour. The caller filters by switch,
    /// which is inside the JSON.
    pub fn undetected_cables(&mut self, node: Option<NodeId>) -> Result<Vec<CableEnd>, StoreError> {
        let sql = format!(
            "SELECT {CABLE_END_COLUMNS}, ports.address FROM ports JOIN nodes ON nodes.uuid = ports.node_uuid \
             LEFT JOIN neighbour_observations ON neighbour_observations.node_uuid = ports.node_uuid"
        );
        let mut statement = SqlBuilder::new(self.session.dialect(), sql);
        statement.equals("ports.node_uuid", node.as_ref().map(ColumnType::bind));
        statement.and(
            "ports.local_link_connection IS NOT NULL AND NOT EXISTS (SELECT 1 FROM neighbours \
             WHERE neighbours.address = ports.address AND neighbours.node_uuid = ports.node_uuid)",
        );
        statement.sql.push_str(" ORDER BY ports.id");
        let mut found = Vec::new();
        self.session.query(&statement.sql, &statement.params, &mut |row| {
            found.push(decode_cable_end(row, None)?);
            Ok(())
        })?;
        Ok(found)
    }
}

impl StoreWriter<'_> {
    /// Replaces the LLDP neighbours of a node and sets the time of collection.
    pub fn replace_neighbours(
        &mut self,
        node: NodeId,
        neighbours: &[Neighbour],
    ) -> Result<(), StoreError> {
        let now = self.now();
        self.delete_neighbours(node)?;
        self.session.execute(
            "INSERT INTO neighbour_observations (node_uuid, observed_at) VALUES (?, ?)",
            &[node.bind(), now.bind()],
        )?;
        for neighbour in neighbours {
            self.session.execute(
                "INSERT INTO neighbours (node_uuid, interface, address, switch_id, switch_name,
                 switch_description, management_addresses, port_id, port_description, detail)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                &[
                    node.bind(),
                    neighbour.interface.bind(),
                    neighbour.address.bind(),
                    neighbour.switch_id.bind(),
                    neighbour.switch_name.bind(),
                    neighbour.switch_description.bind(),
                    neighbour.management_addresses.bind(),
                    neighbour.port_id.bind(),
                    neighbour.port_description.bind(),
                    neighbour.detail.bind(),
                ],
            )?;
        }
        Ok(())
    }

    /// Deletes the LLDP neighbours of a node and their time of collection.
    pub fn delete_neighbours(&mut self, node: NodeId) -> Result<(), StoreError> {
        for table in ["neighbours", "neighbour_observations"] {
            let sql = format!("DELETE FROM {table} WHERE node_uuid = ?");
            self.session.execute(&sql, &[node.bind()])?;
        }
        Ok(())
    }
}

fn decode_cable_end(
    row: &dyn DatabaseRow,
    observed: Option<Neighbour>,
) -> Result<CableEnd, StoreError> {
    let address_table = if observed.is_some() { TABLE } else { "ports" };
    Ok(CableEnd {
        node_id: decode_field(row, 0, "nodes", "uuid")?,
        node_name: decode_field(row, 1, "nodes", "name")?,
        port_id: decode_field(row, 2, "ports", "uuid")?,
        configured: decode_field(row, 3, "ports", "local_link_connection")?,
        observed_at: decode_field(row, 4, "neighbour_observations", "observed_at")?,
        address: decode_field(row, 5, address_table, "address")?,
        observed,
    })
}

fn decode_neighbour(row: &dyn DatabaseRow) -> Result<Neighbour, StoreError> {
    Ok(Neighbour {
        address: decode_field(row, 5, TABLE, "address")?,
        interface: decode_field(row, 6, TABLE, "interface")?,
        switch_id: decode_field(row, 7, TABLE, "switch_id")?,
        switch_name: decode_field(row, 8, TABLE, "switch_name")?,
        switch_description: decode_field(row, 9, TABLE, "switch_description")?,
        management_addresses: decode_field(row, 10, TABLE, "management_addresses")?,
        port_id: decode_field(row, 11, TABLE, "port_id")?,
        port_description: decode_field(row, 12, TABLE, "port_description")?,
        detail: decode_field(row, 13, TABLE, "detail")?,
    })
}
