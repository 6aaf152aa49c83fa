// SPDX-License-Identifier: Apache-2.0
//! A write happens whole or not at all, and its neighbours do not notice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, mpsc};
use std::time::Duration;

use node_model::{Node, NodeId};
use store::{Error, NodeColumn, NodeFilter, Query, Writer};

use crate::database::{Database, Kind, on_every_engine, run};
use crate::samples::*;

on_every_engine! {
    errors_undo_everything neighbours_are_not_affected panics_are_contained changes_are_not_lost
    an_ignored_failure_is_not_half_kept closing_refuses_the_rest
    a_row_of_a_list_is_taken_once scans_see_what_reads_see
}

fn count(db: &Database) -> u64 {
    db.read(|r| r.count::<Node>(&NodeFilter::default())).unwrap()
}

fn errors_undo_everything(db: &Database) {
    let (machine, at) = (node("one"), db.now());
    let id = machine.id;
    let end = db.write(move |w| {
        w.insert(&machine)?;
        w.insert(&port(id, 1))?;
        w.append(entry(id, at, "x"));
        // Reads within the transaction see it.
        assert!(w.get(id)?.is_some());
        Err::<(), _>(Error::LeaseLost)
    });
    assert!(matches!(end, Err(Error::LeaseLost)), "the closure's own error comes back");
    assert_eq!(count(db), 0);
    let journal = store::JournalQuery { node: Some(id), after: 0, limit: 9 };
    assert!(db.read(move |r| r.journal(&journal)).unwrap().is_empty());
}

/// Many writes at once, every third of which fails in one of several ways after having written.
fn neighbours_are_not_affected(db: &Database) {
    db.write(|w| w.insert(&node("taken"))).unwrap();
    let writes: Vec<_> = (0..120)
        .map(|number: u32| {
            let store = db.store.clone();
            db.runtime.spawn(async move {
                let write = move |w: &mut Writer<'_>| {
                    w.insert(&node(&format!("n{number}")))?;
                    match number % 12 {
                        0 => Err(Error::Missing),
                        3 => w.insert(&node("taken")),
                        6 => w.insert(&port(NodeId::random(), number)),
                        9 => panic!("as asked"),
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

fn panics_are_contained(db: &Database) {
    let end = db.write(|w| -> Result<(), Error> {
        w.insert(&node("one"))?;
        panic!("as asked")
    });
    assert!(matches!(end, Err(Error::Panicked)));
    let end = db.read(|_| -> Result<(), Error> { panic!("as asked") });
    assert!(matches!(end, Err(Error::Panicked)));
    assert_eq!(count(db), 0);
    db.write(|w| w.insert(&node("one"))).unwrap();
    assert_eq!(count(db), 1);
}

/// Writers that load, add one and save, all at once: every addition counts.
fn changes_are_not_lost(db: &Database) {
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
                        .ok_or(Error::Missing)?;
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

/// Two processes find the same free node in a list. Both load it again before they take it, and the
/// second sees that it is taken.
fn a_row_of_a_list_is_taken_once(db: &Database) {
    db.write(|w| w.insert(&node("one"))).unwrap();
    let other = match db.kind {
        Kind::Sqlite => db.store.clone(),
        Kind::Postgres | Kind::MariaDb => db.open_again().unwrap(),
    };
    let both_have_listed = Arc::new(Barrier::new(2));
    let writes: Vec<_> = [("me", db.store.clone()), ("you", other)]
        .into_iter()
        .map(|(who, store)| {
            let barrier = Arc::clone(&both_have_listed);
            // SQLite has one writer, for which there is nobody to wait for.
            let waits = AtomicBool::new(db.kind != Kind::Sqlite);
            db.runtime.spawn(async move {
                store
                    .write(move |w| {
                        let free = w.collect(&Query::<Node>::default())?;
                        if waits.swap(false, Ordering::SeqCst) {
                            barrier.wait();
                        }
                        let Some(listed) = free.iter().find(|node| node.owner.is_none()) else {
                            return Ok(false);
                        };
                        let mut node = w.get(listed.id)?.ok_or(Error::Missing)?;
                        if node.owner.is_some() {
                            return Ok(false);
                        }
                        node.owner = Some(who.to_owned());
                        w.save(&mut node)?;
                        Ok::<_, Error>(true)
                    })
                    .await
            })
        })
        .collect();
    let taken: Vec<bool> =
        writes.into_iter().map(|write| db.runtime.block_on(write).unwrap().unwrap()).collect();
    assert_eq!(taken.iter().filter(|taken| **taken).count(), 1, "{taken:?}");
}

fn scans_see_what_reads_see(db: &Database) {
    db.write(|w| w.insert(&node("one"))).unwrap();
    let scan = |store: &store::Store| {
        db.runtime.block_on(store.scan(|r| r.count::<Node>(&NodeFilter::default())))
    };
    assert_eq!(scan(&db.store).unwrap(), 1);
    let end = db.runtime.block_on(db.store.scan(|_| -> Result<(), Error> { panic!("as asked") }));
    assert!(matches!(end, Err(Error::Panicked)));
    assert_eq!(scan(&db.store).unwrap(), 1);
}

/// Scans that take for ever hold up neither the runtime nor point reads, however many they are.
#[test]
fn scans_do_not_hold_up_reads() {
    run(Kind::Sqlite, |db| {
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
                        let patience = Duration::from_secs(30);
                        let end = opened.wait_timeout_while(shut, patience, |open| !*open);
                        Ok::<_, Error>(*end.unwrap().0)
                    });
                    scan.await.unwrap()
                })
            })
            .collect();
        // As many as run at a time; the others wait for these.
        for _ in 0..2 {
            starts.recv_timeout(Duration::from_secs(5)).unwrap();
        }
        // On a thread of the runtime, where handlers read.
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

/// A closure that goes on after a failed statement is either kept whole or refused.
fn an_ignored_failure_is_not_half_kept(db: &Database) {
    db.write(|w| w.insert(&node("one"))).unwrap();
    let end = db.write(|w| {
        w.insert(&node("two"))?;
        let _ = w.insert(&node("one"));
        Ok(())
    });
    assert_eq!(count(db), if end.is_ok() { 2 } else { 1 });
}

fn closing_refuses_the_rest(db: &Database) {
    db.store.clone().close();
    assert!(matches!(db.write(|w| w.insert(&node("one"))), Err(Error::Closed)));
    // Reads are refused or answered; they never hang.
    for _ in 0..9 {
        let read = db.read(|r| r.count::<Node>(&NodeFilter::default()));
        assert!(matches!(read, Ok(0) | Err(Error::Closed)));
    }
}
