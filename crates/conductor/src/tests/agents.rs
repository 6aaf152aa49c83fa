// SPDX-License-Identifier: Apache-2.0
//! Agents: the token is given once, and only the machine it was given to is believed.

use std::time::Duration;

use node_model::{ProvisionState, Secret, Verb};
use serde_json::json;

use super::House;
use crate::{Error, Heartbeat, Lookup};

fn lookup(id: node_model::NodeId) -> Lookup {
    Lookup { node: Some(id), macs: Vec::new(), request_id: "req-agent".to_owned() }
}

fn heartbeat(token: &str) -> Heartbeat {
    Heartbeat {
        callback_url: "https://192.0.2.7:9999".to_owned(),
        token: Secret::new(token.to_owned()),
        version: Some("12.0.0".to_owned()),
        verify_ca: None,
        status: None,
        status_message: None,
        request_id: "req-agent".to_owned(),
    }
}

async fn refused(house: &House, id: node_model::NodeId, heartbeat: Heartbeat) -> String {
    match house.conductor.heartbeat(id, heartbeat).await {
        Err(Error::Agent(why)) => why,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn cleaning_goes_on_when_the_agent_calls() {
    let house = House::new();
    let id = house.node(ProvisionState::Manageable, json!({"fake_wait_for_agent": true})).await;
    assert_eq!(house.through(id, Verb::Provide).await, ProvisionState::CleanWait);

    let first = house.conductor.lookup(lookup(id)).await.unwrap().unwrap();
    let token = first.token.unwrap();
    assert_eq!(token.reveal().len(), 43);
    let again = house.conductor.lookup(lookup(id)).await.unwrap().unwrap();
    assert!(again.token.is_none(), "a token is given once");

    assert!(refused(&house, id, heartbeat("wrong")).await.contains("token"));
    let plain =
        Heartbeat { callback_url: "http://192.0.2.7:9999".to_owned(), ..heartbeat(token.reveal()) };
    assert!(refused(&house, id, plain).await.contains("TLS"));

    house.conductor.heartbeat(id, heartbeat(token.reveal())).await.unwrap();
    let elsewhere = Heartbeat {
        callback_url: "https://192.0.2.8:9999".to_owned(),
        ..heartbeat(token.reveal())
    };
    assert!(refused(&house, id, elsewhere).await.contains("callback_url"));
    assert_eq!(house.work(id).await, ProvisionState::Available);
}

/// The same where agents are reused, too: one that has gone silent is not, the machine is booted.
#[tokio::test]
async fn the_agent_of_the_next_job_may_have_another_address() {
    let house = House::new();
    let info = json!({"fake_wait_for_agent": true, "fast_track": true});
    let id = house.node(ProvisionState::Manageable, info).await;
    for address in ["https://192.0.2.7:9999", "https://192.0.2.8:9999"] {
        assert_eq!(house.through(id, Verb::Provide).await, ProvisionState::CleanWait);
        let token = house.conductor.lookup(lookup(id)).await.unwrap().unwrap().token;
        let token = token.expect("what was given to the last agent is of no use to this one");
        let call = Heartbeat { callback_url: address.to_owned(), ..heartbeat(token.reveal()) };
        house.conductor.heartbeat(id, call).await.unwrap();
        assert_eq!(house.through(id, Verb::Abort).await, ProvisionState::CleanFail);
        assert_eq!(house.through(id, Verb::Manage).await, ProvisionState::Manageable);
        assert_eq!(house.get(id).await.agent.url.as_deref(), Some(address), "it is left over");
        house.pass(Duration::from_secs(300));
    }
}

#[tokio::test]
async fn a_silent_agent_fails_the_job_at_its_deadline() {
    let house = House::new();
    let id = house.node(ProvisionState::Active, json!({"fake_wait_for_agent": true})).await;
    let mut request = crate::ProvisionRequest::plain(Verb::Rescue, super::user());
    request.rescue_password = Some("secret".to_owned());
    house.conductor.provision(id, request).await.unwrap();
    assert_eq!(house.work(id).await, ProvisionState::RescueWait);
    let due = house.get(id).await.due_at.expect("a waiting node has a deadline");
    house.pass(Duration::from_secs(1799));
    assert_eq!(house.work(id).await, ProvisionState::RescueWait);
    house.pass(Duration::from_secs(1));
    assert!(house.conductor.now() >= due);
    assert_eq!(house.work(id).await, ProvisionState::RescueFail);
}

#[tokio::test]
async fn nobody_is_told_about_a_machine_no_agent_is_expected_on() {
    let house = House::new();
    let id = house.node(ProvisionState::Active, json!({})).await;
    assert!(house.conductor.lookup(lookup(id)).await.unwrap().is_none());
    let warm = house.node(ProvisionState::Available, json!({"fast_track": true})).await;
    assert!(house.conductor.lookup(lookup(warm)).await.unwrap().is_some());
}

/// A number says the same here as where the driver decides whether the agent stays.
#[tokio::test]
async fn an_agent_may_stay_wherever_its_driver_leaves_it() {
    let house = House::new();
    for (said, stays) in [(json!(1), true), (json!(" on "), true), (json!(0), false)] {
        let id = house.node(ProvisionState::Available, json!({"fast_track": said})).await;
        let known = house.conductor.lookup(lookup(id)).await.unwrap();
        assert_eq!(known.is_some(), stays, "{said}");
    }
}

#[tokio::test]
async fn an_agent_is_there_for_as_long_as_it_need_not_call() {
    for (timeout, is_kept) in [(300, false), (900, true)] {
        let house = House::new();
        let conductor = crate::Conductor::new(
            house.store.clone(),
            super::registry(),
            "here".to_owned(),
            crate::Settings { ramdisk_heartbeat_timeout: timeout, ..Default::default() },
            lifecycle::Settings::default(),
            inspection::Settings::default(),
            house.conductor.clock.clone(),
        );
        let id = house.node(ProvisionState::Manageable, json!({"fast_track": true})).await;
        let now = house.conductor.now();
        house
            .change(id, move |node| {
                node.agent.url = Some("https://192.0.2.7:9999".to_owned());
                node.agent.last_heartbeat = Some(now);
            })
            .await;
        house.pass(Duration::from_secs(600));
        let request = crate::ProvisionRequest::plain(Verb::Provide, super::user());
        conductor.provision(id, request).await.unwrap();
        assert_eq!(house.get(id).await.agent.url.is_some(), is_kept, "{timeout}");
    }
}

#[tokio::test]
async fn a_token_is_given_once_by_all_processes_together() {
    let house = House::new();
    let (here, there) = (&house.conductor, house.neighbour("there"));
    for process in [here, &there] {
        crate::membership::register(process).await.unwrap();
    }
    let wait = json!({"fake_wait_for_agent": true});
    let id = house.node(ProvisionState::Manageable, wait).await;
    assert_eq!(house.through(id, Verb::Provide).await, ProvisionState::CleanWait);
    let token = here.lookup(lookup(id)).await.unwrap().unwrap().token.expect("the first");
    // It may be on its way still. Whoever asks is neither given another nor told to give up.
    let second = there.lookup(lookup(id)).await;
    assert!(matches!(second, Err(Error::Conflict(_))), "{second:?}");
    there.heartbeat(id, heartbeat(token.reveal())).await.expect("the first is good");
    let later = there.lookup(lookup(id)).await.unwrap().unwrap();
    assert!(later.token.is_none(), "it has called");
}

#[tokio::test]
async fn a_token_is_given_again_when_it_was_lost_with_its_process() {
    let wait = json!({"fake_wait_for_agent": true});
    for is_started_again in [false, true] {
        let house = House::new();
        let there = house.neighbour("there");
        crate::membership::register(&house.conductor).await.unwrap();
        let id = house.node(ProvisionState::Manageable, wait.clone()).await;
        assert_eq!(house.through(id, Verb::Provide).await, ProvisionState::CleanWait);
        assert!(house.conductor.lookup(lookup(id)).await.unwrap().unwrap().token.is_some());
        if is_started_again {
            crate::membership::register(&house.neighbour("here")).await.unwrap();
        } else {
            house.pass(Duration::from_secs(59));
            assert!(there.lookup(lookup(id)).await.is_err(), "it may only be slow");
            house.pass(Duration::from_secs(2));
        }
        let given = there.lookup(lookup(id)).await.unwrap().unwrap();
        assert!(given.token.is_some(), "started again: {is_started_again}");
    }
}

#[tokio::test]
async fn what_an_agent_says_of_itself_has_bounds() {
    let house = House::new();
    let id = house.node(ProvisionState::Manageable, json!({"fake_wait_for_agent": true})).await;
    assert_eq!(house.through(id, Verb::Provide).await, ProvisionState::CleanWait);
    let token = house.conductor.lookup(lookup(id)).await.unwrap().unwrap().token.unwrap();
    let good = || heartbeat(token.reveal());
    let long = || Some("x".repeat(100_000));
    for (call, name) in [
        (Heartbeat { verify_ca: long(), ..good() }, "agent_verify_ca"),
        (Heartbeat { version: long(), ..good() }, "agent_version"),
        (Heartbeat { status_message: long(), ..good() }, "agent_status_message"),
        (Heartbeat { callback_url: long().unwrap(), ..good() }, "callback_url"),
    ] {
        assert!(refused(&house, id, call).await.contains(name));
    }
    house.conductor.heartbeat(id, good()).await.unwrap();
}
