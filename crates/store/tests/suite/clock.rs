// SPDX-License-Identifier: Apache-2.0
//! The time of a store that was opened without a clock.

use std::time::{Duration, SystemTime};

use store::{ClockStatus, Store};

use crate::test_database::{TestDatabase, on_every_engine};

on_every_engine! { time_is_the_clock_of_the_server }

/// The server runs on this host, so both have the same clock.
fn time_is_the_clock_of_the_server(db: &TestDatabase) {
    let store = Store::open(&db.settings).unwrap();
    let now = store.clock()();
    let host = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let host = node_model::Timestamp(i64::try_from(host.as_micros()).unwrap());
    assert!(host.since(now) < Duration::from_secs(60), "{now:?} {host:?}");
    assert!(now.since(host) < Duration::from_secs(60), "{now:?} {host:?}");
    let ClockStatus { ahead_micros, beyond_tolerance, .. } = store.clock_status();
    assert!(ahead_micros.abs() < 10_000_000 && !beyond_tolerance, "{ahead_micros}");
    let written =
        db.runtime.block_on(store.write(|w| Ok::<_, store::StoreError>(w.now()))).unwrap();
    assert!(written >= now);
    store.close();
}
