// SPDX-License-Identifier: Apache-2.0
//! Consoles over the API, of simulated machines whose BMCs have a serial line over real sockets.

use std::time::Duration;

use fleet_sim::{Fleet, FleetConfig};
use node_model::NodeId;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fixture::{Fixture, LATEST};

const PATIENCE: Duration = Duration::from_secs(30);
const CONSOLE: &str = "/v1/ferrite/nodes/n/console";

/// A machine that is on, enrolled as `n`.
async fn machine(api: &Fixture) -> Fleet {
    let config =
        FleetConfig { ipmi: true, powered_on: true, speed: 200.0, ..FleetConfig::default() };
    let fleet = Fleet::start(config).unwrap();
    let enrolment = fleet.machine(0).unwrap().enrolment_by_ipmi().unwrap();
    let info: serde_json::Map<String, Value> = enrolment.driver_info.into_iter().collect();
    api.node("n", |node| {
        node.driver = "ipmi".to_owned();
        node.driver_info = info.into();
    })
    .await;
    fleet
}

/// Somebody who follows the console, and what they have seen.
struct Follower {
    stream: TcpStream,
    raw: String,
}

impl Follower {
    async fn of(api: &Fixture) -> Self {
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

    /// Reads until it is so.
    async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let mut piece = [0; 4096];
        while !is_so(self) {
            let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut piece)).await;
            let size = read.unwrap_or_else(|_| panic!("no {what} in {}", self.raw)).unwrap();
            assert_ne!(size, 0, "ended before {what}: {}", self.raw);
            self.raw.push_str(&String::from_utf8_lossy(&piece[..size]));
        }
    }
}

#[tokio::test]
async fn a_console_is_read_and_typed_at_and_is_in_the_timeline() {
    let api = Fixture::start().await;
    let running = api.conductor.start().await.unwrap();
    let fleet = machine(&api).await;
    let type_in = async |text: &str| api.ask("POST", CONSOLE, json!({"text": text})).await;
    let off = api.get(CONSOLE, LATEST).await;
    assert_eq!(off.status, 409, "{}", off.message());
    assert!(off.message().contains("Switch it on first"), "{}", off.message());
    assert_eq!(type_in("x").await.status, 409);

    let on = api.ask("PUT", "/v1/nodes/n/states/console", json!({"enabled": true})).await;
    assert_eq!(on.status, 202, "{}", on.message());
    let mut first = Follower::of(&api).await;
    first.until("the prompt", |it| it.text().ends_with("login: ")).await;
    assert!(first.raw.contains("content-type: text/event-stream"), "{}", first.raw);
    // Who comes later sees what was said before; both see what is typed.
    let mut second = Follower::of(&api).await;
    second.until("what was said", |it| it.text().contains("Booted from")).await;
    let typed = type_in("hello").await;
    assert_eq!(typed.status, 204, "{}", typed.message());
    for follower in [&mut first, &mut second] {
        follower.until("the echo", |it| it.text().ends_with("hello")).await;
    }
    drop(second);

    let timeline = "/v1/ferrite/nodes/n/timeline";
    let told = tokio::time::timeout(PATIENCE, async {
        loop {
            let told = api.get(timeline, LATEST).await.json();
            let mut entries = told["timeline"].as_array().unwrap().clone();
            entries.retain(|entry| entry["what"]["by"] == "console");
            if let Some(entry) = entries.pop() {
                return entry;
            }
            tokio::task::yield_now().await;
        }
    });
    let told = told.await.expect("what was printed is told");
    assert_eq!(told["what"]["kind"], "seen");
    assert_eq!(told["who"], json!({"kind": "machine", "address": "127.0.0.1"}));
    assert!(told["what"]["text"].as_str().unwrap().contains("Booted from"), "{told}");

    let off = api.ask("PUT", "/v1/nodes/n/states/console", json!({"enabled": false})).await;
    assert_eq!(off.status, 202, "{}", off.message());
    first.until("the end", |it| it.raw.contains("event: end")).await;
    running.stop(PATIENCE).await;
    fleet.stop().await;
}

#[tokio::test]
async fn what_was_said_last_is_written_down_when_the_process_stops() {
    let api = Fixture::start().await;
    let running = api.conductor.start().await.unwrap();
    let fleet = machine(&api).await;
    let on = api.ask("PUT", "/v1/nodes/n/states/console", json!({"enabled": true})).await;
    assert_eq!(on.status, 202, "{}", on.message());
    let mut follower = Follower::of(&api).await;
    follower.until("the prompt", |it| it.text().ends_with("login: ")).await;
    // A prompt is no line yet.
    running.stop(PATIENCE).await;
    let told = api.get("/v1/ferrite/nodes/n/timeline", LATEST).await.body;
    assert!(told.contains("login:"), "{told}");
    // It is on, and comes back with the process: whoever asks is to ask again.
    let answer = api.get(CONSOLE, LATEST).await;
    assert_eq!(answer.status, 503, "{}", answer.message());
    assert_eq!(answer.header("retry-after"), Some("1"));
    fleet.stop().await;
}

#[tokio::test]
async fn a_console_goes_with_its_node() {
    let api = Fixture::start().await;
    let fleet = machine(&api).await;
    let on = api.ask("PUT", "/v1/nodes/n/states/console", json!({"enabled": true})).await;
    assert_eq!(on.status, 202, "{}", on.message());
    let served = || api.conductor.registry().consoles_served().len();
    assert_eq!(served(), 1);
    // Without an address the console cannot be switched off.
    let id =
        api.get("/v1/nodes/n", LATEST).await.json()["uuid"].as_str().unwrap().parse::<NodeId>();
    let id = id.unwrap();
    let forget = move |writer: &mut store::Writer<'_>| {
        let mut node = writer.get(id)?.unwrap();
        node.driver_info = serde_json::Map::new().into();
        writer.save(&mut node)
    };
    api.store.write(forget).await.unwrap();
    let removed = api.ask("DELETE", "/v1/nodes/n", json!(null)).await;
    assert_eq!(removed.status, 204, "{}", removed.message());
    assert_eq!(served(), 0);
    fleet.stop().await;
}

#[tokio::test]
async fn what_cannot_be_typed_is_refused() {
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
        let answer = api.ask("POST", CONSOLE, body.clone()).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.message());
    }
    // On, and without text.
    let on = api.ask("PUT", "/v1/nodes/n/states/console", json!({"enabled": true})).await;
    assert_eq!(on.status, 202);
    for method in ["GET", "POST"] {
        let answer = api.ask(method, CONSOLE, json!({"text": "x"})).await;
        assert_eq!(answer.status, 409, "{method}");
        assert!(answer.message().contains("there is no text of it"), "{}", answer.message());
    }
    for method in ["GET", "POST"] {
        let path = "/v1/ferrite/nodes/none/console";
        assert_eq!(api.ask(method, path, json!({"text": "x"})).await.status, 404, "{method}");
    }
}
