// SPDX-License-Identifier: Apache-2.0
//! Allocations: creation, backfill, deletion.

use std::time::Duration;

use node_model::{Node, NodeId, PowerState, ProvisionState};
use serde_json::{Value, json};

use crate::support::fixture::{Fixture, LATEST};
use crate::support::test_lab::version_header;

const UNKNOWN_UUID: &str = "7fb9d8a5-7d76-4d38-b4a1-1e5ef7f0b3a3";
const ONE: &str = "11111111-1111-4111-8111-111111111111";
const TWO: &str = "22222222-2222-4222-8222-222222222222";
const ALL: &str = "/v1/allocations";

fn available(node: &mut Node) {
    node.provision_state = ProvisionState::Available;
    node.power_state = Some(PowerState::Off);
    node.resource_class = Some("large".into());
    node.traits = vec!["CUSTOM_A".into()];
}

fn active(node: &mut Node) {
    available(node);
    node.provision_state = ProvisionState::Active;
}

/// Waits until the search for a node has ended. It runs in the background.
async fn wait_until_settled(fixture: &Fixture, name: &str) -> Value {
    let wait = async {
        loop {
            let shown = fixture.request("GET", &format!("{ALL}/{name}"), Value::Null).await.json();
            if shown["state"] != "allocating" {
                return shown;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.expect("the search ends")
}

async fn change_node(fixture: &Fixture, node: NodeId, change: fn(&mut Node)) {
    let write = move |writer: &mut store::StoreWriter<'_>| {
        let mut node = writer.get(node)?.ok_or(store::StoreError::Missing)?;
        change(&mut node);
        writer.save(&mut node)
    };
    fixture.store.write(write).await.unwrap();
}

#[tokio::test]
async fn reserves_a_node_and_releases_it() {
    let fixture = Fixture::start().await;
    let id = fixture.node("n1", available).await;
    fixture.node("n2", |node| node.resource_class = Some("large".into())).await;
    let body = json!({"uuid": ONE, "name": "a1", "resource_class": "large",
                      "traits": ["CUSTOM_A"], "candidate_nodes": ["n2", "n1"]});
    let created = fixture.request("POST", ALL, body).await;
    assert_eq!(created.status, 201, "{}", created.body);
    assert_eq!(created.json()["state"], "allocating");
    assert_eq!(created.header("location"), Some(&*format!("http://api.example:6385{ALL}/{ONE}")));
    let allocation = wait_until_settled(&fixture, "a1").await;
    assert_eq!(allocation["state"], "active", "{allocation}");
    assert_eq!(allocation["node_uuid"], id.to_string());
    let node = fixture.request("GET", "/v1/nodes/n1", Value::Null).await.json();
    assert_eq!((&node["allocation_uuid"], &node["instance_uuid"]), (&json!(ONE), &json!(ONE)));
    let of_node = fixture.request("GET", "/v1/nodes/n1/allocation", Value::Null).await.json();
    assert_eq!(of_node, allocation);
    let fields = fixture.request("GET", "/v1/nodes/n1/allocation?fields=name", Value::Null).await;
    assert_eq!(fields.json()["name"], "a1");

    change_node(&fixture, id, |node| node.provision_state = ProvisionState::Active).await;
    let rejected = fixture.request("DELETE", "/v1/nodes/n1/allocation", Value::Null).await;
    assert_eq!(rejected.status, 409, "{}", rejected.body);
    change_node(&fixture, id, |node| {
        node.provision_state = ProvisionState::Deploying;
        node.target_provision_state = Some(ProvisionState::Active);
    })
    .await;
    assert_eq!(fixture.request("DELETE", &format!("{ALL}/a1"), Value::Null).await.status, 409);
    change_node(&fixture, id, |node| node.maintenance = true).await;
    assert_eq!(fixture.request("DELETE", &format!("{ALL}/a1"), Value::Null).await.status, 204);
    let node = fixture.request("GET", "/v1/nodes/n1", Value::Null).await.json();
    assert_eq!((&node["allocation_uuid"], &node["instance_uuid"]), (&Value::Null, &Value::Null));
    for (method, path) in [
        ("GET", format!("{ALL}/a1")),
        ("DELETE", format!("{ALL}/a1")),
        ("GET", "/v1/nodes/n1/allocation".to_owned()),
        ("DELETE", "/v1/nodes/n1/allocation".to_owned()),
        ("DELETE", "/v1/nodes/None/allocation".to_owned()),
    ] {
        assert_eq!(
            fixture.request(method, &path, Value::Null).await.status,
            404,
            "{method} {path}"
        );
    }
    let missing = fixture.request("GET", "/v1/nodes/None/allocation", Value::Null).await;
    let message = "Node None could not be found.".to_owned();
    assert_eq!((missing.status, missing.message()), (400, message));
}

#[tokio::test]
async fn fails_if_no_node_matches() {
    let fixture = Fixture::start().await;
    fixture.node("n1", available).await;
    for (name, body) in [
        ("class", json!({"name": "class", "resource_class": "small"})),
        ("traits", json!({"name": "traits", "resource_class": "large", "traits": ["CUSTOM_Z"]})),
    ] {
        assert_eq!(fixture.request("POST", ALL, body).await.status, 201);
        let allocation = wait_until_settled(&fixture, name).await;
        assert_eq!(allocation["state"], "error");
        assert!(allocation["last_error"].is_string() && allocation["node_uuid"].is_null());
        assert_eq!(
            fixture.request("DELETE", &format!("{ALL}/{name}"), Value::Null).await.status,
            204
        );
    }
}

#[tokio::test]
async fn rejects_invalid_requests() {
    let fixture = Fixture::start().await;
    fixture.node("n1", active).await;
    fixture.node("free", available).await;
    fixture
        .node("used", |node| {
            active(node);
            node.instance_uuid = TWO.parse().ok();
        })
        .await;
    let body = json!({"uuid": ONE, "name": "a1", "resource_class": "none"});
    assert_eq!(fixture.request("POST", ALL, body).await.status, 201);
    wait_until_settled(&fixture, "a1").await;
    for (body, status) in [
        (json!({}), 400),
        (json!({"resource_class": "x".repeat(81)}), 400),
        (json!({"resource_class": "large", "name": "a b"}), 400),
        (json!({"resource_class": "large", "traits": ["x"]}), 400),
        (json!({"resource_class": "large", "candidate_nodes": ["nope"]}), 400),
        (json!({"resource_class": "large", "candidate_nodes": [UNKNOWN_UUID]}), 400),
        (json!({"resource_class": "large", "bogus": 1}), 400),
        (json!({"resource_class": "large", "name": "a1"}), 409),
        (json!({"resource_class": "large", "uuid": ONE}), 409),
        (json!({"node": "nope"}), 400),
        (json!({"node": "free"}), 409),
        (json!({"node": "n1", "resource_class": "small"}), 400),
        (json!({"node": "n1", "traits": ["CUSTOM_Z"]}), 400),
        (json!({"node": "n1", "candidate_nodes": ["free"]}), 400),
        (json!({"node": "n1", "uuid": TWO}), 409),
        (json!({"node": "used", "uuid": UNKNOWN_UUID}), 409),
    ] {
        let response = fixture.request("POST", ALL, body.clone()).await;
        assert_eq!(response.status, status, "{body}: {}", response.body);
    }
    let list = fixture.request("GET", ALL, Value::Null).await.json();
    assert_eq!(list["allocations"].as_array().map(Vec::len), Some(1), "nothing was stored");
    for (method, path, headers, body, status) in [
        ("GET", ALL, version_header(51), "", 404),
        ("POST", ALL, version_header(51), "{}", 405),
        ("POST", ALL, version_header(57), r#"{"node": "n1"}"#, 400),
        ("POST", ALL, version_header(59), r#"{"resource_class": "x", "owner": "me"}"#, 406),
        ("PATCH", "/v1/allocations/a1", version_header(56), "[]", 405),
        ("DELETE", "/v1/allocations/a1", version_header(51), "", 405),
        ("GET", "/v1/nodes/n1/allocation", version_header(51), "", 404),
        ("GET", "/v1/allocations?owner=x", version_header(59), "", 406),
        ("GET", "/v1/allocations?detail=true", LATEST.to_owned(), "", 400),
        ("GET", "/v1/allocations?node=nope", LATEST.to_owned(), "", 400),
        ("GET", "/v1/allocations?sort_key=traits", LATEST.to_owned(), "", 400),
        ("GET", "/v1/allocations/a%20b", LATEST.to_owned(), "", 400),
    ] {
        let response = fixture.send(method, path, &headers, body.as_bytes()).await;
        assert_eq!(response.status, status, "{method} {path} {headers}: {}", response.body);
    }
}

#[tokio::test]
async fn backfills_nodes_in_use() {
    let fixture = Fixture::start().await;
    let plain = fixture.node("plain", active).await;
    fixture
        .node("used", |node| {
            active(node);
            node.instance_uuid = TWO.parse().ok();
        })
        .await;
    for (body, uuid) in
        [(json!({"node": "plain", "uuid": ONE}), ONE), (json!({"node": "used"}), TWO)]
    {
        let created = fixture.request("POST", ALL, body.clone()).await;
        assert_eq!(created.status, 201, "{body}: {}", created.body);
        let allocation = created.json();
        assert_eq!(allocation["uuid"], uuid);
        assert_eq!(allocation["state"], "active");
        assert_eq!(allocation["resource_class"], "large");
        // Now the node has an allocation.
        assert_eq!(fixture.request("POST", ALL, body.clone()).await.status, 409, "{body}");
    }
    let node = fixture.request("GET", "/v1/nodes/plain", Value::Null).await.json();
    assert_eq!((&node["allocation_uuid"], &node["instance_uuid"]), (&json!(ONE), &json!(ONE)));
    for (query, uuids) in [
        ("", vec![ONE, TWO]),
        ("?node=plain", vec![ONE]),
        (&format!("?node={plain}"), vec![ONE]),
        ("?state=active&resource_class=large", vec![ONE, TWO]),
        ("?state=nonsense", vec![]),
        ("?owner=red", vec![]),
        ("?sort_key=uuid&sort_dir=desc&limit=1", vec![TWO]),
    ] {
        let list = fixture.request("GET", &format!("{ALL}{query}"), Value::Null).await.json();
        let found: Vec<&str> = list["allocations"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|a| a["uuid"].as_str())
            .collect();
        assert_eq!(found, uuids, "{query}");
    }
}

#[tokio::test]
async fn patches_allocations() {
    let fixture = Fixture::start().await;
    let body = json!({"uuid": ONE, "name": "a1", "resource_class": "none"});
    fixture.request("POST", ALL, body).await;
    wait_until_settled(&fixture, "a1").await;
    fixture.request("POST", ALL, json!({"name": "a2", "resource_class": "none"})).await;
    let set = |path: &str, value: Value| json!([{"op": "replace", "path": path, "value": value}]);
    for (patch, status) in [
        (set("/name", json!("a2")), 409),
        (set("/name", json!("b b")), 400),
        (set("/resource_class", json!("x")), 400),
        (set("/extra", json!({"a": 1})), 200),
        (set("/name", json!("a3")), 200),
        (json!([{"op": "remove", "path": "/name"}]), 200),
    ] {
        let response = fixture.request("PATCH", &format!("{ALL}/{ONE}"), patch.clone()).await;
        assert_eq!(response.status, status, "{patch}: {}", response.body);
    }
    let shown = fixture.request("GET", &format!("{ALL}/{ONE}"), Value::Null).await.json();
    assert_eq!((&shown["extra"], &shown["name"]), (&json!({"a": 1}), &Value::Null));
}
