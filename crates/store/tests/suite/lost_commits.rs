// SPDX-License-Identifier: Apache-2.0
//! A connection that breaks during COMMIT: the result is found, and nothing is written twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use node_model::Node;
use store::{NodeColumn, NodeFilter, Store};

use crate::lossy_proxy::{CommitLoss, LossyProxy};
use crate::samples::*;
use crate::test_database::{EngineKind, TestDatabase, on_every_engine};

on_every_engine! {
    lost_requests_are_repeated lost_responses_are_not_repeated silent_commits_are_not_repeated
    deleted_markers_are_replaced
}

/// Inserts nodes, all but the first with the loss of a COMMIT. Returns how often the closures ran.
fn insert_with_losses(db: &TestDatabase, loss: CommitLoss, nodes: u32) -> u32 {
    let (proxy, url) = LossyProxy::start(db.settings.url.as_deref().unwrap());
    let mut settings = db.settings.clone();
    settings.url = Some(url);
    settings.connections = 1;
    // A server that does not respond is left six seconds later.
    settings.statement_timeout = std::time::Duration::from_secs(1);
    let clock = db.store.clock();
    let store = Store::open_with_clock(&settings, clock).unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    for number in 0..nodes {
        if number > 0 {
            proxy.lose_next_commit(loss);
        }
        let counted = Arc::clone(&runs);
        let machine = node(&format!("n{number}"));
        let inserted = db.runtime.block_on(store.write(move |w| {
            counted.fetch_add(1, Ordering::SeqCst);
            w.insert(&machine)
        }));
        inserted.unwrap();
        assert!(proxy.has_lost());
    }
    store.close();
    let count = db.read(|r| r.count::<Node>(&NodeFilter::default())).unwrap();
    assert_eq!(count, u64::from(nodes));
    runs.load(Ordering::SeqCst)
}

fn lost_requests_are_repeated(db: &TestDatabase) {
    if db.kind != EngineKind::Sqlite {
        assert_eq!(insert_with_losses(db, CommitLoss::Request, 5), 9);
    }
}

fn lost_responses_are_not_repeated(db: &TestDatabase) {
    if db.kind != EngineKind::Sqlite {
        assert_eq!(insert_with_losses(db, CommitLoss::Response, 5), 5);
    }
}

/// The connection stays open, but nothing is received.
fn silent_commits_are_not_repeated(db: &TestDatabase) {
    if db.kind != EngineKind::Sqlite {
        assert_eq!(insert_with_losses(db, CommitLoss::Silence, 2), 2);
    }
}

/// Another process deletes the markers of connections that were idle for a day.
fn deleted_markers_are_replaced(db: &TestDatabase) {
    db.write(|w| w.insert(&node("one"))).unwrap();
    db.sql("DELETE FROM commit_markers");
    for _ in 0..20 {
        db.write(|w| {
            let mut one = w.find::<Node>(NodeColumn::Name, "one")?.unwrap();
            one.traits.push("T".to_owned());
            w.save(&mut one)
        })
        .unwrap();
    }
    let one = db.read(|r| r.find::<Node>(NodeColumn::Name, "one")).unwrap().unwrap();
    assert_eq!(one.traits.len(), 20);
}
