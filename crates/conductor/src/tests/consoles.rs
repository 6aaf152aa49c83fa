// SPDX-License-Identifier: Apache-2.0
//! Consoles are served by one process, and left when they are another's or nobody's.

use std::collections::HashSet;

use node_model::{NodeId, ProvisionState, Verb};
use serde_json::json;

use super::{House, user};
use crate::consoles::leave_others;
use crate::{Error, conductor_of, membership};

/// A machine whose BMC does not answer: a console needs none to be on.
async fn machine(house: &House, id: NodeId) {
    let info = json!({"ipmi_address": "127.0.0.1", "ipmi_port": 1, "ipmi_username": "a",
        "ipmi_password": "b"});
    let change = |node: &mut node_model::Node| {
        node.id = id;
        node.driver = "ipmi".to_owned();
        node.interfaces = node_model::Interfaces::default();
        house.conductor.registry.resolve("ipmi", &mut node.interfaces).unwrap();
    };
    house.node_with(ProvisionState::Manageable, info, change).await;
}

#[tokio::test]
async fn a_console_that_is_switched_off_by_way_of_another_process_is_left() {
    let house = House::new();
    let id = NodeId::random();
    machine(&house, id).await;
    let off = house.conductor.console_feed(id).await.unwrap_err().to_string();
    assert!(off.contains("is off"), "{off}");
    house.conductor.set_console(id, true, &user()).await.unwrap();
    assert!(house.conductor.console_feed(id).await.is_ok());
    let mut doubtful = HashSet::new();
    for _ in 0..3 {
        leave_others(&house.conductor, false, &mut doubtful).await;
    }
    assert_eq!(house.conductor.registry.consoles_served(), [id], "it is on, and stays");

    let there = house.neighbour("there");
    membership::register(&house.conductor).await.unwrap();
    let elsewhere = there.console_feed(id).await.unwrap_err();
    assert!(
        matches!(&elsewhere, Error::Conflict(words) if words.contains("\"here\"")),
        "{elsewhere}"
    );
    there.set_console(id, false, &user()).await.unwrap();
    leave_others(&house.conductor, false, &mut doubtful).await;
    assert_eq!(house.conductor.registry.consoles_served(), [id], "it may be being started");
    leave_others(&house.conductor, false, &mut doubtful).await;
    assert!(house.conductor.registry.consoles_served().is_empty());
}

#[tokio::test]
async fn a_console_goes_to_the_process_that_looks_after_its_machine() {
    let house = House::new();
    membership::register(&house.conductor).await.unwrap();
    membership::register(&house.neighbour("there")).await.unwrap();
    let settings = house.conductor.settings.clone();
    let read = house.store.read(move |reader| crate::sight::alive_conductors(reader, &settings));
    let alive = read.await.unwrap();
    let mut ours = None;
    let mut theirs = None;
    while ours.is_none() || theirs.is_none() {
        let id = NodeId::random();
        let node = node_model::Node::new(id, "ipmi", house.conductor.now());
        let place =
            if conductor_of(&node, &alive) == Some("here") { &mut ours } else { &mut theirs };
        *place = Some(id);
    }
    let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
    for id in [ours, theirs] {
        machine(&house, id).await;
        house.conductor.set_console(id, true, &user()).await.unwrap();
    }
    let mut doubtful = HashSet::new();
    leave_others(&house.conductor, false, &mut doubtful).await;
    assert_eq!(house.conductor.registry.consoles_served().len(), 2, "nobody came or went");
    leave_others(&house.conductor, true, &mut doubtful).await;
    assert_eq!(house.conductor.registry.consoles_served(), [ours]);
}

/// The machine of [`machine`], for whose deployment everything but its console is fake.
async fn deployable(house: &House, state: ProvisionState, port: u16) -> NodeId {
    let info = json!({"ipmi_address": "127.0.0.1", "ipmi_port": 1, "ipmi_username": "a",
        "ipmi_password": "b", "ipmi_terminal_port": port});
    let change = |node: &mut node_model::Node| {
        node.interfaces.set(node_model::InterfaceKind::Console, Some("ipmitool-socat"));
        node.console_enabled = true;
        node.automated_clean = Some(false);
    };
    house.node_with(state, info, change).await
}

#[tokio::test]
async fn a_console_goes_with_an_instance_and_comes_with_the_next() {
    let house = House::new();
    let id = deployable(&house, ProvisionState::Active, free_port()).await;
    house.conductor.set_console(id, true, &user()).await.unwrap();
    assert_eq!(house.through(id, Verb::Deleted).await, ProvisionState::Available);
    assert!(house.conductor.registry.consoles_served().is_empty(), "it is not for the next user");
    assert!(house.get(id).await.console_enabled, "but it is still wanted");
    assert_eq!(house.through(id, Verb::Active).await, ProvisionState::Active);
    assert_eq!(house.conductor.registry.consoles_served(), [id]);
}

#[tokio::test]
async fn a_machine_is_deployed_without_a_console_that_cannot_be_had() {
    let house = House::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let id = deployable(&house, ProvisionState::Available, port).await;
    assert_eq!(house.through(id, Verb::Active).await, ProvisionState::Active);
    assert!(!house.get(id).await.console_enabled);
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
