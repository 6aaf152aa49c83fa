// SPDX-License-Identifier: Apache-2.0
//! Jobs through the agent: its steps are listed when it is up, and followed to their end.

use expect_test::{Expect, expect};
use lifecycle::{Failure, Offers, Outcome};
use node_model::{InterfaceKind, ProvisionState, Silent, Step, StepOffer, Timestamp, Verb};

use crate::support::{Bench, failed, step};

fn check(bench: &Bench, expect: Expect) {
    expect.assert_eq(&bench.end());
}

fn offer(interface: &str, name: &str, priority: i64) -> StepOffer {
    StepOffer { step: Step::new(interface, name, priority), arguments: (&[]).into() }
}

/// What the driver offers, before the agent was asked.
fn of_driver() -> Outcome {
    Outcome::Offers(Offers {
        known: vec![
            offer("deploy", "deploy", 100),
            offer("deploy", "write_image", 80),
            offer("deploy", "boot_instance", 20),
        ],
        open: vec![InterfaceKind::Deploy],
    })
}

/// What there is when it was.
fn of_both() -> Outcome {
    Outcome::Offers(Offers::all(vec![
        offer("deploy", "deploy", 100),
        offer("deploy", "write_image", 80),
        offer("deploy", "boot_instance", 20),
        offer("deploy", "burn_in", 50),
        offer("deploy", "inject_files", 0),
        offer("raid", "apply", 0),
    ]))
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_secs(1_000_000 + seconds)
}

#[test]
fn steps_of_the_agent_join_those_of_the_driver_when_it_is_up() {
    let mut bench = Bench::new(ProvisionState::Available)
        .answer("list deploy steps", of_driver())
        .answer("run deploy step deploy.deploy", Outcome::AwaitAgent)
        .answer("poll deploy step deploy.deploy", of_both())
        .answer("run deploy step deploy.write_image", Outcome::AwaitStep(at(20)))
        .answer("poll deploy step deploy.write_image", Outcome::AwaitStep(at(40)));
    let asked = step("deploy", "inject_files", 60);
    check(
        bench.ask(Verb::Active, &[asked]).heartbeat().heartbeat().later(40),
        expect![[r#"
            > active
            available -> deploying (deploy)
            prepare deployment
            list deploy steps
            run deploy step deploy.deploy
            deploying -> wait call-back (wait)
            waits for agent heartbeat, 600 s
            > heartbeat
            remember: the plan's way worked: true
            poll deploy step deploy.deploy
            wait call-back -> deploying (resume)
            run deploy step deploy.write_image
            deploying -> wait call-back (wait)
            waits for agent step, 20 s
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
fn a_step_nobody_offers_fails_the_deployment_when_that_is_known() {
    let mut bench = Bench::new(ProvisionState::Available)
        .answer("list deploy steps", of_driver())
        .answer("run deploy step deploy.deploy", Outcome::AwaitAgent)
        .answer("poll deploy step deploy.deploy", of_both());
    let asked = step("deploy", "paint_it_black", 60);
    check(
        bench.ask(Verb::Active, &[asked]).heartbeat(),
        expect![[r#"
        > active
        available -> deploying (deploy)
        prepare deployment
        list deploy steps
        run deploy step deploy.deploy
        deploying -> wait call-back (wait)
        waits for agent heartbeat, 600 s
        > heartbeat
        remember: the plan's way worked: true
        poll deploy step deploy.deploy
        wait call-back -> deploy failed (fail)
        clean up deployment
        = deploy failed -> active, last error: node has no deploy step deploy.paint_it_black; it offers: deploy.deploy, deploy.write_image, deploy.boot_instance, deploy.burn_in, deploy.inject_files, raid.apply
    "#]],
    );
}

#[test]
fn an_agent_that_falls_silent_is_asked_again_and_then_given_up() {
    let silent = || Outcome::Unreachable(Silent::Agent, Failure::new("the agent does not answer"));
    let mut bench = Bench::new(ProvisionState::Available)
        .answer("list deploy steps", of_driver())
        .answer("run deploy step deploy.deploy", Outcome::AwaitAgent)
        .answer("poll deploy step deploy.deploy", of_both())
        .answer("run deploy step deploy.write_image", Outcome::AwaitStep(at(20)));
    for _ in 0..30 {
        bench = bench.answer("poll deploy step deploy.write_image", silent());
    }
    bench.settings.bmc_timeout_in_jobs = 3;
    check(
        bench.ask(Verb::Active, &[]).heartbeat().later(20).later(1).later(1).later(1),
        expect![[r#"
            > active
            available -> deploying (deploy)
            prepare deployment
            list deploy steps
            run deploy step deploy.deploy
            deploying -> wait call-back (wait)
            waits for agent heartbeat, 600 s
            > heartbeat
            remember: the plan's way worked: true
            poll deploy step deploy.deploy
            wait call-back -> deploying (resume)
            run deploy step deploy.write_image
            deploying -> wait call-back (wait)
            waits for agent step, 20 s
            > 20 s later
            poll deploy step deploy.write_image FAILED: the agent does not answer
            waits for agent answer, 0 s
            > 1 s later
            poll deploy step deploy.write_image FAILED: the agent does not answer
            > 1 s later
            > 1 s later
            poll deploy step deploy.write_image FAILED: the agent does not answer
            wait call-back -> deploy failed (fail)
            clean up deployment
            = deploy failed -> active, last error: the agent does not answer (given up after 3 tries in 3 s)
        "#]],
    );
}

#[test]
fn a_step_that_fails_in_the_agent_fails_the_job_at_once() {
    let mut bench = Bench::new(ProvisionState::Available)
        .answer("list deploy steps", of_driver())
        .answer("run deploy step deploy.deploy", Outcome::AwaitAgent)
        .answer("poll deploy step deploy.deploy", of_both())
        .answer("run deploy step deploy.write_image", Outcome::AwaitStep(at(20)))
        .answer("poll deploy step deploy.write_image", failed("the image is too large"));
    check(
        bench.ask(Verb::Active, &[]).heartbeat().heartbeat(),
        expect![[r#"
        > active
        available -> deploying (deploy)
        prepare deployment
        list deploy steps
        run deploy step deploy.deploy
        deploying -> wait call-back (wait)
        waits for agent heartbeat, 600 s
        > heartbeat
        remember: the plan's way worked: true
        poll deploy step deploy.deploy
        wait call-back -> deploying (resume)
        run deploy step deploy.write_image
        deploying -> wait call-back (wait)
        waits for agent step, 20 s
        > heartbeat
        poll deploy step deploy.write_image FAILED: the image is too large
        wait call-back -> deploy failed (fail)
        clean up deployment
        = deploy failed -> active, last error: the image is too large
    "#]],
    );
}

#[test]
fn nothing_goes_on_in_maintenance_and_what_was_heard_counts_afterwards() {
    let mut bench = Bench::new(ProvisionState::Available)
        .answer("list deploy steps", of_driver())
        .answer("run deploy step deploy.deploy", Outcome::AwaitAgent)
        .answer("poll deploy step deploy.deploy", of_both());
    bench.ask(Verb::Active, &[]);
    bench.node.maintenance = true;
    bench.heartbeat();
    assert_eq!(bench.node.provision_state, ProvisionState::DeployWait, "{}", bench.end());
    assert!(!bench.story.contains("poll"), "{}", bench.story);
    bench.node.maintenance = false;
    bench.later(0);
    assert_eq!(bench.node.provision_state, ProvisionState::Active, "{}", bench.end());
}
