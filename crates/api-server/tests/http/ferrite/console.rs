// SPDX-License-Identifier: Apache-2.0
//! Consoles of simulated machines, whose BMCs offer serial-over-LAN on real sockets.

use std::time::Duration;

use fleet_sim::{FleetConfig, SimulatedFleet};
use node_model::NodeId;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::fixture::{Fixture, LATEST};

const TIMEOUT: Duration = Duration::from_secs(30);
const CONSOLE: &str = "/v1/ferrite/nodes/n/console";

/// Enrols a powered-on machine as `n`.
async fn enrol_machine(api: &Fixture) -> SimulatedFleet {
    let config =
        FleetConfig { ipmi: true, powered_on: true, speed: 200.0, ..FleetConfig::default() };
    let fleet = SimulatedFleet::start(config).unwrap();
    let enrolment = fleet.machine(0).unwrap().ipmi_enrolment().unwrap();
    let info: serde_json::Map<String, Value> = enrolment.driver_info.into_iter().collect();
    api.node("n", |node| {
        node.driver = "ipmi".to_owned();
        node.driver_info = info.into();
    })
    .await;
    fleet
}

/// A client of the console stream, with the output received.
struct ConsoleClient {
    stream: TcpStream,
    raw: String,
}

impl ConsoleClient {
    async fn connect(api: &Fixture) -> Self {
        let mut stream = TcpStream::connect(api.server.address()).await.unwrap();
        let request = format!("GET {CONSOLE} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        Self { stream, raw: String::new() }
    }

    fn text(&self) -> String {
        let pieces = self.raw.lines().filter_map(|line| line.strip_prefix("data: \""));
        let parse = |rest: &str| serde_json::from_str::<String>(&format!("\"{rest}")).ok();
        pieces.filter_map(parse).collect()
    }

    /// Reads until `condition` is true.
    async fn read_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let mut piece = [0; 4096];
        while !condition(self) {
            let read = tokio::time::timeout(TIMEOUT, self.stream.read(&mut piece)).await;
            let size = read.unwrap_or_else(|_| panic!("no {what} in {}", self.raw)).unwrap();
            assert_ne!(size, 0, "ended before {what}: {}", self.raw);
            self.raw.push_str(&String::from_utf8_lossy(&piece[..size]));
        }
    }
}

#[tokio::test]
async fn streams_output_accepts_input_and_records_the_timeline() {
    let api = Fixture::start().await;
    let running = api.conductor.start().await.unwrap();
    let fleet = enrol_machine(&api).await;
    let send_input = async |text: &str| api.request("POST", CONSOLE, json!({"text": text})).await;
    let off = api.get(CONSOLE, LATEST).await;
    assert_eq!(off.status, 409, "{}", off.message());
    assert!(off.message().contains("Enable it first"), "{}", off.message());
    assert_eq!(send_input("x").await.status, 409);

    let on = api.request("PUT", "/v1/nodes/n/states/console", json!({"enabled": true})).await;
    assert_eq!(on.status, 202, "{}", on.message());
    let mut first = ConsoleClient::connect(&api).await;
    first.read_until("the prompt", |it| it.text().ends_with("login: ")).await;
    assert!(first.raw.contains("content-type: text/event-stream"), "{}", first.raw);
    // A later client gets earlier output, too; both get the echo of the input.
    let mut second = ConsoleClient::connect(&api).await;
    second.read_until("the earlier output", |it| it.text().contains("Booted from")).await;
    let sent = send_input("hello").await;
    assert_eq!(sent.status, 204, "{}", sent.message());
    for client in [&mut first, &mut second] {
        client.read_until("the echo", |it| it.text().ends_with("hello")).await;
    }
    drop(second);

    let timeline = "/v1/ferrite/nodes/n/timeline";
    let entry = tokio::time::timeout(TIMEOUT, async {
        loop {
            let page = api.get(timeline, LATEST).await.json();
            let mut entries = page["timeline"].as_array().unwrap().clone();
            entries.retain(|entry| entry["event"]["by"] == "console");
            if let Some(entry) = entries.pop() {
                return entry;
            }
            tokio::task::yield_now().await;
        }
    });
    let entry = entry.await.expect("the output is recorded");
    assert_eq!(entry["event"]["kind"], "network_activity");
    assert_eq!(entry["actor"], json!({"kind": "machine", "address": "127.0.0.1"}));
    assert!(entry["event"]["text"].as_str().unwrap().contains("Booted from"), "{entry}");

    let off = api.request("PUT", "/v1/nodes/n/states/console", json!({"enabled": false})).await;
    assert_eq!(off.status, 202, "{}", off.message());
    first.read_until("the end", |it| it.raw.contains("event: end")).await;
    running.stop(TIMEOUT).await;
    fleet.stop().await;
}

#[tokio::test]
async fn records_unfinished_lines_when_the_process_stops() {
    let api = Fixture::start().await;
    let running = api.conductor.start().await.unwrap();
    let fleet = enrol_machine(&api).await;
    let on = api.request("PUT", "/v1/nodes/n/states/console", json!({"enabled": true})).await;
    assert_eq!(on.status, 202, "{}", on.message());
    let mut client = ConsoleClient::connect(&api).await;
    client.read_until("the prompt", |it| it.text().ends_with("login: ")).await;
    // A prompt is an unfinished line.
    running.stop(TIMEOUT).await;
    let timeline = api.get("/v1/ferrite/nodes/n/timeline", LATEST).await.body;
    assert!(timeline.contains("login:"), "{timeline}");
    // The console is enabled and restarts with the process: clients have to retry.
    let response = api.get(CONSOLE, LATEST).await;
    assert_eq!(response.status, 503, "{}", response.message());
    assert_eq!(response.header("retry-after"), Some("1"));
    fleet.stop().await;
}

#[tokio::test]
async fn deleting_a_node_closes_its_console() {
    let api = Fixture::start().await;
    let fleet = enrol_machine(&api).await;
    let on = api.request("PUT", "/v1/nodes/n/states/console", json!({"enabled": true})).await;
    assert_eq!(on.status, 202, "{}", on.message());
    let served = || api.conductor.served_consoles().len();
    assert_eq!(served(), 1);
    // Without a BMC address the console cannot be disabled.
    let id =
        api.get("/v1/nodes/n", LATEST).await.json()["uuid"].as_str().unwrap().parse::<NodeId>();
    let id = id.unwrap();
    let remove_driver_info = move |writer: &mut store::StoreWriter<'_>| {
        let mut node = writer.get(id)?.unwrap();
        node.driver_info = serde_json::Map::new().into();
        writer.save(&mut node)
    };
    api.store.write(remove_driver_info).await.unwrap();
    let removed = api.request("DELETE", "/v1/nodes/n", json!(null)).await;
    assert_eq!(removed.status, 204, "{}", removed.message());
    assert_eq!(served(), 0);
    fleet.stop().await;
}

#[tokio::test]
async fn rejects_invalid_input() {
    let api = Fixture::start().await;
    api.node("n", |_| {}).await;
    for (body, status) in [
        (json!({"text": "x".repeat(4097)}), 400),
        (json!({"text": 1}), 400),
        (json!({"text": "x", "more": 1}), 400),
        (json!({}), 400),
        (json!([]), 400),
        (json!({"text": "x"}), 409),
    ] {
        let response = api.request("POST", CONSOLE, body.clone()).await;
        assert_eq!(response.status, status, "{body}: {}", response.message());
    }
    // Enabled, but the fake console has no output.
    let on = api.request("PUT", "/v1/nodes/n/states/console", json!({"enabled": true})).await;
    assert_eq!(on.status, 202);
    for method in ["GET", "POST"] {
        let response = api.request(method, CONSOLE, json!({"text": "x"})).await;
        assert_eq!(response.status, 409, "{method}");
        assert!(response.message().contains("but has no text"), "{}", response.message());
    }
    for method in ["GET", "POST"] {
        let path = "/v1/ferrite/nodes/none/console";
        assert_eq!(api.request(method, path, json!({"text": "x"})).await.status, 404, "{method}");
    }
}

/// For example after a restart, or if the console could not be started again.
#[tokio::test]
async fn shows_a_console_that_is_enabled_but_not_started() {
    let api = Fixture::start().await;
    let info = json!({"ipmi_address": "127.0.0.1", "ipmi_username": "u", "ipmi_password": "p"});
    let info: serde_json::Map<String, Value> = info.as_object().unwrap().clone();
    api.node("n", |node| {
        node.driver = "ipmi".to_owned();
        node.driver_info = info.into();
        node.console_enabled = true;
    })
    .await;
    let console = api.get("/v1/nodes/n/states/console", LATEST).await;
    assert_eq!(console.status, 200, "{}", console.message());
    assert_eq!(console.json(), json!({"console_enabled": true, "console_info": null}));
}
