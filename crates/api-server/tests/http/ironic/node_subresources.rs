// SPDX-License-Identifier: Apache-2.0
//! Sub-resources of nodes: traits, maintenance, validation, history, BIOS settings, firmware,
//! inventory, children.

use expect_test::expect;
use node_model::{
    BiosSetting, FirmwareComponent, HistoryEntry, HistoryId, Inventory, JsonObject, NodeId,
    Severity,
};
use serde_json::{Value, json};

use crate::support::fixture::{Fixture, LATEST, NOW};

const UNKNOWN_UUID: &str = "7fb9d8a5-7d76-4d38-b4a1-1e5ef7f0b3a3";

/// Sends each request and compares its status.
async fn check(fixture: &Fixture, requests: &[(&str, &str, Value, u16)]) {
    for (method, path, body, status) in requests {
        let response = fixture.request(method, path, body.clone()).await;
        assert_eq!(response.status, *status, "{method} {path} {body}: {}", response.body);
        if *status >= 400 && *status != 405 {
            assert!(!response.message().is_empty(), "{method} {path} {body}");
        }
    }
}

#[tokio::test]
async fn sets_traits() {
    let fixture = Fixture::start().await;
    fixture.node("n1", |_| {}).await;
    let all = "/v1/nodes/n1/traits";
    let many = |count: usize| -> Value {
        let names: Vec<String> = (0..count).map(|number| format!("CUSTOM_{number:02}")).collect();
        json!({"traits": names})
    };
    let traits = async || fixture.request("GET", all, Value::Null).await.json()["traits"].clone();
    assert_eq!(traits().await, json!([]));
    check(
        &fixture,
        &[
            ("PUT", all, json!({"traits": ["CUSTOM_B", "CUSTOM_A", "CUSTOM_B"]}), 204),
            ("PUT", "/v1/nodes/n1/traits/CUSTOM_C", Value::Null, 204),
            ("PUT", "/v1/nodes/n1/traits/CUSTOM_C", Value::Null, 204),
        ],
    )
    .await;
    assert_eq!(traits().await, json!(["CUSTOM_A", "CUSTOM_B", "CUSTOM_C"]));
    check(
        &fixture,
        &[
            ("PUT", all, json!({}), 400),
            ("PUT", all, json!({"traits": "CUSTOM_A"}), 400),
            ("PUT", all, json!({"traits": ["bad"]}), 400),
            ("PUT", all, many(51), 400),
            ("PUT", "/v1/nodes/n1/traits/bad", Value::Null, 400),
            ("PUT", "/v1/nodes/n1/traits/CUSTOM_D", json!({"a": 1}), 400),
            ("DELETE", "/v1/nodes/n1/traits/CUSTOM_Z", Value::Null, 404),
            ("GET", "/v1/nodes/n1/traits/CUSTOM_A", Value::Null, 405),
            ("GET", "/v1/nodes/nope/traits", Value::Null, 404),
            ("PUT", "/v1/nodes/nope/traits", many(1), 404),
        ],
    )
    .await;
    assert_eq!(traits().await, json!(["CUSTOM_A", "CUSTOM_B", "CUSTOM_C"]));
    let removed = ("DELETE", "/v1/nodes/n1/traits/CUSTOM_B", Value::Null, 204);
    check(&fixture, &[removed]).await;
    assert_eq!(traits().await, json!(["CUSTOM_A", "CUSTOM_C"]));
    check(
        &fixture,
        &[
            ("PUT", all, many(50), 204),
            ("PUT", "/v1/nodes/n1/traits/CUSTOM_MORE", Value::Null, 400),
            ("PUT", "/v1/nodes/n1/traits/CUSTOM_07", Value::Null, 204),
            ("DELETE", all, Value::Null, 204),
        ],
    )
    .await;
    assert_eq!(traits().await, json!([]));
    let added = fixture.request("PUT", "/v1/nodes/n1/traits/CUSTOM_X", Value::Null).await;
    let location = "http://api.example:6385/v1/nodes/n1/traits/CUSTOM_X";
    assert_eq!(added.header("location"), Some(location));
    for (method, status) in [("GET", 406), ("PUT", 405), ("DELETE", 404)] {
        let header = "X-OpenStack-Ironic-API-Version: 1.36\r\n";
        let response = fixture.send(method, all, header, b"").await;
        assert_eq!(response.status, status, "{method}");
    }
    // Requests without a change write no journal entry.
    let timeline = fixture.get("/v1/ferrite/nodes/n1/timeline", "").await.json();
    assert_eq!(timeline["timeline"].as_array().map(Vec::len), Some(6));
}

#[tokio::test]
async fn sets_and_clears_maintenance() {
    let fixture = Fixture::start().await;
    fixture.node("n1", |_| {}).await;
    let path = "/v1/nodes/n1/maintenance";
    for (method, path, body, status, set, reason) in [
        ("PUT", path, json!({"reason": "disk"}), 202, true, json!("disk")),
        ("PUT", path, Value::Null, 202, true, Value::Null),
        ("PUT", "/v1/nodes/n1/maintenance?reason=fan", Value::Null, 202, true, json!("fan")),
        ("PUT", path, json!({"bogus": 1}), 400, true, json!("fan")),
        ("PUT", path, json!({"reason": 7}), 400, true, json!("fan")),
        ("DELETE", path, Value::Null, 202, false, Value::Null),
        ("DELETE", "/v1/nodes/n1/maintenance?bogus=1", Value::Null, 400, false, Value::Null),
        ("DELETE", "/v1/nodes/nope/maintenance", Value::Null, 404, false, Value::Null),
    ] {
        let response = fixture.request(method, path, body.clone()).await;
        assert_eq!(response.status, status, "{method} {path} {body}: {}", response.body);
        let node = fixture.request("GET", "/v1/nodes/n1", Value::Null).await.json();
        assert_eq!((&node["maintenance"], &node["maintenance_reason"]), (&json!(set), &reason));
    }
}

#[tokio::test]
async fn validates_interfaces() {
    let fixture = Fixture::start().await;
    let body = json!({"driver": "fake-hardware", "name": "n1", "inspect_interface": "no-inspect"});
    let node = fixture.request("POST", "/v1/nodes", body).await.json();
    let uuid = node["uuid"].as_str().unwrap().to_owned();
    let results = fixture.request("GET", "/v1/nodes/n1/validate", Value::Null).await.json();
    assert_eq!(results.as_object().map(serde_json::Map::len), Some(12), "all but vendor");
    assert_eq!(results["power"], json!({"result": true}));
    assert_eq!(results["inspect"]["result"], false, "{results}");
    assert!(results["inspect"]["reason"].is_string());
    for path in
        ["/v1/nodes/validate?node=n1".to_owned(), format!("/v1/nodes/validate?node_uuid={uuid}")]
    {
        assert_eq!(fixture.request("GET", &path, Value::Null).await.json(), results, "{path}");
    }
    check(
        &fixture,
        &[
            ("GET", "/v1/nodes/validate", Value::Null, 400),
            ("GET", "/v1/nodes/validate?node=nope", Value::Null, 404),
            ("GET", "/v1/nodes/nope/validate", Value::Null, 404),
        ],
    )
    .await;
    let old = fixture.get("/v1/nodes/validate?node=n1", "").await;
    assert_eq!(old.status, 406);
}

fn history_entry(node_id: NodeId, number: u32, event: String) -> HistoryEntry {
    HistoryEntry {
        id: HistoryId(uuid::Uuid::from_u128(u128::from(number))),
        node_id,
        created_at: NOW,
        event_type: format!("type-{}", 9 - number),
        severity: Severity::Error,
        event,
        conductor: Some("conductor-1".into()),
        user: None,
        project: None,
        state: Some("cleaning".into()),
        target_provision_state: None,
        duration_seconds: Some(7),
    }
}

#[tokio::test]
async fn lists_and_shows_history() {
    let fixture = Fixture::start().await;
    let (one, two) = (fixture.node("n1", |_| {}).await, fixture.node("n2", |_| {}).await);
    let write = move |writer: &mut store::StoreWriter<'_>| {
        writer.add_history(&history_entry(one, 1, "short".into()))?;
        writer.add_history(&history_entry(one, 2, "x".repeat(300)))?;
        writer.add_history(&history_entry(two, 3, "another machine".into()))?;
        writer.add_history(&history_entry(one, 4, "last".into()))
    };
    fixture.store.write(write).await.unwrap();
    let events = async |query: &str| -> Vec<String> {
        let path = format!("/v1/nodes/n1/history{query}");
        let list = fixture.request("GET", &path, Value::Null).await.json();
        let lines = list["history"].as_array().unwrap().iter();
        lines.map(|line| line["event"].as_str().unwrap().chars().take(6).collect()).collect()
    };
    assert_eq!(events("").await, ["short", "xxxxxx", "last"]);
    assert_eq!(events("?sort_key=event_type").await, ["last", "xxxxxx", "short"]);
    assert_eq!(events("?sort_dir=desc&limit=1").await, ["last"]);
    let page = fixture.request("GET", "/v1/nodes/n1/history?limit=2", Value::Null).await.json();
    let next = page["next"].as_str().unwrap().replace("http://api.example:6385", "");
    let page = fixture.request("GET", &next, Value::Null).await.json();
    assert_eq!(page["history"][0]["event"], "last");
    assert_eq!(page.get("next"), None);

    let list = fixture.request("GET", "/v1/nodes/n1/history", Value::Null).await.json();
    let truncated = list["history"][1]["event"].as_str().unwrap();
    assert_eq!((truncated.len(), truncated.ends_with("...")), (254, true));
    let detail =
        fixture.request("GET", "/v1/nodes/n1/history?detail=true", Value::Null).await.json();
    assert_eq!(detail["history"][1]["event"], "x".repeat(300));
    let id = detail["history"][0]["uuid"].as_str().unwrap();
    let shown =
        fixture.request("GET", &format!("/v1/nodes/n1/history/{id}"), Value::Null).await.json();
    assert_eq!(shown, detail["history"][0]);
    expect![[r#"
        {
          "conductor": "conductor-1",
          "created_at": "2026-11-18T11:06:40+00:00",
          "duration_seconds": 7,
          "event": "short",
          "event_type": "type-8",
          "links": [
            {
              "href": "http://api.example:6385/v1/nodes/{n1}/history/00000000-0000-0000-0000-000000000001",
              "rel": "self"
            },
            {
              "href": "http://api.example:6385/nodes/{n1}/history/00000000-0000-0000-0000-000000000001",
              "rel": "bookmark"
            }
          ],
          "project": null,
          "severity": "ERROR",
          "state": "cleaning",
          "target_provision_state": null,
          "user": null,
          "uuid": "00000000-0000-0000-0000-000000000001"
        }"#]].assert_eq(&format!("{shown:#}").replace(&one.to_string(), "{n1}"));
    let other_node = format!("/v1/nodes/n2/history/{id}");
    let marker = format!("/v1/nodes/n1/history?marker={UNKNOWN_UUID}");
    check(
        &fixture,
        &[
            ("GET", &other_node, Value::Null, 404),
            ("GET", "/v1/nodes/n1/history/x", Value::Null, 404),
            ("GET", "/v1/nodes/nope/history", Value::Null, 404),
            ("GET", "/v1/nodes/n1/history?fields=uuid", Value::Null, 400),
            ("GET", "/v1/nodes/n1/history?sort_key=nope", Value::Null, 400),
            ("GET", &marker, Value::Null, 404),
        ],
    )
    .await;
    let old = fixture.get("/v1/nodes/n1/history", "X-OpenStack-Ironic-API-Version: 1.77\r\n").await;
    assert_eq!(old.status, 404);
}

#[tokio::test]
async fn lists_bios_settings_and_firmware() {
    let fixture = Fixture::start().await;
    let id = fixture.node("n1", |_| {}).await;
    let registry: JsonObject =
        serde_json::from_value(json!({"attribute_type": "Integer", "lower_bound": 1})).unwrap();
    let setting = BiosSetting {
        name: "ProcCores".into(),
        value: Some("8".into()),
        created_at: NOW,
        updated_at: None,
        registry,
    };
    let component = FirmwareComponent {
        component: "bmc".into(),
        initial_version: "1.0".into(),
        current_version: Some("1.1".into()),
        last_version_flashed: None,
        vendor: Some("Dell".into()),
        model: None,
        serial_number: None,
        created_at: NOW,
        updated_at: None,
    };
    let write = move |writer: &mut store::StoreWriter<'_>| {
        writer.replace_bios_settings(id, std::slice::from_ref(&setting))?;
        writer.replace_firmware_components(id, std::slice::from_ref(&component))
    };
    fixture.store.write(write).await.unwrap();
    let get = async |path: &str| fixture.request("GET", path, Value::Null).await.json();
    let bios = get("/v1/nodes/n1/bios").await;
    assert_eq!(bios["bios"][0]["name"], "ProcCores");
    assert_eq!(bios["bios"][0].get("lower_bound"), None);
    let detail = get("/v1/nodes/n1/bios?detail=true").await;
    assert_eq!(detail["bios"][0]["lower_bound"], 1);
    let one = get("/v1/nodes/n1/bios/ProcCores").await;
    assert_eq!(one["ProcCores"]["attribute_type"], "Integer");
    let named = get("/v1/nodes/n1/bios?fields=value").await;
    assert_eq!(named["bios"][0]["value"], "8");
    assert_eq!(named["bios"][0].get("name"), None);
    let firmware = get("/v1/nodes/n1/firmware").await;
    assert_eq!(firmware["firmware"][0]["vendor"], "Dell");
    let older = "X-OpenStack-Ironic-API-Version: 1.113\r\n";
    let firmware = fixture.get("/v1/nodes/n1/firmware", older).await.json();
    assert_eq!(firmware["firmware"][0]["current_version"], "1.1");
    assert_eq!(firmware["firmware"][0].get("vendor"), None);
    check(
        &fixture,
        &[
            ("GET", "/v1/nodes/n1/bios/Nope", Value::Null, 404),
            ("GET", "/v1/nodes/n1/bios?fields=nope", Value::Null, 400),
            ("GET", "/v1/nodes/nope/bios", Value::Null, 404),
            ("GET", "/v1/nodes/n1/firmware?fields=component", Value::Null, 200),
            ("GET", "/v1/nodes/n1/firmware?detail=true", Value::Null, 400),
            ("GET", "/v1/nodes/nope/firmware", Value::Null, 404),
        ],
    )
    .await;
    for (path, minor, status) in [
        ("/v1/nodes/n1/bios", 39, 404),
        ("/v1/nodes/n1/bios?detail=true", 73, 400),
        ("/v1/nodes/n1/bios?fields=name", 73, 400),
        ("/v1/nodes/n1/firmware", 85, 404),
        ("/v1/nodes/n1/inventory", 80, 404),
    ] {
        let header = format!("X-OpenStack-Ironic-API-Version: 1.{minor}\r\n");
        assert_eq!(fixture.get(path, &header).await.status, status, "{path} 1.{minor}");
    }
}

#[tokio::test]
async fn shows_the_inventory() {
    let fixture = Fixture::start().await;
    let id = fixture.node("n1", |_| {}).await;
    let missing = fixture.request("GET", "/v1/nodes/n1/inventory", Value::Null).await;
    assert_eq!(missing.status, 404, "{}", missing.body);
    let inventory = Inventory {
        node_id: id,
        created_at: NOW,
        inventory: JsonObject::from_stored(r#"{"cpu":{"count":8}}"#),
        plugin_data: JsonObject::empty(),
        derived: JsonObject::empty(),
    };
    fixture.store.write(move |writer| writer.set_inventory(&inventory)).await.unwrap();
    let shown = fixture.request("GET", "/v1/nodes/n1/inventory", Value::Null).await;
    assert_eq!(shown.json(), json!({"inventory": {"cpu": {"count": 8}}, "plugin_data": {}}));
}

#[tokio::test]
async fn lists_children() {
    let fixture = Fixture::start().await;
    let parent = fixture.node("server", |_| {}).await;
    let child = fixture.node("dpu", move |node| node.parent_node = Some(parent)).await;
    let shown = fixture.request("GET", "/v1/nodes/server/children", Value::Null).await.json();
    let href = format!("http://api.example:6385/v1/nodes?parent_node={parent}");
    let expected =
        json!({"children": [child.to_string()], "links": {"href": href, "rel": "children"}});
    assert_eq!(shown, expected);
    for (path, headers, status) in [
        ("/v1/nodes/nope/children", LATEST, 404),
        ("/v1/nodes/server/children", "X-OpenStack-Ironic-API-Version: 1.82\r\n", 404),
    ] {
        assert_eq!(fixture.get(path, headers).await.status, status, "{path}");
    }
}
