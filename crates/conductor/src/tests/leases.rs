// SPDX-License-Identifier: Apache-2.0
//! Two processes, one node: only one works on it, and the other goes on when the first is gone.

use std::time::Duration;

use node_model::{ProvisionState, Verb};
use serde_json::json;

use super::House;
use crate::runner;

#[tokio::test]
async fn a_node_in_another_process_hands_is_left_alone_until_the_lease_is_over() {
    let house = House::new();
    let other = house.neighbour("there");
    let id = house.node(ProvisionState::Enroll, json!({})).await;
    house.ask(id, Verb::Manage).await.unwrap();
    let (owner, ttl) = (other.owner.clone(), other.lease_time());
    let lease = house.store.write(move |tx| tx.claim(id, &owner, ttl)).await.unwrap();
    assert!(lease.is_some());
    assert_eq!(house.get(id).await.reservation.as_deref(), Some("there"));

    assert_eq!(house.work(id).await, ProvisionState::Verifying);
    assert!(house.ask(id, Verb::Abort).await.is_err(), "a node that is worked on is locked");

    house.pass(ttl + Duration::from_secs(1));
    assert_eq!(house.work(id).await, ProvisionState::Manageable);
    assert_eq!(house.get(id).await.reservation, None);
}

#[tokio::test]
async fn a_restarted_process_takes_up_what_its_last_run_left() {
    let house = House::new();
    let last_run = house.neighbour("here");
    let id = house.node(ProvisionState::Manageable, json!({})).await;
    house.ask(id, Verb::Provide).await.unwrap();
    let (owner, ttl) = (last_run.owner.clone(), last_run.lease_time());
    house.store.write(move |tx| tx.claim(id, &owner, ttl)).await.unwrap();

    crate::membership::take_up(&house.conductor).await.unwrap();
    runner::run(&house.conductor, id).await;
    assert_eq!(house.get(id).await.provision_state, ProvisionState::Available);
}
