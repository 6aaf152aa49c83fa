// SPDX-License-Identifier: Apache-2.0
//! Processing of allocations.

use node_model::{
    Allocation, AllocationId, AllocationState, JsonObject, ProvisionState, Timestamp,
};
use serde_json::json;

use super::TestConductor;

async fn allocate(test: &TestConductor, change: impl FnOnce(&mut Allocation)) -> Allocation {
    let id = insert_allocation(test, change).await;
    test.conductor.allocate_now(id).await.unwrap();
    test.store.read(move |reader| reader.get(id)).await.unwrap().unwrap()
}

async fn insert_allocation(
    test: &TestConductor,
    change: impl FnOnce(&mut Allocation),
) -> AllocationId {
    let mut allocation = Allocation {
        id: AllocationId::random(),
        created_at: Timestamp(0),
        updated_at: None,
        name: None,
        state: AllocationState::Allocating,
        node_id: None,
        resource_class: Some("big".to_owned()),
        traits: Vec::new(),
        candidate_nodes: Vec::new(),
        last_error: None,
        owner: None,
        extra: JsonObject::empty(),
    };
    change(&mut allocation);
    let id = allocation.id;
    test.store.write(move |tx| tx.insert(&allocation)).await.unwrap();
    id
}

#[tokio::test]
async fn allocates_a_free_node_with_class_and_traits() {
    let test = TestConductor::new();
    let big = |traits: &'static [&str]| {
        test.insert_node_with(ProvisionState::Available, json!({}), move |node| {
            node.resource_class = Some("big".to_owned());
            node.traits = traits.iter().map(|name| (*name).to_owned()).collect();
        })
    };
    let plain = big(&[]).await;
    let gpu = big(&["CUSTOM_GPU"]).await;

    let allocated =
        allocate(&test, |allocation| allocation.traits = vec!["CUSTOM_GPU".to_owned()]).await;
    assert_eq!((allocated.state, allocated.node_id), (AllocationState::Active, Some(gpu)));
    let node = test.get(gpu).await;
    assert_eq!(node.instance_uuid, Some(allocated.id.0));
    assert_eq!(node.allocation_id, Some(allocated.id));
    assert_eq!(node.instance_info.as_str(), r#"{"traits":["CUSTOM_GPU"]}"#);

    let none =
        allocate(&test, |allocation| allocation.traits = vec!["CUSTOM_GPU".to_owned()]).await;
    assert_eq!(none.state, AllocationState::Error);
    assert!(none.last_error.unwrap().contains("CUSTOM_GPU"));

    let rest = allocate(&test, |_| {}).await;
    assert_eq!(rest.node_id, Some(plain));
    let nothing = allocate(&test, |_| {}).await;
    assert!(nothing.last_error.unwrap().contains("resource class big"));
}

#[tokio::test]
async fn prefers_the_node_of_the_same_name_and_skips_maintenance() {
    let test = TestConductor::new();
    for name in ["a", "b", "c", "d"] {
        test.insert_node_with(ProvisionState::Available, json!({}), |node| {
            node.resource_class = Some("big".to_owned());
            node.name = Some(name.to_owned());
            node.maintenance = name == "d";
        })
        .await;
    }
    let allocated = allocate(&test, |allocation| allocation.name = Some("c".to_owned())).await;
    assert_eq!(test.get(allocated.node_id.unwrap()).await.name.as_deref(), Some("c"));
    let allocated = allocate(&test, |allocation| allocation.name = Some("d".to_owned())).await;
    assert_ne!(test.get(allocated.node_id.unwrap()).await.name.as_deref(), Some("d"));
}

#[tokio::test]
async fn waits_for_a_leased_node() {
    let test = TestConductor::new();
    let id = test
        .insert_node_with(ProvisionState::Available, json!({}), |node| {
            node.resource_class = Some("big".to_owned());
        })
        .await;
    let other = test.other_process("there");
    let (owner, ttl) = (other.owner.clone(), other.lease_time());
    let lease = test.store.write(move |tx| tx.claim(id, &owner, ttl)).await.unwrap().unwrap();

    let pending = allocate(&test, |_| {}).await;
    assert_eq!(pending.state, AllocationState::Allocating);
    test.store.write(move |tx| tx.release(&lease)).await.unwrap();
    test.conductor.allocate_now(pending.id).await.unwrap();
    assert_eq!(test.get(id).await.allocation_id, Some(pending.id));
}

#[tokio::test]
async fn concurrent_allocations_get_different_nodes() {
    let test = TestConductor::new();
    for _ in 0..8 {
        test.insert_node_with(ProvisionState::Available, json!({}), |node| {
            node.resource_class = Some("big".to_owned());
        })
        .await;
    }
    let allocated = allocate_concurrently(&test, 8).await;
    let nodes: std::collections::BTreeSet<_> =
        allocated.iter().map(|allocated| allocated.node_id.unwrap()).collect();
    assert_eq!(nodes.len(), 8);
}

/// Processes `count` allocations concurrently.
async fn allocate_concurrently(test: &TestConductor, count: usize) -> Vec<Allocation> {
    let mut tasks = Vec::new();
    for _ in 0..count {
        let id = insert_allocation(test, |_| {}).await;
        let conductor = test.conductor.clone();
        tasks.push(tokio::spawn(async move { conductor.allocate_now(id).await }));
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    test.store
        .read(|reader| reader.collect(&store::ResourceQuery::<Allocation>::default()))
        .await
        .unwrap()
}
