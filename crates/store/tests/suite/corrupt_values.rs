// SPDX-License-Identifier: Apache-2.0
//! A value that cannot be decoded is reported with its table and column. Only SQLite accepts such
//! values.

use node_model::{Node, NodeId, Timestamp};
use store::{
    DueFilter, NodeColumn, ResourcePage, ResourceQuery, StoreError, StoreReader, StoreWriter,
};

use crate::samples::*;
use crate::test_database::{EngineKind, TestDatabase, run};

type QueryUnderTest = fn(&mut StoreReader<'_>, NodeId) -> Result<(), StoreError>;

/// The column, a corrupt value for it, and a query that reads it.
const CASES: &[(&str, &str, &str, QueryUnderTest)] = &[
    ("nodes", "due_at", "'soon'", |r, _| r.next_due_after(THEN, &due_filter()).map(drop)),
    ("ports", "node_uuid", "'x'", |r, _| r.nodes_by_macs(&[mac(1)]).map(drop)),
    ("ports", "address", "'x'", |r, _| r.undetected_cables(None).map(drop)),
    ("inventories", "node_uuid", "'x'", |r, _| r.nodes_with_inventory().map(drop)),
    ("journal", "node_uuid", "'x'", |r, _| r.journal_nodes(0, 9, 9).map(drop)),
    ("nodes", "name", "CAST(x'ff' AS TEXT)", |r, node| {
        let page = ResourcePage {
            marker: Some(node.0),
            sort: Some(NodeColumn::Name),
            ..ResourcePage::default()
        };
        r.collect::<Node>(&ResourceQuery { page, ..ResourceQuery::default() }).map(drop)
    }),
    ("nodes", "uuid", "'x'", |r, _| r.node_ids_due(THEN, &due_filter(), 9).map(drop)),
];

fn due_filter() -> DueFilter {
    DueFilter { conductor_group: String::new(), drivers: vec!["fake-hardware".to_owned()] }
}

fn insert_samples(w: &mut StoreWriter<'_>) -> Result<NodeId, StoreError> {
    let mut machine = node("one");
    machine.due_at = Some(Timestamp(THEN.0 - 1));
    w.insert(&machine)?;
    w.insert(&port(machine.id, 1))?;
    w.set_inventory(&inventory(machine.id))?;
    w.append(entry(machine.id, THEN, "active"));
    Ok(machine.id)
}

fn errors_name_the_column(db: &TestDatabase) {
    let node = db.write(insert_samples).unwrap();
    for (table, column, corrupt_value, query) in CASES {
        db.sql(&format!(
            "PRAGMA foreign_keys = OFF; CREATE TABLE saved AS SELECT rowid AS record, {column} AS value FROM
             {table}; UPDATE {table} SET {column} = {corrupt_value}"
        ));
        let error = db.read(move |r| query(r, node)).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot decode column {column} of table {table}"));
        db.sql(&format!(
            "PRAGMA foreign_keys = OFF; UPDATE {table} SET {column} = (SELECT value FROM saved WHERE
             record = {table}.rowid); DROP TABLE saved"
        ));
    }
}

#[test]
fn sqlite() {
    run(EngineKind::Sqlite, errors_name_the_column);
}
