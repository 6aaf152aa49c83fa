// SPDX-License-Identifier: Apache-2.0
//! Waits: their reasons, the time of the next action and the deadline, also in maintenance.

use lifecycle::{ActionOutcome, AvailableSteps, record, request_power, start_queued_job};
use node_model::{
    AvailableStep, Deadline, JobQueue, JournalEvent, PowerTarget, ProvisionState, Step, Timestamp,
    Verb, Wait, WaitReason,
};

use crate::support::{
    CHECKPOINT, JobHarness, WAIT_FOR_AGENT, actor, poll_agent_at, poll_at, step, step_with,
    unreachable,
};

const START: i64 = 1_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_secs(START + seconds)
}

fn wait(harness: &JobHarness) -> Wait {
    harness.node.wait.expect("the node waits")
}

/// The reason, the time of the next action and the deadline of the wait.
fn summary(harness: &JobHarness) -> (WaitReason, Option<Timestamp>, Deadline) {
    let wait = wait(harness);
    (wait.reason, wait.next_action_at, wait.deadline)
}

#[test]
fn scheduled_wait_continues_after_maintenance() {
    for (outcome, reason) in
        [(poll_at(at(10)), WaitReason::BmcStep), (poll_agent_at(at(10)), WaitReason::AgentStep)]
    {
        // Before and after the time of the next poll.
        for seconds in [5, 100_000] {
            let mut harness = JobHarness::new(ProvisionState::Manageable)
                .with_outcome("run clean step vendor.first", outcome.clone());
            harness.request(Verb::Provide, &[]).set_maintenance(true).later_if_due(seconds);
            assert_eq!(wait(&harness).reason, reason);
            assert_eq!(harness.node.due_at, None, "nothing is done in maintenance");
            assert!(!harness.transcript.contains("poll"), "{}", harness.transcript);
            harness.set_maintenance(false).later_if_due(10);
            assert!(harness.transcript.contains("poll clean step"), "{}", harness.end());
            assert_eq!(harness.node.provision_state, ProvisionState::Available);
        }
    }
}

#[test]
fn wait_step_ends_after_maintenance() {
    let steps = [step_with("deploy", "wait", r#"{"seconds":5}"#), step("raid", "create", 0)];
    let mut harness = JobHarness::new(ProvisionState::Manageable);
    harness.request(Verb::Clean, &steps).set_maintenance(true).later_if_due(60);
    assert_eq!(harness.node.provision_state, ProvisionState::CleanWait, "{}", harness.end());
    harness.set_maintenance(false);
    assert_eq!(harness.node.provision_state, ProvisionState::Manageable, "{}", harness.end());
}

#[test]
fn retry_of_a_poll_continues_after_maintenance() {
    let mut harness = JobHarness::new(ProvisionState::Manageable)
        .with_outcome("run clean step vendor.first", poll_at(at(10)))
        .with_outcome("poll clean step vendor.first", unreachable("BMC restarts"));
    harness.request(Verb::Provide, &[]).later_if_due(10).set_maintenance(true).later_if_due(100);
    harness.set_maintenance(false);
    assert_eq!(harness.node.provision_state, ProvisionState::Available, "{}", harness.end());
}

#[test]
fn callback_timeout_starts_to_apply_after_maintenance() {
    let mut harness = JobHarness::new(ProvisionState::Manageable)
        .with_outcome("prepare cleaning", WAIT_FOR_AGENT);
    harness.request(Verb::Provide, &[]).set_maintenance(true).later_if_due(100_000);
    assert_eq!(summary(&harness), (WaitReason::AgentHeartbeat, None, Deadline::Never));
    harness.set_maintenance(false);
    assert_eq!(harness.node.provision_state, ProvisionState::CleanFail, "{}", harness.end());
}

/// Earlier versions deleted the time of the next poll in maintenance.
#[test]
fn job_whose_next_poll_is_unknown_continues() {
    let mut harness = JobHarness::new(ProvisionState::Manageable)
        .with_outcome("run clean step vendor.first", poll_at(at(10)));
    harness.request(Verb::Provide, &[]);
    harness.node.wait = Some(Wait { next_action_at: None, ..wait(&harness) });
    // The migration of the store makes such a node due.
    harness.node.due_at = Some(at(0));
    harness.later_if_due(0);
    assert_eq!(harness.node.provision_state, ProvisionState::Available, "{}", harness.end());
}

#[test]
fn checkpoint_waits_for_the_bmc_or_for_the_agent() {
    for (requires_ramdisk, expected) in
        [(false, WaitReason::BmcStep), (true, WaitReason::AgentStep)]
    {
        let step = Step { requires_ramdisk, ..Step::new("raid", "create", 10) };
        let available = AvailableSteps::all(vec![AvailableStep { step, arguments: (&[]).into() }]);
        let mut harness = JobHarness::new(ProvisionState::Manageable)
            .with_outcome("list clean steps", ActionOutcome::StepsListed(available));
        harness.try_request(Verb::Provide, &[]).unwrap();
        let action = harness.run_to("run clean step raid.create");
        let entries =
            record(&mut harness.node, &action, &CHECKPOINT, 0, &harness.settings, harness.now);
        assert_eq!(summary(&harness), (expected, Some(at(0)), Deadline::Never));
        let result = entries.events.iter().find_map(|event| {
            let JournalEvent::ActionDone { result, .. } = event else { return None };
            result.clone()
        });
        assert_eq!(result, Some("running".into()));
        harness.run();
        assert!(harness.transcript.contains("poll clean step"), "{}", harness.end());
        assert_eq!(harness.node.provision_state, ProvisionState::Available, "{}", harness.end());
    }
}

#[test]
fn retry_has_a_next_attempt_and_a_timeout() {
    let mut harness = JobHarness::new(ProvisionState::Enroll)
        .with_outcome("check power", unreachable("no route"))
        .with_outcome("check power", unreachable("no route"));
    harness.request(Verb::Manage, &[]);
    let timeout = harness.settings.bmc_timeout.try_into().unwrap();
    let retry = harness.node.work.clone().unwrap().retry.unwrap();
    let expected = (WaitReason::BmcResponse, Some(retry.at), Deadline::At(at(timeout)));
    assert_eq!(summary(&harness), expected);
    assert_eq!(harness.node.due_at, Some(retry.at));
    // The timeout stays the same with the next attempt.
    harness.later(1);
    assert_eq!(wait(&harness).deadline, Deadline::At(at(timeout)));
    assert!(wait(&harness).next_action_at > Some(retry.at));
}

#[test]
fn wait_reason_ends_with_the_retry() {
    let mut harness = JobHarness::new(ProvisionState::Available)
        .with_outcome("prepare deployment", unreachable("no route"));
    harness.request(Verb::Active, &[]);
    assert_eq!(wait(&harness).reason, WaitReason::BmcResponse);
    harness.now = at(1);
    harness.run_to("run deploy step deploy.deploy");
    assert_eq!(harness.node.wait, None, "the BMC has responded");
}

#[test]
fn wait_for_the_agent_has_a_next_boot_and_a_timeout() {
    let mut harness = JobHarness::new(ProvisionState::Manageable)
        .with_outcome("prepare cleaning", WAIT_FOR_AGENT);
    harness.request(Verb::Provide, &[]);
    let expected = (WaitReason::AgentHeartbeat, Some(at(600)), Deadline::At(at(1800)));
    assert_eq!(summary(&harness), expected);
    assert_eq!(harness.node.due_at, Some(at(600)));
}

#[test]
fn queued_deployment_starts_when_a_place_is_free() {
    let mut harness = JobHarness::new(ProvisionState::Available);
    harness.queue_is_full = true;
    harness.request(Verb::Active, &[]).later_if_due(100_000);
    assert_eq!(harness.node.provision_state, ProvisionState::DeployWait, "{}", harness.end());
    assert_eq!(summary(&harness), (WaitReason::JobQueue, None, Deadline::Never));
    assert_eq!(harness.node.queued_at, Some(at(0)));
    assert!(!harness.transcript.contains("prepare"), "{}", harness.transcript);
    let now = harness.now;
    assert!(!start_queued_job(&mut harness.node, JobQueue::Clean, now), "the other queue");
    assert!(start_queued_job(&mut harness.node, JobQueue::Deploy, now));
    assert!(!start_queued_job(&mut harness.node, JobQueue::Deploy, now), "it runs already");
    harness.run();
    assert_eq!(harness.node.provision_state, ProvisionState::Active, "{}", harness.end());
    assert_eq!((harness.node.job_queue, harness.node.queued_at), (None, None));
}

#[test]
fn tear_down_is_not_queued_but_the_cleaning_after_it_is() {
    let mut harness = JobHarness::new(ProvisionState::Active);
    harness.queue_is_full = true;
    harness.request(Verb::Deleted, &[]);
    assert!(harness.transcript.contains("tear down"), "{}", harness.transcript);
    assert_eq!(harness.node.provision_state, ProvisionState::CleanWait, "{}", harness.end());
    assert_eq!(harness.node.job_queue, Some(JobQueue::Clean));
}

#[test]
fn aborted_job_leaves_the_queue() {
    let mut harness = JobHarness::new(ProvisionState::Manageable);
    harness.queue_is_full = true;
    harness.request(Verb::Provide, &[]).request(Verb::Abort, &[]);
    assert_eq!(harness.node.provision_state, ProvisionState::CleanFail, "{}", harness.end());
    assert_eq!((harness.node.job_queue, harness.node.queued_at), (None, None));
}

#[test]
fn undeployed_node_leaves_the_queue_of_deployments() {
    let mut harness = JobHarness::new(ProvisionState::Available);
    harness.queue_is_full = true;
    harness.request(Verb::Active, &[]);
    harness.queue_is_full = false;
    harness.request(Verb::Deleted, &[]);
    assert_eq!(harness.node.provision_state, ProvisionState::Available, "{}", harness.end());
    assert_eq!(harness.node.job_queue, None);
}

/// Versions without queues read the wait of a queued job as a hold, and store it so.
#[test]
fn queued_job_remains_queued_if_an_earlier_version_changed_its_wait() {
    let mut harness = JobHarness::new(ProvisionState::Available);
    harness.queue_is_full = true;
    harness.request(Verb::Active, &[]);
    let wait = harness.node.wait.as_mut().unwrap();
    (wait.reason, wait.deadline) = (WaitReason::Hold, Deadline::At(at(1800)));
    harness.node.due_at = Some(at(1800));
    harness.later_if_due(2000);
    assert_eq!(summary(&harness), (WaitReason::JobQueue, None, Deadline::Never));
    assert_eq!(harness.node.due_at, None);
}

#[test]
fn job_that_an_earlier_version_started_is_counted() {
    let mut harness = JobHarness::new(ProvisionState::Available);
    harness.request(Verb::Active, &[]);
    assert_eq!(harness.node.provision_state, ProvisionState::Active, "{}", harness.end());
    assert_eq!(harness.node.job_queue, None);
    let mut harness = JobHarness::new(ProvisionState::Available);
    let hold = Step::new("deploy", "hold", 110);
    harness.request(Verb::Active, &[hold]);
    assert_eq!(harness.node.provision_state, ProvisionState::DeployHold, "{}", harness.end());
    assert_eq!(harness.node.job_queue, Some(JobQueue::Deploy));
    harness.node.job_queue = None;
    harness.run();
    assert_eq!(harness.node.job_queue, Some(JobQueue::Deploy));
}

/// A restored backup has nodes with work that is not due.
#[test]
fn held_work_continues_when_maintenance_ends() {
    let mut harness = JobHarness::new(ProvisionState::Manageable)
        .with_outcome("run clean step vendor.first", poll_at(at(10)));
    harness.request(Verb::Provide, &[]);
    assert!(harness.node.work.is_some());
    for state in [ProvisionState::Cleaning, ProvisionState::CleanWait] {
        let mut node = harness.node.clone();
        node.provision_state = state;
        node.maintenance = true;
        node.due_at = None;
        lifecycle::set_maintenance(&mut node, None, at(20));
        assert_eq!(node.due_at, Some(at(20)), "{state}");
    }
    // A change of the power would continue it.
    let mut node = harness.node.clone();
    (node.provision_state, node.maintenance, node.due_at) = (ProvisionState::Deploying, true, None);
    let request = request_power(&mut node, PowerTarget::Off, None, actor(), at(20)).map(drop);
    let error = request.unwrap_err();
    assert!(matches!(error, lifecycle::PowerRequestError::WorkHeld { .. }), "{error}");
}
