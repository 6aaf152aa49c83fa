// SPDX-License-Identifier: Apache-2.0
//! The journal is ordered, and followers miss no entry.

use std::collections::BTreeSet;
use std::time::Duration;

use node_model::{JournalEvent, JournalRow, NodeId, Timestamp};
use store::{JournalQuery, JournalSearch, StoreError};

use crate::samples::*;
use crate::test_database::{EngineKind, TestDatabase, on_every_engine};

/// Generous, for a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(20);

on_every_engine! {
    entries_are_returned_in_order followers_miss_no_entry recent_gaps_hold_back_later_entries old_entries_are_pruned
    position_follows_commits wakes_are_sent_after_commit new_process_starts_at_the_journal_end
    entries_of_other_processes_are_announced search_covers_a_window_from_the_end sequence_number_is_found_by_time
    state_changes_are_recorded
}

fn tail(db: &TestDatabase, after: i64) -> Vec<JournalRow> {
    db.read(move |r| r.journal(&JournalQuery { node: None, after, limit: 1000 })).unwrap()
}

fn targets(entries: &[JournalRow]) -> String {
    entries
        .iter()
        .map(|recorded| {
            let JournalEvent::Requested { target } = &recorded.entry.event else {
                panic!("{recorded:?}")
            };
            target.as_str()
        })
        .collect()
}

fn entries_are_returned_in_order(db: &TestDatabase) {
    let (one, two, at) = (NodeId::random(), NodeId::random(), db.now());
    db.write(move |w| {
        // More entries than fit one INSERT.
        for target in "abcdefghijklmnopqrst".chars() {
            w.append(entry(if target == 'c' { two } else { one }, at, &target.to_string()));
        }
        Ok(())
    })
    .unwrap();
    let all = tail(db, 0);
    assert_eq!(targets(&all), "abcdefghijklmnopqrst");
    assert_eq!(all[2].entry, entry(two, at, "c"));
    assert_eq!(targets(&tail(db, all[17].seq)), "st");
    let of_two = JournalQuery { node: Some(two), after: 0, limit: 9 };
    assert_eq!(targets(&db.read(move |r| r.journal(&of_two)).unwrap()), "c");
    let few = JournalQuery { node: Some(one), after: all[0].seq, limit: 3 };
    assert_eq!(targets(&db.read(move |r| r.journal(&few)).unwrap()), "bde");
}

fn followers_miss_no_entry(db: &TestDatabase) {
    const WRITERS: usize = 8;
    const EACH: usize = 40;
    let at = db.now();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = db.store.clone();
            db.runtime.spawn(async move {
                for number in 0..EACH {
                    let result = store
                        .write(move |w| {
                            w.append(entry(NodeId::random(), at, &format!("{writer}.{number} ")));
                            // Some are rolled back and leave gaps.
                            if number % 7 == 3 { Err(StoreError::Missing) } else { Ok(()) }
                        })
                        .await;
                    assert_eq!(result.is_err(), number % 7 == 3);
                }
            })
        })
        .collect();
    let (mut after, mut seen) = (0, Vec::new());
    let mut follow = |db: &TestDatabase| {
        for recorded in tail(db, after) {
            assert!(recorded.seq > after);
            after = recorded.seq;
            seen.push(targets(&[recorded]));
        }
        seen.len()
    };
    while writers.iter().any(|writer| !writer.is_finished()) {
        follow(db);
    }
    for writer in writers {
        db.runtime.block_on(writer).unwrap();
    }
    follow(db);
    // Old gaps no longer hold back entries.
    db.advance(Duration::from_secs(11));
    follow(db);
    let expected: BTreeSet<String> = (0..WRITERS)
        .flat_map(|writer| (0..EACH).map(move |number| (writer, number)))
        .filter(|(_, number)| number % 7 != 3)
        .map(|(writer, number)| format!("{writer}.{number} "))
        .collect();
    assert_eq!(seen.len(), expected.len());
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), expected);
}

/// A number that is allocated but not committed yet holds back later entries, up to the timeout.
fn recent_gaps_hold_back_later_entries(db: &TestDatabase) {
    let (id, at) = (NodeId::random(), db.now());
    let append = |target: &'static str| {
        db.write(move |w| {
            w.append(entry(id, at, target));
            Ok(())
        })
        .unwrap();
    };
    append("a");
    assert_eq!(targets(&tail(db, 0)), "a");
    if db.kind == EngineKind::Sqlite {
        return;
    }
    // An entry behind a number that another process has not committed yet.
    db.sql(
        "INSERT INTO journal (seq, recorded_at, node_uuid, actor, event)
            SELECT seq + 2, recorded_at, node_uuid, actor, event FROM journal",
    );
    assert_eq!(targets(&tail(db, 0)), "a");
    let of_node = JournalQuery { node: Some(id), after: 0, limit: 9 };
    assert_eq!(targets(&db.read(move |r| r.journal(&of_node)).unwrap()), "a");
    db.sql(
        "INSERT INTO journal (seq, recorded_at, node_uuid, actor, event)
            SELECT seq + 1, recorded_at, node_uuid, actor, event FROM journal WHERE seq = 1",
    );
    assert_eq!(targets(&tail(db, 0)), "aaa");
    db.sql(
        "INSERT INTO journal (seq, recorded_at, node_uuid, actor, event)
            SELECT 9, recorded_at, node_uuid, actor, event FROM journal WHERE seq = 1",
    );
    assert_eq!(targets(&tail(db, 0)), "aaa");
    db.advance(Duration::from_secs(11));
    assert_eq!(targets(&tail(db, 0)), "aaaa");
}

fn old_entries_are_pruned(db: &TestDatabase) {
    let (id, before) = (NodeId::random(), db.now());
    db.write(move |w| {
        (0..5200).for_each(|_| w.append(entry(id, before, "x")));
        Ok(())
    })
    .unwrap();
    db.advance(Duration::from_secs(60));
    let now = db.now();
    db.write(move |w| {
        w.append(entry(id, now, "y"));
        Ok(())
    })
    .unwrap();
    assert_eq!(db.write(move |w| w.prune_journal(now)).unwrap(), 5000);
    assert_eq!(db.write(move |w| w.prune_journal(now)).unwrap(), 200);
    assert_eq!(db.write(move |w| w.prune_journal(now)).unwrap(), 0);
    // On servers the pruned part is a gap.
    db.advance(Duration::from_secs(11));
    let left = tail(db, 0);
    assert_eq!(targets(&left), "y");
    // Sequence numbers are never reused, even when the journal is empty.
    let all = node_model::Timestamp(now.0 + 1);
    assert_eq!(db.write(move |w| w.prune_journal(all)).unwrap(), 1);
    db.write(move |w| {
        w.append(entry(id, now, "z"));
        Ok(())
    })
    .unwrap();
    assert!(tail(db, 0)[0].seq > left[0].seq);
}

fn position_follows_commits(db: &TestDatabase) {
    let (position, at) = (db.store.journal_position(), db.now());
    let rolled_back = db.write(move |w| {
        w.append(entry(NodeId::random(), at, "a"));
        Err::<(), _>(StoreError::Missing)
    });
    assert!(rolled_back.is_err());
    assert_eq!(*position.borrow(), 0);
    db.write(move |w| {
        w.append(entry(NodeId::random(), at, "b"));
        w.append(entry(NodeId::random(), at, "c"));
        Ok(())
    })
    .unwrap();
    db.advance(Duration::from_secs(11));
    assert_eq!(*position.borrow(), tail(db, 0)[1].seq);
}

fn new_process_starts_at_the_journal_end(db: &TestDatabase) {
    let append = |store: &store::Store, target: &'static str| {
        let at = db.now();
        let write = move |w: &mut store::StoreWriter<'_>| {
            w.append(entry(NodeId::random(), at, target));
            Ok::<_, StoreError>(())
        };
        db.runtime.block_on(store.write(write)).unwrap();
    };
    "abc".chars().for_each(|_| append(&db.store, "old"));
    let last = tail(db, 0)[2].seq;
    let restarted = db.open_again().unwrap();
    assert_eq!(*restarted.journal_position().borrow(), last);
    // The end includes entries of other processes.
    append(&db.store, "new");
    let end = db.runtime.block_on(restarted.read(|r| r.journal_end())).unwrap();
    assert_eq!(end, tail(db, last)[0].seq);
    restarted.close();
}

/// On servers, within about a second. SQLite has one process.
fn entries_of_other_processes_are_announced(db: &TestDatabase) {
    if db.kind == EngineKind::Sqlite {
        return;
    }
    let (other, at) = (db.open_again().unwrap(), db.now());
    let mut position = db.store.journal_position();
    let write = move |w: &mut store::StoreWriter<'_>| {
        w.append(entry(NodeId::random(), at, "a"));
        Ok::<_, StoreError>(())
    };
    db.runtime.block_on(other.write(write)).unwrap();
    let mut changed = || {
        let announced = async { tokio::time::timeout(TIMEOUT, position.changed()).await };
        db.runtime.block_on(announced).expect("the entry is announced").unwrap();
        *position.borrow_and_update()
    };
    assert_eq!(changed(), tail(db, 0)[0].seq);
    // Held-back entries are announced too, although the position is past them already.
    let write = move |w: &mut store::StoreWriter<'_>| {
        w.append(entry(NodeId::random(), at, "c"));
        Ok::<_, StoreError>(())
    };
    db.sql(
        "INSERT INTO journal (seq, recorded_at, node_uuid, actor, event)
            SELECT seq + 5, recorded_at, node_uuid, actor, event FROM journal",
    );
    db.sql(match db.kind {
        EngineKind::Postgres => "ALTER TABLE journal ALTER COLUMN seq RESTART WITH 7",
        EngineKind::MariaDb | EngineKind::Sqlite => "ALTER TABLE journal AUTO_INCREMENT = 7",
    });
    db.runtime.block_on(db.store.write(write)).unwrap();
    assert_eq!(changed(), 7);
    assert_eq!(targets(&tail(db, 0)), "a");
    db.advance(Duration::from_secs(11));
    assert_eq!(changed(), 7);
    assert_eq!(targets(&tail(db, 0)), "aac");
    other.close();
}

fn wakes_are_sent_after_commit(db: &TestDatabase) {
    let mut wakes = db.store.take_wakes().unwrap();
    assert!(db.store.take_wakes().is_none());
    let (committed, rolled_back) = (NodeId::random(), NodeId::random());
    let end = db.write(move |w| {
        w.wake(rolled_back);
        Err::<(), _>(StoreError::Missing)
    });
    assert!(end.is_err());
    db.write(move |w| {
        w.wake(committed);
        Ok(())
    })
    .unwrap();
    assert_eq!(wakes.try_recv(), Ok(committed));
    assert!(wakes.try_recv().is_err());
}

fn search_covers_a_window_from_the_end(db: &TestDatabase) {
    let (one, two, at) = (NodeId::random(), NodeId::random(), db.now());
    db.write(move |w| {
        for (index, target) in "abcdef".chars().enumerate() {
            w.append(entry(if index % 2 == 0 { one } else { two }, at, &target.to_string()));
        }
        let mut other = entry(one, at, "");
        other.event = JournalEvent::Enrolled;
        w.append(other);
        Ok(())
    })
    .unwrap();
    let all = tail(db, 0);
    let (first, last) = (all[0].seq, all[6].seq);
    let window = |node, before, count| {
        db.read(move |r| r.journal_window(node, before, count)).unwrap().map(|(seq, _)| seq)
    };
    assert_eq!(window(None, i64::MAX, 3), Some(all[4].seq));
    assert_eq!(window(None, last, 100), Some(first));
    assert_eq!(window(Some(two), i64::MAX, 2), Some(all[3].seq));
    assert_eq!(window(None, first, 3), None);
    let search = |search: JournalSearch, before, limit| {
        db.read(move |r| r.search_journal(&search, first, before, limit)).unwrap()
    };
    let requested =
        JournalSearch { kinds: vec!["requested".to_owned()], ..JournalSearch::default() };
    assert_eq!(targets(&search(requested.clone(), i64::MAX, 4)), "fedc");
    assert_eq!(targets(&search(requested.clone(), all[2].seq, 9)), "ba");
    let of_two = JournalSearch { node: Some(two), ..requested.clone() };
    assert_eq!(targets(&search(of_two, i64::MAX, 9)), "fdb");
    let both =
        JournalSearch { kinds: vec!["requested".into(), "enrolled".into()], ..requested.clone() };
    assert_eq!(search(both, i64::MAX, 9).len(), 7);
    let text = JournalSearch { text: Some("\"E\"".to_owned()), ..requested.clone() };
    assert_eq!(targets(&search(text, i64::MAX, 9)), "e", "whatever the case");
    // SQL wildcards and quotes are literal.
    for sign in ["%", "_", "'", "\\"] {
        let odd = JournalSearch { actor: Some(sign.to_owned()), ..requested.clone() };
        let expected = if sign == "_" { 6 } else { 0 };
        assert_eq!(search(odd, i64::MAX, 9).len(), expected, "{sign}");
    }
    let other = JournalSearch { request: Some("other".to_owned()), ..requested };
    assert_eq!(search(other, i64::MAX, 9), []);
}

fn sequence_number_is_found_by_time(db: &TestDatabase) {
    let node = NodeId::random();
    let at = |second: i64| Timestamp::from_secs(1_700_000_000 + second);
    assert_eq!(db.read(move |r| r.journal_seq_at(at(0))).unwrap(), 0);
    db.write(move |w| {
        for second in [10, 20, 20, 30] {
            w.append(entry(node, at(second), "x"));
        }
        Ok(())
    })
    .unwrap();
    let numbers: Vec<i64> = tail(db, 0).iter().map(|recorded| recorded.seq).collect();
    for (second, expected) in [
        (0, numbers[0]),
        (10, numbers[0]),
        (11, numbers[1]),
        (20, numbers[1]),
        (21, numbers[3]),
        (30, numbers[3]),
        (31, numbers[3] + 1),
    ] {
        let found = db.read(move |r| r.journal_seq_at(at(second))).unwrap();
        assert_eq!(found, expected, "{second}");
    }
}

fn state_changes_are_recorded(db: &TestDatabase) {
    let (node, at) = (NodeId::random(), db.now());
    db.write(move |w| {
        for (from, to) in [("available", "deploying"), ("deploying", "active")] {
            // With many other entries in between.
            (0..300).for_each(|_| w.append(entry(node, at, "x")));
            let mut entered = entry(node, at, "");
            let (event, reason) = ("done".to_owned(), "so".to_owned());
            entered.event =
                JournalEvent::StateChanged { from: from.into(), to: to.into(), event, reason };
            w.append(entered);
        }
        Ok(())
    })
    .unwrap();
    let states = |window| {
        let found = db.read(move |r| r.state_entries(window)).unwrap();
        assert!(found.iter().all(|entry| (entry.node, entry.at) == (node, at)));
        found.into_iter().map(|entry| entry.to).collect::<Vec<_>>()
    };
    assert_eq!(states(100), ["deploying", "active"]);
    assert_eq!(states(1), ["active"]);
    let later = node_model::Timestamp(at.0 + 1);
    db.write(move |w| w.prune_journal(later)).unwrap();
    assert_eq!(states(100), Vec::<String>::new());
}
