// SPDX-License-Identifier: Apache-2.0
//! Looks at the power: silence becomes a fault, an answer ends it, and nobody waits for another.

use std::time::Duration;

use node_model::{Fault, PowerState, ProvisionState, Verb};
use serde_json::json;

use super::House;
use crate::power_sync::{Looks, look};

#[tokio::test]
async fn silence_becomes_a_fault_and_an_answer_ends_it() {
    let house = House::new();
    let id = house.node(ProvisionState::Active, json!({"fake_power_failure": "unreachable"})).await;
    let failures = Looks::default();
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
        })
        .await;
    look(house.conductor.clone(), house.get(id).await, failures).await;
    let node = house.get(id).await;
    assert_eq!((node.maintenance, node.fault, node.last_error), (false, None, None));
}

#[tokio::test]
async fn a_machine_that_hangs_delays_nobody_else() {
    let house = House::new();
    let running = house.conductor.start().await.unwrap();
    let hangs = house.node(ProvisionState::Enroll, json!({"fake_power_delay": "3600"})).await;
    let quick = house.node(ProvisionState::Enroll, json!({})).await;
    let mut moved = house.store.journal_position();
    house.ask(hangs, Verb::Manage).await.unwrap();
    house.ask(quick, Verb::Manage).await.unwrap();
    let reached = async {
        while house.get(quick).await.provision_state != ProvisionState::Manageable {
            moved.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reached).await.expect("the quick one arrives");
    assert_eq!(house.get(hangs).await.provision_state, ProvisionState::Verifying);

    let failures = Looks::default();
    let stuck = house.get(hangs).await;
    let hanging = tokio::spawn(look(house.conductor.clone(), stuck, failures.clone()));
    let looked = look(house.conductor.clone(), house.get(quick).await, failures);
    tokio::time::timeout(Duration::from_secs(30), looked).await.expect("the quick one answers");
    assert!(!hanging.is_finished());
    hanging.abort();
    running.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn health_is_kept_and_nothing_is_written_when_nothing_changed() {
    let house = House::new();
    let id = house.node(ProvisionState::Active, json!({"fake_health": "WARNING"})).await;
    look(house.conductor.clone(), house.get(id).await, Looks::default()).await;
    let seen = house.get(id).await;
    assert_eq!(seen.health, Some(node_model::Health::Warning));
    house.pass(Duration::from_secs(5));
    look(house.conductor.clone(), house.get(id).await, Looks::default()).await;
    assert_eq!(house.get(id).await.updated_at, seen.updated_at);
}
