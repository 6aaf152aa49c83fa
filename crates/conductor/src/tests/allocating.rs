// SPDX-License-Identifier: Apache-2.0
//! Which machine an allocation gets.

use node_model::{
    Allocation, AllocationId, AllocationState, JsonObject, ProvisionState, Timestamp,
};
use serde_json::json;

use super::House;

async fn allocated(house: &House, change: impl FnOnce(&mut Allocation)) -> Allocation {
    let id = inserted(house, change).await;
    house.conductor.allocate_now(id).await.unwrap();
    house.store.read(move |reader| reader.get(id)).await.unwrap().unwrap()
}

async fn inserted(house: &House, change: impl FnOnce(&mut Allocation)) -> AllocationId {
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
    house.store.write(move |tx| tx.insert(&allocation)).await.unwrap();
    id
}

#[tokio::test]
async fn a_free_machine_of_the_class_with_the_traits() {
    let house = House::new();
    let big = |traits: &'static [&str]| {
        house.node_with(ProvisionState::Available, json!({}), move |node| {
            node.resource_class = Some("big".to_owned());
            node.traits = traits.iter().map(|name| (*name).to_owned()).collect();
        })
    };
    let plain = big(&[]).await;
    let gpu = big(&["CUSTOM_GPU"]).await;

    let got = allocated(&house, |wanted| wanted.traits = vec!["CUSTOM_GPU".to_owned()]).await;
    assert_eq!((got.state, got.node_id), (AllocationState::Active, Some(gpu)));
    let node = house.get(gpu).await;
    assert_eq!(node.instance_uuid, Some(got.id.0));
    assert_eq!(node.allocation_id, Some(got.id));
    assert_eq!(node.instance_info.as_str(), r#"{"traits":["CUSTOM_GPU"]}"#);

    let none = allocated(&house, |wanted| wanted.traits = vec!["CUSTOM_GPU".to_owned()]).await;
    assert_eq!(none.state, AllocationState::Error);
    assert!(none.last_error.unwrap().contains("CUSTOM_GPU"));

    let rest = allocated(&house, |_| {}).await;
    assert_eq!(rest.node_id, Some(plain));
    let nothing = allocated(&house, |_| {}).await;
    assert!(nothing.last_error.unwrap().contains("resource class big"));
}

#[tokio::test]
async fn a_namesake_comes_first_and_machines_in_maintenance_not_at_all() {
    let house = House::new();
    for name in ["a", "b", "c", "d"] {
        house
            .node_with(ProvisionState::Available, json!({}), |node| {
                node.resource_class = Some("big".to_owned());
                node.name = Some(name.to_owned());
                node.maintenance = name == "d";
            })
            .await;
    }
    let got = allocated(&house, |wanted| wanted.name = Some("c".to_owned())).await;
    assert_eq!(house.get(got.node_id.unwrap()).await.name.as_deref(), Some("c"));
    let got = allocated(&house, |wanted| wanted.name = Some("d".to_owned())).await;
    assert_ne!(house.get(got.node_id.unwrap()).await.name.as_deref(), Some("d"));
}

#[tokio::test]
async fn a_machine_somebody_works_on_is_waited_for() {
    let house = House::new();
    let id = house
        .node_with(ProvisionState::Available, json!({}), |node| {
            node.resource_class = Some("big".to_owned());
        })
        .await;
    let other = house.neighbour("there");
    let (owner, ttl) = (other.owner.clone(), other.lease_time());
    let lease = house.store.write(move |tx| tx.claim(id, &owner, ttl)).await.unwrap().unwrap();

    let waits = allocated(&house, |_| {}).await;
    assert_eq!(waits.state, AllocationState::Allocating);
    house.store.write(move |tx| tx.release(&lease)).await.unwrap();
    house.conductor.allocate_now(waits.id).await.unwrap();
    assert_eq!(house.get(id).await.allocation_id, Some(waits.id));
}

#[tokio::test]
async fn two_allocations_never_get_the_same_machine() {
    let house = House::new();
    for _ in 0..8 {
        house
            .node_with(ProvisionState::Available, json!({}), |node| {
                node.resource_class = Some("big".to_owned());
            })
            .await;
    }
    let got = at_once(&house, 8).await;
    let nodes: std::collections::BTreeSet<_> = got.iter().map(|got| got.node_id.unwrap()).collect();
    assert_eq!(nodes.len(), 8);
}

/// That many allocations at once.
async fn at_once(house: &House, count: usize) -> Vec<Allocation> {
    let mut tasks = Vec::new();
    for _ in 0..count {
        let id = inserted(house, |_| {}).await;
        let conductor = house.conductor.clone();
        tasks.push(tokio::spawn(async move { conductor.allocate_now(id).await }));
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    house.store.read(|reader| reader.collect(&store::Query::<Allocation>::default())).await.unwrap()
}
