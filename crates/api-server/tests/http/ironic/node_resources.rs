// SPDX-License-Identifier: Apache-2.0
//! Resources of nodes: ports, portgroups, volume connectors and targets.

use node_model::{InterfaceKind, Node, NodeId, PowerState, ProvisionState};
use serde_json::{Value, json};

use crate::support::fixture::{Fixture, RawResponse};

const UNKNOWN_UUID: &str = "7fb9d8a5-7d76-4d38-b4a1-1e5ef7f0b3a3";

fn mac(last: u8) -> String {
    format!("52:54:00:00:00:{last:02x}")
}

fn set(path: &str, value: Value) -> Value {
    json!([{"op": "replace", "path": path, "value": value}])
}

async fn create(fixture: &Fixture, path: &str, body: Value) -> String {
    let response = fixture.request("POST", path, body.clone()).await;
    assert_eq!(response.status, 201, "{path} {body}: {}", response.body);
    format!("{path}/{}", response.json()["uuid"].as_str().unwrap())
}

async fn change_node(fixture: &Fixture, node: NodeId, change: fn(&mut Node)) {
    let write = move |writer: &mut store::StoreWriter<'_>| {
        let mut node = writer.get(node)?.ok_or(store::StoreError::Missing)?;
        change(&mut node);
        writer.save(&mut node)
    };
    fixture.store.write(write).await.unwrap();
}

async fn status(fixture: &Fixture, method: &str, path: &str, body: Value) -> (u16, RawResponse) {
    let response = fixture.request(method, path, body).await;
    (response.status, response)
}

#[tokio::test]
async fn creates_and_finds_ports() {
    let fixture = Fixture::start().await;
    let node = fixture.node("n1", |_| {}).await.to_string();
    let upper = mac(0xab).to_uppercase();
    let port =
        create(&fixture, "/v1/ports", json!({"address": upper, "node_uuid": node, "name": "p1"}))
            .await;
    create(&fixture, "/v1/ports", json!({"address": mac(2), "node_ident": "n1"})).await;
    for (body, expected) in [
        (json!({"address": mac(0xab), "node_uuid": node}), 409),
        (json!({"address": mac(3), "node_uuid": node, "name": "p1"}), 409),
        (json!({"address": mac(3), "node_uuid": UNKNOWN_UUID}), 400),
        (json!({"address": mac(3), "node_ident": "nope"}), 400),
        (json!({"address": mac(3)}), 400),
        (json!({"node_uuid": node}), 400),
        (json!({"address": "nonsense", "node_uuid": node}), 400),
        (json!({"address": mac(3), "node_uuid": node, "portgroup_uuid": UNKNOWN_UUID}), 400),
        (json!({"address": mac(3), "node_uuid": node, "is_smartnic": true}), 400),
    ] {
        let (actual, response) = status(&fixture, "POST", "/v1/ports", body.clone()).await;
        assert_eq!(actual, expected, "{body}: {}", response.body);
    }
    for (path, count) in [
        ("/v1/ports", 2),
        ("/v1/ports/detail", 2),
        ("/v1/ports?node=n1", 2),
        ("/v1/nodes/n1/ports", 2),
        ("/v1/nodes/n1/ports/detail", 2),
        ("/v1/ports?address=52:54:00:00:00:AB", 1),
        ("/v1/ports?address=52:54:00:00:00:99", 0),
    ] {
        let response = fixture.request("GET", path, Value::Null).await;
        let ports = response.json()["ports"].as_array().map(Vec::len);
        assert_eq!(ports, Some(count), "{path}: {}", response.body);
    }
    for (path, expected) in [
        (port.as_str(), 200),
        ("/v1/ports/p1", 200),
        ("/v1/ports/nope", 404),
        ("/v1/ports?node=nope", 404),
        ("/v1/ports?address=zz", 400),
        ("/v1/ports?portgroup=nope", 404),
        ("/v1/ports?shard=a&node=n1", 403),
        ("/v1/ports?conductor_groups=a&node=n1", 400),
        ("/v1/nodes/nope/ports", 404),
    ] {
        assert_eq!(status(&fixture, "GET", path, Value::Null).await.0, expected, "{path}");
    }
    assert_eq!(status(&fixture, "DELETE", &port, Value::Null).await.0, 204);
    assert_eq!(status(&fixture, "DELETE", &port, Value::Null).await.0, 404);
}

#[tokio::test]
async fn port_changes_depend_on_the_node_state() {
    let fixture = Fixture::start().await;
    let node = fixture.node("n1", |_| {}).await;
    let body = json!({"address": mac(1), "node_uuid": node.to_string()});
    let port = create(&fixture, "/v1/ports", body).await;
    let manageable: fn(&mut Node) = |node| node.provision_state = ProvisionState::Manageable;
    let active: fn(&mut Node) = |node| node.provision_state = ProvisionState::Active;
    let in_maintenance: fn(&mut Node) = |node| node.maintenance = true;
    let inspecting: fn(&mut Node) = |node| {
        node.maintenance = false;
        node.provision_state = ProvisionState::Inspecting;
    };
    let mut next = 0x10;
    for (name, state, changes) in [
        ("manageable", manageable, [200, 200, 200]),
        ("active", active, [409, 409, 200]),
        ("active in maintenance", in_maintenance, [200, 200, 200]),
        ("inspecting", inspecting, [409, 409, 409]),
    ] {
        change_node(&fixture, node, state).await;
        next += 1;
        let patches = [
            set("/address", json!(mac(next))),
            set("/pxe_enabled", json!(next % 2 == 0)),
            set("/extra", json!({"n": next})),
        ];
        for (patch, expected) in patches.into_iter().zip(changes) {
            let (actual, response) = status(&fixture, "PATCH", &port, patch.clone()).await;
            assert_eq!(actual, expected, "{name} {patch}: {}", response.body);
        }
    }
}

#[tokio::test]
async fn a_rejected_patch_changes_nothing() {
    let fixture = Fixture::start().await;
    let node = fixture.node("n1", |_| {}).await.to_string();
    create(&fixture, "/v1/ports", json!({"address": mac(1), "node_uuid": node})).await;
    let port = create(&fixture, "/v1/ports", json!({"address": mac(2), "node_uuid": node})).await;
    let before = fixture.request("GET", &port, Value::Null).await.body;
    for patch in [
        json!([{"op": "add", "path": "/extra/a", "value": 1},
               {"op": "replace", "path": "/address", "value": mac(1)}]),
        json!([{"op": "add", "path": "/extra/a", "value": 1},
               {"op": "remove", "path": "/address"}]),
        json!([{"op": "add", "path": "/extra/a", "value": 1},
               {"op": "replace", "path": "/node_uuid", "value": UNKNOWN_UUID}]),
    ] {
        assert!(status(&fixture, "PATCH", &port, patch).await.0 >= 400);
        assert_eq!(fixture.request("GET", &port, Value::Null).await.body, before);
    }
}

#[tokio::test]
async fn portgroup_rules() {
    let fixture = Fixture::start().await;
    let managed = |node: &mut Node| node.interfaces.set(InterfaceKind::Network, Some("neutron"));
    let node = fixture.node("n1", managed).await.to_string();
    let other = fixture.node("n2", |_| {}).await.to_string();
    let body = json!({"node_uuid": node, "name": "bond0", "address": mac(0x40)});
    let portgroup = create(&fixture, "/v1/portgroups", body.clone()).await;
    let portgroup_uuid = portgroup.rsplit('/').next().unwrap().to_owned();
    let strict = json!({"node_uuid": node, "name": "strict", "standalone_ports_supported": false});
    let strict = create(&fixture, "/v1/portgroups", strict).await;
    let strict_uuid = strict.rsplit('/').next().unwrap().to_owned();
    let member = |last: u8, portgroup: &str, more: Value| {
        let mut body =
            json!({"address": mac(last), "node_uuid": node, "portgroup_uuid": portgroup});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let port = create(
        &fixture,
        "/v1/ports",
        member(1, &portgroup_uuid, json!({"physical_network": "net1"})),
    )
    .await;
    for (body, expected) in [
        (member(2, &portgroup_uuid, json!({"physical_network": "net2"})), 409),
        (member(2, &portgroup_uuid, json!({"physical_network": "net1"})), 201),
        (member(3, &strict_uuid, json!({"pxe_enabled": true})), 409),
        (member(3, &strict_uuid, json!({"pxe_enabled": false})), 201),
        (member(4, &portgroup_uuid, json!({"node_uuid": other})), 400),
    ] {
        let (actual, response) = status(&fixture, "POST", "/v1/ports", body.clone()).await;
        assert_eq!(actual, expected, "{body}: {}", response.body);
    }
    for (method, path, body, expected) in [
        ("POST", "/v1/portgroups", body, 409),
        ("POST", "/v1/portgroups", json!({"node_uuid": UNKNOWN_UUID}), 400),
        ("POST", "/v1/portgroups", json!({}), 400),
        ("GET", "/v1/portgroups/bond0", Value::Null, 200),
        ("GET", "/v1/portgroups?node=n1", Value::Null, 200),
        ("GET", "/v1/nodes/n1/portgroups", Value::Null, 200),
        ("GET", "/v1/portgroups/bond0/ports", Value::Null, 200),
        ("PATCH", &port, set("/physical_network", json!("net3")), 400),
        ("PATCH", &portgroup, set("/standalone_ports_supported", json!(false)), 409),
        ("PATCH", &portgroup, set("/node_uuid", json!(other)), 400),
        ("PATCH", &portgroup, set("/mode", json!("802.3ad")), 200),
        ("DELETE", &portgroup, Value::Null, 400),
        ("PATCH", &port, json!([{"op": "remove", "path": "/portgroup_uuid"}]), 200),
    ] {
        let (actual, response) = status(&fixture, method, path, body.clone()).await;
        assert_eq!(actual, expected, "{method} {path} {body}: {}", response.body);
    }
    let ports = fixture.request("GET", "/v1/portgroups/bond0/ports", Value::Null).await.json();
    assert_eq!(ports["ports"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn volume_rules() {
    let fixture = Fixture::start().await;
    let node = fixture.node("n1", |_| {}).await;
    let id = node.to_string();
    let connector = json!({"node_uuid": id, "type": "iqn", "connector_id": "iqn.1"});
    let target = json!({"node_uuid": id, "volume_type": "iscsi", "volume_id": "v1",
                        "boot_index": 0, "properties": {"auth_password": "hush", "lun": 1}});
    let connector_path = create(&fixture, "/v1/volume/connectors", connector.clone()).await;
    let target_path = create(&fixture, "/v1/volume/targets", target.clone()).await;
    let shown = fixture.request("GET", &target_path, Value::Null).await;
    assert!(!shown.body.contains("hush"), "{}", shown.body);
    let change = set("/extra", json!({"a": 1}));
    for (method, path, body, expected) in [
        ("POST", "/v1/volume/connectors", connector, 409),
        ("POST", "/v1/volume/targets", target, 409),
        ("POST", "/v1/volume/connectors", json!({"type": "iqn", "connector_id": "2"}), 400),
        ("GET", "/v1/volume", Value::Null, 200),
        ("GET", "/v1/nodes/n1/volume", Value::Null, 200),
        ("GET", "/v1/nodes/n1/volume/connectors", Value::Null, 200),
        ("GET", "/v1/nodes/nope/volume/targets", Value::Null, 404),
        ("GET", "/v1/volume/targets?node=n1&detail=true", Value::Null, 200),
        ("GET", "/v1/volume/targets/nope", Value::Null, 400),
        // The power state is unknown.
        ("PATCH", &connector_path, change.clone(), 400),
        ("PATCH", &target_path, change.clone(), 400),
    ] {
        let (actual, response) = status(&fixture, method, path, body.clone()).await;
        assert_eq!(actual, expected, "{method} {path} {body}: {}", response.body);
    }
    // The texts of Ironic.
    let duplicate = |path: &'static str, body| fixture.request("POST", path, body);
    let body = json!({"node_uuid": id, "type": "iqn", "connector_id": "iqn.1"});
    let message = duplicate("/v1/volume/connectors", body).await.message();
    assert_eq!(message, "A volume connector with type iqn and connector ID iqn.1 already exists.");
    let body = json!({"node_uuid": id, "volume_type": "iscsi", "volume_id": "v2", "boot_index": 0});
    let message = duplicate("/v1/volume/targets", body).await.message();
    let expected = "A volume target with boot index '0' for the same node already exists.";
    assert_eq!(message, expected);
    for (path, action) in
        [(&connector_path, "volume connector update"), (&target_path, "volume target update")]
    {
        let (_, response) = status(&fixture, "PATCH", path, change.clone()).await;
        let expected = format!(
            "The requested action \"{action}\" can not be performed on node \"{id}\" while it is in \
             state \"None\"."
        );
        assert_eq!(response.message(), expected);
    }
    change_node(&fixture, node, |node| node.power_state = Some(PowerState::Off)).await;
    for (path, expected) in [(&connector_path, 200), (&target_path, 200)] {
        assert_eq!(status(&fixture, "PATCH", path, change.clone()).await.0, expected);
    }
    change_node(&fixture, node, |node| {
        node.power_state = Some(PowerState::On);
        node.provision_state = ProvisionState::Active;
    })
    .await;
    for path in [&connector_path, &target_path] {
        assert_eq!(status(&fixture, "DELETE", path, Value::Null).await.0, 400);
    }
    change_node(&fixture, node, |node| node.provision_state = ProvisionState::Available).await;
    for path in [&connector_path, &target_path] {
        assert_eq!(status(&fixture, "DELETE", path, Value::Null).await.0, 400);
    }
    change_node(&fixture, node, |node| node.provision_state = ProvisionState::Enroll).await;
    for path in [&connector_path, &target_path] {
        assert_eq!(status(&fixture, "DELETE", path, Value::Null).await.0, 204);
    }
}
