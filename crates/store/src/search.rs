// SPDX-License-Identifier: Apache-2.0
//! Finding nodes by what is written on the machine: addresses of cards, serial numbers.

use node_model::{JsonObject, Mac, NodeId};

use crate::engine::Session;
use crate::error::Error;
use crate::query::Where;
use crate::reader::{Reader, field};
use crate::value::Param;

/// How long a serial number may be for the column it is found by. What is longer is found by its
/// beginning.
const LONGEST_KEY: usize = 255;

/// How many inventories are looked at at a time when the column is filled.
const FILLED_AT_ONCE: i64 = 200;

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
    /// `limit` of each. It goes over all ports, so it belongs into a scan.
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
        // Texts that begin so are those from it to before the first that is greater than all of them.
        let first = serial_key(text);
        let mut sql = "SELECT node_uuid, inventory FROM inventories WHERE serial >= ?".to_owned();
        let mut params = vec![Param::Text(&first)];
        let behind = behind_all(&first);
        if let Some(behind) = &behind {
            sql.push_str(" AND serial < ?");
            params.push(Param::Text(behind));
        }
        sql.push_str(" ORDER BY serial, id LIMIT ?");
        params.push(Param::Int(i64::from(limit)));
        self.session.query(&sql, &params, &mut |row| {
            let inventory: JsonObject = field(row, 1, "inventories", "inventory")?;
            if let Some(serial) = serial_of(&inventory) {
                let node = field(row, 0, "inventories", "node_uuid")?;
                found.push((node, Trace::Serial(serial)));
            }
            Ok(())
        })?;
        Ok(found)
    }
}

/// What an inventory's serial number is found by; none if it has none.
pub(crate) fn serial_column(inventory: &JsonObject) -> Option<String> {
    // Most of it is not about that, and parsing all of it is not needed to see that there is none.
    let serial =
        if inventory.as_str().contains("\"serial_number\"") { serial_of(inventory) } else { None };
    serial.map(|serial| serial_key(&serial)).filter(|key| !key.is_empty())
}

/// Fills the column for the inventories that were there before it was, whether or not it was filled
/// in part.
pub(crate) fn fill_serials(session: &mut dyn Session) -> Result<(), Error> {
    let mut last = 0;
    loop {
        let mut found: Vec<(i64, Option<String>)> = Vec::new();
        session.query(
            "SELECT id, inventory FROM inventories WHERE id > ? ORDER BY id LIMIT ?",
            &[Param::Int(last), Param::Int(FILLED_AT_ONCE)],
            &mut |row| {
                let inventory: JsonObject = field(row, 1, "inventories", "inventory")?;
                found.push((field(row, 0, "inventories", "id")?, serial_column(&inventory)));
                Ok(())
            },
        )?;
        let Some((highest, _)) = found.last() else { return Ok(()) };
        last = *highest;
        for (id, serial) in found {
            if let Some(serial) = serial {
                let params = [Param::Owned(serial), Param::Int(id)];
                session.execute("UPDATE inventories SET serial = ? WHERE id = ?", &params)?;
            }
        }
    }
}

fn serial_of(inventory: &JsonObject) -> Option<String> {
    let serial = inventory.get("system_vendor")?.get("serial_number")?.as_str()?.to_owned();
    Some(serial)
}

fn serial_key(serial: &str) -> String {
    let key = serial.trim().to_lowercase();
    // Neither column nor index of every database takes a NUL character.
    key.chars().filter(|letter| *letter != '\0').take(LONGEST_KEY).collect()
}

/// The lowest text that is greater than everything that begins with `text`; none if there is none.
/// Texts compare by their bytes, which is the order of their characters.
fn behind_all(text: &str) -> Option<String> {
    let mut letters: Vec<char> = text.chars().collect();
    while let Some(last) = letters.pop() {
        // Past the surrogates, which are no characters.
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
    fn what_begins_with_a_text_is_before_what_is_behind_all() {
        for (text, expected) in [
            ("abc", Some("abd")),
            ("a\u{d7ff}", Some("a\u{e000}")),
            ("a\u{10ffff}", Some("b")),
            ("\u{10ffff}", None),
            ("", None),
        ] {
            assert_eq!(behind_all(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn only_the_serial_number_of_the_system_counts() {
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
