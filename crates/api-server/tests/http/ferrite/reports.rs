// SPDX-License-Identifier: Apache-2.0
//! Journal search, durations, images, DHCP leases, explanations with an image.

use node_model::{
    Actor, JournalEntry, JournalEvent, JsonObject, NodeId, ProvisionState, Timestamp,
};
use serde_json::{Value, json};

use crate::support::fixture::{Fixture, NOW};

fn at(second: i64) -> Timestamp {
    Timestamp(NOW.0 + second * 1_000_000)
}

fn state_changed(node_id: NodeId, second: i64, from: &str, to: &str) -> JournalEntry {
    let (event, reason) = ("event".to_owned(), "because".to_owned());
    JournalEntry {
        at: at(second),
        node_id,
        actor: Actor::Conductor { hostname: "conductor-1".to_owned() },
        event: JournalEvent::StateChanged {
            from: from.to_owned(),
            to: to.to_owned(),
            event,
            reason,
        },
    }
}

fn requested(node_id: NodeId, second: i64, user: &str) -> JournalEntry {
    let actor = Actor::User {
        name: Some(user.to_owned()),
        project: None,
        request_id: format!("req-{user}-{second}"),
    };
    let event = JournalEvent::Requested { target: "active".to_owned() };
    JournalEntry { at: at(second), node_id, actor, event }
}

async fn write(fixture: &Fixture, entries: Vec<JournalEntry>) {
    let append = move |writer: &mut store::StoreWriter<'_>| {
        entries.iter().cloned().for_each(|entry| writer.append(entry));
        Ok::<_, store::StoreError>(())
    };
    fixture.store.write(append).await.unwrap();
}

async fn get(fixture: &Fixture, path: &str) -> Value {
    let response = fixture.request("GET", path, Value::Null).await;
    assert_eq!(response.status, 200, "{path}: {}", response.body);
    response.json()
}

/// The times of the entries in seconds after `NOW`.
fn seconds(response: &Value) -> Vec<i64> {
    let entries = response["entries"].as_array().unwrap().iter();
    let timestamp = |entry: &Value| entry["at"].as_str().unwrap().parse::<Timestamp>().unwrap();
    entries.map(|entry| (timestamp(entry).0 - NOW.0) / 1_000_000).collect()
}

#[tokio::test]
async fn searches_the_journal() {
    let fixture = Fixture::start().await;
    let one = fixture.node("one", |_| {}).await;
    let deleted = NodeId::random();
    write(
        &fixture,
        vec![
            requested(one, 1, "anna"),
            state_changed(one, 2, "available", "deploying"),
            requested(deleted, 3, "bert"),
            requested(one, 1000, "bert"),
            state_changed(one, 1001, "available", "deploying"),
        ],
    )
    .await;
    let timestamp = |second| at(second).to_string().replace('+', "%2B");
    for (query, expected) in [
        (String::new(), vec![1001, 1000, 3, 2, 1]),
        ("?node=one".to_owned(), vec![1001, 1000, 2, 1]),
        (format!("?node={deleted}"), vec![3]),
        ("?actor=BERT".to_owned(), vec![1000, 3]),
        ("?actor=conductor-1".to_owned(), vec![1001, 2]),
        ("?kind=requested".to_owned(), vec![1000, 3, 1]),
        ("?kind=requested,state_changed&actor=anna".to_owned(), vec![1]),
        ("?kind=bmc_calls".to_owned(), vec![]),
        ("?text=deploying".to_owned(), vec![1001, 2]),
        ("?trace=req-bert-3".to_owned(), vec![3]),
        (format!("?from={}", timestamp(3)), vec![1001, 1000, 3]),
        (format!("?to={}", timestamp(3)), vec![2, 1]),
        (format!("?from={}&to={}", timestamp(2), timestamp(1000)), vec![3, 2]),
        (format!("?from={}", timestamp(5000)), vec![]),
    ] {
        let response = get(&fixture, &format!("/v1/ferrite/journal{query}")).await;
        assert_eq!(seconds(&response), expected, "{query}");
        assert_eq!(response["next"], Value::Null, "{query}: the whole journal was scanned");
    }
    let response = get(&fixture, "/v1/ferrite/journal?limit=2&kind=requested").await;
    assert_eq!(seconds(&response), [1000, 3]);
    let names: Vec<&Value> =
        response["entries"].as_array().unwrap().iter().map(|entry| &entry["node_name"]).collect();
    assert_eq!(names, [&json!("one"), &Value::Null], "the other node does not exist");
    let rest = format!("/v1/ferrite/journal?kind=requested&before={}", response["next"]);
    assert_eq!(seconds(&get(&fixture, &rest).await), [1]);
    for bad in ["kind=nonsense", "from=yesterday", "before=-1", "limit=0", "who=me", "node=unknown"]
    {
        let rejected =
            fixture.request("GET", &format!("/v1/ferrite/journal?{bad}"), Value::Null).await;
        assert!([400, 404].contains(&rejected.status), "{bad}: {}", rejected.status);
    }
}

#[tokio::test]
async fn scans_a_long_journal_in_several_requests() {
    let fixture = Fixture::start().await;
    let one = fixture.node("one", |_| {}).await;
    write(&fixture, vec![requested(one, 0, "anna")]).await;
    let more = (0..45_000).map(|_| state_changed(one, 1, "available", "deploying")).collect();
    write(&fixture, more).await;
    let response = get(&fixture, "/v1/ferrite/journal?actor=anna").await;
    assert_eq!(seconds(&response), [] as [i64; 0], "too old for one request");
    let rest = format!("/v1/ferrite/journal?actor=anna&before={}", response["next"]);
    let response = get(&fixture, &rest).await;
    assert_eq!((seconds(&response), &response["next"]), (vec![0], &Value::Null));
}

#[tokio::test]
async fn shows_the_durations_of_jobs() {
    let fixture = Fixture::start().await;
    let (one, two) = (NodeId::random(), NodeId::random());
    write(
        &fixture,
        vec![
            state_changed(one, 0, "available", "deploying"),
            state_changed(two, 0, "available", "deploying"),
            state_changed(one, 2, "deploying", "wait call-back"),
            state_changed(one, 8, "wait call-back", "deploying"),
            state_changed(one, 10, "deploying", "active"),
            state_changed(two, 99, "deploying", "deploy failed"),
        ],
    )
    .await;
    let response = get(&fixture, "/v1/ferrite/durations").await;
    let phases = json!([
        {"state": "deploying", "median_ms": 4_000}, {"state": "wait call-back", "median_ms": 6_000},
    ]);
    let job = json!({
        "starts_in": "deploying", "ends_in": "active", "count": 1, "median_ms": 10_000,
        "p90_ms": 10_000, "phases": phases,
    });
    assert_eq!(response, json!({"jobs": [job], "since": NOW.to_string()}));
}

#[tokio::test]
async fn lists_the_images_of_nodes() {
    let fixture = Fixture::start().await;
    let image = |value: Value| JsonObject::from(value.as_object().unwrap().clone());
    for name in ["a", "b"] {
        fixture
            .node(name, |node| {
                node.provision_state = ProvisionState::Active;
                node.instance_info =
                    image(json!({"image_source": "http://i/os.raw", "image_checksum": "abc"}));
            })
            .await;
    }
    fixture
        .node("c", |node| {
            let source = "https://me:secret@i/os.raw?signature=secret";
            node.instance_info = image(json!({"image_source": source}));
        })
        .await;
    fixture.node("d", |_| {}).await;
    let response = get(&fixture, "/v1/ferrite/images").await;
    assert!(!response.to_string().contains("secret"), "{response}");
    let expected = json!([
        {"source": "http://i/os.raw", "is_shortened": false, "checksum": "abc", "nodes": 2,
         "active": 2, "node_names": ["a", "b"]},
        {"source": "https://i/os.raw", "is_shortened": true, "checksum": null, "nodes": 1,
         "active": 0, "node_names": ["c"]},
    ]);
    assert_eq!(response, json!({"in_use": expected, "count": 2, "cache": null}));
}

#[tokio::test]
async fn dhcp_is_disabled_without_boot_services() {
    let fixture = Fixture::start().await;
    let response = get(&fixture, "/v1/ferrite/dhcp").await;
    assert_eq!(response, json!({"enabled": false, "networks": [], "leases": []}));
}

/// `instance_info` of the request is used, but not stored.
#[tokio::test]
async fn explains_a_deployment_with_an_image() {
    let fixture = Fixture::start().await;
    let id = fixture.node("one", |node| node.provision_state = ProvisionState::Available).await;
    for info in [json!({}), json!({"image_source": "http://i/os.raw", "image_checksum": "abc"})] {
        let body = json!({"target": "active", "nodes": [id.to_string()], "instance_info": info});
        let response = fixture.request("POST", "/v1/ferrite/explain", body).await;
        assert_eq!(response.status, 200, "{}", response.body);
    }
    let body = json!({"target": "active", "nodes": [id.to_string()], "instance_info": 1});
    assert_eq!(fixture.request("POST", "/v1/ferrite/explain", body).await.status, 400);
    let node = fixture.request("GET", "/v1/nodes/one", Value::Null).await.json();
    assert_eq!(node["instance_info"], json!({}), "nothing is stored");
}
