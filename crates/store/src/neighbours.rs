// SPDX-License-Identifier: Apache-2.0
//! What machines are plugged into: what their cards heard, next to what was written down.
//!
//! The rows are written when an inspection ends, so that nobody has to read inventories to draw the
//! network.

use node_model::{CableEnd, Neighbour, NodeId};

use crate::engine::Row;
use crate::error::Error;
use crate::query::Where;
use crate::reader::{Reader, field};
use crate::value::Field;
use crate::writer::Writer;

const TABLE: &str = "neighbours";

/// What comes first in both lists; see [`end`].
const END: &str = "nodes.uuid, nodes.name, ports.uuid, ports.local_link_connection, \
                   listenings.listened_at";

/// Which cables.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CableFilter {
    /// Those of this switch, by its id or its name.
    pub switch: Option<String>,
    /// Those of this node.
    pub node: Option<NodeId>,
}

impl Reader<'_> {
    /// The cables at whose end something was heard, by switch and port.
    pub fn cables_heard(&mut self, filter: &CableFilter) -> Result<Vec<CableEnd>, Error> {
        let sql = format!(
            "SELECT {END}, neighbours.address, interface, switch_id, switch_name, \
             switch_description, management_addresses, port_id, port_description, detail \
             FROM neighbours JOIN nodes ON nodes.uuid = neighbours.node_uuid \
             LEFT JOIN listenings ON listenings.node_uuid = neighbours.node_uuid \
             LEFT JOIN ports ON ports.address = neighbours.address \
             AND ports.node_uuid = neighbours.node_uuid"
        );
        let mut statement = Where::new(self.session.dialect(), sql);
        statement.equals("neighbours.node_uuid", filter.node.as_ref().map(Field::bind));
        if let Some(switch) = &filter.switch {
            statement.and("(switch_id = ? OR switch_name = ?)");
            statement.params.extend([switch.bind(), switch.bind()]);
        }
        statement.sql.push_str(" ORDER BY switch_id, port_id, neighbours.id");
        let mut found = Vec::new();
        self.session.query(&statement.sql, &statement.params, &mut |row| {
            found.push(end(row, Some(neighbour(row)?))?);
            Ok(())
        })?;
        Ok(found)
    }

    /// The ports that say where their cable ends, but nothing was heard there. What they say is not
    /// looked at: a filter by switch is the caller's.
    pub fn cables_not_heard(&mut self, node: Option<NodeId>) -> Result<Vec<CableEnd>, Error> {
        let sql = format!(
            "SELECT {END}, ports.address FROM ports JOIN nodes ON nodes.uuid = ports.node_uuid \
             LEFT JOIN listenings ON listenings.node_uuid = ports.node_uuid"
        );
        let mut statement = Where::new(self.session.dialect(), sql);
        statement.equals("ports.node_uuid", node.as_ref().map(Field::bind));
        statement.and(
            "ports.local_link_connection IS NOT NULL AND NOT EXISTS (SELECT 1 FROM neighbours \
             WHERE neighbours.address = ports.address AND neighbours.node_uuid = ports.node_uuid)",
        );
        statement.sql.push_str(" ORDER BY ports.id");
        let mut found = Vec::new();
        self.session.query(&statement.sql, &statement.params, &mut |row| {
            found.push(end(row, None)?);
            Ok(())
        })?;
        Ok(found)
    }
}

impl Writer<'_> {
    /// Replaces what a node's cards heard.
    pub fn hear_neighbours(&mut self, node: NodeId, heard: &[Neighbour]) -> Result<(), Error> {
        let now = self.now();
        self.forget_neighbours(node)?;
        self.session.execute(
            "INSERT INTO listenings (node_uuid, listened_at) VALUES (?, ?)",
            &[node.bind(), now.bind()],
        )?;
        for neighbour in heard {
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

    /// Forgets when a node last listened, and what it heard: nobody listens there any more.
    pub fn forget_neighbours(&mut self, node: NodeId) -> Result<(), Error> {
        for table in ["neighbours", "listenings"] {
            let sql = format!("DELETE FROM {table} WHERE node_uuid = ?");
            self.session.execute(&sql, &[node.bind()])?;
        }
        Ok(())
    }
}

fn end(row: &dyn Row, heard: Option<Neighbour>) -> Result<CableEnd, Error> {
    Ok(CableEnd {
        node_id: field(row, 0, "nodes", "uuid")?,
        node_name: field(row, 1, "nodes", "name")?,
        port_id: field(row, 2, "ports", "uuid")?,
        configured: field(row, 3, "ports", "local_link_connection")?,
        listened_at: field(row, 4, "listenings", "listened_at")?,
        address: field(row, 5, TABLE, "address")?,
        heard,
    })
}

fn neighbour(row: &dyn Row) -> Result<Neighbour, Error> {
    Ok(Neighbour {
        address: field(row, 5, TABLE, "address")?,
        interface: field(row, 6, TABLE, "interface")?,
        switch_id: field(row, 7, TABLE, "switch_id")?,
        switch_name: field(row, 8, TABLE, "switch_name")?,
        switch_description: field(row, 9, TABLE, "switch_description")?,
        management_addresses: field(row, 10, TABLE, "management_addresses")?,
        port_id: field(row, 11, TABLE, "port_id")?,
        port_description: field(row, 12, TABLE, "port_description")?,
        detail: field(row, 13, TABLE, "detail")?,
    })
}
