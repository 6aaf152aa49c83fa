// SPDX-License-Identifier: Apache-2.0
//! What is found without looking at everything: nodes by their serial number, times of entering
//! states; also in databases from before there was a place for it.

use node_model::{Happening, NodeId};
use store::Trace;

use crate::database::{Database, Kind, on_every_engine};
use crate::samples::*;

on_every_engine! {
    serial_numbers_are_found older_databases_are_filled a_migration_cut_short_is_gone_on_with
}

fn found(db: &Database, text: &'static str) -> Vec<(NodeId, Trace)> {
    db.read(move |r| r.nodes_by_trace(text, 2)).unwrap()
}

fn inspected(db: &Database, name: &'static str, inventory: &'static str) -> NodeId {
    db.write(move |w| {
        let machine = node(name);
        w.insert(&machine)?;
        let mut found = crate::samples::inventory(machine.id);
        found.inventory = object(inventory);
        // What was found before is replaced.
        w.set_inventory(&found)?;
        w.set_inventory(&found)?;
        Ok(machine.id)
    })
    .unwrap()
}

fn serial_numbers_are_found(db: &Database) {
    let one = inspected(db, "one", r#"{"system_vendor":{"serial_number":"ABC-100%"}}"#);
    let two = inspected(db, "two", r#"{"system_vendor":{"serial_number":"abc-200"}}"#);
    inspected(db, "three", r#"{"disks":[{"serial_number":"ABC-100"}]}"#);
    let (of_one, of_two) =
        ((one, Trace::Serial("ABC-100%".into())), (two, Trace::Serial("abc-200".into())));
    assert_eq!(found(db, "abc-1"), std::slice::from_ref(&of_one));
    assert_eq!(found(db, "ABC-100%"), std::slice::from_ref(&of_one));
    assert_eq!(found(db, "abc-"), [of_one, of_two]);
    assert_eq!(found(db, "bc-1"), []);
    assert_eq!(found(db, "abc_1"), []);
    // Another inspection finds another number.
    db.write(move |w| {
        let mut again = crate::samples::inventory(one);
        again.inventory = object(r#"{"system_vendor":{"serial_number":"xyz"}}"#);
        w.set_inventory(&again)
    })
    .unwrap();
    assert_eq!(found(db, "abc-1"), []);
    assert_eq!(found(db, "xyz"), [(one, Trace::Serial("xyz".into()))]);
}

fn older_databases_are_filled(db: &Database) {
    let id = remembered(db);
    take_away(db);
    is_filled_again(db, id);
}

/// Only on MariaDB are there databases in which a part of a migration was kept.
fn a_migration_cut_short_is_gone_on_with(db: &Database) {
    if db.kind != Kind::MariaDb {
        return;
    }
    let id = remembered(db);
    // Killed before it said that it was done.
    is_filled_again(db, id);
    // Killed after its first statement.
    db.sql("DROP INDEX inventories_serial ON inventories");
    db.sql("UPDATE inventories SET serial = NULL");
    db.sql("DROP TABLE state_entries");
    is_filled_again(db, id);
    // And so for every other: all that is there already is left as it is.
    db.sql("DELETE FROM schema_migrations");
    is_filled_again(db, id);
    assert!(db.read(move |r| r.inventory(id)).unwrap().is_some());
}

/// A node with a serial number, and the time it entered a state.
fn remembered(db: &Database) -> NodeId {
    let id = inspected(db, "one", r#"{"system_vendor":{"serial_number":"ABC-1"}}"#);
    let at = db.now();
    db.write(move |w| {
        let mut entered = entry(id, at, "");
        let (event, why) = ("done".to_owned(), "so".to_owned());
        entered.what =
            Happening::Entered { from: "enroll".into(), to: "verifying".into(), event, why };
        w.append(entry(id, at, "x"));
        w.append(entered);
        Ok(())
    })
    .unwrap();
    id
}

fn is_filled_again(db: &Database, id: NodeId) {
    let at = db.now();
    db.sql("DELETE FROM schema_migrations WHERE number >= 5");
    let store = db.open_again().unwrap();
    let read = move |r: &mut store::Reader<'_>| {
        Ok::<_, store::Error>((r.nodes_by_trace("abc", 9)?, r.entries_into_states(9)?))
    };
    let (traces, entries) = db.runtime.block_on(store.read(read)).unwrap();
    store.close();
    assert_eq!(traces, [(id, Trace::Serial("ABC-1".into()))]);
    let entries: Vec<_> = entries.into_iter().map(|it| (it.node, it.at, it.from, it.to)).collect();
    assert_eq!(entries, [(id, at, "enroll".to_owned(), "verifying".to_owned())]);
}

/// Takes away what the fifth migration added.
pub(crate) fn take_away(db: &Database) {
    let drop_index = match db.kind {
        Kind::Sqlite | Kind::Postgres => "DROP INDEX inventories_serial",
        Kind::MariaDb => "DROP INDEX inventories_serial ON inventories",
    };
    for sql in
        [drop_index, "ALTER TABLE inventories DROP COLUMN serial", "DROP TABLE state_entries"]
    {
        db.sql(sql);
    }
}
