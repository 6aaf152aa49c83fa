// SPDX-License-Identifier: Apache-2.0
//! Rules on data of out-of-band inspections.

use std::time::{Duration, Instant};

use node_model::{
    InspectionRule, JsonArray, NodeId, Port, ProvisionState, RuleId, Sensitive, Timestamp, Verb,
};
use serde_json::{Value, json};
use store::{PortFilter, ResourceQuery};

use super::TestConductor;

const MAC: &str = "52:54:00:aa:00:01";

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

/// Inspects a node whose BMC reports memory and a NIC, with this rule.
async fn inspect_with_rule(test: &TestConductor, action: Value) -> (NodeId, ProvisionState) {
    let rule = rule(action);
    test.store.write(move |tx| tx.insert(&rule)).await.unwrap();
    inspect(test).await
}

async fn inspect(test: &TestConductor) -> (NodeId, ProvisionState) {
    let interfaces = json!([{"name": "eno1", "mac_address": MAC}]);
    let inventory = json!({"memory": {"physical_mb": 64}, "interfaces": interfaces});
    let info = json!({"fake_inventory": inventory});
    let id = test.insert_node(ProvisionState::Manageable, info).await;
    let state = test.run_verb(id, Verb::Inspect).await;
    (id, state)
}

async fn ports(test: &TestConductor, id: NodeId) -> Vec<Port> {
    let query = ResourceQuery {
        filter: PortFilter { node: Some(id), ..PortFilter::default() },
        ..ResourceQuery::default()
    };
    test.store.read(move |reader| reader.collect(&query)).await.unwrap()
}

#[tokio::test]
async fn rule_can_fail_the_inspection() {
    let test = TestConductor::new();
    let (id, state) =
        inspect_with_rule(&test, json!({"op": "fail", "args": {"msg": "wrong rack"}})).await;
    assert_eq!(state, ProvisionState::InspectFail);
    let node = test.get(id).await;
    let error = node.last_error.unwrap();
    assert!(error.contains("wrong rack"), "{error}");
    // The data of the BMC are stored nevertheless.
    assert_eq!(node.properties.get("memory_mb"), Some(json!(64)));
    assert_eq!(ports(&test, id).await.len(), 1);
    let inventory = test.store.read(move |reader| reader.inventory(id)).await.unwrap();
    assert!(inventory.is_some_and(|stored| stored.inventory.get("memory").is_some()));
}

#[tokio::test]
async fn rules_change_the_node_and_new_ports() {
    let test = TestConductor::new();
    let name = json!({"port_id": MAC, "path": "name", "value": "first"});
    let (id, state) =
        inspect_with_rule(&test, json!({"op": "set-port-attribute", "args": name})).await;
    let node = test.get(id).await;
    assert_eq!(state, ProvisionState::Manageable, "{:?}", node.last_error);
    let ports = ports(&test, id).await;
    assert_eq!(ports.len(), 1);
    assert_eq!(ports[0].name.as_deref(), Some("first"));
}

#[tokio::test]
async fn applies_rules_of_the_configuration() {
    let set = json!({"path": "/extra/seen", "value": "{inventory[memory][physical_mb]}"});
    let test = TestConductor::with_inspection(inspection::InspectionSettings {
        built_in_rules: vec![rule(json!({"op": "set-attribute", "args": set}))],
        ..Default::default()
    });
    let (id, state) = inspect(&test).await;
    assert_eq!(state, ProvisionState::Manageable, "{:?}", test.get(id).await.last_error);
    assert!(test.get(id).await.extra.get("seen").is_some(), "{:?}", test.notes(id).await);
}

#[tokio::test]
async fn sends_requests_of_rules() {
    let test = TestConductor::new();
    let url = json!({"url": "http://127.0.0.1:1/seen"});
    let (id, state) = inspect_with_rule(&test, json!({"op": "api-call", "args": url})).await;
    assert_eq!(state, ProvisionState::Manageable);
    // The request is sent in the background.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let notes = test.notes(id).await;
        if notes
            .iter()
            .any(|note| note.starts_with("api-call: request of http://127.0.0.1:1/seen failed"))
        {
            break;
        }
        assert!(Instant::now() < deadline, "{notes:?}");
        tokio::task::yield_now().await;
    }
}
