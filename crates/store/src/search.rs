// SPDX-License-Identifier: Apache-2.0
//! Search for nodes by MAC address or serial number.

use node_model::{JsonObject, Mac, NodeId};

use crate::engine::DatabaseSession;
use crate::error::StoreError;
use crate::query::SqlBuilder;
use crate::reader::{StoreReader, decode_field};
use crate::value::SqlParam;

/// Length of the indexed serial number; longer ones match by their prefix.
const MAX_SERIAL_CHARS: usize = 255;

/// Inventories per SELECT of the backfill.
const BACKFILL_BATCH: i64 = 200;

/// What a search matched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeMatch {
    /// The MAC address of a port.
    Mac(Mac),
    /// The serial number from the last inspection.
    Serial(String),
}

impl StoreReader<'_> {
    /// Nodes with `text` in the MAC address of a port or at the start of their serial number, at most
    /// `limit` of each; if `project` is set, only nodes owned or leased by it. Scans all ports, so call it from [`crate::Store::scan`].
    pub fn nodes_by_mac_or_serial(
        &mut self,
        text: &str,
        project: Option<&str>,
        limit: u32,
    ) -> Result<Vec<(NodeId, NodeMatch)>, StoreError> {
        const OF_PROJECT: &str =
            "node_uuid IN (SELECT uuid FROM nodes WHERE owner = ? OR lessee = ?)";
        let mut found = Vec::new();
        let mut ports = SqlBuilder::new(
            self.session.dialect(),
            "SELECT node_uuid, address FROM ports".to_owned(),
        );
        ports.contains_ignoring_case("address", Some(text));
        if let Some(project) = project {
            ports.and(OF_PROJECT);
            ports.params.extend([SqlParam::Text(project), SqlParam::Text(project)]);
        }
        ports.sql.push_str(" ORDER BY id LIMIT ?");
        ports.params.push(SqlParam::Int(i64::from(limit)));
        self.session.query(&ports.sql, &ports.params, &mut |row| {
            let mac = decode_field(row, 1, "ports", "address")?;
            found.push((decode_field(row, 0, "ports", "node_uuid")?, NodeMatch::Mac(mac)));
            Ok(())
        })?;
        // Prefix search as a range: from the prefix to below the next text without that prefix.
        let first = serial_key(text);
        let mut sql = "SELECT node_uuid, inventory FROM inventories WHERE serial >= ?".to_owned();
        let mut params = vec![SqlParam::Text(&first)];
        let behind = prefix_upper_bound(&first);
        if let Some(behind) = &behind {
            sql.push_str(" AND serial < ?");
            params.push(SqlParam::Text(behind));
        }
        if let Some(project) = project {
            sql.push_str(" AND ");
            sql.push_str(OF_PROJECT);
            params.extend([SqlParam::Text(project), SqlParam::Text(project)]);
        }
        sql.push_str(" ORDER BY serial, id LIMIT ?");
        params.push(SqlParam::Int(i64::from(limit)));
        self.session.query(&sql, &params, &mut |row| {
            let inventory: JsonObject = decode_field(row, 1, "inventories", "inventory")?;
            if let Some(serial) = system_serial(&inventory) {
                let node = decode_field(row, 0, "inventories", "node_uuid")?;
                found.push((node, NodeMatch::Serial(serial)));
            }
            Ok(())
        })?;
        Ok(found)
    }
}

/// The value of the `serial` column for an inventory; `None` without a serial number.
pub(crate) fn serial_column(inventory: &JsonObject) -> Option<String> {
    // Avoids parsing inventories without a serial number.
    let serial = if inventory.as_str().contains("\"serial_number\"") {
        system_serial(inventory)
    } else {
        None
    };
    serial.map(|serial| serial_key(&serial)).filter(|key| !key.is_empty())
}

/// Fills the `serial` column of existing inventories. Idempotent.
pub(crate) fn backfill_serials(session: &mut dyn DatabaseSession) -> Result<(), StoreError> {
    let mut last = 0;
    loop {
        let mut found: Vec<(i64, Option<String>)> = Vec::new();
        session.query(
            "SELECT id, inventory FROM inventories WHERE id > ? ORDER BY id LIMIT ?",
            &[SqlParam::Int(last), SqlParam::Int(BACKFILL_BATCH)],
            &mut |row| {
                let inventory: JsonObject = decode_field(row, 1, "inventories", "inventory")?;
                found.push((decode_field(row, 0, "inventories", "id")?, serial_column(&inventory)));
                Ok(())
            },
        )?;
        let Some((highest, _)) = found.last() else { return Ok(()) };
        last = *highest;
        for (id, serial) in found {
            if let Some(serial) = serial {
                let params = [SqlParam::Owned(serial), SqlParam::Int(id)];
                session.execute("UPDATE inventories SET serial = ? WHERE id = ?", &params)?;
            }
        }
    }
}

fn system_serial(inventory: &JsonObject) -> Option<String> {
    let serial = inventory.get("system_vendor")?.get("serial_number")?.as_str()?.to_owned();
    Some(serial)
}

fn serial_key(serial: &str) -> String {
    let key = serial.trim().to_lowercase();
    // PostgreSQL rejects NUL in text.
    key.chars().filter(|letter| *letter != '\0').take(MAX_SERIAL_CHARS).collect()
}

/// The lowest text greater than everything that starts with `text`; `None` if there is none. Texts
/// compare bytewise, which is the order of their characters.
fn prefix_upper_bound(text: &str) -> Option<String> {
    let mut letters: Vec<char> = text.chars().collect();
    while let Some(last) = letters.pop() {
        // Skips the surrogates, which are not characters.
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            letters.push(next);
            return Some(letters.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_upper_bound_is_the_next_text() {
        for (text, expected) in [
            ("abc", Some("abd")),
            ("a\u{d7ff}", Some("a\u{e000}")),
            ("a\u{10ffff}", Some("b")),
            ("\u{10ffff}", None),
            ("", None),
        ] {
            assert_eq!(prefix_upper_bound(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn only_the_system_serial_number_is_indexed() {
        for (text, expected) in [
            (r#"{"system_vendor":{"serial_number":" ABC-1 "}}"#, Some("abc-1")),
            (r#"{"disks":[{"serial_number":"ABC-1"}]}"#, None),
            (r#"{"system_vendor":{"serial_number":""}}"#, None),
            (r#"{"system_vendor":{"serial_number":7}}"#, None),
            ("{}", None),
        ] {
            let inventory = JsonObject::from_stored(text);
            assert_eq!(serial_column(&inventory).as_deref(), expected, "{text}");
        }
    }
}
