// SPDX-License-Identifier: Apache-2.0
//! The time of a store that was opened without a clock.

use std::time::{Duration, SystemTime};

use store::{ClockStatus, Store, StoreOpenError};

use crate::test_database::{EngineKind, TestDatabase, on_every_engine};

on_every_engine! { time_is_the_clock_of_the_server a_different_clock_is_rejected }

/// The server runs on this host, so both have the same clock.
fn time_is_the_clock_of_the_server(db: &TestDatabase) {
    let store = Store::open(&db.settings).unwrap();
    let now = store.clock()();
    let host = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let host = node_model::Timestamp(i64::try_from(host.as_micros()).unwrap());
    assert!(host.since(now) < Duration::from_secs(60), "{now:?} {host:?}");
    assert!(now.since(host) < Duration::from_secs(60), "{now:?} {host:?}");
    let ClockStatus { ahead_micros, beyond_tolerance } = store.clock_status();
    assert!(ahead_micros.abs() < 10_000_000 && !beyond_tolerance, "{ahead_micros}");
    let written =
        db.runtime.block_on(store.write(|w| Ok::<_, store::StoreError>(w.now()))).unwrap();
    assert!(written >= now);
    store.close();
}

/// Two clocks never agree to the microsecond, so no tolerance rejects every server.
fn a_different_clock_is_rejected(db: &TestDatabase) {
    let mut settings = db.settings.clone();
    settings.clock_tolerance = Duration::ZERO;
    match (db.kind, Store::open(&settings).map(Store::close)) {
        (EngineKind::Sqlite, Ok(()))
        | (
            EngineKind::Postgres | EngineKind::MariaDb,
            Err(StoreOpenError::ClockDiffers { tolerance_seconds: 0, .. }),
        ) => {}
        (kind, other) => panic!("{kind:?} {other:?}"),
    }
}
