// SPDX-License-Identifier: Apache-2.0
//! Agent logs: stored completely, pruned, and deleted with their node.

use node_model::{AgentLogKind, AgentLogLimits};

use crate::samples::*;
use crate::test_database::{TestDatabase, on_every_engine};

on_every_engine! { stores_content_and_prunes_old_logs log_content_is_sealed }

const LIMITS: AgentLogLimits = AgentLogLimits { per_node: 2, bytes: 3 << 20 };

fn stores_content_and_prunes_old_logs(db: &TestDatabase) {
    let (machine, other) = (node("n"), node("other"));
    let (id, other_id) = (machine.id, other.id);
    db.write(move |w| {
        w.insert(&machine)?;
        w.insert(&other)
    })
    .unwrap();
    // Longer than one part, with different parts.
    let long: Vec<u8> = (0..(5_u32 << 19)).map(|n| (n / 1000 % 251) as u8).collect();
    let insert = |content: Vec<u8>, why: &'static str| {
        db.write(move |w| w.insert_agent_log(id, AgentLogKind::Inspection, why, &content, LIMITS))
            .unwrap()
    };
    assert_eq!(insert(Vec::new(), "empty"), None);
    assert_eq!(insert(vec![0; (3 << 20) + 1], "too long"), None);
    let first = insert(b"first".to_vec(), "it failed").unwrap();
    let second = insert(long.clone(), "second").unwrap();
    db.write(move |w| w.insert_agent_log(other_id, AgentLogKind::Deploy, "other", b"x", LIMITS))
        .unwrap();
    let (log, content) = db.read(move |r| r.agent_log(id, second)).unwrap().unwrap();
    assert!(content == long);
    assert_eq!(log.size, 5 << 19);
    assert_eq!(
        (log.node_id, log.kind, log.reason.as_str()),
        (id, AgentLogKind::Inspection, "second")
    );
    assert!(db.read(move |r| r.agent_log(other_id, second)).unwrap().is_none());

    let third = insert(b"third".to_vec(), "\0third").unwrap();
    let whys = |db: &TestDatabase| {
        let found = db.read(move |r| r.agent_logs(id)).unwrap();
        found.into_iter().map(|log| (log.id, log.reason)).collect::<Vec<_>>()
    };
    assert_eq!(whys(db), [(third, "third".to_owned()), (second, "second".to_owned())]);
    assert!(db.read(move |r| r.agent_log(id, first)).unwrap().is_none());

    db.write(move |w| w.delete(id)).unwrap();
    assert!(whys(db).is_empty());
    assert_eq!(db.read(move |r| r.agent_logs(other_id)).unwrap().len(), 1);
}

fn log_content_is_sealed(db: &TestDatabase) {
    let machine = node("n");
    let id = machine.id;
    let log = db
        .write(move |w| {
            w.insert(&machine)?;
            w.insert_agent_log(
                id,
                AgentLogKind::Clean,
                "reason",
                b"token=hunter2",
                AgentLogLimits::default(),
            )
        })
        .unwrap()
        .unwrap();
    // A part that was not sealed for this log cannot be opened.
    db.sql(&format!("UPDATE agent_log_parts SET log_uuid = '{log}', sealed = NULL"));
    assert!(db.read(move |r| r.agent_log(id, log)).is_err());
}
