// SPDX-License-Identifier: Apache-2.0
//! Parent and child nodes: related power changes, and steps on child nodes.

use lifecycle::ProvisionRequest;
use node_model::{PowerState, PowerTarget, ProvisionState, Step, Verb};
use serde_json::json;

use super::{TestConductor, user};

#[tokio::test]
async fn powers_off_children_with_their_parent() {
    let test = TestConductor::new();
    let parent = test
        .insert_node_with(ProvisionState::Manageable, json!({}), |node| {
            node.power_state = Some(PowerState::On);
        })
        .await;
    let child = test
        .insert_node_with(ProvisionState::Manageable, json!({}), |node| {
            node.power_state = Some(PowerState::On);
            node.parent_node = Some(parent);
        })
        .await;
    test.conductor.power(parent, PowerTarget::Off, None, user()).await.unwrap();
    test.run_node(parent).await;
    assert_eq!(test.get(parent).await.power_state, Some(PowerState::Off));
    assert_eq!(test.get(child).await.target_power_state, Some(PowerState::Off));
    test.run_node(child).await;
    assert_eq!(test.get(child).await.power_state, Some(PowerState::Off));
}

#[tokio::test]
async fn runs_a_step_on_the_listed_children() {
    let test = TestConductor::new();
    let parent = test.insert_node(ProvisionState::Manageable, json!({})).await;
    let mut children = Vec::new();
    for _ in 0..2 {
        let child = test.insert_node_with(ProvisionState::Manageable, json!({}), |node| {
            node.parent_node = Some(parent);
        });
        children.push(child.await);
    }
    let mut step = Step::new("power", "power_on", 0);
    step.execute_on_child_nodes = true;
    step.limit_child_node_execution = vec![children[1].to_string()];
    let mut request = ProvisionRequest::plain(Verb::Clean, user());
    request.steps = vec![step];
    test.conductor.provision(parent, request).await.unwrap();
    assert_eq!(test.run_node(parent).await, ProvisionState::Manageable);
    assert_eq!(test.get(parent).await.power_state, Some(PowerState::Off));
    assert_eq!(test.get(children[0]).await.power_state, Some(PowerState::Off));
    assert_eq!(test.get(children[1]).await.power_state, Some(PowerState::On));
}
