// SPDX-License-Identifier: Apache-2.0
//! The process dies: at every point of a job at which it can, and the next run of it goes on.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use node_model::{NodeId, ProvisionState, Verb};
use serde_json::json;

use super::House;
use crate::{Conductor, runner};

/// Works on a node until it was woken so many times, and dies then: whatever was sent is sent, and
/// nothing more is written down. Whether it came to an end before.
async fn work_until_death(conductor: &Conductor, id: NodeId, wakes: usize) -> bool {
    let mut work = pin!(runner::run(conductor, id));
    let mut left = wakes;
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(_) => Poll::Ready(true),
        Poll::Pending if left == 0 => Poll::Ready(false),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Takes a node through a verb, dying after one wake, after two, after three and so on.
async fn dies_everywhere(from: ProvisionState, verb: Verb, to: ProvisionState) {
    let mut deaths = 0;
    for wakes in 0.. {
        let house = House::new();
        let id = house.node(from, json!({})).await;
        house.ask(id, verb).await.unwrap();
        if work_until_death(&house.conductor, id, wakes).await {
            break;
        }
        deaths += 1;
        let next = house.neighbour("here");
        crate::membership::take_up(&next).await.unwrap();
        runner::run(&next, id).await;
        let node = house.get(id).await;
        assert_eq!(node.provision_state, to, "after {wakes} wakes: {:?}", node.last_error);
        assert_eq!((node.reservation, node.work.is_none()), (None, true), "after {wakes} wakes");
    }
    // How often it has to wait depends on how fast the disk is.
    assert!(deaths > 0, "it never had to wait");
}

#[tokio::test]
async fn a_deployment_goes_on_wherever_it_was_cut_off() {
    dies_everywhere(ProvisionState::Available, Verb::Active, ProvisionState::Active).await;
}

#[tokio::test]
async fn cleaning_goes_on_wherever_it_was_cut_off() {
    dies_everywhere(ProvisionState::Manageable, Verb::Provide, ProvisionState::Available).await;
}

#[tokio::test]
async fn taking_down_goes_on_wherever_it_was_cut_off() {
    dies_everywhere(ProvisionState::Active, Verb::Deleted, ProvisionState::Available).await;
}
