// SPDX-License-Identifier: Apache-2.0
//! Search for nodes by serial number.

use node_model::NodeId;
use store::NodeMatch;

use crate::samples::*;
use crate::test_database::{TestDatabase, on_every_engine};

on_every_engine! {
    finds_nodes_by_serial_number
}

fn found(db: &TestDatabase, text: &'static str) -> Vec<(NodeId, NodeMatch)> {
    db.read(move |r| r.nodes_by_mac_or_serial(text, 2)).unwrap()
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
