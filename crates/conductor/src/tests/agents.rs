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
