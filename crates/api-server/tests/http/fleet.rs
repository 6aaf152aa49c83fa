// SPDX-License-Identifier: Apache-2.0
//! All nodes at once: how they stand, what changed, what a verb would do to them, and finding one.

use node_model::{
    Deadline, Fault, Inventory, JsonObject, NodeId, Port, PortId, PowerState, ProvisionState, Wait,
    WaitReason,
};
use serde_json::{Value, json};

use crate::fixture::{Fixture, NOW};

fn object(value: Value) -> JsonObject {
    value.as_object().unwrap().clone().into()
}

/// The rows of an answer, as objects.
fn rows(answer: &Value) -> Vec<Value> {
    let fields: Vec<&str> =
        answer["fields"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let rows = answer["nodes"].as_array().unwrap().iter();
    rows.map(|row| {
        let values = row.as_array().unwrap();
        assert_eq!(values.len(), fields.len(), "{row}");
        fields.iter().map(|name| (*name).to_owned()).zip(values.iter().cloned()).collect()
    })
    .collect()
}

async fn fleet(fixture: &Fixture, query: &str) -> Value {
    let answer = fixture.ask("GET", &format!("/v1/ferrite/fleet{query}"), Value::Null).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

#[tokio::test]
async fn how_all_stand() {
    let fixture = Fixture::start().await;
    let id = fixture
        .node("r1-u1", |node| {
            node.provision_state = ProvisionState::DeployWait;
            node.target_provision_state = Some(ProvisionState::Active);
            node.power_state = Some(PowerState::On);
            node.fault = Some(Fault::Power);
            node.maintenance = true;
            node.owner = Some("us".to_owned());
            node.extra = object(json!({"rack": "r1", "other": 1}));
            node.wait = Some(Wait {
                why: WaitReason::AgentHeartbeat,
                until: Deadline::At(NOW),
                state: ProvisionState::DeployWait,
            });
            node.last_error = Some("é".repeat(1000));
        })
        .await;
    fixture.node("plain", |_| {}).await;
    let answer = fleet(&fixture, "").await;
    assert_eq!(answer["whole"], true);
    assert_eq!(
        answer["verbs"]["active"],
        json!(["rebuild", "deleted", "undeploy", "rescue", "service"])
    );
    let rows = rows(&answer);
    assert_eq!(rows.len(), 2);
    let row = rows.iter().find(|row| row["name"] == "r1-u1").unwrap();
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
        ("why", json!("agent heartbeat")),
        ("until", json!(NOW.to_string())),
        ("error", json!("é".repeat(240))),
    ] {
        assert_eq!(row[field], value, "{field}");
    }
    let plain = rows.iter().find(|row| row["name"] == "plain").unwrap();
    assert_eq!(
        (&plain["rack"], &plain["why"], &plain["until"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );

    let one = fleet(&fixture, "?node=plain").await;
    assert_eq!(self::rows(&one).len(), 1);
    assert!(one["verbs"].is_object());
    for (query, status) in
        [("?node=nobody", 404), ("?after=x", 400), ("?after=-1", 400), ("?a=b", 400)]
    {
        let refused = fixture.ask("GET", &format!("/v1/ferrite/fleet{query}"), Value::Null).await;
        assert_eq!(refused.status, status, "{query}: {}", refused.body);
    }
}

#[tokio::test]
async fn large_answers_are_compressed_where_that_is_understood() {
    let fixture = Fixture::start().await;
    for index in 0..100 {
        fixture.node(&format!("node-{index}"), |_| {}).await;
    }
    let plain = fixture.get("/v1/ferrite/fleet", "").await;
    assert_eq!(plain.header("content-encoding"), None);
    let packed = fixture.get("/v1/ferrite/fleet", "Accept-Encoding: gzip\r\n").await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let length = |response: &crate::fixture::Response| -> usize {
        response.header("content-length").unwrap().parse().unwrap()
    };
    assert!(length(&packed) < length(&plain) / 2);
}

#[tokio::test]
async fn what_changed() {
    let fixture = Fixture::start().await;
    for name in ["a", "b", "c"] {
        let made =
            fixture.ask("POST", "/v1/nodes", json!({"driver": "fake-hardware", "name": name}));
        assert_eq!(made.await.status, 201);
    }
    let first = fleet(&fixture, "").await;
    let seq = &first["seq"];
    let nothing = fleet(&fixture, &format!("?after={seq}")).await;
    assert_eq!((&nothing["whole"], rows(&nothing).len()), (&json!(false), 0));
    assert_eq!(nothing["verbs"], Value::Null);

    let patch = json!([{"op": "add", "path": "/owner", "value": "us"}]);
    assert_eq!(fixture.ask("PATCH", "/v1/nodes/b", patch).await.status, 200);
    let uuid = fixture.ask("GET", "/v1/nodes/c", Value::Null).await.json()["uuid"].clone();
    assert_eq!(fixture.ask("DELETE", "/v1/nodes/c", Value::Null).await.status, 204);
    let changes = fleet(&fixture, &format!("?after={seq}")).await;
    let changed = rows(&changes);
    assert_eq!(changed.len(), 1, "{changes}");
    assert_eq!((&changed[0]["name"], &changed[0]["owner"]), (&json!("b"), &json!("us")));
    assert_eq!(changes["gone"], json!([uuid]));
    let after = fleet(&fixture, &format!("?after={}", changes["seq"])).await;
    assert_eq!((rows(&after).len(), &after["gone"]), (0, &json!([])));
}

#[tokio::test]
async fn what_a_verb_would_do_to_many() {
    let fixture = Fixture::start().await;
    let state = |state| move |node: &mut node_model::Node| node.provision_state = state;
    let here = fixture.node("here", state(ProvisionState::Active)).await;
    let failed = fixture.node("failed", state(ProvisionState::DeployFail)).await;
    let busy = fixture.node("resting", state(ProvisionState::Manageable)).await;
    let other = fixture.node("other", state(ProvisionState::Manageable)).await;
    let gone = NodeId::random();
    let nodes: Vec<String> =
        [here, failed, busy, other, gone].iter().map(ToString::to_string).collect();
    let body = json!({"target": "deleted", "nodes": nodes});
    let answer = fixture.ask("POST", "/v1/ferrite/explain", body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer = answer.json();
    let plans = answer["plans"].as_array().unwrap();
    assert_eq!(plans.len(), 1, "where they come from does not matter: {answer}");
    assert_eq!(plans[0]["nodes"].as_array().unwrap().len(), 2);
    assert_eq!(plans[0]["ends_in"], "available");
    let refused = answer["refused"].as_array().unwrap();
    let sizes: Vec<usize> =
        refused.iter().map(|one| one["nodes"].as_array().unwrap().len()).collect();
    assert_eq!((refused.len(), sizes.iter().sum::<usize>()), (2, 3), "{answer}");
    for bad in [
        json!({}),
        json!({"target": "deleted"}),
        json!({"target": "nonsense", "nodes": []}),
        json!({"target": "deleted", "nodes": ["not a uuid"]}),
        json!({"target": "deleted", "nodes": [], "more": 1}),
    ] {
        let refused = fixture.ask("POST", "/v1/ferrite/explain", bad.clone()).await;
        assert_eq!(refused.status, 400, "{bad}: {}", refused.body);
    }
}

#[tokio::test]
async fn what_a_request_with_steps_would_do() {
    let fixture = Fixture::start().await;
    fixture.node("one", |node| node.provision_state = ProvisionState::Manageable).await;
    let steps = json!([{"interface": "deploy", "step": "erase_devices"}]);
    let body = json!({"target": "clean", "clean_steps": steps});
    let answer = fixture.ask("POST", "/v1/ferrite/nodes/one/explain", body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer = answer.json();
    assert_eq!(answer["possible"], true, "{answer}");
    let plan = answer["plan"].to_string();
    assert!(plan.contains("deploy.erase_devices"), "{plan}");
    let nonsense = json!([{"interface": "deploy", "step": "no_such_step"}]);
    let body = json!({"target": "clean", "clean_steps": nonsense});
    let answer = fixture.ask("POST", "/v1/ferrite/nodes/one/explain", body).await.json();
    assert_eq!(answer["possible"], false, "{answer}");
    assert!(answer["obstacles"].to_string().contains("no_such_step"), "{answer}");
}

#[tokio::test]
async fn a_node_is_found_by_what_is_written_on_it() {
    let fixture = Fixture::start().await;
    let id = fixture.node("one", |_| {}).await;
    fixture.node("other", |_| {}).await;
    let mac = "52:54:00:aa:bb:01";
    let inventory = Inventory {
        node_id: id,
        created_at: NOW,
        inventory: object(json!({"system_vendor": {"serial_number": "SN-123%x"}})),
        plugin_data: JsonObject::empty(),
        found: JsonObject::empty(),
    };
    fixture
        .store
        .write(move |writer| {
            writer.insert(&Port::new(PortId::random(), id, mac.parse().unwrap(), NOW))?;
            writer.set_inventory(&inventory)
        })
        .await
        .unwrap();
    for (text, what, value) in
        [("AA:BB", "MAC address", mac), ("sn-123", "serial number", "SN-123%x")]
    {
        let path = format!("/v1/ferrite/search?text={text}");
        let answer = fixture.ask("GET", &path, Value::Null).await.json();
        let expected = json!([{"node_uuid": id.to_string(), "node_name": "one", "what": what, "value": value}]);
        assert_eq!(answer["found"], expected, "{text}");
    }
    for (query, status) in
        [("", 400), ("?text=ab", 400), ("?text=%25%25%25", 200), ("?text=123", 200)]
    {
        let answer = fixture.ask("GET", &format!("/v1/ferrite/search{query}"), Value::Null).await;
        assert_eq!(answer.status, status, "{query}: {}", answer.body);
        if status == 200 {
            assert_eq!(answer.json()["found"], json!([]), "{query}");
        }
    }
}
