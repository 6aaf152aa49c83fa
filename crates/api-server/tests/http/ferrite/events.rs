// SPDX-License-Identifier: Apache-2.0
//! The journal as server-sent events, and timelines.

use std::time::Duration;

use node_model::{Actor, JournalEntry, JournalEvent, NodeId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::fixture::{Fixture, NOW};

const TIMEOUT: Duration = Duration::from_secs(30);

async fn record(fixture: &Fixture, node_id: NodeId, target: &str) {
    record_in(&fixture.store, node_id, target).await;
}

async fn record_in(store: &store::Store, node_id: NodeId, target: &str) {
    let actor = Actor::User { name: None, project: None, request_id: "req-1".to_owned() };
    let event = JournalEvent::Requested { target: target.to_owned() };
    let entry = JournalEntry { at: NOW, node_id, actor, event };
    let write = move |writer: &mut store::StoreWriter<'_>| {
        writer.append(entry.clone());
        Ok::<_, store::StoreError>(())
    };
    store.write(write).await.unwrap();
}

/// Reads `count` events from the stream and returns their ids and targets.
async fn follow(fixture: &Fixture, query: &str, headers: &str, count: usize) -> Vec<(i64, String)> {
    let mut stream = connect(fixture, query, headers).await;
    let mut text = String::new();
    let read = async {
        // An event ends with an empty line; the last one may have arrived only in part.
        let complete = |text: &str| {
            let end = text.rfind("\n\n").unwrap_or(0);
            text[..end].matches("\nevent: requested\n").count()
        };
        while complete(&text) < count {
            let mut piece = [0; 4096];
            let size = stream.read(&mut piece).await.unwrap();
            assert_ne!(size, 0, "the stream ended early: {text}");
            text.push_str(&String::from_utf8_lossy(&piece[..size]));
        }
    };
    tokio::time::timeout(TIMEOUT, read).await.expect("the events arrive");
    text.truncate(text.rfind("\n\n").unwrap_or(0));
    let value = |line: &str, key: &str| line.strip_prefix(key).map(str::to_owned);
    let ids = text.lines().filter_map(|line| value(line, "id: ")?.parse().ok());
    let targets = text.lines().filter_map(|line| {
        let data: serde_json::Value = serde_json::from_str(&value(line, "data: ")?).unwrap();
        data["event"]["target"].as_str().map(str::to_owned)
    });
    ids.zip(targets).collect()
}

async fn connect(fixture: &Fixture, query: &str, headers: &str) -> TcpStream {
    let mut stream = TcpStream::connect(fixture.server.address()).await.unwrap();
    let request = format!("GET /v1/ferrite/events{query} HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn resumes_after_the_last_event_id() {
    let fixture = Fixture::start().await;
    let node = fixture.node("n1", |_| {}).await;
    for number in 0..200 {
        record(&fixture, node, &format!("t{number}")).await;
    }
    let targets = |events: &[(i64, String)]| -> Vec<String> {
        events.iter().map(|(_, target)| target.clone()).collect()
    };
    let all = follow(&fixture, "?after=0", "", 200).await;
    assert_eq!(targets(&all), (0..200).map(|n| format!("t{n}")).collect::<Vec<_>>());

    let last_id = all[149].0;
    record(&fixture, node, "later").await;
    let header = format!("Last-Event-ID: {last_id}\r\n");
    let rest = follow(&fixture, "", &header, 51).await;
    assert_eq!(rest[0].1, "t150");
    assert_eq!(rest[50].1, "later");
}

#[tokio::test]
async fn follows_one_node() {
    let fixture = Fixture::start().await;
    let (one, two) = (fixture.node("n1", |_| {}).await, fixture.node("n2", |_| {}).await);
    let mut stream = connect(&fixture, "?node=n2", "").await;
    let mut text = String::new();
    let mut recorded = false;
    let read = async {
        while !text.contains("mine") {
            let mut piece = [0; 4096];
            let size = stream.read(&mut piece).await.unwrap();
            text.push_str(&String::from_utf8_lossy(&piece[..size]));
            if text.contains(": following") && !recorded {
                record(&fixture, one, "other").await;
                record(&fixture, two, "mine").await;
                recorded = true;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, read).await.expect("the event arrives");
    assert!(!text.contains("other"), "{text}");
}

/// Earlier entries are not sent, even if another process wrote them.
#[tokio::test]
async fn a_new_client_starts_at_the_end_of_the_journal() {
    let fixture = Fixture::start().await;
    let node = fixture.node("n1", |_| {}).await;
    // As after a restart: this server has not written the entries.
    let before = fixture.open_again();
    for number in 0..3 {
        record_in(&before, node, &format!("old{number}")).await;
    }
    before.close();
    let mut stream = connect(&fixture, "", "").await;
    let mut text = String::new();
    let read = async {
        let mut recorded = false;
        while !text.contains("new") {
            let mut piece = [0; 4096];
            let size = stream.read(&mut piece).await.unwrap();
            text.push_str(&String::from_utf8_lossy(&piece[..size]));
            if !recorded && text.contains(": following") {
                record(&fixture, node, "new").await;
                recorded = true;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, read).await.expect("the event arrives");
    assert!(!text.contains("old"), "{text}");
}

#[tokio::test]
async fn streams_end_when_the_server_stops() {
    let fixture = Fixture::start().await;
    let mut stream = connect(&fixture, "", "").await;
    let mut piece = [0; 4096];
    assert_ne!(stream.read(&mut piece).await.unwrap(), 0);
    let Fixture { server, .. } = fixture;
    tokio::time::timeout(TIMEOUT, server.stop())
        .await
        .expect("stopping takes less than the timeout");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
}

#[tokio::test]
async fn timelines_are_paged() {
    let fixture = Fixture::start().await;
    let node = fixture.node("n1", |_| {}).await;
    for number in 0..5 {
        record(&fixture, node, &format!("t{number}")).await;
    }
    let mut path = "/v1/ferrite/nodes/n1/timeline?limit=2".to_owned();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let page = fixture.get(&path, "").await.json();
        let entries = page["timeline"].as_array().unwrap().clone();
        seen.extend(entries.iter().map(|e| e["event"]["target"].as_str().unwrap().to_owned()));
        assert!(entries.iter().all(|e| e["actor"]["kind"] == "user" && e["node_uuid"].is_string()));
        match page["next"].as_str() {
            Some(next) => path = next.trim_start_matches("http://api.example:6385").to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, ["t0", "t1", "t2", "t3", "t4"]);
    for (path, status) in [
        ("/v1/ferrite/nodes/nope/timeline", 404),
        ("/v1/ferrite/nodes/n1/timeline?limit=0", 400),
        ("/v1/ferrite/nodes/n1/timeline?after=x", 400),
        ("/v1/ferrite/events?after=-1", 400),
        ("/v1/ferrite/events?bogus=1", 400),
    ] {
        assert_eq!(fixture.get(path, "").await.status, status, "{path}");
    }
}
