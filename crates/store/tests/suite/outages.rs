// SPDX-License-Identifier: Apache-2.0
//! A database that is down, or that does not respond.

use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use node_model::{Node, Timestamp};
use store::{NodeFilter, Store, StoreError, StoreOpenError, StoreSettings};

use crate::lossy_proxy::LossyProxy;
use crate::samples::*;
use crate::test_database::{EngineKind, TestDatabase, on_every_engine};

on_every_engine! { silence_ends silent_server_does_not_block_close last_handle_dropped_by_a_job }

/// Far longer than all timeouts of the store together.
const TIMEOUT: Duration = Duration::from_secs(180);

fn open_through_proxy(db: &TestDatabase, connections: usize) -> (LossyProxy, Store) {
    let (proxy, url) = LossyProxy::start(db.settings.url.as_deref().unwrap());
    let mut settings = db.settings.clone();
    settings.url = Some(url);
    settings.connections = connections;
    settings.statement_timeout = Duration::from_secs(1);
    let store = Store::open_with_clock(&settings, db.store.clock()).unwrap();
    (proxy, store)
}

/// Requests fail while the server does not respond, and succeed when it does again.
fn silence_ends(db: &TestDatabase) {
    if db.kind == EngineKind::Sqlite {
        return;
    }
    let (proxy, store) = open_through_proxy(db, 2);
    let count = || db.runtime.block_on(store.read(|r| r.count::<Node>(&NodeFilter::default())));
    assert_eq!(count().unwrap(), 0);
    proxy.set_silent(true);
    // The first one finds out that the server does not respond.
    for _ in 0..2 {
        assert!(matches!(count(), Err(StoreError::Unavailable(_))));
    }
    let machine = node("one");
    let written = db.runtime.block_on(store.write(move |w| w.insert(&machine)));
    assert!(matches!(written, Err(StoreError::Unavailable(_))), "{written:?}");
    proxy.set_silent(false);
    wait_until(|| count().is_ok());
    let machine = node("two");
    db.runtime.block_on(store.write(move |w| w.insert(&machine))).unwrap();
    store.close();
}

fn silent_server_does_not_block_close(db: &TestDatabase) {
    if db.kind == EngineKind::Sqlite {
        return;
    }
    let (proxy, store) = open_through_proxy(db, 1);
    db.runtime.block_on(store.write(|w| w.insert(&node("one")))).unwrap();
    proxy.set_silent(true);
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let store = store.clone();
            db.runtime
                .spawn(async move { store.read(|r| r.count::<Node>(&NodeFilter::default())).await })
        })
        .collect();
    let started = Instant::now();
    store.close();
    assert!(started.elapsed() < TIMEOUT);
    for read in waiting {
        assert!(db.runtime.block_on(read).unwrap().is_err());
    }
}

/// A job on the only connection drops the last handle, while another thread waits for that connection.
fn last_handle_dropped_by_a_job(db: &TestDatabase) {
    let mut settings = db.settings.clone();
    settings.connections = 1;
    if db.kind == EngineKind::Sqlite {
        return;
    }
    let store = Store::open_with_clock(&settings, db.store.clock()).unwrap();
    // The journal is polled while it has followers.
    let _position = store.journal_position();
    let (started, starts) = mpsc::channel();
    let (dropped, others_dropped) = mpsc::channel();
    let (ended, ends) = mpsc::channel();
    let last = store.clone();
    let job = db.runtime.spawn(async move {
        store
            .read(move |r| {
                started.send(()).unwrap();
                others_dropped.recv_timeout(TIMEOUT).unwrap();
                // The thread that polls the journal waits for the connection.
                wait_until(|| last.queued_jobs() > 0);
                let counted = r.count::<Node>(&NodeFilter::default());
                drop(last);
                ended.send(()).unwrap();
                counted
            })
            .await
    });
    starts.recv_timeout(TIMEOUT).unwrap();
    job.abort();
    assert!(db.runtime.block_on(job).unwrap_err().is_cancelled());
    dropped.send(()).unwrap();
    ends.recv_timeout(TIMEOUT).unwrap();
}

fn wait_until(mut is_reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_reached() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// All servers are named, and no connection is tried before all of them are understood.
#[test]
fn failures_of_all_servers_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let open = |url: String| {
        let mut settings = StoreSettings::in_dir(dir.path());
        settings.url = Some(url);
        Store::open_with_clock(&settings, Arc::new(|| Timestamp(0))).map(Store::close).unwrap_err()
    };
    // It accepts connections, but does not respond.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap();
    for scheme in ["postgresql", "mysql"] {
        let error = open(format!("{scheme}://u@{silent},127.0.0.1:1/x"));
        let StoreOpenError::Connect { what, source } = &error else { panic!("{error:?}") };
        assert_eq!(*what, format!("x on {silent}, 127.0.0.1:1"));
        let source = source.to_string();
        assert!(source.starts_with(&format!("{silent}: no ")), "{source}");
        assert!(source.ends_with("Connection refused (os error 111)"), "{source}");
        let error = open(format!("{scheme}://u@{silent},127.0.0.1:port/x"));
        assert!(matches!(error, StoreOpenError::Address { .. }), "{error:?}");
        let error = open(format!("{scheme}://u:pass/word@127.0.0.1:1/x"));
        assert!(matches!(error, StoreOpenError::Address { .. }), "{error:?}");
        assert!(!format!("{error:?}").contains("word@"), "{error:?}");
    }
}

#[test]
fn statement_timeouts_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    for timeout in [Duration::from_micros(1), Duration::from_secs(30 * 24 * 60 * 60)] {
        let mut settings = StoreSettings::in_dir(dir.path());
        settings.url = Some("postgresql://u@127.0.0.1:1/x".to_owned());
        settings.statement_timeout = timeout;
        let opened = Store::open_with_clock(&settings, Arc::new(|| Timestamp(0)));
        let error = opened.map(Store::close).unwrap_err();
        assert!(matches!(error, StoreOpenError::StatementTimeout { .. }), "{error:?}");
    }
}
