// SPDX-License-Identifier: Apache-2.0
//! Looks at the power: silence becomes a fault, an answer ends it, a surprise is put right.

use node_model::{Fault, PowerState, ProvisionState};
use serde_json::json;

use super::House;
use crate::power_sync::{Failures, look};

#[tokio::test]
async fn silence_becomes_a_fault_and_an_answer_ends_it() {
    let house = House::new();
    let id = house.node(ProvisionState::Active, json!({"fake_power_failure": "unreachable"})).await;
    let failures = Failures::default();
    for _ in 0..3 {
        look(house.conductor.clone(), house.get(id).await, failures.clone()).await;
        assert!(!house.get(id).await.maintenance);
    }
    look(house.conductor.clone(), house.get(id).await, failures.clone()).await;
    let node = house.get(id).await;
    assert_eq!((node.maintenance, node.fault), (true, Some(Fault::Power)));
    assert_eq!(node.power_state, Some(PowerState::Error));

    house
        .change(id, |node| {
            node.driver_info = node_model::JsonObject::empty();
            node.power_state = Some(PowerState::On);
        })
        .await;
    look(house.conductor.clone(), house.get(id).await, failures).await;
    let node = house.get(id).await;
    assert_eq!((node.maintenance, node.fault, node.last_error), (false, None, None));
}

#[tokio::test]
async fn health_is_kept_and_nothing_is_written_when_nothing_changed() {
    let house = House::new();
    let id = house.node(ProvisionState::Active, json!({"fake_health": "WARNING"})).await;
    look(house.conductor.clone(), house.get(id).await, Failures::default()).await;
    let seen = house.get(id).await;
    assert_eq!(seen.health, Some(node_model::Health::Warning));
    house.pass(std::time::Duration::from_secs(5));
    look(house.conductor.clone(), house.get(id).await, Failures::default()).await;
    assert_eq!(house.get(id).await.updated_at, seen.updated_at);
}
