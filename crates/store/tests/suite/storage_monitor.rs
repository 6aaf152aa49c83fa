// SPDX-License-Identifier: Apache-2.0
//! Tests of writes for health checks: shared by callers, bounded in time, and recovering.

use std::time::{Duration, Instant};

use store::{StorageMonitor, StorageProblem};

use crate::test_database::{EngineKind, TestDatabase, on_every_engine, run};

on_every_engine! { writes_are_tested }

fn writes_are_tested(db: &TestDatabase) {
    let monitor = StorageMonitor::new(db.store.clone(), db.settings.data_dir.clone());
    assert_eq!(db.runtime.block_on(monitor.check()), Ok(()));
    assert_eq!(monitor.latest(), None);
    assert!(monitor.free_bytes().is_some_and(|free| free > 0));
    // Another process with the same database.
    let other = db.open_again().unwrap();
    let second = StorageMonitor::new(other.clone(), db.settings.data_dir.clone());
    assert_eq!(db.runtime.block_on(second.check()), Ok(()));
    other.close();
    let closed = StorageMonitor::new(db.store.clone(), db.settings.data_dir.clone());
    db.store.clone().close();
    assert_eq!(db.runtime.block_on(closed.check()), Err(StorageProblem::NotWritable));
    assert_eq!(closed.latest(), Some(StorageProblem::NotWritable));
}

#[test]
fn callers_share_one_write_per_second() {
    run(EngineKind::Sqlite, |db| {
        let monitor = StorageMonitor::new(db.store.clone(), db.settings.data_dir.clone());
        let started = Instant::now();
        db.runtime.block_on(async {
            let checks: Vec<_> = (0..200)
                .map(|_| {
                    let monitor = monitor.clone();
                    tokio::spawn(async move { monitor.check().await })
                })
                .collect();
            for check in checks {
                assert_eq!(check.await.unwrap(), Ok(()));
            }
        });
        let path = db.settings.data_dir.join("ferrite.sqlite");
        let database = rusqlite::Connection::open(path).unwrap();
        let sql = "SELECT SUM(number + 1) FROM commit_markers";
        let writes: i64 = database.query_row(sql, [], |row| row.get(0)).unwrap();
        let seconds = i64::try_from(started.elapsed().as_secs()).unwrap();
        assert!((1..=seconds + 1).contains(&writes), "{writes} writes in {seconds} s");
    });
}

/// Another program holds the write lock.
#[test]
fn slow_writes_are_a_problem_until_they_end() {
    run(EngineKind::Sqlite, |db| {
        let path = db.settings.data_dir.join("ferrite.sqlite");
        let other = rusqlite::Connection::open(path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let monitor = StorageMonitor::new(db.store.clone(), db.settings.data_dir.clone());
        let problem = db.runtime.block_on(monitor.check()).unwrap_err();
        // On a busy host, the database may give up before the test does.
        assert!([StorageProblem::TooSlow, StorageProblem::NotWritable].contains(&problem));
        other.execute_batch("ROLLBACK").unwrap();
        let deadline = Instant::now() + Duration::from_secs(120);
        while let Err(problem) = db.runtime.block_on(monitor.check()) {
            assert!(Instant::now() < deadline, "{problem:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(monitor.latest(), None);
    });
}
