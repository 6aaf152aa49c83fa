// SPDX-License-Identifier: Apache-2.0
//! Unknown machines, topology, flavours and agent logs.

use node_model::{
    AgentLogKind, AgentLogLimits, Inventory, JsonObject, MachineSighting, Neighbour, NodeId, Port,
    PortId,
};
use serde_json::{Value, json};

use crate::support::fixture::{Fixture, NOW};

const MAC: &str = "52:54:00:aa:bb:01";

fn report() -> Value {
    json!({
        "inventory": {
            "interfaces": [{"name": "eth0", "mac_address": MAC}],
            "cpu": {"count": 4, "architecture": "x86_64"},
            "memory": {"physical_mb": 8192},
            "system_vendor": {"manufacturer": "Acme", "product_name": "Anvil"},
        },
    })
}

fn object(value: Value) -> JsonObject {
    value.as_object().unwrap().clone().into()
}

#[tokio::test]
async fn enrols_an_unknown_machine_with_its_report() {
    let fixture = Fixture::start().await;
    let body = report().to_string();
    let sent = fixture.send("POST", "/v1/continue_inspection", "", body.as_bytes());
    assert_eq!(sent.await.status, 404, "the response contains nothing");
    let list = |query: &'static str| {
        let path = format!("/v1/ferrite/sightings{query}");
        let fixture = &fixture;
        async move {
            let response = fixture.request("GET", &path, Value::Null).await;
            assert_eq!(response.status, 200, "{}", response.body);
            response.json()["sightings"].as_array().unwrap().clone()
        }
    };
    let sightings = list("").await;
    assert_eq!(sightings.len(), 1);
    assert_eq!(sightings[0]["mac"], MAC);
    assert_eq!(sightings[0]["report"]["model"], "Anvil");
    assert_eq!(sightings[0]["node_uuid"], Value::Null);

    let enrol = format!("/v1/ferrite/sightings/{MAC}/enrol");
    for (path, body, status) in [
        (enrol.as_str(), json!({}), 400),
        (enrol.as_str(), json!({"driver": "fake-hardware", "colour": "red"}), 400),
        (enrol.as_str(), json!({"driver": "no-such-driver"}), 400),
        (enrol.as_str(), json!({"driver": "fake-hardware", "name": "no name"}), 400),
        ("/v1/ferrite/sightings/nonsense/enrol", json!({"driver": "fake-hardware"}), 400),
        ("/v1/ferrite/sightings/52:54:00:00:00:99/enrol", json!({"driver": "fake-hardware"}), 404),
    ] {
        let rejected = fixture.request("POST", path, body.clone()).await;
        assert_eq!(rejected.status, status, "{path} {body}: {}", rejected.body);
    }
    let body = json!({
        "driver": "fake-hardware", "name": "n1", "driver_info": {"fake_password": "hunter2"},
    });
    let created = fixture.request("POST", &enrol, body.clone()).await;
    assert_eq!(created.status, 201, "{}", created.body);
    let id = created.json()["uuid"].as_str().unwrap().to_owned();
    assert!(created.header("location").unwrap().ends_with(&format!("/v1/nodes/{id}")));
    let node = fixture.request("GET", "/v1/nodes/n1", Value::Null).await.json();
    assert_eq!(node["provision_state"], "enroll");
    assert_eq!(node["properties"]["cpu_arch"], "x86_64");
    assert_eq!(node["driver_info"]["fake_password"], "******");
    let inventory = fixture.request("GET", "/v1/nodes/n1/inventory", Value::Null).await.json();
    assert_eq!(inventory["inventory"]["cpu"]["count"], 4);
    assert_eq!(fixture.request("POST", &enrol, body).await.status, 409);
    assert!(list("").await.is_empty());
    assert_eq!(list("?enrolled=true").await[0]["node_uuid"], id.as_str());
    let invalid =
        fixture.request("GET", "/v1/ferrite/sightings?enrolled=perhaps", Value::Null).await;
    assert_eq!(invalid.status, 400);
}

/// The node gets a port with the MAC address of the sighting.
#[tokio::test]
async fn enrols_an_unknown_machine_without_a_report() {
    let fixture = Fixture::start().await;
    let sighting = MachineSighting {
        mac: MAC.parse().unwrap(),
        first_seen_at: NOW,
        last_seen_at: NOW,
        times: 1,
        ip_address: None,
        interface: "eth1".to_owned(),
        architecture: None,
        last_activity: "DISCOVER".to_owned(),
    };
    fixture.store.write(move |tx| tx.record_sighting(&sighting)).await.unwrap();
    let enrol = format!("/v1/ferrite/sightings/{MAC}/enrol");
    let created = fixture.request("POST", &enrol, json!({"driver": "fake-hardware"})).await;
    assert_eq!(created.status, 201, "{}", created.body);
    let ports = fixture.request("GET", "/v1/ports", Value::Null).await.json();
    assert_eq!(ports["ports"][0]["address"], MAC);
}

async fn insert_port(fixture: &Fixture, node: NodeId, mac: &str, connection: Value) {
    let mut port = Port::new(PortId::random(), node, mac.parse().unwrap(), NOW);
    port.local_link_connection = object(connection);
    fixture.store.write(move |tx| tx.insert(&port)).await.unwrap();
}

fn neighbour(mac: &str, switch: &str, port: &str) -> Neighbour {
    Neighbour {
        interface: "eno1".to_owned(),
        address: mac.parse().unwrap(),
        switch_id: switch.to_owned(),
        switch_name: Some("tor-1".to_owned()),
        switch_description: Some("a switch".to_owned()),
        management_addresses: vec!["10.0.0.1".to_owned()],
        port_id: port.to_owned(),
        port_description: None,
        detail: object(json!({"untagged_vlan": 7})),
    }
}

#[tokio::test]
async fn compares_neighbours_with_the_configuration_of_ports() {
    let fixture = Fixture::start().await;
    let (one, two) = (fixture.node("one", |_| {}).await, fixture.node("two", |_| {}).await);
    let sw = "aa:bb:cc:dd:ee:ff";
    let macs = ["52:54:00:00:00:01", "52:54:00:00:00:02", "52:54:00:00:00:03", "52:54:00:00:00:04"];
    insert_port(&fixture, one, macs[0], json!({"switch_id": sw, "port_id": "p1"})).await;
    insert_port(&fixture, one, macs[1], json!({"switch_id": sw, "port_id": "p8"})).await;
    insert_port(&fixture, one, macs[2], json!({"switch_id": sw, "port_id": "p3"})).await;
    insert_port(&fixture, two, macs[3], json!({"switch_id": "other", "port_id": "p4"})).await;
    let neighbours = [neighbour(macs[0], sw, "p1"), neighbour(macs[1], sw, "p2")];
    fixture.store.write(move |tx| tx.replace_neighbours(one, &neighbours)).await.unwrap();

    let links = |query: &'static str| {
        let path = format!("/v1/ferrite/topology{query}");
        let fixture = &fixture;
        async move {
            let response = fixture.request("GET", &path, Value::Null).await;
            assert_eq!(response.status, 200, "{}", response.body);
            let mut rows = Vec::new();
            for switch in response.json()["switches"].as_array().unwrap() {
                for port in switch["ports"].as_array().unwrap() {
                    rows.push(format!(
                        "{} {} {} {}",
                        switch["id"].as_str().unwrap(),
                        port["id"].as_str().unwrap(),
                        port["node_name"].as_str().unwrap(),
                        port["state"].as_str().unwrap(),
                    ));
                }
            }
            rows
        }
    };
    let of_one = [
        "aa:bb:cc:dd:ee:ff p1 one detected",
        "aa:bb:cc:dd:ee:ff p2 one moved",
        "aa:bb:cc:dd:ee:ff p3 one missing",
    ];
    assert_eq!(links("").await, [&of_one[..], &["other p4 two configured"]].concat());
    assert_eq!(links("?node=one").await, of_one);
    assert_eq!(links("?switch=other").await, ["other p4 two configured"]);
    assert_eq!(links("?switch=tor-1").await, of_one[..2]);
    assert_eq!(links("?switch=aa:bb:cc:dd:ee:ff&node=two").await, [""; 0]);
    let topology =
        fixture.request("GET", "/v1/ferrite/topology?node=one", Value::Null).await.json();
    let switch = &topology["switches"][0];
    assert_eq!(switch["name"], "tor-1");
    assert_eq!(switch["management_addresses"], json!(["10.0.0.1"]));
    let first = &switch["ports"][0];
    assert_eq!((&first["untagged_vlan"], &first["interface"]), (&json!(7), &json!("eno1")));
    for (query, status) in [("?node=unknown", 404), ("?colour=red", 400)] {
        let path = format!("/v1/ferrite/topology{query}");
        assert_eq!(fixture.request("GET", &path, Value::Null).await.status, status, "{query}");
    }
}

#[tokio::test]
async fn stores_flavours_and_compares_them_with_inventories() {
    let fixture = Fixture::start().await;
    for (name, memory) in [("small", 1024), ("big", 65536)] {
        let id = fixture.node(name, |_| {}).await;
        let found = Inventory {
            node_id: id,
            created_at: NOW,
            inventory: object(json!({"memory": {"physical_mb": memory}})),
            plugin_data: JsonObject::empty(),
            derived: JsonObject::empty(),
        };
        fixture.store.write(move |tx| tx.set_inventory(&found)).await.unwrap();
    }
    let path = "/v1/ferrite/flavours/large";
    assert_eq!(fixture.request("GET", path, Value::Null).await.status, 404);
    let at_least = |memory: i64| json!([{"op": "ge", "args": {"values": ["{inventory[memory][physical_mb]}", memory]}}]);
    let body = json!({
        "conditions": at_least(32768), "resource_class": "baremetal.large",
        "traits": ["CUSTOM_LARGE"], "priority": 5,
    });
    let created = fixture.request("PUT", path, body.clone()).await;
    assert_eq!(created.status, 201, "{}", created.body);
    assert_eq!(fixture.request("PUT", path, body).await.status, 200);
    let any = json!({"resource_class": "baremetal.any", "conditions": at_least(1)});
    assert_eq!(fixture.request("PUT", "/v1/ferrite/flavours/any", any).await.status, 201);
    let all = fixture.request("GET", "/v1/ferrite/flavours", Value::Null).await.json();
    let names: Vec<_> = all["flavours"].as_array().unwrap().iter().map(|f| &f["name"]).collect();
    assert_eq!(names, ["large", "any"]);
    let matches = |name: &'static str| {
        let path = format!("/v1/ferrite/flavours/{name}/matches");
        let fixture = &fixture;
        async move {
            let found = fixture.request("GET", &path, Value::Null).await.json();
            assert_eq!(found["inspected"], 2);
            let rows = found["matches"].as_array().unwrap().clone();
            rows.into_iter()
                .map(|row| (row["node_name"].clone(), row["decides_class"].clone()))
                .collect::<Vec<_>>()
        }
    };
    assert_eq!(matches("large").await, [(json!("big"), json!(true))]);
    assert_eq!(matches("any").await, [(json!("small"), json!(true)), (json!("big"), json!(false))]);
    for (path, body) in [
        (path, json!({"traits": ["small"]})),
        (path, json!({})),
        (path, json!({"resource_class": "x", "conditions": [{"op": "like", "args": {}}]})),
        (path, json!({"resource_class": "x", "colour": "red"})),
        (path, json!([])),
        ("/v1/ferrite/flavours/a%20b", json!({"resource_class": "x"})),
    ] {
        let rejected = fixture.request("PUT", path, body.clone()).await;
        assert_eq!(rejected.status, 400, "{path} {body}: {}", rejected.body);
    }
    assert_eq!(fixture.request("DELETE", path, Value::Null).await.status, 204);
    assert_eq!(fixture.request("DELETE", path, Value::Null).await.status, 404);
}

#[tokio::test]
async fn lists_and_fetches_agent_logs() {
    let fixture = Fixture::start().await;
    let id = fixture.node("n1", |_| {}).await;
    let other = fixture.node("n2", |_| {}).await;
    let list = "/v1/ferrite/nodes/n1/logs";
    assert_eq!(
        fixture.request("GET", list, Value::Null).await.json(),
        json!({"logs": [], "live": null})
    );
    let log = fixture
        .store
        .write(move |tx| {
            let limits = AgentLogLimits::default();
            tx.insert_agent_log(
                id,
                AgentLogKind::Clean,
                "a disk failed",
                b"\x1f\x8barchive",
                limits,
            )
        })
        .await
        .unwrap()
        .unwrap();
    let logs = fixture.request("GET", list, Value::Null).await.json();
    let row = &logs["logs"][0];
    assert_eq!(
        (&row["kind"], &row["reason"], &row["size"]),
        (&json!("clean"), &json!("a disk failed"), &json!(9))
    );
    let href = row["href"].as_str().unwrap();
    let path = href.split_once(":6385").unwrap().1;
    let fetched = fixture.request("GET", path, Value::Null).await;
    assert_eq!(fetched.status, 200);
    assert_eq!(fetched.header("content-type"), Some("application/gzip"));
    assert!(fetched.body.ends_with("archive"), "{}", fetched.body);
    for path in [
        format!("/v1/ferrite/nodes/{other}/logs/{log}"),
        "/v1/ferrite/nodes/n1/logs/nonsense".to_owned(),
        "/v1/ferrite/nodes/unknown/logs".to_owned(),
    ] {
        assert_eq!(fixture.request("GET", &path, Value::Null).await.status, 404, "{path}");
    }
}
