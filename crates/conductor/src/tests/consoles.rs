// SPDX-License-Identifier: Apache-2.0
//! Consoles are served by one process, and left when they are another's or nobody's.

use std::collections::HashSet;

use node_model::{NodeId, ProvisionState, Verb};
use serde_json::json;

use super::{House, user};
use crate::consoles::{leave_others, restart, start};
use crate::{Conductor, Error, membership};

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

fn served(conductor: &Conductor) -> Vec<NodeId> {
    conductor.registry.consoles_served()
}

#[tokio::test]
async fn a_console_that_is_switched_off_by_way_of_another_process_is_left() {
    let house = House::new();
    let id = NodeId::random();
    machine(&house, id).await;
    membership::register(&house.conductor).await.unwrap();
    let off = house.conductor.console_feed(id).await.unwrap_err().to_string();
    assert!(off.contains("is off"), "{off}");
    house.conductor.set_console(id, true, &user()).await.unwrap();
    assert!(house.conductor.console_feed(id).await.is_ok());
    let mut doubtful = HashSet::new();
    for _ in 0..3 {
        leave_others(&house.conductor, &mut doubtful).await;
    }
    assert_eq!(served(&house.conductor), [id], "it is on, and stays");

    let there = house.neighbour("there");
    let elsewhere = there.console_feed(id).await.unwrap_err();
    assert!(
        matches!(&elsewhere, Error::Conflict(words) if words.contains("\"here\"")),
        "{elsewhere}"
    );
    there.set_console(id, false, &user()).await.unwrap();
    assert!(house.conductor.console_feed(id).await.is_err(), "nobody new gets to see it");
    leave_others(&house.conductor, &mut doubtful).await;
    assert!(served(&house.conductor).is_empty());
}

#[tokio::test]
async fn a_console_is_served_by_the_process_that_its_node_names() {
    let house = House::new();
    let there = house.neighbour("there");
    membership::register(&house.conductor).await.unwrap();
    membership::register(&there).await.unwrap();
    let mut doubtful = HashSet::new();
    let mut ids = Vec::new();
    // Whoever would look after them.
    for _ in 0..8 {
        let id = NodeId::random();
        machine(&house, id).await;
        house.conductor.set_console(id, true, &user()).await.unwrap();
        ids.push(id);
    }
    assert!(restart(&there).await);
    assert!(served(&there).is_empty(), "somebody serves them");
    leave_others(&house.conductor, &mut doubtful).await;
    assert_eq!(served(&house.conductor).len(), 8);

    // The other gets a request, and both know whose it is then.
    there.set_console(ids[0], true, &user()).await.unwrap();
    leave_others(&house.conductor, &mut doubtful).await;
    leave_others(&there, &mut doubtful).await;
    assert_eq!((served(&house.conductor).len(), served(&there)), (7, vec![ids[0]]));

    // While we work on it, it may be one that is being started.
    let held = there.hold(ids[0]).await.unwrap();
    house.change(ids[0], |node| node.driver_internal_info.remove("console_served_by")).await;
    leave_others(&there, &mut doubtful).await;
    assert_eq!(served(&there).len(), 1);
    leave_others(&there, &mut doubtful).await;
    assert!(served(&there).is_empty());
    held.give_back(&there).await;

    // One is gone: the other takes what it served, and it finds that when it comes back.
    membership::leave(&house.conductor).await.unwrap();
    let none = there.console_feed(ids[1]).await.unwrap_err();
    assert!(matches!(none, Error::NotYet(_)), "{none}");
    assert!(restart(&there).await);
    assert_eq!(served(&there).len(), 8);
    leave_others(&house.conductor, &mut doubtful).await;
    assert!(served(&house.conductor).is_empty());
}

#[tokio::test]
async fn a_console_that_was_on_when_it_was_read_is_not_started_for_ever() {
    let house = House::new();
    let id = NodeId::random();
    machine(&house, id).await;
    house.conductor.set_console(id, true, &user()).await.unwrap();
    let stale = house.get(id).await;
    house.conductor.registry.leave_console(id).await;
    start(&house.conductor, stale.clone()).await.unwrap();
    assert_eq!(served(&house.conductor), [id], "nothing has changed");
    // It was undeployed meanwhile.
    house.change(id, |node| node.driver_internal_info.remove("console_served_by")).await;
    start(&house.conductor, stale.clone()).await.unwrap();
    assert!(served(&house.conductor).is_empty());
    // It was switched off.
    house.conductor.set_console(id, true, &user()).await.unwrap();
    house.conductor.set_console(id, false, &user()).await.unwrap();
    start(&house.conductor, stale).await.unwrap();
    assert!(served(&house.conductor).is_empty());
    assert!(!house.get(id).await.console_enabled);
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
    let there = house.neighbour("there");
    let id = deployable(&house, ProvisionState::Active, free_port()).await;
    there.set_console(id, true, &user()).await.unwrap();
    let mut watching = there.console_feed(id).await.unwrap().watch().unwrap();
    assert_eq!(house.through(id, Verb::Deleted).await, ProvisionState::Available);
    let mut doubtful = HashSet::new();
    leave_others(&there, &mut doubtful).await;
    assert!(served(&there).is_empty(), "it is not for the next user, whoever undeployed it");
    while watching.next().await.is_some() {}
    assert!(house.get(id).await.console_enabled, "but it is still wanted");
    assert_eq!(house.through(id, Verb::Active).await, ProvisionState::Active);
    for _ in 0..2 {
        leave_others(&house.conductor, &mut doubtful).await;
    }
    assert_eq!(served(&house.conductor), [id]);
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
