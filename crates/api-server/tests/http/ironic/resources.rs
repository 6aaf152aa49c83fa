// SPDX-License-Identifier: Apache-2.0
//! Resources without a node: chassis, deploy templates, runbooks, inspection rules, conductors, shards,
//! events, version documents.

use serde_json::{Value, json};

use crate::support::fixture::{Fixture, LATEST};

const UNKNOWN_UUID: &str = "7fb9d8a5-7d76-4d38-b4a1-1e5ef7f0b3a3";

/// Sends each request and compares its status.
async fn check(fixture: &Fixture, requests: &[(&str, &str, Value, u16)]) {
    for (method, path, body, status) in requests {
        let response = fixture.request(method, path, body.clone()).await;
        assert_eq!(response.status, *status, "{method} {path} {body}: {}", response.body);
        if response.status == 204 {
            assert_eq!(response.body, "");
        }
    }
}

#[tokio::test]
async fn shows_version_documents() {
    let fixture = Fixture::start().await;
    let root = fixture.get("/", "").await.json();
    assert_eq!(root["versions"].as_array().map(Vec::len), Some(1));
    assert_eq!(root["default_version"]["id"], "v1");
    assert_eq!(root["default_version"]["links"][0]["href"], "http://api.example:6385/v1/");
    let old = fixture.get("/v1", "").await.json();
    assert!(old.get("nodes").is_some() && old.get("runbooks").is_none());
    let new = fixture.get("/v1", LATEST).await.json();
    assert!(new.get("runbooks").is_some());
    for path in ["/", "/v1"] {
        let head = fixture.send("HEAD", path, "", b"").await;
        assert_eq!((head.status, head.body.as_str()), (200, ""));
    }
}

#[tokio::test]
async fn creates_changes_and_deletes_chassis() {
    let fixture = Fixture::start().await;
    let created = fixture
        .request("POST", "/v1/chassis", json!({"description": "rack", "extra": {"a": 1}}))
        .await;
    assert_eq!(created.status, 201, "{}", created.body);
    let uuid = created.json()["uuid"].as_str().unwrap().to_owned();
    let path = format!("/v1/chassis/{uuid}");
    let location = format!("http://api.example:6385{path}");
    assert_eq!(created.header("location"), Some(location.as_str()));
    let inside = fixture.node("inside", |node| {
        node.chassis_id = uuid.parse().ok();
    });
    let inside = inside.await;
    check(
        &fixture,
        &[
            ("GET", &path, Value::Null, 200),
            ("GET", &format!("{path}?fields=uuid,extra"), Value::Null, 200),
            ("GET", &format!("{path}?fields=bogus"), Value::Null, 400),
            ("GET", "/v1/chassis/nope", Value::Null, 400),
            ("GET", &format!("/v1/chassis/{UNKNOWN_UUID}"), Value::Null, 404),
            ("POST", "/v1/chassis", json!({"uuid": uuid}), 409),
            ("POST", "/v1/chassis", json!({"bogus": 1}), 400),
            ("POST", "/v1/chassis?x=1", json!({}), 400),
            (
                "PATCH",
                &path,
                json!([{"op": "replace", "path": "/uuid", "value": UNKNOWN_UUID}]),
                400,
            ),
            ("PATCH", &path, json!([{"op": "add", "path": "/extra/b", "value": 2}]), 200),
            ("PATCH", &path, json!([{"op": "remove", "path": "/description"}]), 200),
            ("GET", &format!("{path}/nodes"), Value::Null, 200),
            ("GET", &format!("/v1/chassis/{UNKNOWN_UUID}/nodes"), Value::Null, 404),
            ("DELETE", &path, Value::Null, 400),
        ],
    )
    .await;
    let shown = fixture.request("GET", &path, Value::Null).await.json();
    assert_eq!(shown["extra"], json!({"a": 1, "b": 2}));
    assert_eq!(shown["description"], Value::Null);
    let nodes = fixture.request("GET", &format!("{path}/nodes"), Value::Null).await.json();
    assert_eq!(nodes["nodes"][0]["name"], "inside");
    fixture.store.write(move |writer| writer.delete(inside)).await.unwrap();
    check(&fixture, &[("DELETE", &path, Value::Null, 204), ("DELETE", &path, Value::Null, 404)])
        .await;
}

#[tokio::test]
async fn lists_support_pages_sorting_and_fields() {
    let fixture = Fixture::start().await;
    for number in 0..5 {
        let body = json!({"description": format!("c{number}")});
        assert_eq!(fixture.request("POST", "/v1/chassis", body).await.status, 201);
    }
    let mut path = "/v1/chassis?limit=2&sort_key=description&sort_dir=desc".to_owned();
    let mut seen = Vec::new();
    loop {
        let page = fixture.request("GET", &path, Value::Null).await.json();
        let chassis = page["chassis"].as_array().unwrap();
        seen.extend(chassis.iter().map(|c| c["description"].as_str().unwrap().to_owned()));
        assert!(chassis.iter().all(|c| c.get("extra").is_none()), "{page}");
        match page["next"].as_str() {
            Some(next) => path = next.trim_start_matches("http://api.example:6385").to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, ["c4", "c3", "c2", "c1", "c0"]);
    check(
        &fixture,
        &[
            ("GET", "/v1/chassis/detail", Value::Null, 200),
            ("GET", "/v1/chassis?detail=true", Value::Null, 200),
            ("GET", "/v1/chassis?detail=maybe", Value::Null, 400),
            ("GET", "/v1/chassis?fields=uuid&detail=true", Value::Null, 400),
            ("GET", "/v1/chassis/detail?fields=uuid", Value::Null, 400),
            ("GET", "/v1/chassis?bogus=1", Value::Null, 400),
            ("GET", "/v1/chassis?limit=0", Value::Null, 400),
            ("GET", "/v1/chassis?limit=x", Value::Null, 400),
            ("GET", "/v1/chassis?sort_key=extra", Value::Null, 400),
            ("GET", "/v1/chassis?sort_dir=up", Value::Null, 400),
            ("GET", "/v1/chassis?marker=x", Value::Null, 400),
            ("GET", &format!("/v1/chassis?marker={UNKNOWN_UUID}"), Value::Null, 404),
        ],
    )
    .await;
    let old = fixture.get("/v1/chassis?fields=uuid", "").await;
    assert_eq!(old.status, 406);
    let old = fixture.get("/v1/chassis?detail=true", "").await;
    assert_eq!(old.status, 400);
}

#[tokio::test]
async fn creates_changes_and_deletes_deploy_templates() {
    let fixture = Fixture::start().await;
    let step = json!({"interface": "deploy", "step": "erase", "args": {}, "priority": 10});
    let body = json!({"name": "CUSTOM_A", "steps": [step]});
    check(
        &fixture,
        &[
            ("POST", "/v1/deploy_templates", body.clone(), 201),
            ("POST", "/v1/deploy_templates", body.clone(), 409),
            ("POST", "/v1/deploy_templates", json!({"name": "bad name", "steps": [step]}), 400),
            ("POST", "/v1/deploy_templates", json!({"name": "CUSTOM_B", "steps": []}), 400),
            ("GET", "/v1/deploy_templates/CUSTOM_A", Value::Null, 200),
            ("GET", "/v1/deploy_templates/CUSTOM_X", Value::Null, 404),
            ("GET", "/v1/deploy_templates/a%24b", Value::Null, 400),
            (
                "PATCH",
                "/v1/deploy_templates/CUSTOM_A",
                json!([{"op": "replace", "path": "/name", "value": "CUSTOM_C"}]),
                200,
            ),
            ("GET", "/v1/deploy_templates?detail=true", Value::Null, 200),
            ("DELETE", "/v1/deploy_templates/CUSTOM_A", Value::Null, 404),
            ("DELETE", "/v1/deploy_templates/CUSTOM_C", Value::Null, 204),
        ],
    )
    .await;
    for (method, status) in [("GET", 404), ("POST", 405)] {
        let old = "X-OpenStack-Ironic-API-Version: 1.54\r\n";
        assert_eq!(fixture.send(method, "/v1/deploy_templates", old, b"{}").await.status, status);
    }
}

#[tokio::test]
async fn creates_changes_and_deletes_runbooks() {
    let fixture = Fixture::start().await;
    let step = json!({"interface": "deploy", "step": "erase", "args": {}, "order": 1});
    let body = json!({"name": "CUSTOM_BOOK", "steps": [step]});
    check(
        &fixture,
        &[
            ("POST", "/v1/runbooks", body.clone(), 201),
            ("POST", "/v1/runbooks", body, 409),
            ("GET", "/v1/runbooks/CUSTOM_BOOK", Value::Null, 200),
            ("PUT", "/v1/runbooks/CUSTOM_BOOK/traits/CUSTOM_B", Value::Null, 204),
            ("PUT", "/v1/runbooks/CUSTOM_BOOK/traits/CUSTOM_A", Value::Null, 204),
            ("PUT", "/v1/runbooks/CUSTOM_BOOK/traits/nope", Value::Null, 400),
            ("PUT", "/v1/runbooks/CUSTOM_BOOK/traits", json!({"traits": "x"}), 400),
            ("PUT", "/v1/runbooks/nope/traits/CUSTOM_A", Value::Null, 404),
        ],
    )
    .await;
    let traits = || async {
        fixture.request("GET", "/v1/runbooks/CUSTOM_BOOK/traits", Value::Null).await.json()
    };
    assert_eq!(traits().await, json!({"traits": ["CUSTOM_A", "CUSTOM_B"]}));
    check(
        &fixture,
        &[
            ("DELETE", "/v1/runbooks/CUSTOM_BOOK/traits/CUSTOM_A", Value::Null, 204),
            ("DELETE", "/v1/runbooks/CUSTOM_BOOK/traits/CUSTOM_A", Value::Null, 204),
            ("PUT", "/v1/runbooks/CUSTOM_BOOK/traits", json!({"traits": ["CUSTOM_C"]}), 204),
        ],
    )
    .await;
    assert_eq!(traits().await, json!({"traits": ["CUSTOM_C"]}));
    check(
        &fixture,
        &[
            ("DELETE", "/v1/runbooks/CUSTOM_BOOK/traits", Value::Null, 204),
            (
                "PATCH",
                "/v1/runbooks/CUSTOM_BOOK",
                json!([{"op": "add", "path": "/public", "value": true},
                       {"op": "add", "path": "/owner", "value": "me"}]),
                400,
            ),
            (
                "PATCH",
                "/v1/runbooks/CUSTOM_BOOK",
                json!([{"op": "add", "path": "/public", "value": true}]),
                200,
            ),
            ("DELETE", "/v1/runbooks/CUSTOM_BOOK", Value::Null, 204),
        ],
    )
    .await;
}

#[tokio::test]
async fn creates_changes_and_deletes_inspection_rules() {
    let fixture = Fixture::start().await;
    let action = json!({"op": "log", "args": {"msg": "seen"}});
    let secret = json!({"actions": [action], "sensitive": true, "description": "s"});
    let created = fixture.request("POST", "/v1/inspection_rules", secret).await;
    assert_eq!(created.status, 201, "{}", created.body);
    assert_eq!(created.json()["actions"], Value::Null, "a sensitive rule is not shown");
    let path = format!("/v1/inspection_rules/{}", created.json()["uuid"].as_str().unwrap());
    check(
        &fixture,
        &[
            ("POST", "/v1/inspection_rules", json!({"actions": []}), 400),
            ("POST", "/v1/inspection_rules", json!({"actions": [action]}), 201),
            ("GET", &path, Value::Null, 200),
            ("GET", "/v1/inspection_rules/nope", Value::Null, 400),
            ("PATCH", &path, json!([{"op": "replace", "path": "/sensitive", "value": false}]), 400),
            ("PATCH", &path, json!([{"op": "replace", "path": "/priority", "value": 5}]), 200),
            ("DELETE", &path, Value::Null, 204),
            ("DELETE", "/v1/inspection_rules", Value::Null, 204),
        ],
    )
    .await;
    let left = fixture.request("GET", "/v1/inspection_rules", Value::Null).await.json();
    assert_eq!(left, json!({"inspection_rules": []}));
}

#[tokio::test]
async fn lists_conductors_and_shards_and_receives_events() {
    let fixture = Fixture::start().await;
    fixture.node("a", |node| node.shard = Some("s1".to_owned())).await;
    fixture.node("b", |_| {}).await;
    let list = fixture.request("GET", "/v1/conductors?limit=1", Value::Null).await.json();
    assert_eq!(list["conductors"][0]["alive"], true);
    assert!(list["next"].as_str().unwrap().ends_with("marker=conductor-1"), "{list}");
    let shards = fixture.request("GET", "/v1/shards", Value::Null).await.json();
    let mut counts: Vec<String> =
        shards["shards"].as_array().unwrap().iter().map(|s| s.to_string()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [r#"{"count":1,"name":"None"}"#, r#"{"count":1,"name":"s1"}"#]);
    let event = json!({"event": "network.bind_port", "port_id": UNKNOWN_UUID,
                       "mac_address": "52:54:00:00:00:01", "status": "ACTIVE"});
    check(
        &fixture,
        &[
            ("GET", "/v1/conductors/conductor-1", Value::Null, 200),
            ("GET", "/v1/conductors/nope", Value::Null, 404),
            ("GET", "/v1/conductors?marker=nope", Value::Null, 404),
            ("POST", "/v1/events", json!({"events": [event]}), 204),
            ("POST", "/v1/events", json!({"events": []}), 400),
            ("POST", "/v1/events", json!({"events": [{"event": "bogus"}]}), 400),
            ("POST", "/v1/events", json!({}), 400),
        ],
    )
    .await;
}
