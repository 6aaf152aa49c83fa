// SPDX-License-Identifier: Apache-2.0
//! Power polls: faults, recovery, and independence of nodes.

use std::time::Duration;

use node_model::{Fault, PowerState, ProvisionState, Verb};
use serde_json::json;

use super::TestConductor;
use crate::power_sync::{PowerPolls, poll};

#[tokio::test]
async fn unresponsive_bmc_becomes_a_fault_and_recovers() {
    let test = TestConductor::new();
    let id = test
        .insert_node(ProvisionState::Active, json!({"fake_power_failure": "unreachable"}))
        .await;
    let polls = PowerPolls::default();
    for _ in 0..3 {
        poll(test.conductor.clone(), test.get(id).await, polls.clone()).await;
        assert!(!test.get(id).await.maintenance);
    }
    poll(test.conductor.clone(), test.get(id).await, polls.clone()).await;
    let node = test.get(id).await;
    assert_eq!((node.maintenance, node.fault), (true, Some(Fault::Power)));
    assert_eq!(node.power_state, Some(PowerState::Error));

    test.change(id, |node| {
        node.driver_info = node_model::JsonObject::empty();
    })
    .await;
    poll(test.conductor.clone(), test.get(id).await, polls).await;
    let node = test.get(id).await;
    assert_eq!((node.maintenance, node.fault, node.last_error), (false, None, None));
}

#[tokio::test]
async fn hanging_bmc_does_not_delay_other_nodes() {
    let test = TestConductor::new();
    let running = test.conductor.start().await.unwrap();
    let hangs = test.insert_node(ProvisionState::Enroll, json!({"fake_power_delay": "3600"})).await;
    let quick = test.insert_node(ProvisionState::Enroll, json!({})).await;
    let mut journal = test.store.journal_position();
    test.request(hangs, Verb::Manage).await.unwrap();
    test.request(quick, Verb::Manage).await.unwrap();
    let reached = async {
        while test.get(quick).await.provision_state != ProvisionState::Manageable {
            journal.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reached)
        .await
        .expect("the other node is managed");
    assert_eq!(test.get(hangs).await.provision_state, ProvisionState::Verifying);

    let polls = PowerPolls::default();
    let hanging_node = test.get(hangs).await;
    let hanging = tokio::spawn(poll(test.conductor.clone(), hanging_node, polls.clone()));
    let polled = poll(test.conductor.clone(), test.get(quick).await, polls);
    tokio::time::timeout(Duration::from_secs(30), polled).await.expect("the other node is polled");
    assert!(!hanging.is_finished());
    hanging.abort();
    running.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn stores_health_and_writes_only_changes() {
    let test = TestConductor::new();
    let id = test.insert_node(ProvisionState::Active, json!({"fake_health": "WARNING"})).await;
    poll(test.conductor.clone(), test.get(id).await, PowerPolls::default()).await;
    let polled = test.get(id).await;
    assert_eq!(polled.health, Some(node_model::Health::Warning));
    test.advance(Duration::from_secs(5));
    poll(test.conductor.clone(), test.get(id).await, PowerPolls::default()).await;
    assert_eq!(test.get(id).await.updated_at, polled.updated_at);
}

#[tokio::test]
async fn reports_a_warm_up_without_a_heartbeat() {
    let test = TestConductor::new();
    let warm = async || {
        let id = test.insert_node(ProvisionState::Available, json!({"fast_track": true})).await;
        test.conductor.warm_up(id, &super::user()).await.unwrap();
        // Publishing a boot plan sets it for real machines.
        let now = test.conductor.now();
        test.change(id, move |node| node.agent.replaced_at = Some(now)).await;
        id
    };
    let poll_node = async |id| {
        poll(test.conductor.clone(), test.get(id).await, PowerPolls::default()).await;
        let node = test.get(id).await;
        (node.driver_internal_info.get("warming").is_some(), node.last_error)
    };
    let (overdue, finished) = (warm().await, warm().await);
    test.advance(Duration::from_secs(60));
    let now = test.conductor.now();
    test.change(finished, move |node| node.agent.last_heartbeat = Some(now)).await;
    assert_eq!(poll_node(overdue).await, (true, None));
    assert_eq!(poll_node(finished).await, (false, None));

    test.advance(Duration::from_secs(1200));
    let (is_pending, error) = poll_node(overdue).await;
    let error = error.unwrap();
    assert!(!is_pending && error.contains("no heartbeat from the agent within"), "{error}");
    // It is reported once: the user may clear the error.
    test.change(overdue, |node| node.last_error = None).await;
    assert_eq!(poll_node(overdue).await, (false, None));
}
