// SPDX-License-Identifier: Apache-2.0
//! Finding nodes by what is written on the machine: addresses of cards, serial numbers.

use node_model::{JsonObject, Mac, NodeId};

use crate::error::Error;
use crate::query::Where;
use crate::reader::{Reader, field};
use crate::value::Param;

/// Something a node was found by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trace {
    /// The address of one of its ports.
    Mac(Mac),
    /// Its serial number, as its last inspection found it.
    Serial(String),
}

impl Reader<'_> {
    /// Nodes with `text` in the address of a port, or at the start of their serial number, at most
    /// `limit` of each. It goes over all inventories, so it belongs into a scan.
    pub fn nodes_by_trace(
        &mut self,
        text: &str,
        limit: u32,
    ) -> Result<Vec<(NodeId, Trace)>, Error> {
        let mut found = Vec::new();
        let mut ports =
            Where::new(self.session.dialect(), "SELECT node_uuid, address FROM ports".to_owned());
        ports.contains_text("address", Some(text));
        ports.sql.push_str(" ORDER BY id LIMIT ?");
        ports.params.push(Param::Int(i64::from(limit)));
        self.session.query(&ports.sql, &ports.params, &mut |row| {
            let mac = field(row, 1, "ports", "address")?;
            found.push((field(row, 0, "ports", "node_uuid")?, Trace::Mac(mac)));
            Ok(())
        })?;
        // The text as it stands in JSON; inventories are kept as compact as they were written.
        let quoted = serde_json::Value::from(text).to_string();
        let start = format!("\"serial_number\":{}", quoted.trim_end_matches('"'));
        let mut inventories = Where::new(
            self.session.dialect(),
            "SELECT node_uuid, inventory FROM inventories".to_owned(),
        );
        inventories.contains_text("inventory", Some(&start));
        inventories.sql.push_str(" ORDER BY id LIMIT ?");
        inventories.params.push(Param::Int(i64::from(limit)));
        self.session.query(&inventories.sql, &inventories.params, &mut |row| {
            let inventory: JsonObject = field(row, 1, "inventories", "inventory")?;
            let parsed = inventory.parse();
            let vendor = parsed.get("system_vendor");
            if let Some(serial) = vendor.and_then(|it| it.get("serial_number")?.as_str()) {
                let node = field(row, 0, "inventories", "node_uuid")?;
                found.push((node, Trace::Serial(serial.to_owned())));
            }
            Ok(())
        })?;
        Ok(found)
    }
}
