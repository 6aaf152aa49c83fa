// SPDX-License-Identifier: Apache-2.0
//! Data migration that renames stored values: kinds of journal events, wait reasons, and keys of
//! `driver_internal_info`. It also schedules jobs that an earlier version left without a due time.

use node_model::JsonObject;

use crate::engine::{DatabaseSession, Dialect};
use crate::error::StoreError;
use crate::reader::decode_field;
use crate::value::{ColumnType as _, SqlParam};

/// Nodes per SELECT.
const BATCH: i64 = 200;

/// Kinds of journal events: the old and the new name.
const JOURNAL_KINDS: &[(&str, &str)] = &[
    ("asked", "requested"),
    ("entered", "state_changed"),
    ("did", "action_done"),
    ("failed", "action_failed"),
    ("noted", "note"),
    ("seen", "network_activity"),
    ("heard", "agent_call"),
];

/// Wait reasons: the old and the new text.
const WAIT_REASONS: &[(&str, &str)] =
    &[("BMC answer", "BMC response"), ("agent answer", "agent response")];

/// Keys of `driver_internal_info`: the JSON pointer of their object, the old and the new name.
const INTERNAL_KEYS: &[(&str, &str, &str)] = &[
    ("", "boot_way", "boot_method"),
    ("", "boot_ways_tried", "boot_methods_tried"),
    ("", "bmc_silent", "bmc_unreachable"),
    ("/bmc_unreachable", "why", "error"),
    ("/bmc", "could_not_ask", "failed_queries"),
];

/// Renames the values in all rows. Idempotent.
pub(crate) fn rename_existing_values(session: &mut dyn DatabaseSession) -> Result<(), StoreError> {
    rename_journal_kinds(session)?;
    for (old, new) in WAIT_REASONS {
        for (table, column, start) in
            [("nodes", "wait", "{"), ("journal", "event", "{\"kind\":\"waiting\"")]
        {
            session.run(&format!(
                "UPDATE {table} SET {column} = REPLACE({column}, '\"{old}\"', '\"{new}\"')
                 WHERE {column} LIKE '{start}%\"{old}\"%'"
            ))?;
        }
    }
    rename_internal_keys(session)?;
    schedule_jobs(session)
}

/// Renames all kinds of journal events in one scan. `kind` is the first member of the stored JSON.
fn rename_journal_kinds(session: &mut dyn DatabaseSession) -> Result<(), StoreError> {
    let dialect = session.dialect();
    let mut cases = String::new();
    let mut conditions = Vec::new();
    for (old, new) in JOURNAL_KINDS {
        let start = format!("{{\"kind\":\"{old}\"");
        let condition = format!("event LIKE '{start}%'");
        let rest = format!("SUBSTR(event, {})", start.len() + 1);
        let renamed = format!("'{{\"kind\":\"{new}\"'");
        let event = match dialect {
            Dialect::Sqlite | Dialect::Postgres => format!("{renamed} || {rest}"),
            Dialect::MariaDb => format!("CONCAT({renamed}, {rest})"),
        };
        cases.push_str(&format!(" WHEN {condition} THEN {event}"));
        conditions.push(condition);
    }
    let any = conditions.join(" OR ");
    session.run(&format!("UPDATE journal SET event = CASE{cases} ELSE event END WHERE {any}"))
}

/// Makes jobs without a due time due. Earlier versions lost the time of a polled step in maintenance;
/// jobs that wait for an event only decide again to wait.
fn schedule_jobs(session: &mut dyn DatabaseSession) -> Result<(), StoreError> {
    session.execute(
        "UPDATE nodes SET due_at = 0 WHERE work IS NOT NULL AND due_at IS NULL AND maintenance = ?",
        &[false.bind()],
    )?;
    Ok(())
}

fn rename_internal_keys(session: &mut dyn DatabaseSession) -> Result<(), StoreError> {
    let conditions: Vec<String> = INTERNAL_KEYS
        .iter()
        .filter(|(pointer, _, _)| *pointer != "/bmc_unreachable")
        .map(|(_, old, _)| format!("driver_internal_info LIKE '%\"{old}\"%'"))
        .collect();
    let select = format!(
        "SELECT id, driver_internal_info FROM nodes WHERE id > ? AND ({}) ORDER BY id LIMIT ?",
        conditions.join(" OR ")
    );
    let mut last: i64 = 0;
    loop {
        let mut found: Vec<(i64, JsonObject)> = Vec::new();
        session.query(&select, &[SqlParam::Int(last), SqlParam::Int(BATCH)], &mut |row| {
            let info = decode_field(row, 1, "nodes", "driver_internal_info")?;
            found.push((decode_field(row, 0, "nodes", "id")?, info));
            Ok(())
        })?;
        let Some((highest, _)) = found.last() else { return Ok(()) };
        last = *highest;
        for (id, mut info) in found {
            if !rename_keys(&mut info) {
                tracing::warn!(row = id, "invalid driver_internal_info of a node was not migrated");
                continue;
            }
            session.execute(
                "UPDATE nodes SET driver_internal_info = ? WHERE id = ?",
                &[info.bind(), SqlParam::Int(id)],
            )?;
        }
    }
}

/// Renames the keys. Returns false if the stored text is not a JSON object.
fn rename_keys(info: &mut JsonObject) -> bool {
    let Ok(mut value @ serde_json::Value::Object(_)) = serde_json::from_str(info.as_str()) else {
        return false;
    };
    for (pointer, old, new) in INTERNAL_KEYS {
        let object = value.pointer_mut(pointer).and_then(serde_json::Value::as_object_mut);
        if let Some(object) = object
            && let Some(member) = object.remove(*old)
        {
            object.insert((*new).to_owned(), member);
        }
    }
    if let serde_json::Value::Object(renamed) = value {
        *info = JsonObject::from(renamed);
    }
    true
}

#[cfg(test)]
mod tests {
    use node_model::JournalEvent;

    use super::*;

    #[test]
    fn renames_keys_at_their_place() {
        for (before, after) in [
            (
                r#"{"boot_way":"ipxe","boot_ways_tried":["ipxe"],"own":{"boot_way":1}}"#,
                r#"{"boot_method":"ipxe","boot_methods_tried":["ipxe"],"own":{"boot_way":1}}"#,
            ),
            (
                r#"{"bmc":{"could_not_ask":["x"]},"bmc_silent":{"since":"s","why":"w"}}"#,
                r#"{"bmc":{"failed_queries":["x"]},"bmc_unreachable":{"error":"w","since":"s"}}"#,
            ),
            (r#"{"bmc":null,"why":1}"#, r#"{"bmc":null,"why":1}"#),
        ] {
            let mut info = JsonObject::from_stored(before);
            assert!(rename_keys(&mut info), "{before}");
            assert_eq!(info.parse(), JsonObject::from_stored(after).parse(), "{before}");
        }
    }

    #[test]
    fn invalid_objects_are_not_changed() {
        let text = r#"{"boot_way":"#;
        let mut info = JsonObject::from_stored(text);
        assert!(!rename_keys(&mut info));
        assert_eq!(info.as_str(), text);
    }

    #[test]
    fn new_kinds_are_those_of_the_journal() {
        for (old, new) in JOURNAL_KINDS {
            assert!(JournalEvent::KINDS.contains(new), "{new}");
            assert!(!JournalEvent::KINDS.contains(old), "{old}");
        }
    }
}
