// SPDX-License-Identifier: Apache-2.0
//! Jobs continue after a crash of the process at any point.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use node_model::{NodeId, ProvisionState, Verb};
use serde_json::json;

use super::TestConductor;
use crate::{Conductor, runner};

/// Runs a node until its task was woken `wakes` times, then drops the task, as a crash would. Returns
/// whether the task ended before.
async fn run_until_crash(conductor: &Conductor, id: NodeId, wakes: usize) -> bool {
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

/// Runs a verb with a crash after one wake-up, after two, after three and so on.
async fn crash_everywhere(from: ProvisionState, verb: Verb, to: ProvisionState) {
    let mut crashes = 0;
    for wakes in 0.. {
        let test = TestConductor::new();
        let id = test.insert_node(from, json!({})).await;
        test.request(id, verb).await.unwrap();
        if run_until_crash(&test.conductor, id, wakes).await {
            break;
        }
        crashes += 1;
        let next = test.other_process("here");
        crate::membership::release_previous_run(&next).await.unwrap();
        runner::run(&next, id).await;
        let node = test.get(id).await;
        assert_eq!(node.provision_state, to, "after {wakes} wake-ups: {:?}", node.last_error);
        assert_eq!((node.reservation, node.work.is_none()), (None, true), "after {wakes} wake-ups");
    }
    // The number of wake-ups depends on the speed of the disk.
    assert!(crashes > 0, "the task never waited");
}

#[tokio::test]
async fn deployment_continues_after_a_crash() {
    crash_everywhere(ProvisionState::Available, Verb::Active, ProvisionState::Active).await;
}

#[tokio::test]
async fn cleaning_continues_after_a_crash() {
    crash_everywhere(ProvisionState::Manageable, Verb::Provide, ProvisionState::Available).await;
}

#[tokio::test]
async fn tear_down_continues_after_a_crash() {
    crash_everywhere(ProvisionState::Active, Verb::Deleted, ProvisionState::Available).await;
}
