// SPDX-License-Identifier: Apache-2.0
//! Leases: one process works on a node, and another one continues when the first is gone.

use std::time::Duration;

use node_model::{ProvisionState, Verb};
use serde_json::json;

use super::TestConductor;
use crate::runner;

#[tokio::test]
async fn leased_node_is_not_run_until_the_lease_expires() {
    let test = TestConductor::new();
    let other = test.other_process("there");
    let id = test.insert_node(ProvisionState::Enroll, json!({})).await;
    test.request(id, Verb::Manage).await.unwrap();
    let (owner, ttl) = (other.owner.clone(), other.lease_time());
    let lease = test.store.write(move |tx| tx.claim(id, &owner, ttl)).await.unwrap();
    assert!(lease.is_some());
    assert_eq!(test.get(id).await.reservation.as_deref(), Some("there"));

    assert_eq!(test.run_node(id).await, ProvisionState::Verifying);
    assert!(test.request(id, Verb::Abort).await.is_err(), "a leased node is locked");

    test.advance(ttl + Duration::from_secs(1));
    assert_eq!(test.run_node(id).await, ProvisionState::Manageable);
    assert_eq!(test.get(id).await.reservation, None);
}

#[tokio::test]
async fn restarted_process_resumes_jobs_of_its_previous_run() {
    let test = TestConductor::new();
    let previous_run = test.other_process("here");
    let id = test.insert_node(ProvisionState::Manageable, json!({})).await;
    test.request(id, Verb::Provide).await.unwrap();
    let (owner, ttl) = (previous_run.owner.clone(), previous_run.lease_time());
    test.store.write(move |tx| tx.claim(id, &owner, ttl)).await.unwrap();

    crate::membership::release_previous_run(&test.conductor).await.unwrap();
    runner::run(&test.conductor, id).await;
    assert_eq!(test.get(id).await.provision_state, ProvisionState::Available);
}

/// L4: without the database, the process continued to command the BMC after its lease had expired.
#[tokio::test]
async fn work_ends_if_the_lease_cannot_be_renewed_in_time() {
    let test = TestConductor::new();
    let id = test.insert_node(ProvisionState::Enroll, json!({})).await;
    let (owner, ttl) = (test.conductor.owner.clone(), test.conductor.lease_time());
    let claimed = test.store.write(move |tx| tx.claim(id, &owner, ttl)).await.unwrap().unwrap();
    test.store.clone().close();
    tokio::time::pause();
    let work = std::future::pending::<()>();
    let ended = runner::with_lease(&test.conductor, claimed, work).await;
    assert!(matches!(ended, Err(store::StoreError::LeaseLost)), "{ended:?}");
}
