// SPDX-License-Identifier: Apache-2.0
//! `PATCH` of nodes: which change is allowed in which state, and its side effects.

use node_model::{
    Allocation, AllocationId, AllocationState, ConductorInfo, Fault, JsonObject, Node, NodeId,
    ProvisionState, WorkKind,
};
use serde_json::{Value, json};

use crate::support::fixture::{Fixture, NOW, RawResponse, waiting_work};

const UNKNOWN_UUID: &str = "7fb9d8a5-7d76-4d38-b4a1-1e5ef7f0b3a3";
const ONE: &str = "11111111-1111-4111-8111-111111111111";
const TWO: &str = "22222222-2222-4222-8222-222222222222";

fn set(path: &str, value: impl Into<Value>) -> Value {
    json!([{"op": "replace", "path": path, "value": value.into()}])
}

fn unset(path: &str) -> Value {
    json!([{"op": "remove", "path": path}])
}

async fn patch(fixture: &Fixture, node: NodeId, patch: Value) -> RawResponse {
    fixture.request("PATCH", &format!("/v1/nodes/{node}"), patch).await
}

async fn stored(fixture: &Fixture, node: NodeId) -> Node {
    fixture.store.read(move |reader| reader.get(node)).await.unwrap().unwrap()
}

/// Inserts an allocation of the node.
async fn allocate(fixture: &Fixture, node: NodeId, owner: Option<&str>) -> AllocationId {
    let allocation = Allocation {
        id: AllocationId(ONE.parse().unwrap()),
        created_at: NOW,
        updated_at: None,
        name: None,
        state: AllocationState::Active,
        node_id: Some(node),
        resource_class: Some("large".into()),
        traits: Vec::new(),
        candidate_nodes: Vec::new(),
        last_error: None,
        owner: owner.map(str::to_owned),
        extra: JsonObject::empty(),
    };
    let id = allocation.id;
    let write = move |writer: &mut store::StoreWriter<'_>| {
        writer.insert(&allocation)?;
        let mut node = writer.get(node)?.ok_or(store::StoreError::Missing)?;
        node.allocation_id = Some(id);
        node.instance_uuid = Some(id.0);
        writer.save(&mut node)
    };
    fixture.store.write(write).await.unwrap();
    id
}

#[tokio::test]
async fn changes_depend_on_the_state() {
    use ProvisionState::*;
    let fixture = Fixture::start().await;
    let enrolled: fn(&mut Node) = |_| {};
    let active: fn(&mut Node) = |node| {
        node.provision_state = Active;
        node.resource_class = Some("large".into());
    };
    let in_maintenance: fn(&mut Node) = |node| {
        node.provision_state = Active;
        node.resource_class = Some("large".into());
        node.maintenance = true;
    };
    let available: fn(&mut Node) = |node| node.provision_state = Available;
    let deploying: fn(&mut Node) = |node| {
        node.provision_state = DeployWait;
        node.target_provision_state = Some(Active);
    };
    let failed: fn(&mut Node) = |node| {
        node.provision_state = DeployFail;
        node.target_provision_state = Some(Active);
    };
    let inspecting: fn(&mut Node) = |node| {
        node.provision_state = Inspecting;
        node.target_provision_state = Some(Manageable);
    };
    let waiting: fn(&mut Node) = |node| {
        node.provision_state = InspectWait;
        node.target_provision_state = Some(Manageable);
    };
    let has_instance: fn(&mut Node) = |node| node.instance_uuid = TWO.parse().ok();
    let has_console: fn(&mut Node) = |node| node.console_enabled = true;
    for (name, state, patches) in [
        (
            "enrolled",
            enrolled,
            vec![
                (json!([]), 200),
                (set("/name", "other"), 200),
                (set("/name", "taken"), 409),
                (set("/name", "validate"), 400),
                (set("/driver", "nope"), 400),
                (set("/conductor_group", "far"), 400),
                (set("/power_interface", "nope"), 400),
                (set("/bios_interface", "no-bios"), 200),
                (set("/resource_class", "small"), 200),
                (set("/chassis_uuid", UNKNOWN_UUID), 400),
                (set("/parent_node", "taken"), 200),
                (set("/parent_node", "nope"), 400),
                (set("/parent_node", "n"), 400),
                (set("/protected", true), 409),
                (set("/protected_reason", "x"), 400),
                (set("/protected_reason", ""), 200),
                (set("/retired", true), 200),
                (set("/retired_reason", "x"), 400),
                (set("/instance_uuid", TWO), 200),
                (set("/instance_uuid", ONE), 409),
                (set("/instance_uuid", "x"), 400),
                (set("/description", "x".repeat(4097)), 400),
                (set("/network_data", json!({"links": 1})), 400),
                (set("/properties/cpus", "many"), 400),
                (set("/automated_clean", "false"), 200),
                (set("/provision_state", "active"), 400),
                (set("/traits", json!(["CUSTOM_A"])), 400),
                (set("/uuid", ONE), 400),
                (unset("/driver"), 400),
                (unset("/extra/nope"), 400),
                (unset("/name"), 200),
                (json!({}), 400),
                (json!("x"), 400),
            ],
        ),
        (
            "active",
            active,
            vec![
                (set("/extra", json!({"a": 1})), 200),
                (set("/bios_interface", "no-bios"), 409),
                (set("/resource_class", "small"), 409),
                (set("/protected", true), 200),
                (set("/owner", "red"), 200),
                (set("/retired", true), 200),
            ],
        ),
        (
            "active in maintenance",
            in_maintenance,
            vec![(set("/bios_interface", "no-bios"), 200), (set("/resource_class", "small"), 409)],
        ),
        (
            "available",
            available,
            vec![(set("/retired", true), 409), (set("/bios_interface", "no-bios"), 200)],
        ),
        (
            "deploying",
            deploying,
            vec![(set("/extra", json!({"a": 1})), 409), (set("/maintenance", true), 409)],
        ),
        ("failed", failed, vec![(set("/extra", json!({"a": 1})), 200)]),
        ("inspecting", inspecting, vec![(set("/extra", json!({"a": 1})), 409)]),
        ("waiting for inspection", waiting, vec![(set("/extra", json!({"a": 1})), 200)]),
        (
            "with an instance",
            has_instance,
            vec![
                (set("/instance_uuid", UNKNOWN_UUID), 409),
                (set("/instance_uuid", TWO), 200),
                (unset("/instance_uuid"), 200),
            ],
        ),
        (
            "with an enabled console",
            has_console,
            vec![
                (set("/driver", "fake-hardware"), 200),
                (set("/driver", "nope"), 409),
                (set("/console_interface", "no-console"), 409),
            ],
        ),
    ] {
        for (change, status) in patches {
            let taken = fixture.node("taken", |node| node.instance_uuid = ONE.parse().ok()).await;
            let id = fixture.node("n", state).await;
            let before = stored(&fixture, id).await;
            let response = patch(&fixture, id, change.clone()).await;
            assert_eq!(response.status, status, "{name} {change}: {}", response.body);
            if status != 200 {
                assert_eq!(stored(&fixture, id).await, before, "{name} {change} stored something");
                assert!(!response.message().is_empty());
            }
            let clean = move |writer: &mut store::StoreWriter<'_>| {
                writer.delete(id)?;
                writer.delete(taken)
            };
            fixture.store.write(clean).await.unwrap();
        }
    }
}

#[tokio::test]
async fn changes_depend_on_the_version() {
    let fixture = Fixture::start().await;
    let chassis = fixture.request("POST", "/v1/chassis", json!({})).await.json();
    let chassis = chassis["uuid"].as_str().unwrap().to_owned();
    let inspected = |node: &mut Node| {
        node.provision_state = ProvisionState::Inspecting;
        node.target_provision_state = Some(ProvisionState::Manageable);
    };
    let inside = fixture.node("inside", move |node| node.chassis_id = chassis.parse().ok()).await;
    let inspected = fixture.node("inspected", inspected).await;
    for (node, query, change, minor, status) in [
        (inside, "", unset("/chassis_uuid"), 24, 406),
        (inside, "", unset("/chassis_uuid"), 25, 200),
        (inside, "", set("/name", "x"), 4, 406),
        (inside, "", set("/shard", "x"), 81, 406),
        (inside, "?reset_interfaces=true", set("/driver", "fake-hardware"), 44, 406),
        (inside, "?reset_interfaces=true", set("/driver", "fake-hardware"), 45, 200),
        (inside, "?reset_interfaces=true", set("/extra", json!({})), 45, 400),
        (inside, "?reset_interfaces=perhaps", set("/driver", "fake-hardware"), 45, 400),
        (inside, "?bogus=true", set("/extra", json!({})), 45, 400),
        (inspected, "", set("/extra", json!({"a": 1})), 38, 200),
        (inspected, "", set("/extra", json!({"a": 2})), 39, 409),
    ] {
        let path = format!("/v1/nodes/{node}{query}");
        let header = format!("X-OpenStack-Ironic-API-Version: 1.{minor}\r\n");
        let response = fixture.send("PATCH", &path, &header, change.to_string().as_bytes()).await;
        assert_eq!(response.status, status, "{path} {change} 1.{minor}: {}", response.body);
    }
}

#[tokio::test]
async fn masked_secrets_keep_their_value() {
    let fixture = Fixture::start().await;
    let secret = json!({"fake_address": "10.0.0.1", "fake_password": "first"});
    let body = json!({"driver": "fake-hardware", "name": "n1", "driver_info": secret});
    let node = fixture.request("POST", "/v1/nodes", body).await.json();
    let masked = node["driver_info"].clone();
    assert_eq!(masked["fake_password"], "******");
    let id: NodeId = node["uuid"].as_str().unwrap().parse().unwrap();
    let revealed = async || {
        let read = move |reader: &mut store::StoreReader<'_>| {
            let node = reader.get(id)?.ok_or(store::StoreError::Missing)?;
            reader.reveal(&node)
        };
        fixture.store.read(read).await.unwrap().driver_info
    };
    for (change, password) in [
        (set("/driver_info", masked.clone()), "first"),
        (set("/driver_info/fake_address", "10.0.0.2"), "first"),
        (set("/extra", json!({"a": 1})), "first"),
        (set("/driver_info/fake_password", "second"), "second"),
        (set("/driver_info", masked), "second"),
    ] {
        let response = patch(&fixture, id, change.clone()).await;
        assert_eq!(response.status, 200, "{change}: {}", response.body);
        assert!(!response.body.contains("first") && !response.body.contains("second"));
        assert_eq!(revealed().await["fake_password"], password, "{change}");
        let row = stored(&fixture, id).await;
        assert!(!format!("{row:?}").contains(password), "in clear in the database");
    }
}

/// Passwords in URLs are secrets under any key.
#[tokio::test]
async fn masked_passwords_in_urls_keep_their_value() {
    let fixture = Fixture::start().await;
    let image = json!({"image_source": "https://me:hunter2@h/i", "image_checksum": "https://h/c"});
    let kernel = json!({"deploy_kernel": "http://u:hunter2@h/k", "more": ["ftp://u:hunter2@h/m"]});
    let body = json!({
        "driver": "fake-hardware", "name": "n1", "driver_info": kernel, "instance_info": image,
    });
    let node = fixture.request("POST", "/v1/nodes", body).await.json();
    let shown = node["instance_info"].clone();
    let expected =
        json!({"image_source": "https://me:******@h/i", "image_checksum": "https://h/c"});
    assert_eq!(shown, expected);
    assert_eq!(node["driver_info"]["more"], json!(["ftp://u:******@h/m"]));
    let id: NodeId = node["uuid"].as_str().unwrap().parse().unwrap();
    let revealed = async || {
        let read = move |reader: &mut store::StoreReader<'_>| {
            let node = reader.get(id)?.ok_or(store::StoreError::Missing)?;
            reader.reveal(&node)
        };
        fixture.store.read(read).await.unwrap().instance_info["image_source"].clone()
    };
    for (change, full) in [
        (set("/instance_info", shown), "https://me:hunter2@h/i"),
        (set("/instance_info/image_source", "https://me:******@h/j"), "https://me:hunter2@h/j"),
        (set("/instance_info/image_checksum", "abc"), "https://me:hunter2@h/j"),
        (set("/instance_info/image_source", "https://me:hunter3@h/j"), "https://me:hunter3@h/j"),
        (set("/instance_info/image_source", "https://me:******@evil/"), "https://me:******@evil/"),
    ] {
        let response = patch(&fixture, id, change.clone()).await;
        assert_eq!(response.status, 200, "{change}: {}", response.body);
        assert_eq!(revealed().await, full, "{change}");
        let row = stored(&fixture, id).await;
        let timeline = fixture.get("/v1/ferrite/nodes/n1/timeline", "").await.body;
        for text in [response.body, format!("{row:?}"), timeline] {
            assert!(!text.contains("hunter"), "{text}");
        }
    }
}

/// Also in the arguments of stored steps.
#[tokio::test]
async fn masked_passwords_in_urls_of_steps_keep_their_value() {
    let fixture = Fixture::start().await;
    for (path, order_field) in [("deploy_templates", "priority"), ("runbooks", "order")] {
        let url = |password: &str, file: &str| format!("https://u:{password}@h/{file}");
        let steps = |url: String| {
            let args = json!({"settings": [{"component": "bmc", "url": url}]});
            json!([{"interface": "firmware", "step": "update", "args": args, order_field: 1}])
        };
        let body = json!({"name": "CUSTOM_X", "steps": steps(url("hunter2", "a"))});
        let created = fixture.request("POST", &format!("/v1/{path}"), body).await;
        assert_eq!(created.json()["steps"], steps(url("******", "a")), "{}", created.body);
        let one = format!("/v1/{path}/CUSTOM_X");
        // One change that sends the masked steps back, and one that does not touch them.
        for change in
            [set("/steps", steps(url("******", "b"))), set("/extra", json!({"touched": true}))]
        {
            let changed = fixture.request("PATCH", &one, change).await;
            assert_eq!(changed.json()["steps"], steps(url("******", "b")), "{}", changed.body);
        }
    }
    let stored = fixture
        .store
        .read(|reader| {
            let template = reader.find(store::DeployTemplateColumn::Name, "CUSTOM_X")?;
            let runbook = reader.find(store::RunbookColumn::Name, "CUSTOM_X")?;
            let template: Option<node_model::DeployTemplate> = template;
            let runbook: Option<node_model::Runbook> = runbook;
            Ok::<_, store::StoreError>(format!("{template:?} {runbook:?}"))
        })
        .await
        .unwrap();
    assert_eq!(stored.matches("https://u:hunter2@h/b").count(), 2, "{stored}");
}

#[tokio::test]
async fn removing_an_interface_resets_it_to_the_default() {
    let fixture = Fixture::start().await;
    let body = json!({"driver": "fake-hardware", "bios_interface": "no-bios", "name": "n1"});
    fixture.request("POST", "/v1/nodes", body).await;
    let changed = fixture.request("PATCH", "/v1/nodes/n1", unset("/bios_interface")).await;
    assert_eq!(changed.json()["bios_interface"], "fake");
}

#[tokio::test]
async fn changing_the_driver_resets_the_interfaces_on_request() {
    let fixture = Fixture::start().await;
    let conductor = ConductorInfo {
        hostname: "conductor-2".to_owned(),
        run: None,
        version: None,
        conductor_group: String::new(),
        drivers: ["fake-hardware", "ipmi"].map(str::to_owned).to_vec(),
        created_at: NOW,
        updated_at: NOW,
        online: true,
    };
    let write =
        move |writer: &mut store::StoreWriter<'_>| writer.record_conductor_heartbeat(&conductor);
    fixture.store.write(write).await.unwrap();
    let body = json!({"driver": "fake-hardware", "name": "n1"});
    assert_eq!(fixture.request("POST", "/v1/nodes", body).await.status, 201);
    let interfaces = |node: &Value| {
        ["driver", "power_interface", "management_interface", "console_interface"]
            .map(|field| node[field].as_str().unwrap().to_owned())
    };

    // The fake interfaces do not exist in the driver ipmi.
    let rejected = fixture.request("PATCH", "/v1/nodes/n1", set("/driver", "ipmi")).await;
    assert_eq!(rejected.status, 400, "{}", rejected.body);
    let node = fixture.request("GET", "/v1/nodes/n1", Value::Null).await.json();
    assert_eq!(interfaces(&node), ["fake-hardware", "fake", "fake", "fake"]);

    let path = "/v1/nodes/n1?reset_interfaces=true";
    let changed = fixture.request("PATCH", path, set("/driver", "ipmi")).await;
    assert_eq!(changed.status, 200, "{}", changed.body);
    let node = changed.json();
    assert_eq!(interfaces(&node)[..3], ["ipmi", "ipmitool", "ipmitool"]);
    assert_ne!(node["console_interface"], "fake");

    // An interface in the same patch is not reset.
    let patch = json!([
        {"op": "replace", "path": "/driver", "value": "fake-hardware"},
        {"op": "replace", "path": "/console_interface", "value": "no-console"},
    ]);
    let changed = fixture.request("PATCH", path, patch).await;
    assert_eq!(changed.status, 200, "{}", changed.body);
    assert_eq!(interfaces(&changed.json()), ["fake-hardware", "fake", "fake", "no-console"]);
}

#[tokio::test]
async fn changes_have_side_effects_and_journal_entries() {
    let fixture = Fixture::start().await;
    let id = fixture
        .node("n1", |node| {
            node.provision_state = ProvisionState::Active;
            node.maintenance = true;
            node.maintenance_reason = Some("dead disk".into());
            node.fault = Some(Fault::Power);
            node.protected = true;
            node.protected_reason = Some("mine".into());
        })
        .await;
    let node = patch(&fixture, id, set("/maintenance", false)).await.json();
    assert_eq!(node["maintenance_reason"], Value::Null);
    assert_eq!(node["fault"], Value::Null);
    let node = patch(&fixture, id, set("/protected", false)).await.json();
    assert_eq!(node["protected_reason"], Value::Null);
    let node = patch(&fixture, id, set("/instance_info", json!({"display_name": "web"}))).await;
    assert_eq!(node.json()["instance_name"], "web");
    let timeline = fixture.get("/v1/ferrite/nodes/n1/timeline", "").await.json();
    let entries: Vec<String> = timeline["timeline"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| format!("{} {}", entry["event"]["kind"], entry["event"]["fields"]))
        .collect();
    assert_eq!(
        entries,
        [
            r#""maintenance" null"#,
            r#""changed" ["maintenance"]"#,
            r#""changed" ["protected"]"#,
            r#""changed" ["instance_info"]"#,
        ]
    );
}

#[tokio::test]
async fn maintenance_of_a_waiting_node_restarts_its_timeout() {
    let fixture = Fixture::start().await;
    let id = fixture
        .node("n1", |node| {
            node.provision_state = ProvisionState::InspectWait;
            node.target_provision_state = Some(ProvisionState::Manageable);
            node.work = Some(waiting_work(WorkKind::Inspect, Vec::new()));
        })
        .await;
    // PATCH has the same effect as the maintenance endpoint.
    for (method, path, body, on) in [
        ("PATCH", "/v1/nodes/n1", set("/maintenance", true), true),
        ("PATCH", "/v1/nodes/n1", set("/maintenance", false), false),
        ("PUT", "/v1/nodes/n1/maintenance", Value::Null, true),
        ("DELETE", "/v1/nodes/n1/maintenance", Value::Null, false),
    ] {
        let response = fixture.request(method, path, body).await;
        assert!([200, 202].contains(&response.status), "{method} {path}: {}", response.body);
        let mut node = stored(&fixture, id).await;
        assert_eq!((node.maintenance, node.due_at), (on, Some(NOW)), "{method} {path}");
        node.due_at = None;
        fixture.store.write(move |writer| writer.save(&mut node.clone())).await.unwrap();
    }
    let timeline = fixture.get("/v1/ferrite/nodes/n1/timeline", "").await.json();
    let entries = timeline["timeline"].as_array().unwrap();
    let changes = entries.iter().filter(|entry| entry["event"]["kind"] == "maintenance");
    let changes: Vec<_> = changes.map(|entry| entry["event"]["on"].as_bool().unwrap()).collect();
    assert_eq!(changes, [true, false, true, false]);
}

#[tokio::test]
async fn removing_the_instance_deletes_the_allocation() {
    let fixture = Fixture::start().await;
    let active: fn(&mut Node) = |node| node.provision_state = ProvisionState::Active;
    let deleting: fn(&mut Node) = |node| {
        node.provision_state = ProvisionState::Deleting;
        node.target_provision_state = Some(ProvisionState::Available);
        node.maintenance = true;
    };
    for (name, state, status) in [
        ("available", (|_| {}) as fn(&mut Node), 200),
        ("active", active, 409),
        ("deleting in maintenance", deleting, 200),
    ] {
        let id = fixture.node("n", state).await;
        let allocation = allocate(&fixture, id, Some("red")).await;
        let owner = patch(&fixture, id, set("/owner", "blue")).await;
        assert_eq!(owner.status, 409, "{name}: {}", owner.body);
        let response = patch(&fixture, id, unset("/instance_uuid")).await;
        assert_eq!(response.status, status, "{name}: {}", response.body);
        let left = fixture.store.read(move |reader| reader.get(allocation)).await.unwrap();
        assert_eq!(left.is_none(), status == 200, "{name}");
        let node = stored(&fixture, id).await;
        assert_eq!(node.allocation_id.is_none(), status == 200, "{name}");
        fixture.store.write(move |writer| writer.delete(id)).await.unwrap();
    }
}
