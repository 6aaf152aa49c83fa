// SPDX-License-Identifier: Apache-2.0
//! Random bytes: the server responds with an error or closes the connection, and keeps running.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::fixture::{Fixture, RawResponse, exchange};

/// Random bytes, and requests with random parts.
fn requests() -> impl Strategy<Value = Vec<u8>> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..200);
    let target = proptest::collection::vec(32u8..127, 0..60);
    let header = proptest::collection::vec(any::<u8>(), 0..60);
    let method = proptest::sample::select(vec!["GET", "POST", "PATCH", "DELETE", "PUT", "get", ""]);
    let shaped =
        (method, target, header, bytes.clone()).prop_map(|(method, target, header, body)| {
            let mut request = format!("{method} /").into_bytes();
            request.extend_from_slice(&target);
            request.extend_from_slice(b" HTTP/1.1\r\nHost: x\r\nX-OpenStack-Ironic-API-Version: ");
            request.extend_from_slice(&header);
            request.extend_from_slice(
                format!("\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(),
            );
            request.extend_from_slice(&body);
            request
        });
    prop_oneof![bytes, shaped]
}

#[test]
fn survives_random_bytes() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let fixture = runtime.block_on(Fixture::with(|config| {
        // Short timeouts, because many cases are incomplete requests.
        config.idle_timeout = Duration::from_millis(20);
        config.body_timeout = Duration::from_millis(20);
    }));
    let address = fixture.server.address();
    let mut runner =
        TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
    runner
        .run(&requests(), |bytes| {
            let response = runtime.block_on(exchange(address, &bytes));
            if !response.is_empty() {
                let status = RawResponse::parse(&response).status;
                prop_assert!((200..500).contains(&status), "{status}");
            }
            Ok(())
        })
        .unwrap();
    let alive = runtime.block_on(fixture.get("/healthz", ""));
    assert_eq!(alive.status, 200);
}
