// SPDX-License-Identifier: Apache-2.0
//! Each console is served by one process, and released when another process is recorded.

use std::collections::HashSet;

use node_model::{NodeId, ProvisionState, Verb};
use serde_json::json;

use super::{TestConductor, user};
use crate::consoles::{release_others, start, start_all};
use crate::{Conductor, ConductorError, membership};

/// A node whose BMC does not respond: an enabled console does not need it.
async fn insert_ipmi_node(test: &TestConductor, id: NodeId) {
    let info = json!({"ipmi_address": "127.0.0.1", "ipmi_port": 1, "ipmi_username": "a",
        "ipmi_password": "b"});
    let change = |node: &mut node_model::Node| {
        node.id = id;
        node.driver = "ipmi".to_owned();
        node.interfaces = node_model::Interfaces::default();
        test.conductor.registry.resolve("ipmi", &mut node.interfaces).unwrap();
    };
    test.insert_node_with(ProvisionState::Manageable, info, change).await;
}

fn served(conductor: &Conductor) -> Vec<NodeId> {
    conductor.registry.consoles_served()
}

#[tokio::test]
async fn releases_a_console_that_another_process_disabled() {
    let test = TestConductor::new();
    let id = NodeId::random();
    insert_ipmi_node(&test, id).await;
    membership::begin(&test.conductor, None).await.unwrap();
    let off = test.conductor.console_feed(id).await.unwrap_err().to_string();
    assert!(off.contains("is disabled"), "{off}");
    test.conductor.set_console(id, true, &user()).await.unwrap();
    assert!(test.conductor.console_feed(id).await.is_ok());
    let mut suspects = HashSet::new();
    for _ in 0..3 {
        release_others(&test.conductor, &mut suspects).await;
    }
    assert_eq!(served(&test.conductor), [id], "it stays enabled");

    let there = test.other_process("there");
    let elsewhere = there.console_feed(id).await.unwrap_err();
    assert!(
        matches!(&elsewhere, ConductorError::Conflict(text) if text.contains("\"here\"")),
        "{elsewhere}"
    );
    there.set_console(id, false, &user()).await.unwrap();
    assert!(test.conductor.console_feed(id).await.is_err(), "no new client can connect");
    release_others(&test.conductor, &mut suspects).await;
    assert!(served(&test.conductor).is_empty());
}

#[tokio::test]
async fn serves_only_consoles_recorded_for_this_process() {
    let test = TestConductor::new();
    let there = test.other_process("there");
    membership::begin(&test.conductor, None).await.unwrap();
    membership::begin(&there, None).await.unwrap();
    let mut suspects = HashSet::new();
    let mut ids = Vec::new();
    // Some of these would be assigned to the other process.
    for _ in 0..8 {
        let id = NodeId::random();
        insert_ipmi_node(&test, id).await;
        test.conductor.set_console(id, true, &user()).await.unwrap();
        ids.push(id);
    }
    assert!(start_all(&there).await);
    assert!(served(&there).is_empty(), "another process serves them");
    release_others(&test.conductor, &mut suspects).await;
    assert_eq!(served(&test.conductor).len(), 8);

    // The other process gets a request and is recorded.
    there.set_console(ids[0], true, &user()).await.unwrap();
    release_others(&test.conductor, &mut suspects).await;
    release_others(&there, &mut suspects).await;
    assert_eq!((served(&test.conductor).len(), served(&there)), (7, vec![ids[0]]));

    // While the process works on the node, the console may just be starting.
    let call = there.exclusive_call(ids[0]).await.unwrap();
    test.change(ids[0], |node| node.driver_internal_info.remove("console_served_by")).await;
    release_others(&there, &mut suspects).await;
    assert_eq!(served(&there).len(), 1);
    release_others(&there, &mut suspects).await;
    assert!(served(&there).is_empty());
    call.release(&there).await;

    // One process stops: the other one takes over its consoles.
    membership::end(&test.conductor).await.unwrap();
    let none = there.console_feed(ids[1]).await.unwrap_err();
    assert!(matches!(none, ConductorError::NotYet(_)), "{none}");
    assert!(start_all(&there).await);
    assert_eq!(served(&there).len(), 8);
    release_others(&test.conductor, &mut suspects).await;
    assert!(served(&test.conductor).is_empty());
}

#[tokio::test]
async fn does_not_start_a_console_that_changed_meanwhile() {
    let test = TestConductor::new();
    let id = NodeId::random();
    insert_ipmi_node(&test, id).await;
    test.conductor.set_console(id, true, &user()).await.unwrap();
    let stale = test.get(id).await;
    test.conductor.registry.release_console(id).await;
    start(&test.conductor, stale.clone()).await.unwrap();
    assert_eq!(served(&test.conductor), [id], "unchanged");
    // The instance was removed meanwhile.
    test.change(id, |node| node.driver_internal_info.remove("console_served_by")).await;
    start(&test.conductor, stale.clone()).await.unwrap();
    assert!(served(&test.conductor).is_empty());
    // The console was disabled meanwhile.
    test.conductor.set_console(id, true, &user()).await.unwrap();
    test.conductor.set_console(id, false, &user()).await.unwrap();
    start(&test.conductor, stale).await.unwrap();
    assert!(served(&test.conductor).is_empty());
    assert!(!test.get(id).await.console_enabled);
}

/// A node with an IPMI console; everything else is fake.
async fn insert_deployable(test: &TestConductor, state: ProvisionState, port: u16) -> NodeId {
    let info = json!({"ipmi_address": "127.0.0.1", "ipmi_port": 1, "ipmi_username": "a",
        "ipmi_password": "b", "ipmi_terminal_port": port});
    let change = |node: &mut node_model::Node| {
        node.interfaces.set(node_model::InterfaceKind::Console, Some("ipmitool-socat"));
        node.console_enabled = true;
        node.automated_clean = Some(false);
    };
    test.insert_node_with(state, info, change).await
}

#[tokio::test]
async fn console_stops_with_an_instance_and_starts_with_the_next() {
    let test = TestConductor::new();
    let there = test.other_process("there");
    let id = insert_deployable(&test, ProvisionState::Active, free_port()).await;
    there.set_console(id, true, &user()).await.unwrap();
    let mut watch = there.console_feed(id).await.unwrap().subscribe().unwrap();
    assert_eq!(test.run_verb(id, Verb::Deleted).await, ProvisionState::Available);
    let mut suspects = HashSet::new();
    release_others(&there, &mut suspects).await;
    assert!(served(&there).is_empty(), "the next user must not see it");
    while watch.next().await.is_some() {}
    assert!(test.get(id).await.console_enabled, "it stays enabled");
    assert_eq!(test.run_verb(id, Verb::Active).await, ProvisionState::Active);
    for _ in 0..2 {
        release_others(&test.conductor, &mut suspects).await;
    }
    assert_eq!(served(&test.conductor), [id]);
}

#[tokio::test]
async fn deployment_continues_if_the_console_cannot_start() {
    let test = TestConductor::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let id = insert_deployable(&test, ProvisionState::Available, port).await;
    assert_eq!(test.run_verb(id, Verb::Active).await, ProvisionState::Active);
    assert!(!test.get(id).await.console_enabled);
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
