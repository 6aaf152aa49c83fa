// SPDX-License-Identifier: Apache-2.0
//! A write is atomic, and does not affect concurrent ones.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, mpsc};
use std::time::Duration;

use node_model::{Node, NodeId};
use store::{NodeColumn, NodeFilter, ResourceQuery, StoreError, StoreWriter};

use crate::samples::*;
use crate::test_database::{EngineKind, TestDatabase, on_every_engine, run};

on_every_engine! {
    errors_roll_back failed_writes_do_not_affect_others panics_are_contained concurrent_changes_are_not_lost
    ignored_failure_is_not_committed_in_part closed_store_rejects_work
    listed_row_is_claimed_once scans_behave_like_reads
}

fn count(db: &TestDatabase) -> u64 {
    db.read(|r| r.count::<Node>(&NodeFilter::default())).unwrap()
}

fn errors_roll_back(db: &TestDatabase) {
    let (machine, at) = (node("one"), db.now());
    let id = machine.id;
    let end = db.write(move |w| {
        w.insert(&machine)?;
        w.insert(&port(id, 1))?;
        w.append(entry(id, at, "x"));
        // Visible within the transaction.
        assert!(w.get(id)?.is_some());
        Err::<(), _>(StoreError::LeaseLost)
    });
    assert!(matches!(end, Err(StoreError::LeaseLost)), "the closure's own error comes back");
    assert_eq!(count(db), 0);
    let journal = store::JournalQuery { node: Some(id), after: 0, limit: 9 };
    assert!(db.read(move |r| r.journal(&journal)).unwrap().is_empty());
}

/// Many concurrent writes, every third of which fails in one of several ways after an insert.
fn failed_writes_do_not_affect_others(db: &TestDatabase) {
    db.write(|w| w.insert(&node("taken"))).unwrap();
    let writes: Vec<_> = (0..120)
        .map(|number: u32| {
            let store = db.store.clone();
            db.runtime.spawn(async move {
                let write = move |w: &mut StoreWriter<'_>| {
                    w.insert(&node(&format!("n{number}")))?;
                    match number % 12 {
                        0 => Err(StoreError::Missing),
                        3 => w.insert(&node("taken")),
                        6 => w.insert(&port(NodeId::random(), number)),
                        9 => panic!("as requested"),
                        _ => Ok(()),
                    }
                };
                (number, store.write(write).await.is_ok())
            })
        })
        .collect();
    for write in writes {
        let (number, kept) = db.runtime.block_on(write).unwrap();
        assert_eq!(kept, number % 3 != 0, "{number}");
        let name = format!("n{number}");
        let found = db.read(move |r| r.find::<Node>(NodeColumn::Name, &name)).unwrap();
        assert_eq!(found.is_some(), kept, "{number}");
    }
    assert_eq!(count(db), 1 + 80);
}

fn panics_are_contained(db: &TestDatabase) {
    let end = db.write(|w| -> Result<(), StoreError> {
        w.insert(&node("one"))?;
        panic!("as requested")
    });
    assert!(matches!(end, Err(StoreError::Panicked)));
    let end = db.read(|_| -> Result<(), StoreError> { panic!("as requested") });
    assert!(matches!(end, Err(StoreError::Panicked)));
    assert_eq!(count(db), 0);
    db.write(|w| w.insert(&node("one"))).unwrap();
    assert_eq!(count(db), 1);
}

/// Concurrent writers load, append and save: no addition is lost.
fn concurrent_changes_are_not_lost(db: &TestDatabase) {
    let machine = node("one");
    let id = machine.id;
    db.write(move |w| w.insert(&machine)).unwrap();
    let writes: Vec<_> = (0..40)
        .map(|number| {
            let store = db.store.clone();
            db.runtime.spawn(async move {
                store
                    .write(move |w| {
                        let mut node = match number % 2 {
                            0 => w.get(id)?,
                            _ => w.find::<Node>(NodeColumn::Name, "one")?,
                        }
                        .ok_or(StoreError::Missing)?;
                        node.traits.push(format!("T{number}"));
                        w.save(&mut node)
                    })
                    .await
            })
        })
        .collect();
    for write in writes {
        db.runtime.block_on(write).unwrap().unwrap();
    }
    assert_eq!(db.read(move |r| r.get(id)).unwrap().unwrap().traits.len(), 40);
}

/// Two processes find the same free node in a list. Both load it again before they claim it, and the
/// second one finds it claimed.
fn listed_row_is_claimed_once(db: &TestDatabase) {
    db.write(|w| w.insert(&node("one"))).unwrap();
    let other = match db.kind {
        EngineKind::Sqlite => db.store.clone(),
        EngineKind::Postgres | EngineKind::MariaDb => db.open_again().unwrap(),
    };
    let both_have_listed = Arc::new(Barrier::new(2));
    let writes: Vec<_> = [("me", db.store.clone()), ("you", other)]
        .into_iter()
        .map(|(who, store)| {
            let barrier = Arc::clone(&both_have_listed);
            // SQLite has one writer, so there is no second one to wait for.
            let waits = AtomicBool::new(db.kind != EngineKind::Sqlite);
            db.runtime.spawn(async move {
                store
                    .write(move |w| {
                        let free = w.collect(&ResourceQuery::<Node>::default())?;
                        if waits.swap(false, Ordering::SeqCst) {
                            barrier.wait();
                        }
                        let Some(listed) = free.iter().find(|node| node.owner.is_none()) else {
                            return Ok(false);
                        };
                        let mut node = w.get(listed.id)?.ok_or(StoreError::Missing)?;
                        if node.owner.is_some() {
                            return Ok(false);
                        }
                        node.owner = Some(who.to_owned());
                        w.save(&mut node)?;
                        Ok::<_, StoreError>(true)
                    })
                    .await
            })
        })
        .collect();
    let taken: Vec<bool> =
        writes.into_iter().map(|write| db.runtime.block_on(write).unwrap().unwrap()).collect();
    assert_eq!(taken.iter().filter(|taken| **taken).count(), 1, "{taken:?}");
}

fn scans_behave_like_reads(db: &TestDatabase) {
    db.write(|w| w.insert(&node("one"))).unwrap();
    let scan = |store: &store::Store| {
        db.runtime.block_on(store.scan(|r| r.count::<Node>(&NodeFilter::default())))
    };
    assert_eq!(scan(&db.store).unwrap(), 1);
    let end = db
        .runtime
        .block_on(db.store.scan(|_| -> Result<(), StoreError> { panic!("as requested") }));
    assert!(matches!(end, Err(StoreError::Panicked)));
    assert_eq!(scan(&db.store).unwrap(), 1);
}

/// Blocked scans block neither the runtime nor point reads, however many there are.
#[test]
fn scans_do_not_block_reads() {
    run(EngineKind::Sqlite, |db| {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let (started, starts) = mpsc::channel();
        let scans: Vec<_> = (0..20)
            .map(|_| {
                let (store, gate, started) = (db.store.clone(), Arc::clone(&gate), started.clone());
                db.runtime.spawn(async move {
                    let scan = store.scan(move |_| {
                        started.send(()).unwrap();
                        let (open, opened) = &*gate;
                        let shut = open.lock().unwrap();
                        let timeout = Duration::from_secs(30);
                        let end = opened.wait_timeout_while(shut, timeout, |open| !*open);
                        Ok::<_, StoreError>(*end.unwrap().0)
                    });
                    scan.await.unwrap()
                })
            })
            .collect();
        // Two scans run at a time; the others wait.
        for _ in 0..2 {
            starts.recv_timeout(Duration::from_secs(5)).unwrap();
        }
        // On a runtime thread, like API handlers.
        let store = db.store.clone();
        let read = async move { store.read(|r| r.count::<Node>(&NodeFilter::default())).await };
        assert_eq!(db.runtime.block_on(db.runtime.spawn(read)).unwrap().unwrap(), 0);
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        for scan in scans {
            assert!(db.runtime.block_on(scan).unwrap(), "a scan gave up before the read was over");
        }
    });
}

/// A closure that ignores a failed statement is committed completely or not at all.
fn ignored_failure_is_not_committed_in_part(db: &TestDatabase) {
    db.write(|w| w.insert(&node("one"))).unwrap();
    let end = db.write(|w| {
        w.insert(&node("two"))?;
        let _ = w.insert(&node("one"));
        Ok(())
    });
    assert_eq!(count(db), if end.is_ok() { 2 } else { 1 });
}

fn closed_store_rejects_work(db: &TestDatabase) {
    db.store.clone().close();
    assert!(matches!(db.write(|w| w.insert(&node("one"))), Err(StoreError::Closed)));
    // Reads fail or succeed, but never hang.
    for _ in 0..9 {
        let read = db.read(|r| r.count::<Node>(&NodeFilter::default()));
        assert!(matches!(read, Ok(0) | Err(StoreError::Closed)));
    }
}
