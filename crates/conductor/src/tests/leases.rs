// SPDX-License-Identifier: Apache-2.0
//! Leases: one process works on a node, and another one continues when the first is gone.

use std::time::Duration;

use node_model::{ProvisionState, Verb};
use serde_json::json;

use super::TestConductor;
use crate::session::UnreleasedNode;
use crate::{ConductorStartError, runner};

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
async fn action_is_cancelled_at_the_end_of_the_session_and_continues_in_the_next_one() {
    let test = TestConductor::new();
    let slow = json!({"fake_power_delay": "600"});
    let id = test.insert_node(ProvisionState::Enroll, slow).await;
    test.request(id, Verb::Manage).await.unwrap();
    let mut unreleased = test.conductor.session.take_unreleased().unwrap();
    let end_session = async {
        while test.conductor.session.held_leases().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(test.get(id).await.reservation.as_deref(), Some("here"));
        test.conductor.session.ended();
    };
    let (due, ()) = tokio::join!(runner::run(&test.conductor, id), end_session);
    assert_eq!(due, None);
    assert_eq!(unreleased.try_recv(), Ok(UnreleasedNode { node: id, runs_again: true }));
    assert_eq!(test.run_node(id).await, ProvisionState::Verifying, "no session, no work");

    // Another process takes over what this one did not release.
    let (owner, other) = (test.conductor.owner.clone(), test.other_process("there"));
    let released = test.store.write(move |tx| tx.end_session(&owner, None)).await.unwrap();
    assert_eq!(released, Some(vec![id]));
    test.change(id, |node| node.driver_info = node_model::JsonObject::empty()).await;
    runner::run(&other, id).await;
    assert_eq!(test.get(id).await.provision_state, ProvisionState::Manageable);
}

#[tokio::test]
async fn stopping_process_hands_over_its_running_actions() {
    let test = TestConductor::new();
    let slow = json!({"fake_power_delay": "600"});
    let id = test.insert_node(ProvisionState::Enroll, slow).await;
    let running = test.conductor.start().await.unwrap();
    test.request(id, Verb::Manage).await.unwrap();
    let claimed = async {
        while test.get(id).await.reservation.is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), claimed).await.expect("the action starts");
    running.stop(Duration::from_millis(10)).await;
    let node = test.get(id).await;
    assert_eq!((node.reservation, node.provision_state), (None, ProvisionState::Verifying));
    let conductors = test.store.read(|reader| reader.conductors()).await.unwrap();
    assert!(conductors.iter().all(|conductor| !conductor.online), "{conductors:?}");
}

#[tokio::test]
async fn a_restarted_process_replaces_its_previous_run_on_sqlite() {
    let test = TestConductor::new();
    let first = test.conductor.start().await.unwrap();
    let restarted = test.other_process("here").start().await;
    assert!(!matches!(restarted, Err(ConductorStartError::NameInUse { .. })));
    restarted.unwrap().stop(Duration::from_secs(5)).await;
    first.stop(Duration::from_secs(5)).await;
}
