// SPDX-License-Identifier: Apache-2.0
//! Fleet, explanations and search.

use node_model::{
    Deadline, Fault, Inventory, JsonObject, NodeId, Port, PortId, PowerState, ProvisionState, Wait,
    WaitReason,
};
use serde_json::{Value, json};

use crate::support::fixture::{Fixture, NOW};

fn object(value: Value) -> JsonObject {
    value.as_object().unwrap().clone().into()
}

/// The rows of a response as objects.
fn rows(response: &Value) -> Vec<Value> {
    let fields: Vec<&str> =
        response["fields"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let rows = response["nodes"].as_array().unwrap().iter();
    rows.map(|row| {
        let values = row.as_array().unwrap();
        assert_eq!(values.len(), fields.len(), "{row}");
        fields.iter().map(|name| (*name).to_owned()).zip(values.iter().cloned()).collect()
    })
    .collect()
}

async fn fleet(fixture: &Fixture, query: &str) -> Value {
    let response = fixture.request("GET", &format!("/v1/ferrite/fleet{query}"), Value::Null).await;
    assert_eq!(response.status, 200, "{}", response.body);
    response.json()
}

#[tokio::test]
async fn fleet_has_all_nodes_with_their_fields() {
    let fixture = Fixture::start().await;
    let id = fixture
        .node("m1-u1", |node| {
            node.provision_state = ProvisionState::DeployWait;
            node.target_provision_state = Some(ProvisionState::Active);
            node.power_state = Some(PowerState::On);
            node.fault = Some(Fault::Power);
            node.maintenance = true;
            node.owner = Some("us".to_owned());
            node.extra = object(json!({"rack": "r1", "other": 1}));
            node.wait = Some(Wait {
                reason: WaitReason::AgentHeartbeat,
                deadline: Deadline::At(NOW),
                next_action_at: Some(NOW),
                state: ProvisionState::DeployWait,
            });
            node.last_error = Some("é".repeat(1000));
        })
        .await;
    fixture.node("plain", |_| {}).await;
    fixture.node("r2-u7", |_| {}).await;
    let response = fleet(&fixture, "").await;
    assert_eq!(response["complete"], true);
    assert_eq!(
        response["verbs"]["active"],
        json!(["rebuild", "deleted", "undeploy", "rescue", "service"])
    );
    let rows = rows(&response);
    assert_eq!(rows.len(), 3);
    let row = rows.iter().find(|row| row["name"] == "m1-u1").unwrap();
    for (field, value) in [
        ("uuid", json!(id.to_string())),
        ("provision_state", json!("wait call-back")),
        ("target_provision_state", json!("active")),
        ("power_state", json!("power on")),
        ("target_power_state", Value::Null),
        ("maintenance", json!(true)),
        ("fault", json!("power failure")),
        ("owner", json!("us")),
        ("rack", json!("r1")),
        ("wait_reason", json!("agent heartbeat")),
        ("wait_until", json!(NOW.to_string())),
        ("next_action_at", json!(NOW.to_string())),
        ("error", json!("é".repeat(240))),
    ] {
        assert_eq!(row[field], value, "{field}");
    }
    let by_name = rows.iter().find(|row| row["name"] == "r2-u7").unwrap();
    assert_eq!(by_name["rack"], "r2");
    let plain = rows.iter().find(|row| row["name"] == "plain").unwrap();
    assert_eq!(
        (&plain["rack"], &plain["wait_reason"], &plain["wait_until"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );

    let one = fleet(&fixture, "?node=plain").await;
    assert_eq!(self::rows(&one).len(), 1);
    assert!(one["verbs"].is_object());
    for (query, status) in
        [("?node=unknown", 404), ("?after=x", 400), ("?after=-1", 400), ("?a=b", 400)]
    {
        let rejected =
            fixture.request("GET", &format!("/v1/ferrite/fleet{query}"), Value::Null).await;
        assert_eq!(rejected.status, status, "{query}: {}", rejected.body);
    }
}

#[tokio::test]
async fn compresses_large_responses_if_accepted() {
    let fixture = Fixture::start().await;
    for index in 0..100 {
        fixture.node(&format!("node-{index}"), |_| {}).await;
    }
    let plain = fixture.get("/v1/ferrite/fleet", "").await;
    assert_eq!(plain.header("content-encoding"), None);
    let compressed = fixture.get("/v1/ferrite/fleet", "Accept-Encoding: gzip\r\n").await;
    assert_eq!(compressed.header("content-encoding"), Some("gzip"));
    let length = |response: &crate::support::fixture::RawResponse| -> usize {
        response.header("content-length").unwrap().parse().unwrap()
    };
    assert!(length(&compressed) < length(&plain) / 2);
}

#[tokio::test]
async fn fleet_has_the_nodes_that_changed() {
    let fixture = Fixture::start().await;
    for name in ["a", "b", "c"] {
        let created =
            fixture.request("POST", "/v1/nodes", json!({"driver": "fake-hardware", "name": name}));
        assert_eq!(created.await.status, 201);
    }
    let first = fleet(&fixture, "").await;
    let seq = &first["seq"];
    let nothing = fleet(&fixture, &format!("?after={seq}")).await;
    assert_eq!((&nothing["complete"], rows(&nothing).len()), (&json!(false), 0));
    assert_eq!(nothing["verbs"], Value::Null);

    let patch = json!([{"op": "add", "path": "/owner", "value": "us"}]);
    assert_eq!(fixture.request("PATCH", "/v1/nodes/b", patch).await.status, 200);
    let uuid = fixture.request("GET", "/v1/nodes/c", Value::Null).await.json()["uuid"].clone();
    assert_eq!(fixture.request("DELETE", "/v1/nodes/c", Value::Null).await.status, 204);
    let changes = fleet(&fixture, &format!("?after={seq}")).await;
    let changed = rows(&changes);
    assert_eq!(changed.len(), 1, "{changes}");
    assert_eq!((&changed[0]["name"], &changed[0]["owner"]), (&json!("b"), &json!("us")));
    assert_eq!(changes["deleted"], json!([uuid]));
    let after = fleet(&fixture, &format!("?after={}", changes["seq"])).await;
    assert_eq!((rows(&after).len(), &after["deleted"]), (0, &json!([])));
}

#[tokio::test]
async fn explains_a_verb_for_many_nodes() {
    let fixture = Fixture::start().await;
    let state = |state| move |node: &mut node_model::Node| node.provision_state = state;
    let active = fixture.node("active", state(ProvisionState::Active)).await;
    let failed = fixture.node("failed", state(ProvisionState::DeployFail)).await;
    let idle = fixture.node("idle", state(ProvisionState::Manageable)).await;
    let other = fixture.node("other", state(ProvisionState::Manageable)).await;
    let deleted = NodeId::random();
    let nodes: Vec<String> =
        [active, failed, idle, other, deleted].iter().map(ToString::to_string).collect();
    let body = json!({"target": "deleted", "nodes": nodes});
    let response = fixture.request("POST", "/v1/ferrite/explain", body).await;
    assert_eq!(response.status, 200, "{}", response.body);
    let response = response.json();
    let plans = response["plans"].as_array().unwrap();
    assert_eq!(plans.len(), 1, "plans with different first states are the same: {response}");
    assert_eq!(plans[0]["nodes"].as_array().unwrap().len(), 2);
    assert_eq!(plans[0]["ends_in"], "available");
    let rejected = response["rejected"].as_array().unwrap();
    let sizes: Vec<usize> =
        rejected.iter().map(|one| one["nodes"].as_array().unwrap().len()).collect();
    assert_eq!((rejected.len(), sizes.iter().sum::<usize>()), (2, 3), "{response}");
    for bad in [
        json!({}),
        json!({"target": "deleted"}),
        json!({"target": "nonsense", "nodes": []}),
        json!({"target": "deleted", "nodes": ["not a uuid"]}),
        json!({"target": "deleted", "nodes": [], "more": 1}),
    ] {
        let rejected = fixture.request("POST", "/v1/ferrite/explain", bad.clone()).await;
        assert_eq!(rejected.status, 400, "{bad}: {}", rejected.body);
    }
}

#[tokio::test]
async fn explains_a_request_with_steps() {
    let fixture = Fixture::start().await;
    fixture.node("one", |node| node.provision_state = ProvisionState::Manageable).await;
    let steps = json!([{"interface": "deploy", "step": "erase_devices"}]);
    let body = json!({"target": "clean", "clean_steps": steps});
    let response = fixture.request("POST", "/v1/ferrite/nodes/one/explain", body).await;
    assert_eq!(response.status, 200, "{}", response.body);
    let response = response.json();
    assert_eq!(response["possible"], true, "{response}");
    let plan = response["plan"].to_string();
    assert!(plan.contains("deploy.erase_devices"), "{plan}");
    let nonsense = json!([{"interface": "deploy", "step": "no_such_step"}]);
    let body = json!({"target": "clean", "clean_steps": nonsense});
    let response = fixture.request("POST", "/v1/ferrite/nodes/one/explain", body).await.json();
    assert_eq!(response["possible"], false, "{response}");
    assert!(response["obstacles"].to_string().contains("no_such_step"), "{response}");
}

#[tokio::test]
async fn finds_nodes_by_mac_address_and_serial_number() {
    let fixture = Fixture::start().await;
    let id = fixture.node("one", |_| {}).await;
    fixture.node("other", |_| {}).await;
    let mac = "52:54:00:aa:bb:01";
    let inventory = Inventory {
        node_id: id,
        created_at: NOW,
        inventory: object(json!({"system_vendor": {"serial_number": "SN-123%x"}})),
        plugin_data: JsonObject::empty(),
        derived: JsonObject::empty(),
    };
    fixture
        .store
        .write(move |writer| {
            writer.insert(&Port::new(PortId::random(), id, mac.parse().unwrap(), NOW))?;
            writer.set_inventory(&inventory)
        })
        .await
        .unwrap();
    for (text, field, value) in
        [("AA:BB", "MAC address", mac), ("sn-123", "serial number", "SN-123%x")]
    {
        let path = format!("/v1/ferrite/search?text={text}");
        let response = fixture.request("GET", &path, Value::Null).await.json();
        let expected = json!([{"node_uuid": id.to_string(), "node_name": "one", "field": field, "value": value}]);
        assert_eq!(response["matches"], expected, "{text}");
    }
    for (query, status) in
        [("", 400), ("?text=ab", 400), ("?text=%25%25%25", 200), ("?text=123", 200)]
    {
        let response =
            fixture.request("GET", &format!("/v1/ferrite/search{query}"), Value::Null).await;
        assert_eq!(response.status, status, "{query}: {}", response.body);
        if status == 200 {
            assert_eq!(response.json()["matches"], json!([]), "{query}");
        }
    }
}
