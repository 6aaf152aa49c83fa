// SPDX-License-Identifier: Apache-2.0
//! Jobs beyond a limit wait and start in order.

use std::time::Duration;

use lifecycle::ProvisionRequest;
use node_model::{
    JobCounts, JobQueue, Node, NodeId, PowerState, ProvisionState, Verb, WaitReason, WorkKind,
};
use serde_json::json;

use super::{TestConductor, user};
use crate::job_queue::{fill, remove_ended_jobs};

async fn position(test: &TestConductor, id: NodeId) -> Option<u64> {
    let node = test.get(id).await;
    let position = test.store.read(move |reader| reader.queue_position(&node)).await.unwrap();
    position.map(|queued| queued.position)
}

async fn counts(test: &TestConductor) -> JobCounts {
    test.store.read(|reader| reader.job_counts(JobQueue::Clean)).await.unwrap()
}

/// Inserts nodes whose cleaning waits for an agent, and requests it one second apart. Those beyond the limit
/// are queued.
async fn start_cleanings<const COUNT: usize>(test: &TestConductor) -> [NodeId; COUNT] {
    let mut ids = [NodeId::random(); COUNT];
    for id in &mut ids {
        let wait = json!({"fake_wait_for_agent": true});
        *id = test.insert_node(ProvisionState::Manageable, wait).await;
        assert_eq!(test.run_verb(*id, Verb::Provide).await, ProvisionState::CleanWait);
        test.advance(Duration::from_secs(1));
    }
    ids
}

#[tokio::test]
async fn jobs_beyond_the_limit_start_in_order() {
    let test = TestConductor::with_job_limit(1);
    let ids = start_cleanings::<3>(&test).await;
    let reason = |node: node_model::Node| node.wait.map(|wait| wait.reason);
    assert_eq!(reason(test.get(ids[0]).await), Some(WaitReason::AgentHeartbeat));
    assert_eq!(reason(test.get(ids[1]).await), Some(WaitReason::JobQueue));
    assert_eq!(position(&test, ids[1]).await, Some(1));
    assert_eq!(position(&test, ids[2]).await, Some(2));

    fill(&test.conductor, JobQueue::Clean).await.unwrap();
    assert_eq!(position(&test, ids[1]).await, Some(1), "no place is free");

    assert_eq!(test.run_verb(ids[0], Verb::Abort).await, ProvisionState::CleanFail);
    fill(&test.conductor, JobQueue::Clean).await.unwrap();
    test.run_node(ids[1]).await;
    assert_eq!(reason(test.get(ids[1]).await), Some(WaitReason::AgentHeartbeat));
    assert_eq!(position(&test, ids[2]).await, Some(1));
}

#[tokio::test]
async fn explanation_contains_the_queue() {
    let test = TestConductor::with_job_limit(1);
    start_cleanings::<2>(&test).await;
    let wait = json!({"fake_wait_for_agent": true});
    let id = test.insert_node(ProvisionState::Manageable, wait).await;
    let request = ProvisionRequest::plain(Verb::Provide, user());
    let explanation = test.conductor.explain(id, request).await.unwrap();
    assert!(explanation.possible, "{:?}", explanation.obstacles);
    let wait = "wait: job queue (clean: 1 of 1 jobs run, 1 wait)";
    let index = explanation.plan.iter().position(|entry| entry == wait);
    assert_eq!(index, Some(1), "{:?}", explanation.plan);

    // Tearing down is not limited; the cleaning after it is.
    let active = test.insert_node(ProvisionState::Active, json!({})).await;
    let request = ProvisionRequest::plain(Verb::Deleted, user());
    let plan = test.conductor.explain(active, request).await.unwrap().plan;
    let index = |text: &str| plan.iter().position(|entry| entry == text);
    assert!(index("tear down").unwrap() < index(wait).unwrap(), "{plan:?}");

    let mut node = test.get(id).await;
    node.automated_clean = Some(false);
    test.store.write(move |tx| tx.save(&mut node)).await.unwrap();
    let request = ProvisionRequest::plain(Verb::Provide, user());
    let plan = test.conductor.explain(id, request).await.unwrap().plan;
    assert!(!plan.iter().any(|entry| entry.contains("job queue")), "not cleaned: {plan:?}");
}

#[tokio::test]
async fn limit_that_was_raised_or_lowered_is_applied() {
    let mut test = TestConductor::with_job_limit(1);
    let ids = start_cleanings::<4>(&test).await;
    test.set_job_limit(3);
    fill(&test.conductor, JobQueue::Clean).await.unwrap();
    assert_eq!(counts(&test).await, JobCounts { running: 3, queued: 1 });
    assert_eq!(test.conductor.counters().queue(JobQueue::Clean).get(), counts(&test).await);
    test.set_job_limit(2);
    for id in &ids[..2] {
        assert_eq!(test.run_verb(*id, Verb::Abort).await, ProvisionState::CleanFail);
        test.run_node(ids[2]).await;
    }
    fill(&test.conductor, JobQueue::Clean).await.unwrap();
    assert_eq!(counts(&test).await, JobCounts { running: 2, queued: 0 });
}

/// A queued node can be aborted, and put into maintenance; neither stops the jobs behind it.
#[tokio::test]
async fn queue_continues_without_aborted_jobs_and_nodes_in_maintenance() {
    let test = TestConductor::with_job_limit(1);
    let [first, aborted, in_maintenance, last] = start_cleanings(&test).await;
    assert_eq!(test.run_verb(aborted, Verb::Abort).await, ProvisionState::CleanFail);
    test.conductor.set_maintenance(in_maintenance, Some(None), user()).await.unwrap();
    test.run_node(in_maintenance).await;
    assert_eq!(position(&test, in_maintenance).await, Some(1), "it keeps its position");
    assert_eq!(position(&test, last).await, Some(2));

    assert_eq!(test.run_verb(first, Verb::Abort).await, ProvisionState::CleanFail);
    fill(&test.conductor, JobQueue::Clean).await.unwrap();
    assert_eq!(position(&test, last).await, None);
    assert_eq!(position(&test, in_maintenance).await, Some(1));

    test.conductor.set_maintenance(in_maintenance, None, user()).await.unwrap();
    test.run_node(in_maintenance).await;
    test.run_node(last).await;
    assert_eq!(test.run_verb(last, Verb::Abort).await, ProvisionState::CleanFail);
    fill(&test.conductor, JobQueue::Clean).await.unwrap();
    assert_eq!(position(&test, in_maintenance).await, None);
}

/// The instance that a rebuild would replace still runs.
#[tokio::test]
async fn aborting_a_queued_rebuild_does_not_power_the_machine_off() {
    let test = TestConductor::with_job_limit(1);
    let wait = json!({"fake_wait_for_agent": true});
    let first = test.insert_node(ProvisionState::Available, wait.clone()).await;
    test.run_verb(first, Verb::Active).await;
    let on = |node: &mut Node| node.power_state = Some(PowerState::On);
    let rebuilt = test.insert_node_with(ProvisionState::Active, wait, on).await;
    test.run_verb(rebuilt, Verb::Rebuild).await;
    assert!(test.get(rebuilt).await.queued_at.is_some());
    assert_eq!(test.run_verb(rebuilt, Verb::Abort).await, ProvisionState::DeployFail);
    let node = test.get(rebuilt).await;
    assert!(node.work.is_none() && node.queued_at.is_none());
    assert_eq!(node.power_state, Some(PowerState::On));
}

/// A restored node, which is in maintenance, must not continue before an administrator ends that.
#[tokio::test]
async fn held_work_does_not_continue_when_its_node_is_woken() {
    let test = TestConductor::with_job_limit(1);
    let id = test.insert_node(ProvisionState::Manageable, json!({})).await;
    test.request(id, Verb::Provide).await.unwrap();
    let mut node = test.get(id).await;
    assert!(node.work.is_some());
    (node.maintenance, node.due_at) = (true, None);
    let before = node.provision_state;
    test.store.write(move |tx| tx.save(&mut node)).await.unwrap();
    assert_eq!(test.run_node(id).await, before);
    test.conductor.set_maintenance(id, None, user()).await.unwrap();
    assert_eq!(test.run_node(id).await, ProvisionState::Available);
}

/// A process of an earlier version ends and starts jobs without changing the columns of the queue.
#[tokio::test]
async fn entries_left_by_earlier_versions_are_removed() {
    let test = TestConductor::with_job_limit(1);
    let ids = start_cleanings::<3>(&test).await;
    let mut ended = test.get(ids[0]).await;
    (ended.work, ended.wait, ended.due_at) = (None, None, None);
    let mut other_job = test.get(ids[1]).await;
    other_job.work.as_mut().unwrap().kind = WorkKind::Inspect;
    test.store
        .write(move |tx| tx.save(&mut ended).and_then(|()| tx.save(&mut other_job)))
        .await
        .unwrap();

    fill(&test.conductor, JobQueue::Clean).await.unwrap();
    assert_eq!(counts(&test).await, JobCounts { running: 1, queued: 2 }, "the ended job counts");
    remove_ended_jobs(&test.conductor).await.unwrap();
    for _ in 0..2 {
        fill(&test.conductor, JobQueue::Clean).await.unwrap();
    }
    assert_eq!(counts(&test).await, JobCounts { running: 1, queued: 0 });
    assert_eq!(test.get(ids[2]).await.job_queue, Some(JobQueue::Clean));
}

/// All of them end: each freed place starts the next job.
#[tokio::test]
async fn running_conductor_works_through_the_queue() {
    let test = TestConductor::with_job_limit(1);
    let running = test.conductor.start().await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..8 {
        let id = test.insert_node(ProvisionState::Available, json!({})).await;
        test.request(id, Verb::Active).await.unwrap();
        ids.push(id);
    }
    let all_active = async {
        for id in ids {
            while test.get(id).await.provision_state != ProvisionState::Active {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(120), all_active).await.unwrap();
    running.stop(Duration::from_secs(5)).await;
}
