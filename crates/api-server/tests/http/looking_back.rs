// SPDX-License-Identifier: Apache-2.0
//! Who did what when, how long it takes, which images machines have, and who has which address.

use node_model::{Actor, Happening, JournalEntry, JsonObject, NodeId, ProvisionState, Timestamp};
use serde_json::{Value, json};

use crate::fixture::{Fixture, NOW};

fn at(second: i64) -> Timestamp {
    Timestamp(NOW.0 + second * 1_000_000)
}

fn entered(node_id: NodeId, second: i64, from: &str, to: &str) -> JournalEntry {
    let (event, why) = ("event".to_owned(), "because".to_owned());
    JournalEntry {
        at: at(second),
        node_id,
        actor: Actor::Conductor { hostname: "conductor-1".to_owned() },
        what: Happening::Entered { from: from.to_owned(), to: to.to_owned(), event, why },
    }
}

fn asked(node_id: NodeId, second: i64, user: &str) -> JournalEntry {
    let actor =
        Actor::User { name: Some(user.to_owned()), request_id: format!("req-{user}-{second}") };
    let what = Happening::Asked { target: "active".to_owned() };
    JournalEntry { at: at(second), node_id, actor, what }
}

async fn write(fixture: &Fixture, entries: Vec<JournalEntry>) {
    let append = move |writer: &mut store::Writer<'_>| {
        entries.iter().cloned().for_each(|entry| writer.append(entry));
        Ok::<_, store::Error>(())
    };
    fixture.store.write(append).await.unwrap();
}

async fn get(fixture: &Fixture, path: &str) -> Value {
    let answer = fixture.ask("GET", path, Value::Null).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.json()
}

/// The seconds of what was found, in its order.
fn seconds(answer: &Value) -> Vec<i64> {
    let entries = answer["entries"].as_array().unwrap().iter();
    let moment = |entry: &Value| entry["at"].as_str().unwrap().parse::<Timestamp>().unwrap();
    entries.map(|entry| (moment(entry).0 - NOW.0) / 1_000_000).collect()
}

#[tokio::test]
async fn the_journal_is_searched() {
    let fixture = Fixture::start().await;
    let one = fixture.node("one", |_| {}).await;
    let gone = NodeId::random();
    write(
        &fixture,
        vec![
            asked(one, 1, "anna"),
            entered(one, 2, "available", "deploying"),
            asked(gone, 3, "bert"),
            asked(one, 1000, "bert"),
            entered(one, 1001, "available", "deploying"),
        ],
    )
    .await;
    let moment = |second| at(second).to_string().replace('+', "%2B");
    for (query, expected) in [
        (String::new(), vec![1001, 1000, 3, 2, 1]),
        ("?node=one".to_owned(), vec![1001, 1000, 2, 1]),
        (format!("?node={gone}"), vec![3]),
        ("?actor=BERT".to_owned(), vec![1000, 3]),
        ("?actor=conductor-1".to_owned(), vec![1001, 2]),
        ("?kind=asked".to_owned(), vec![1000, 3, 1]),
        ("?kind=asked,entered&actor=anna".to_owned(), vec![1]),
        ("?kind=bmc_calls".to_owned(), vec![]),
        ("?text=deploying".to_owned(), vec![1001, 2]),
        ("?trace=req-bert-3".to_owned(), vec![3]),
        (format!("?from={}", moment(3)), vec![1001, 1000, 3]),
        (format!("?to={}", moment(3)), vec![2, 1]),
        (format!("?from={}&to={}", moment(2), moment(1000)), vec![3, 2]),
        (format!("?from={}", moment(5000)), vec![]),
    ] {
        let answer = get(&fixture, &format!("/v1/ferrite/journal{query}")).await;
        assert_eq!(seconds(&answer), expected, "{query}");
        assert_eq!(answer["next"], Value::Null, "{query}: all of it was looked through");
    }
    let answer = get(&fixture, "/v1/ferrite/journal?limit=2&kind=asked").await;
    assert_eq!(seconds(&answer), [1000, 3]);
    let names: Vec<&Value> =
        answer["entries"].as_array().unwrap().iter().map(|entry| &entry["node_name"]).collect();
    assert_eq!(names, [&json!("one"), &Value::Null], "the other is gone");
    let rest = format!("/v1/ferrite/journal?kind=asked&before={}", answer["next"]);
    assert_eq!(seconds(&get(&fixture, &rest).await), [1]);
    for bad in ["kind=nonsense", "from=yesterday", "before=-1", "limit=0", "who=me", "node=nobody"]
    {
        let refused = fixture.ask("GET", &format!("/v1/ferrite/journal?{bad}"), Value::Null).await;
        assert!([400, 404].contains(&refused.status), "{bad}: {}", refused.status);
    }
}

#[tokio::test]
async fn a_long_journal_is_looked_through_in_parts() {
    let fixture = Fixture::start().await;
    let one = fixture.node("one", |_| {}).await;
    write(&fixture, vec![asked(one, 0, "anna")]).await;
    let more = (0..45_000).map(|_| entered(one, 1, "available", "deploying")).collect();
    write(&fixture, more).await;
    let answer = get(&fixture, "/v1/ferrite/journal?actor=anna").await;
    assert_eq!(seconds(&answer), [] as [i64; 0], "it is too far back for one request");
    let rest = format!("/v1/ferrite/journal?actor=anna&before={}", answer["next"]);
    let answer = get(&fixture, &rest).await;
    assert_eq!((seconds(&answer), &answer["next"]), (vec![0], &Value::Null));
}

#[tokio::test]
async fn how_long_things_take() {
    let fixture = Fixture::start().await;
    let (one, two) = (NodeId::random(), NodeId::random());
    write(
        &fixture,
        vec![
            entered(one, 0, "available", "deploying"),
            entered(two, 0, "available", "deploying"),
            entered(one, 2, "deploying", "wait call-back"),
            entered(one, 8, "wait call-back", "deploying"),
            entered(one, 10, "deploying", "active"),
            entered(two, 99, "deploying", "deploy failed"),
        ],
    )
    .await;
    let answer = get(&fixture, "/v1/ferrite/durations").await;
    let phases = json!([
        {"state": "deploying", "median_ms": 4_000}, {"state": "wait call-back", "median_ms": 6_000},
    ]);
    let job = json!({
        "begins": "deploying", "ends_in": "active", "count": 1, "median_ms": 10_000,
        "slow_ms": 10_000, "phases": phases,
    });
    assert_eq!(answer, json!({"jobs": [job], "since": NOW.to_string()}));
}

#[tokio::test]
async fn which_images_machines_have() {
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
    let answer = get(&fixture, "/v1/ferrite/images").await;
    assert!(!answer.to_string().contains("secret"), "{answer}");
    let expected = json!([
        {"source": "http://i/os.raw", "is_shortened": false, "checksum": "abc", "nodes": 2,
         "active": 2, "some": ["a", "b"]},
        {"source": "https://i/os.raw", "is_shortened": true, "checksum": null, "nodes": 1,
         "active": 0, "some": ["c"]},
    ]);
    assert_eq!(answer, json!({"in_use": expected, "count": 2, "cache": null}));
}

#[tokio::test]
async fn without_boot_services_there_are_no_networks() {
    let fixture = Fixture::start().await;
    let answer = get(&fixture, "/v1/ferrite/dhcp").await;
    assert_eq!(answer, json!({"enabled": false, "networks": [], "leases": []}));
}

/// What a deployment needs may be said with the question.
#[tokio::test]
async fn a_plan_with_an_image_that_is_yet_to_be_given() {
    let fixture = Fixture::start().await;
    let id = fixture.node("one", |node| node.provision_state = ProvisionState::Available).await;
    for info in [json!({}), json!({"image_source": "http://i/os.raw", "image_checksum": "abc"})] {
        let body = json!({"target": "active", "nodes": [id.to_string()], "instance_info": info});
        let answer = fixture.ask("POST", "/v1/ferrite/explain", body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let body = json!({"target": "active", "nodes": [id.to_string()], "instance_info": 1});
    assert_eq!(fixture.ask("POST", "/v1/ferrite/explain", body).await.status, 400);
    let node = fixture.ask("GET", "/v1/nodes/one", Value::Null).await.json();
    assert_eq!(node["instance_info"], json!({}), "nothing is written");
}
