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

#[tokio::test]
async fn a_warm_machine_whose_agent_never_calls_says_so() {
    let house = House::new();
    let warm = async || {
        let id = house.node(ProvisionState::Available, json!({"fast_track": true})).await;
        house.conductor.warm(id, &super::user()).await.unwrap();
        // A real machine's boot is published, which says when.
        let now = house.conductor.now();
        house.change(id, move |node| node.agent.replaced_at = Some(now)).await;
        id
    };
    let look_at = async |id| {
        look(house.conductor.clone(), house.get(id).await, Looks::default()).await;
        let node = house.get(id).await;
        (node.driver_internal_info.get("warming").is_some(), node.last_error)
    };
    let (silent, calls) = (warm().await, warm().await);
    house.pass(Duration::from_secs(60));
    let now = house.conductor.now();
    house.change(calls, move |node| node.agent.last_heartbeat = Some(now)).await;
    assert_eq!(look_at(silent).await, (true, None));
    assert_eq!(look_at(calls).await, (false, None));

    house.pass(Duration::from_secs(1200));
    let (awaited, error) = look_at(silent).await;
    let error = error.unwrap();
    assert!(!awaited && error.contains("no agent called within"), "{error}");
    // Said once: whoever reads it may clear it.
    house.change(silent, |node| node.last_error = None).await;
    assert_eq!(look_at(silent).await, (false, None));
}
