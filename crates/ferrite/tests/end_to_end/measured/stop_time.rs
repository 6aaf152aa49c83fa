// SPDX-License-Identifier: Apache-2.0
//! How long an idle server takes to stop.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::test_process::TestHome;

/// Maximum time for stopping an idle server.
const IDLE_STOP_TIMEOUT: Duration = Duration::from_secs(1);

#[test]
fn sigterm_stops_an_idle_server_within_a_second() {
    let home = TestHome::new();
    // A busy host may exceed the limit once or twice.
    let mut slow = Vec::new();
    for round in 0..3 {
        let server = home.serve();
        let mut client = server.client();
        let nodes = client.send("GET", "/v1/nodes", None).unwrap().json();
        assert_eq!(nodes["nodes"].as_array().unwrap().len(), round, "{nodes}");
        let body = json!({"driver": "fake-hardware", "name": format!("node-{round}")});
        let created = client.send_json("POST", "/v1/nodes", Some(&body)).unwrap();
        assert_eq!(created.status, 201, "{}", created.text());
        // An idle connection and an event stream stay open.
        let mut events = TcpStream::connect(server.address()).unwrap();
        write!(events, "GET /v1/ferrite/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut first = [0; 12];
        events.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");

        let stopped = server.stop(Duration::from_secs(20)).unwrap();
        assert_eq!(stopped.status.code(), Some(0), "{}", home.log());
        if stopped.took > IDLE_STOP_TIMEOUT {
            slow.push(stopped.took);
        }
    }
    assert!(slow.len() < 3, "never stopped within {IDLE_STOP_TIMEOUT:?}: {slow:?}\n{}", home.log());
}
