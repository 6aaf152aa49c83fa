// SPDX-License-Identifier: Apache-2.0
//! The search for due nodes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lifecycle::{AvailableSteps, JobContext, LifecycleSettings, ProvisionRequest};
use node_model::{ConductorInfo, Node, NodeId, ProvisionState, Timestamp, Verb};
use uuid::Uuid;

use super::{TestConductor, user};
use crate::hash_ring::conductor_of;
use crate::{ConductorSettings, runner};

/// Several times the limit of one search.
const FOREIGN_NODES: usize = 2000;
const OWN_NODES: usize = 20;

/// A node of `group` with a job that is due at `due`.
fn due_node(test: &TestConductor, group: &str, due: Timestamp) -> Node {
    let mut node = Node::new(NodeId::random(), "fake-hardware", due);
    node.conductor_group = group.to_owned();
    test.conductor.registry.resolve("fake-hardware", &mut node.interfaces).unwrap();
    let request = ProvisionRequest::plain(Verb::Manage, user());
    let context = JobContext {
        template_steps: Vec::new(),
        driver_steps: AvailableSteps::default(),
        work_id: Uuid::nil(),
    };
    let settings = LifecycleSettings::default();
    lifecycle::request_provision(&mut node, &request, &context, &settings, due).unwrap();
    assert_eq!(node.due_at, Some(due));
    node
}

/// Due nodes of a group without a running conductor must neither delay the nodes of this conductor
/// nor keep the scheduler busy.
#[tokio::test]
async fn due_nodes_of_a_dead_group_do_not_delay_own_nodes() {
    let test = TestConductor::with_settings(ConductorSettings {
        conductor_group: "East".to_owned(),
        sync_power_state_interval: 0,
        ..ConductorSettings::default()
    });
    let now = test.conductor.now();
    let earlier = Timestamp(now.0 - 1_000_000);
    let foreign: Vec<Node> = (0..FOREIGN_NODES).map(|_| due_node(&test, "west", earlier)).collect();
    let own: Vec<Node> = (0..OWN_NODES).map(|_| due_node(&test, "east", now)).collect();
    let ids: Vec<NodeId> = own.iter().map(|node| node.id).collect();
    // Inserting wakes no node: only the search can find them.
    test.store
        .write(move |tx| foreign.iter().chain(&own).try_for_each(|node| tx.insert(node)))
        .await
        .unwrap();

    let mut journal = test.store.journal_position();
    let running = test.conductor.start().await.unwrap();
    let all_managed = async {
        for id in ids {
            while test.get(id).await.provision_state != ProvisionState::Manageable {
                journal.changed().await.unwrap();
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), all_managed).await.expect("own nodes are run");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let searches = test.conductor.counters.searches.load(Ordering::Relaxed);
    assert!(searches < 10, "the scheduler is busy: {searches} searches");
    running.stop(Duration::from_secs(5)).await;
}

/// A due node is left to the process that monitors it, but not for long.
#[tokio::test]
async fn search_leaves_nodes_to_the_process_that_monitors_them() {
    let test = TestConductor::new();
    let member = |hostname: &str| ConductorInfo {
        hostname: hostname.to_owned(),
        run: None,
        version: None,
        conductor_group: String::new(),
        drivers: vec!["fake-hardware".to_owned()],
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
        online: true,
    };
    let members: Arc<[ConductorInfo]> = Arc::new([member("here"), member("there")]);
    let now = test.conductor.now();
    let node_of = |owner: &str| {
        let mut nodes = std::iter::repeat_with(|| due_node(&test, "", now));
        nodes.find(|node| conductor_of(node, members.iter()) == Some(owner)).unwrap()
    };
    let (own, other) = (node_of("here"), node_of("there"));
    let (own_id, other_id) = (own.id, other.id);
    test.store.write(move |tx| tx.insert(&own).and_then(|()| tx.insert(&other))).await.unwrap();
    let run = |id| runner::run_found(&test.conductor, id, Arc::clone(&members));

    run(own_id).await;
    assert_eq!(test.get(own_id).await.provision_state, ProvisionState::Manageable);
    let until = run(other_id).await.unwrap();
    assert_eq!(until.since(now), Duration::from_secs(2));
    assert_eq!(test.get(other_id).await.provision_state, ProvisionState::Verifying);
    test.advance(Duration::from_secs(2));
    run(other_id).await;
    assert_eq!(test.get(other_id).await.provision_state, ProvisionState::Manageable);
}
