// SPDX-License-Identifier: Apache-2.0
//! Parents and children: power follows, and steps can be run on children.

use node_model::{PowerState, PowerTarget, ProvisionState, Step, Verb};
use serde_json::json;

use super::{House, user};
use crate::ProvisionRequest;

#[tokio::test]
async fn children_go_off_with_their_parent() {
    let house = House::new();
    let parent = house
        .node_with(ProvisionState::Manageable, json!({}), |node| {
            node.power_state = Some(PowerState::On);
        })
        .await;
    let child = house
        .node_with(ProvisionState::Manageable, json!({}), |node| {
            node.power_state = Some(PowerState::On);
            node.parent_node = Some(parent);
        })
        .await;
    house.conductor.power(parent, PowerTarget::Off, None, user()).await.unwrap();
    house.work(parent).await;
    assert_eq!(house.get(parent).await.power_state, Some(PowerState::Off));
    assert_eq!(house.get(child).await.target_power_state, Some(PowerState::Off));
    house.work(child).await;
    assert_eq!(house.get(child).await.power_state, Some(PowerState::Off));
}

#[tokio::test]
async fn a_step_runs_on_the_children_that_are_named() {
    let house = House::new();
    let parent = house.node(ProvisionState::Manageable, json!({})).await;
    let mut children = Vec::new();
    for _ in 0..2 {
        let child = house.node_with(ProvisionState::Manageable, json!({}), |node| {
            node.parent_node = Some(parent);
        });
        children.push(child.await);
    }
    let mut step = Step::new("power", "power_on", 0);
    step.execute_on_child_nodes = true;
    step.limit_child_node_execution = vec![children[1].to_string()];
    let mut request = ProvisionRequest::plain(Verb::Clean, user());
    request.steps = vec![step];
    house.conductor.provision(parent, request).await.unwrap();
    assert_eq!(house.work(parent).await, ProvisionState::Manageable);
    assert_eq!(house.get(parent).await.power_state, Some(PowerState::Off));
    assert_eq!(house.get(children[0]).await.power_state, Some(PowerState::Off));
    assert_eq!(house.get(children[1]).await.power_state, Some(PowerState::On));
}
