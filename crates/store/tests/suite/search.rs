// SPDX-License-Identifier: Apache-2.0
//! Search for nodes by serial number.

use node_model::{Actor, JournalEntry, JournalEvent, NodeId};
use store::{JournalSearch, NodeMatch};

use crate::samples::*;
use crate::test_database::{TestDatabase, on_every_engine};

on_every_engine! {
    finds_nodes_by_serial_number
    search_is_limited_to_a_project
}

fn found(db: &TestDatabase, text: &'static str) -> Vec<(NodeId, NodeMatch)> {
    db.read(move |r| r.nodes_by_mac_or_serial(text, None, 2)).unwrap()
}

pub(crate) fn inspected(db: &TestDatabase, name: &'static str, inventory: &'static str) -> NodeId {
    db.write(move |w| {
        let machine = node(name);
        w.insert(&machine)?;
        let mut found = crate::samples::inventory(machine.id);
        found.inventory = object(inventory);
        // The second call replaces the first inventory.
        w.set_inventory(&found)?;
        w.set_inventory(&found)?;
        Ok(machine.id)
    })
    .unwrap()
}

fn finds_nodes_by_serial_number(db: &TestDatabase) {
    let one = inspected(db, "one", r#"{"system_vendor":{"serial_number":"ABC-100%"}}"#);
    let two = inspected(db, "two", r#"{"system_vendor":{"serial_number":"abc-200"}}"#);
    inspected(db, "three", r#"{"disks":[{"serial_number":"ABC-100"}]}"#);
    let (of_one, of_two) =
        ((one, NodeMatch::Serial("ABC-100%".into())), (two, NodeMatch::Serial("abc-200".into())));
    assert_eq!(found(db, "abc-1"), std::slice::from_ref(&of_one));
    assert_eq!(found(db, "ABC-100%"), std::slice::from_ref(&of_one));
    assert_eq!(found(db, "abc-"), [of_one, of_two]);
    assert_eq!(found(db, "bc-1"), []);
    assert_eq!(found(db, "abc_1"), []);
    // A later inspection reports another serial number.
    db.write(move |w| {
        let mut again = crate::samples::inventory(one);
        again.inventory = object(r#"{"system_vendor":{"serial_number":"xyz"}}"#);
        w.set_inventory(&again)
    })
    .unwrap();
    assert_eq!(found(db, "abc-1"), []);
    assert_eq!(found(db, "xyz"), [(one, NodeMatch::Serial("xyz".into()))]);
}

fn search_is_limited_to_a_project(db: &TestDatabase) {
    let owned = inspected(db, "owned", r#"{"system_vendor":{"serial_number":"abc-1"}}"#);
    let leased = inspected(db, "leased", r#"{"system_vendor":{"serial_number":"abc-2"}}"#);
    let foreign = inspected(db, "foreign", r#"{"system_vendor":{"serial_number":"abc-3"}}"#);
    db.write(move |w| {
        for (id, owner, lessee) in [
            (owned, Some("p1"), None),
            (leased, Some("p2"), Some("p1")),
            (foreign, Some("p2"), None),
        ] {
            let mut node = w.get(id)?.expect("inserted before");
            node.owner = owner.map(str::to_owned);
            node.lessee = lessee.map(str::to_owned);
            w.save(&mut node)?;
            let actor = Actor::Conductor { hostname: "c1".to_owned() };
            let event = JournalEvent::Enrolled;
            w.append(JournalEntry { at: node.created_at, node_id: id, actor, event });
        }
        Ok(())
    })
    .unwrap();
    let of_project = |project: &'static str| {
        let search =
            JournalSearch { project: Some(project.to_owned()), ..JournalSearch::default() };
        db.read(move |r| {
            let serials = r.nodes_by_mac_or_serial("abc", Some(project), 9)?;
            let entries = r.search_journal(&search, 0, i64::MAX, 9)?;
            let found: Vec<NodeId> = serials.iter().map(|(id, _)| *id).collect();
            let mut journal: Vec<NodeId> = entries.iter().map(|row| row.entry.node_id).collect();
            journal.reverse();
            Ok((found, journal))
        })
        .unwrap()
    };
    assert_eq!(of_project("p1"), (vec![owned, leased], vec![owned, leased]));
    assert_eq!(of_project("p2"), (vec![leased, foreign], vec![leased, foreign]));
    assert_eq!(of_project("p3"), (vec![], vec![]));
}
