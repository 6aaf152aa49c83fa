// SPDX-License-Identifier: Apache-2.0
//! Lookup and heartbeat: the token is issued once and required afterwards.

use std::time::Duration;

use agent_protocol::Heartbeat;
use node_model::{NodeId, ProvisionState, Verb};
use serde_json::json;

use super::{AGENT_ADDRESS, TestConductor, agent_at, parts, settings};
use crate::{AgentLookup, Conductor, ConductorError, ConductorParts, ConductorSettings};

fn lookup(id: NodeId) -> AgentLookup {
    AgentLookup { node: Some(id), macs: Vec::new(), caller: agent_at(AGENT_ADDRESS) }
}

fn heartbeat(token: &str) -> Heartbeat {
    Heartbeat {
        callback_url: "https://192.0.2.7:9999".to_owned(),
        agent_token: token.to_owned(),
        agent_version: Some("12.0.0".to_owned()),
        ..Heartbeat::default()
    }
}

async fn send(
    conductor: &Conductor,
    id: NodeId,
    heartbeat: Heartbeat,
) -> Result<(), ConductorError> {
    let host = heartbeat.callback_url.trim_start_matches("https://").rsplit_once(':');
    let address = host.and_then(|(host, _)| host.parse().ok()).unwrap_or(AGENT_ADDRESS);
    conductor.heartbeat(id, heartbeat, agent_at(address)).await
}

async fn rejection(test: &TestConductor, id: NodeId, heartbeat: Heartbeat) -> String {
    match send(&test.conductor, id, heartbeat).await {
        Err(ConductorError::Agent(error)) => error,
        other => panic!("not rejected: {other:?}"),
    }
}

#[tokio::test]
async fn cleaning_continues_after_a_heartbeat() {
    let test = TestConductor::new();
    let id =
        test.insert_node(ProvisionState::Manageable, json!({"fake_wait_for_agent": true})).await;
    assert_eq!(test.run_verb(id, Verb::Provide).await, ProvisionState::CleanWait);

    let first = test.conductor.lookup(lookup(id)).await.unwrap().unwrap();
    let token = first.token.unwrap();
    assert_eq!(token.reveal().len(), 43);
    let again = test.conductor.lookup(lookup(id)).await.unwrap().unwrap();
    assert!(again.token.is_none(), "the token is issued once");

    assert!(rejection(&test, id, heartbeat("wrong")).await.contains("token"));
    let plain =
        Heartbeat { callback_url: "http://192.0.2.7:9999".to_owned(), ..heartbeat(token.reveal()) };
    assert!(rejection(&test, id, plain).await.contains("TLS"));

    send(&test.conductor, id, heartbeat(token.reveal())).await.unwrap();
    let other_url = Heartbeat {
        callback_url: "https://192.0.2.8:9999".to_owned(),
        ..heartbeat(token.reveal())
    };
    assert!(rejection(&test, id, other_url).await.contains("callback_url"));
    assert_eq!(test.run_node(id).await, ProvisionState::Available);
}

/// With fast track too: an agent without recent heartbeats is not reused, the machine is booted.
#[tokio::test]
async fn agent_of_the_next_job_may_have_another_url() {
    let test = TestConductor::new();
    let info = json!({"fake_wait_for_agent": true, "fast_track": true});
    let id = test.insert_node(ProvisionState::Manageable, info).await;
    for address in ["https://192.0.2.7:9999", "https://192.0.2.8:9999"] {
        assert_eq!(test.run_verb(id, Verb::Provide).await, ProvisionState::CleanWait);
        let token = test.conductor.lookup(lookup(id)).await.unwrap().unwrap().token;
        let token = token.expect("the new agent gets its own token");
        let heartbeat = Heartbeat { callback_url: address.to_owned(), ..heartbeat(token.reveal()) };
        send(&test.conductor, id, heartbeat).await.unwrap();
        assert_eq!(test.run_verb(id, Verb::Abort).await, ProvisionState::CleanFail);
        assert_eq!(test.run_verb(id, Verb::Manage).await, ProvisionState::Manageable);
        assert_eq!(test.get(id).await.agent.url.as_deref(), Some(address), "of the failed job");
        test.advance(Duration::from_secs(300));
    }
}

#[tokio::test]
async fn job_fails_at_the_callback_deadline() {
    let test = TestConductor::new();
    let id = test.insert_node(ProvisionState::Active, json!({"fake_wait_for_agent": true})).await;
    let mut request = lifecycle::ProvisionRequest::plain(Verb::Rescue, super::user());
    request.rescue_password = Some("secret".to_owned());
    test.conductor.provision(id, request).await.unwrap();
    assert_eq!(test.run_node(id).await, ProvisionState::RescueWait);
    let due = test.get(id).await.due_at.expect("a waiting node has a deadline");
    test.advance(Duration::from_secs(1799));
    assert_eq!(test.run_node(id).await, ProvisionState::RescueWait);
    test.advance(Duration::from_secs(1));
    assert!(test.conductor.now() >= due);
    assert_eq!(test.run_node(id).await, ProvisionState::RescueFail);
}

#[tokio::test]
async fn lookup_finds_only_nodes_that_expect_an_agent() {
    let test = TestConductor::new();
    let id = test.insert_node(ProvisionState::Active, json!({})).await;
    assert!(test.conductor.lookup(lookup(id)).await.unwrap().is_none());
    let warm = test.insert_node(ProvisionState::Available, json!({"fast_track": true})).await;
    assert!(test.conductor.lookup(lookup(warm)).await.unwrap().is_some());
}

/// Lookup and driver parse `fast_track` in the same way.
#[tokio::test]
async fn lookup_accepts_all_spellings_of_fast_track() {
    let test = TestConductor::new();
    for (value, is_found) in [(json!(1), true), (json!(" on "), true), (json!(0), false)] {
        let id = test.insert_node(ProvisionState::Available, json!({"fast_track": value})).await;
        let config = test.conductor.lookup(lookup(id)).await.unwrap();
        assert_eq!(config.is_some(), is_found, "{value}");
    }
}

#[tokio::test]
async fn agent_is_reused_within_the_heartbeat_timeout() {
    for (timeout, is_reused) in [(300, false), (900, true)] {
        let test = TestConductor::new();
        let conductor = Conductor::new(ConductorParts {
            settings: ConductorSettings { ramdisk_heartbeat_timeout: timeout, ..settings() },
            ..parts(&test.store, "here", test.conductor.clock.clone())
        });
        let id = test.insert_node(ProvisionState::Manageable, json!({"fast_track": true})).await;
        let now = test.conductor.now();
        test.change(id, move |node| {
            node.agent.url = Some("https://192.0.2.7:9999".to_owned());
            node.agent.last_heartbeat = Some(now);
        })
        .await;
        test.advance(Duration::from_secs(600));
        let request = lifecycle::ProvisionRequest::plain(Verb::Provide, super::user());
        conductor.provision(id, request).await.unwrap();
        assert_eq!(test.get(id).await.agent.url.is_some(), is_reused, "{timeout}");
    }
}

#[tokio::test]
async fn token_is_issued_once_by_all_processes() {
    let test = TestConductor::new();
    let (here, there) = (&test.conductor, test.other_process("there"));
    for process in [here, &there] {
        crate::membership::begin(process, None).await.unwrap();
    }
    let wait = json!({"fake_wait_for_agent": true});
    let id = test.insert_node(ProvisionState::Manageable, wait).await;
    assert_eq!(test.run_verb(id, Verb::Provide).await, ProvisionState::CleanWait);
    let token = here.lookup(lookup(id)).await.unwrap().unwrap().token.expect("a token");
    // The response may still be on its way: the agent gets neither another token nor a final error.
    let second = there.lookup(lookup(id)).await;
    assert!(matches!(second, Err(ConductorError::Conflict(_))), "{second:?}");
    send(&there, id, heartbeat(token.reveal())).await.expect("the token is valid");
    let later = there.lookup(lookup(id)).await.unwrap().unwrap();
    assert!(later.token.is_none(), "a heartbeat has arrived");
}

#[tokio::test]
async fn token_is_issued_again_if_the_process_ended_before_a_heartbeat() {
    let wait = json!({"fake_wait_for_agent": true});
    for is_restarted in [false, true] {
        let test = TestConductor::new();
        let there = test.other_process("there");
        crate::membership::begin(&test.conductor, None).await.unwrap();
        let id = test.insert_node(ProvisionState::Manageable, wait.clone()).await;
        assert_eq!(test.run_verb(id, Verb::Provide).await, ProvisionState::CleanWait);
        assert!(test.conductor.lookup(lookup(id)).await.unwrap().unwrap().token.is_some());
        if is_restarted {
            crate::membership::begin(&test.other_process("here"), None).await.unwrap();
        } else {
            test.advance(Duration::from_secs(59));
            assert!(there.lookup(lookup(id)).await.is_err(), "the process may only be slow");
            test.advance(Duration::from_secs(2));
        }
        let config = there.lookup(lookup(id)).await.unwrap().unwrap();
        assert!(config.token.is_some(), "restarted: {is_restarted}");
    }
}

#[tokio::test]
async fn token_flag_matches_the_sealed_token() {
    let test = TestConductor::new();
    let wait = json!({"fake_wait_for_agent": true});
    let id = test.insert_node(ProvisionState::Manageable, wait).await;
    let check = async |expected: bool, when: &str| {
        let node = test.get(id).await;
        let flag = node.agent.has_token;
        let secrets = test.store.read(move |reader| reader.reveal(&node)).await.unwrap();
        assert_eq!((flag, secrets.agent_token.is_some()), (expected, expected), "{when}");
    };
    check(false, "before the first boot").await;
    assert_eq!(test.run_verb(id, Verb::Provide).await, ProvisionState::CleanWait);
    let token = test.conductor.lookup(lookup(id)).await.unwrap().unwrap().token.unwrap();
    check(true, "after a lookup").await;
    send(&test.conductor, id, heartbeat(token.reveal())).await.unwrap();
    check(true, "after a heartbeat").await;
    assert_eq!(test.run_node(id).await, ProvisionState::Available);
    check(false, "after the job").await;
}

#[tokio::test]
async fn rejects_overlong_members() {
    let test = TestConductor::new();
    let id =
        test.insert_node(ProvisionState::Manageable, json!({"fake_wait_for_agent": true})).await;
    assert_eq!(test.run_verb(id, Verb::Provide).await, ProvisionState::CleanWait);
    let token = test.conductor.lookup(lookup(id)).await.unwrap().unwrap().token.unwrap();
    let good = || heartbeat(token.reveal());
    let long = || Some("x".repeat(100_000));
    for (heartbeat, name) in [
        (Heartbeat { agent_verify_ca: long(), ..good() }, "agent_verify_ca"),
        (Heartbeat { agent_version: long(), ..good() }, "agent_version"),
        (Heartbeat { agent_status_message: long(), ..good() }, "agent_status_message"),
        (Heartbeat { callback_url: long().unwrap(), ..good() }, "callback_url"),
    ] {
        assert!(rejection(&test, id, heartbeat).await.contains(name));
    }
    send(&test.conductor, id, good()).await.unwrap();
}
