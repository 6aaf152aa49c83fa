// SPDX-License-Identifier: Apache-2.0
//! Steps that the agent runs: they are listed when the agent runs, and polled until they end.

use expect_test::{Expect, expect};
use lifecycle::{ActionFailure, ActionOutcome, AvailableSteps};
use node_model::{
    AvailableStep, InterfaceKind, ProvisionState, Step, Timestamp, UnreachablePeer, Verb,
};

use crate::support::{JobHarness, WAIT_FOR_AGENT, failed, poll_agent_at, step};

fn check(harness: &JobHarness, expect: Expect) {
    expect.assert_eq(&harness.end());
}

fn available(interface: &str, name: &str, priority: i64) -> AvailableStep {
    AvailableStep { step: Step::new(interface, name, priority), arguments: (&[]).into() }
}

/// The steps of the driver, before the agent has listed its own.
fn driver_steps() -> ActionOutcome {
    ActionOutcome::StepsListed(AvailableSteps {
        known: vec![
            available("deploy", "deploy", 100),
            available("deploy", "write_image", 80),
            available("deploy", "boot_instance", 20),
        ],
        agent_interfaces: vec![InterfaceKind::Deploy],
    })
}

/// The steps of driver and agent.
fn all_steps() -> ActionOutcome {
    ActionOutcome::StepsListed(AvailableSteps::all(vec![
        available("deploy", "deploy", 100),
        available("deploy", "write_image", 80),
        available("deploy", "boot_instance", 20),
        available("deploy", "burn_in", 50),
        available("deploy", "inject_files", 0),
        available("raid", "apply", 0),
    ]))
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_secs(1_000_000 + seconds)
}

#[test]
fn agent_steps_are_added_when_the_agent_runs() {
    let mut harness = JobHarness::new(ProvisionState::Available)
        .with_outcome("list deploy steps", driver_steps())
        .with_outcome("run deploy step deploy.deploy", WAIT_FOR_AGENT)
        .with_outcome("poll deploy step deploy.deploy", all_steps())
        .with_outcome("run deploy step deploy.write_image", poll_agent_at(at(20)))
        .with_outcome("poll deploy step deploy.write_image", poll_agent_at(at(40)));
    let requested = step("deploy", "inject_files", 60);
    check(
        harness.request(Verb::Active, &[requested]).heartbeat().heartbeat().later(40),
        expect![[r#"
            > active
            available -> deploying (deploy)
            prepare deployment
            list deploy steps
            run deploy step deploy.deploy
            deploying -> wait call-back (wait)
            waits for agent heartbeat, next action in 600 s, timeout in 1800 s
            > heartbeat
            boot result: method of the plan worked: true
            poll deploy step deploy.deploy
            wait call-back -> deploying (resume)
            run deploy step deploy.write_image
            deploying -> wait call-back (wait)
            waits for agent step, next action in 20 s
            > heartbeat
            > 40 s later
            poll deploy step deploy.write_image
            wait call-back -> deploying (resume)
            run deploy step deploy.inject_files
            run deploy step deploy.burn_in
            run deploy step deploy.boot_instance
            deploying -> active (done)
            = active
        "#]],
    );
}

#[test]
fn unknown_step_fails_the_deployment_once_all_steps_are_listed() {
    let mut harness = JobHarness::new(ProvisionState::Available)
        .with_outcome("list deploy steps", driver_steps())
        .with_outcome("run deploy step deploy.deploy", WAIT_FOR_AGENT)
        .with_outcome("poll deploy step deploy.deploy", all_steps());
    let requested = step("deploy", "no_such_step", 60);
    check(
        harness.request(Verb::Active, &[requested]).heartbeat(),
        expect![[r#"
            > active
            available -> deploying (deploy)
            prepare deployment
            list deploy steps
            run deploy step deploy.deploy
            deploying -> wait call-back (wait)
            waits for agent heartbeat, next action in 600 s, timeout in 1800 s
            > heartbeat
            boot result: method of the plan worked: true
            poll deploy step deploy.deploy
            wait call-back -> deploy failed (fail)
            clean up deployment
            = deploy failed -> active, last error: node has no deploy step deploy.no_such_step; available steps: deploy.deploy, deploy.write_image, deploy.boot_instance, deploy.burn_in, deploy.inject_files, raid.apply
        "#]],
    );
}

#[test]
fn unreachable_agent_is_retried_until_the_timeout() {
    let no_response = || {
        ActionOutcome::Unreachable(
            UnreachablePeer::Agent,
            ActionFailure::new("the agent does not respond"),
        )
    };
    let mut harness = JobHarness::new(ProvisionState::Available)
        .with_outcome("list deploy steps", driver_steps())
        .with_outcome("run deploy step deploy.deploy", WAIT_FOR_AGENT)
        .with_outcome("poll deploy step deploy.deploy", all_steps())
        .with_outcome("run deploy step deploy.write_image", poll_agent_at(at(20)));
    for _ in 0..30 {
        harness = harness.with_outcome("poll deploy step deploy.write_image", no_response());
    }
    harness.settings.bmc_timeout_in_jobs = 3;
    check(
        harness.request(Verb::Active, &[]).heartbeat().later(20).later(1).later(1).later(1),
        expect![[r#"
            > active
            available -> deploying (deploy)
            prepare deployment
            list deploy steps
            run deploy step deploy.deploy
            deploying -> wait call-back (wait)
            waits for agent heartbeat, next action in 600 s, timeout in 1800 s
            > heartbeat
            boot result: method of the plan worked: true
            poll deploy step deploy.deploy
            wait call-back -> deploying (resume)
            run deploy step deploy.write_image
            deploying -> wait call-back (wait)
            waits for agent step, next action in 20 s
            > 20 s later
            poll deploy step deploy.write_image FAILED: the agent does not respond
            waits for agent response, next action in 0 s, timeout in 3 s
            > 1 s later
            poll deploy step deploy.write_image FAILED: the agent does not respond
            > 1 s later
            > 1 s later
            poll deploy step deploy.write_image FAILED: the agent does not respond
            wait call-back -> deploy failed (fail)
            clean up deployment
            = deploy failed -> active, last error: the agent does not respond (failed after 3 attempts in 3 s)
        "#]],
    );
}

#[test]
fn failed_agent_step_fails_the_job() {
    let mut harness = JobHarness::new(ProvisionState::Available)
        .with_outcome("list deploy steps", driver_steps())
        .with_outcome("run deploy step deploy.deploy", WAIT_FOR_AGENT)
        .with_outcome("poll deploy step deploy.deploy", all_steps())
        .with_outcome("run deploy step deploy.write_image", poll_agent_at(at(20)))
        .with_outcome("poll deploy step deploy.write_image", failed("the image is too large"));
    check(
        harness.request(Verb::Active, &[]).heartbeat().heartbeat(),
        expect![[r#"
            > active
            available -> deploying (deploy)
            prepare deployment
            list deploy steps
            run deploy step deploy.deploy
            deploying -> wait call-back (wait)
            waits for agent heartbeat, next action in 600 s, timeout in 1800 s
            > heartbeat
            boot result: method of the plan worked: true
            poll deploy step deploy.deploy
            wait call-back -> deploying (resume)
            run deploy step deploy.write_image
            deploying -> wait call-back (wait)
            waits for agent step, next action in 20 s
            > heartbeat
            poll deploy step deploy.write_image FAILED: the image is too large
            wait call-back -> deploy failed (fail)
            clean up deployment
            = deploy failed -> active, last error: the image is too large
        "#]],
    );
}

#[test]
fn heartbeats_in_maintenance_are_evaluated_afterwards() {
    let mut harness = JobHarness::new(ProvisionState::Available)
        .with_outcome("list deploy steps", driver_steps())
        .with_outcome("run deploy step deploy.deploy", WAIT_FOR_AGENT)
        .with_outcome("poll deploy step deploy.deploy", all_steps());
    harness.request(Verb::Active, &[]);
    harness.node.maintenance = true;
    harness.heartbeat();
    assert_eq!(harness.node.provision_state, ProvisionState::DeployWait, "{}", harness.end());
    assert!(!harness.transcript.contains("poll"), "{}", harness.transcript);
    harness.node.maintenance = false;
    harness.later(0);
    assert_eq!(harness.node.provision_state, ProvisionState::Active, "{}", harness.end());
}
