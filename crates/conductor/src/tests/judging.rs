// SPDX-License-Identifier: Apache-2.0
//! Rules on what a BMC told: as on what ramdisks tell, only without hooks.

use std::time::{Duration, Instant};

use node_model::{
    InspectionRule, JsonArray, NodeId, Port, ProvisionState, RuleId, Sensitive, Timestamp, Verb,
};
use serde_json::{Value, json};
use store::{PortFilter, Query};

use super::House;

const CARD: &str = "52:54:00:aa:00:01";

fn rule(action: Value) -> InspectionRule {
    InspectionRule {
        id: RuleId::random(),
        created_at: Timestamp(0),
        updated_at: None,
        description: None,
        priority: 0,
        phase: Some("main".to_owned()),
        sensitive: Sensitive::No,
        conditions: JsonArray::from(Vec::new()),
        actions: JsonArray::from(vec![action]),
    }
}

/// A machine whose BMC tells of some memory and a card, inspected under this rule.
async fn inspected(house: &House, action: Value) -> (NodeId, ProvisionState) {
    let rule = rule(action);
    house.store.write(move |tx| tx.insert(&rule)).await.unwrap();
    inspect(house).await
}

async fn inspect(house: &House) -> (NodeId, ProvisionState) {
    let interfaces = json!([{"name": "eno1", "mac_address": CARD}]);
    let inventory = json!({"memory": {"physical_mb": 64}, "interfaces": interfaces});
    let info = json!({"fake_inventory": inventory});
    let id = house.node(ProvisionState::Manageable, info).await;
    let state = house.through(id, Verb::Inspect).await;
    (id, state)
}

async fn ports(house: &House, id: NodeId) -> Vec<Port> {
    let query = Query {
        filter: PortFilter { node: Some(id), ..PortFilter::default() },
        ..Query::default()
    };
    house.store.read(move |reader| reader.collect(&query)).await.unwrap()
}

#[tokio::test]
async fn a_machine_that_a_rule_refuses_fails() {
    let house = House::new();
    let (id, state) = inspected(&house, json!({"op": "fail", "args": {"msg": "wrong rack"}})).await;
    assert_eq!(state, ProvisionState::InspectFail);
    let node = house.get(id).await;
    let error = node.last_error.unwrap();
    assert!(error.contains("wrong rack"), "{error}");
    // What the BMC told is true all the same.
    assert_eq!(node.properties.get("memory_mb"), Some(json!(64)));
    assert_eq!(ports(&house, id).await.len(), 1);
    let inventory = house.store.read(move |reader| reader.inventory(id)).await.unwrap();
    assert!(inventory.is_some_and(|kept| kept.inventory.get("memory").is_some()));
}

#[tokio::test]
async fn rules_change_the_node_and_the_ports_that_are_new() {
    let house = House::new();
    let name = json!({"port_id": CARD, "path": "name", "value": "first"});
    let (id, state) = inspected(&house, json!({"op": "set-port-attribute", "args": name})).await;
    let node = house.get(id).await;
    assert_eq!(state, ProvisionState::Manageable, "{:?}", node.last_error);
    let ports = ports(&house, id).await;
    assert_eq!(ports.len(), 1);
    assert_eq!(ports[0].name.as_deref(), Some("first"));
}

#[tokio::test]
async fn rules_of_the_configuration_work_too() {
    let set = json!({"path": "/extra/seen", "value": "{inventory[memory][physical_mb]}"});
    let house = House::with(inspection::Settings {
        built_in_rules: vec![rule(json!({"op": "set-attribute", "args": set}))],
        ..Default::default()
    });
    let (id, state) = inspect(&house).await;
    assert_eq!(state, ProvisionState::Manageable, "{:?}", house.get(id).await.last_error);
    assert!(house.get(id).await.extra.get("seen").is_some(), "{:?}", house.notes(id).await);
}

#[tokio::test]
async fn requests_of_rules_are_made() {
    let house = House::new();
    let url = json!({"url": "http://127.0.0.1:1/seen"});
    let (id, state) = inspected(&house, json!({"op": "api-call", "args": url})).await;
    assert_eq!(state, ProvisionState::Manageable);
    // Nobody waits for it, so it is looked for until it is there.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let notes = house.notes(id).await;
        if notes.iter().any(|note| note.starts_with("api-call: asked for http://127.0.0.1:1/seen"))
        {
            break;
        }
        assert!(Instant::now() < deadline, "{notes:?}");
        tokio::task::yield_now().await;
    }
}
