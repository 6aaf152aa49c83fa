// SPDX-License-Identifier: Apache-2.0
//! What ramdisks wrote down: kept whole, the last few, and gone with their node.

use node_model::{KeptLogs, LogKind};

use crate::database::{Database, on_every_engine};
use crate::samples::*;

on_every_engine! { logs_are_kept_whole_and_few logs_in_the_database_are_sealed }

const LIMITS: KeptLogs = KeptLogs { per_node: 2, bytes: 3 << 20 };

fn logs_are_kept_whole_and_few(db: &Database) {
    let (machine, other) = (node("n"), node("other"));
    let (id, other_id) = (machine.id, other.id);
    db.write(move |w| {
        w.insert(&machine)?;
        w.insert(&other)
    })
    .unwrap();
    // Longer than one part, and no two parts alike.
    let long: Vec<u8> = (0..(5_u32 << 19)).map(|n| (n / 1000 % 251) as u8).collect();
    let keep = |content: Vec<u8>, why: &'static str| {
        db.write(move |w| w.keep_log(id, LogKind::Inspection, why, &content, LIMITS)).unwrap()
    };
    assert_eq!(keep(Vec::new(), "empty"), None);
    assert_eq!(keep(vec![0; (3 << 20) + 1], "too long"), None);
    let first = keep(b"first".to_vec(), "it failed").unwrap();
    let second = keep(long.clone(), "second").unwrap();
    db.write(move |w| w.keep_log(other_id, LogKind::Deploy, "other", b"x", LIMITS)).unwrap();
    let (log, content) = db.read(move |r| r.agent_log(id, second)).unwrap().unwrap();
    assert!(content == long);
    assert_eq!(log.size, 5 << 19);
    assert_eq!((log.node_id, log.kind, log.why.as_str()), (id, LogKind::Inspection, "second"));
    assert!(db.read(move |r| r.agent_log(other_id, second)).unwrap().is_none());

    let third = keep(b"third".to_vec(), "\0third").unwrap();
    let whys = |db: &Database| {
        let found = db.read(move |r| r.agent_logs(id)).unwrap();
        found.into_iter().map(|log| (log.id, log.why)).collect::<Vec<_>>()
    };
    assert_eq!(whys(db), [(third, "third".to_owned()), (second, "second".to_owned())]);
    assert!(db.read(move |r| r.agent_log(id, first)).unwrap().is_none());

    db.write(move |w| w.delete(id)).unwrap();
    assert!(whys(db).is_empty());
    assert_eq!(db.read(move |r| r.agent_logs(other_id)).unwrap().len(), 1);
}

fn logs_in_the_database_are_sealed(db: &Database) {
    let machine = node("n");
    let id = machine.id;
    let log = db
        .write(move |w| {
            w.insert(&machine)?;
            w.keep_log(id, LogKind::Clean, "kept", b"token=hunter2", KeptLogs::default())
        })
        .unwrap()
        .unwrap();
    // A part that was put in from elsewhere does not open.
    db.sql(&format!("UPDATE agent_log_parts SET log_uuid = '{log}', sealed = NULL"));
    assert!(db.read(move |r| r.agent_log(id, log)).is_err());
}
