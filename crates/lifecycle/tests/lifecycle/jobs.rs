// SPDX-License-Identifier: Apache-2.0
//! Every job, played through: what is done, in which states, and where it ends.

use expect_test::{Expect, expect};
use lifecycle::Outcome;
use node_model::{ProvisionState, Timestamp, Verb};

use crate::support::{Bench, failed, step, step_with, unreachable};

fn check(bench: &Bench, expect: Expect) {
    expect.assert_eq(&bench.end());
}

#[test]
fn manage() {
    let mut bench = Bench::new(ProvisionState::Enroll);
    check(
        bench.ask(Verb::Manage, &[]),
        expect![[r#"
        > manage
        enroll -> verifying (manage)
        check power
        list verify steps
        read hardware
        verifying -> manageable (done)
        = manageable
    "#]],
    );
}

#[test]
fn manage_with_a_bmc_that_refuses() {
    let mut bench =
        Bench::new(ProvisionState::Enroll).answer("check power", failed("wrong password"));
    check(
        bench.ask(Verb::Manage, &[]),
        expect![[r#"
        > manage
        enroll -> verifying (manage)
        check power FAILED: wrong password
        verifying -> enroll (fail)
        = enroll, last error: wrong password
    "#]],
    );
}

#[test]
fn manage_with_a_bmc_that_does_not_answer_at_first() {
    let mut bench = Bench::new(ProvisionState::Enroll)
        .answer("check power", unreachable("no route"))
        .answer("check power", unreachable("no route"));
    bench.ask(Verb::Manage, &[]);
    assert!(bench.node.last_error.as_ref().unwrap().starts_with("no route (next try at "));
    check(
        bench.later(1).later(2),
        expect![[r#"
        > manage
        enroll -> verifying (manage)
        check power FAILED: no route
        waits for BMC answer, 0 s
        > 1 s later
        check power FAILED: no route
        > 2 s later
        check power
        list verify steps
        read hardware
        verifying -> manageable (done)
        = manageable
    "#]],
    );
}

#[test]
fn manage_with_a_bmc_that_never_answers() {
    let mut bench = Bench::new(ProvisionState::Enroll);
    for _ in 0..20 {
        bench = bench.answer("check power", unreachable("no route"));
    }
    bench.ask(Verb::Manage, &[]);
    for _ in 0..30 {
        bench.later(1);
    }
    assert_eq!(bench.node.provision_state, ProvisionState::Enroll);
    let error = bench.node.last_error.unwrap();
    assert!(
        error.starts_with("no route (given up after ") && error.ends_with("in 30 s)"),
        "{error}"
    );
}

#[test]
fn a_step_goes_on_after_its_bmc_was_away() {
    let mut bench = Bench::new(ProvisionState::Manageable)
        .answer("run clean step vendor.first", Outcome::AwaitUntil(Timestamp::from_secs(1_000_010)))
        .answer("poll clean step vendor.first", unreachable("BMC restarts"));
    check(
        bench.ask(Verb::Provide, &[]).later(10).later(1),
        expect![[r#"
            > provide
            manageable -> cleaning (provide)
            prepare cleaning
            list clean steps
            run clean step vendor.first
            cleaning -> clean wait (wait)
            waits for wait step, 10 s
            > 10 s later
            poll clean step vendor.first FAILED: BMC restarts
            waits for BMC answer, 0 s
            > 1 s later
            poll clean step vendor.first
            clean wait -> cleaning (resume)
            run clean step deploy.erase_devices
            tear down cleaning
            cleaning -> available (done)
            = available
        "#]],
    );
}

#[test]
fn a_bmc_that_is_away_while_a_failure_is_cleared_up_does_not_hide_the_failure() {
    let mut bench = Bench::new(ProvisionState::Available)
        .answer("run deploy step", failed("disk on fire"))
        .answer("clean up", unreachable("BMC restarts"));
    bench.ask(Verb::Active, &[]).later(1);
    assert_eq!(bench.node.provision_state, ProvisionState::DeployFail);
    assert_eq!(bench.node.last_error.as_deref(), Some("disk on fire"));
    assert!(bench.story.contains("BMC restarts"), "{}", bench.story);
}

#[test]
fn provide_cleans() {
    let mut bench = Bench::new(ProvisionState::Manageable);
    check(
        bench.ask(Verb::Provide, &[]),
        expect![[r#"
        > provide
        manageable -> cleaning (provide)
        prepare cleaning
        list clean steps
        run clean step vendor.first
        run clean step deploy.erase_devices
        tear down cleaning
        cleaning -> available (done)
        = available
    "#]],
    );
}

#[test]
fn provide_without_cleaning() {
    let mut bench = Bench::new(ProvisionState::Manageable);
    bench.node.automated_clean = Some(false);
    check(
        bench.ask(Verb::Provide, &[]),
        expect![[r#"
        > provide
        manageable -> cleaning (provide)
        cleaning -> available (done)
        = available
    "#]],
    );
}

#[test]
fn deploy_and_tear_down() {
    let mut bench = Bench::new(ProvisionState::Available);
    bench.ask(Verb::Active, &[]);
    bench.node.retired = true;
    check(
        bench.ask(Verb::Deleted, &[]),
        expect![[r#"
        > active
        available -> deploying (deploy)
        prepare deployment
        list deploy steps
        run deploy step deploy.deploy
        deploying -> active (done)
        > deleted
        active -> deleting (delete)
        tear down
        deleting -> cleaning (clean)
        prepare cleaning
        list clean steps
        run clean step vendor.first
        run clean step deploy.erase_devices
        tear down cleaning
        cleaning -> manageable (manage)
        = manageable
    "#]],
    );
}

#[test]
fn a_failed_deploy_is_cleaned_up_and_can_be_tried_again() {
    let mut bench =
        Bench::new(ProvisionState::Available).answer("run deploy step", failed("disk too small"));
    bench.ask(Verb::Active, &[]);
    check(
        bench.ask(Verb::Active, &[]),
        expect![[r#"
        > active
        available -> deploying (deploy)
        prepare deployment
        list deploy steps
        run deploy step deploy.deploy FAILED: disk too small
        deploying -> deploy failed (fail)
        clean up deployment
        > active
        deploy failed -> deploying (deploy)
        prepare deployment
        list deploy steps
        run deploy step deploy.deploy
        deploying -> active (done)
        = active
    "#]],
    );
}

#[test]
fn clean_steps_wait_for_the_agent() {
    let mut bench = Bench::new(ProvisionState::Manageable)
        .answer("prepare cleaning", Outcome::AwaitAgent)
        .answer("run clean step deploy.erase_devices", Outcome::AwaitAgent)
        .answer("poll clean step deploy.erase_devices", Outcome::AwaitAgent);
    bench.ask(Verb::Provide, &[]).heartbeat().later(60).heartbeat().later(60).heartbeat();
    check(
        &bench,
        expect![[r#"
            > provide
            manageable -> cleaning (provide)
            prepare cleaning
            cleaning -> clean wait (wait)
            waits for agent heartbeat, 600 s
            > heartbeat
            remember: the plan's way worked: true
            clean wait -> cleaning (resume)
            list clean steps
            run clean step vendor.first
            run clean step deploy.erase_devices
            cleaning -> clean wait (wait)
            waits for agent heartbeat, 1800 s
            > 60 s later
            > heartbeat
            > 60 s later
            > heartbeat
            poll clean step deploy.erase_devices
            clean wait -> cleaning (resume)
            tear down cleaning
            cleaning -> available (done)
            = available
        "#]],
    );
}

#[test]
fn a_silent_agent_fails_the_clean_step_and_is_a_fault() {
    let mut bench = Bench::new(ProvisionState::Manageable)
        .answer("run clean step vendor.first", Outcome::AwaitAgent);
    bench.ask(Verb::Provide, &[]).later(1799).later(1);
    check(
        &bench,
        expect![[r#"
            > provide
            manageable -> cleaning (provide)
            prepare cleaning
            list clean steps
            run clean step vendor.first
            cleaning -> clean wait (wait)
            waits for agent heartbeat, 600 s
            > 1799 s later
            boot again
            boot: the agent did not call within 600 s of booting by its boot interface; booting again by its boot interface
            remember: the plan's way worked: false
            > 1 s later
            clean wait -> clean failed (fail)
            maintenance: Some("clean failure")
            tear down cleaning
            = clean failed -> available, last error: Timeout reached while waiting for callback for node 00000000-0000-0000-0000-000000000000: the agent did not call after the machine was booted 2 times; tried: its boot interface; look at the machine's console and at its timeline to see how far it booted
        "#]],
    );
}

#[test]
fn maintenance_stops_the_clock() {
    let mut bench =
        Bench::new(ProvisionState::Manageable).answer("prepare cleaning", Outcome::AwaitAgent);
    bench.ask(Verb::Provide, &[]);
    bench.node.maintenance = true;
    bench.later(100_000);
    check(
        &bench,
        expect![[r#"
            > provide
            manageable -> cleaning (provide)
            prepare cleaning
            cleaning -> clean wait (wait)
            waits for agent heartbeat, 600 s
            > 100000 s later
            = clean wait -> available, working: clean
        "#]],
    );
}

#[test]
fn abort_waits_for_a_step_that_must_not_be_interrupted() {
    let mut bench = Bench::new(ProvisionState::Manageable)
        .answer("run clean step vendor.first", Outcome::AwaitAgent);
    bench.ask(Verb::Provide, &[]).ask(Verb::Abort, &[]).heartbeat();
    check(
        &bench,
        expect![[r#"
            > provide
            manageable -> cleaning (provide)
            prepare cleaning
            list clean steps
            run clean step vendor.first
            cleaning -> clean wait (wait)
            waits for agent heartbeat, 600 s
            > abort
            > heartbeat
            remember: the plan's way worked: true
            poll clean step vendor.first
            clean wait -> clean failed (abort)
            tear down cleaning
            = clean failed -> available, last error: By request, the clean operation was aborted.
        "#]],
    );
}

#[test]
fn abort_of_a_hold() {
    let mut bench = Bench::new(ProvisionState::Manageable);
    bench.ask(Verb::Clean, &[step("power", "hold", 0), step("raid", "create", 0)]);
    bench.ask(Verb::Abort, &[]);
    check(
        &bench,
        expect![[r#"
        > clean
        manageable -> cleaning (clean)
        prepare cleaning
        list clean steps
        cleaning -> clean hold (hold)
        waits for hold
        > abort
        clean hold -> clean failed (abort)
        tear down cleaning
        = clean failed -> manageable, last error: By request, the manual clean operation was aborted.
    "#]],
    );
}

#[test]
fn manual_clean_with_reserved_steps() {
    let mut bench = Bench::new(ProvisionState::Manageable);
    let steps = [
        step("power", "power_off", 0),
        step_with("deploy", "wait", r#"{"seconds":5}"#),
        step("deploy", "hold", 0),
        step("raid", "create", 0),
    ];
    bench.ask(Verb::Clean, &steps).later(5).ask(Verb::Unhold, &[]);
    check(
        &bench,
        expect![[r#"
            > clean
            manageable -> cleaning (clean)
            prepare cleaning
            list clean steps
            run clean step power.power_off
            power: Some("power off")
            cleaning -> clean wait (wait)
            waits for wait step, 5 s
            > 5 s later
            clean wait -> cleaning (resume)
            cleaning -> clean hold (hold)
            waits for hold
            > unhold
            clean hold -> clean wait (unhold)
            clean wait -> cleaning (resume)
            run clean step raid.create
            tear down cleaning
            cleaning -> manageable (manage)
            = manageable
        "#]],
    );
}

#[test]
fn after_unhold_a_listening_agent_is_waited_for() {
    let mut bench = Bench::new(ProvisionState::Manageable);
    bench.ask(Verb::Clean, &[step("deploy", "hold", 0)]);
    bench.node.agent.url = Some("https://192.0.2.1:9999".to_owned());
    bench.ask(Verb::Unhold, &[]).heartbeat();
    check(
        &bench,
        expect![[r#"
        > clean
        manageable -> cleaning (clean)
        prepare cleaning
        list clean steps
        cleaning -> clean hold (hold)
        waits for hold
        > unhold
        clean hold -> clean wait (unhold)
        > heartbeat
        clean wait -> cleaning (resume)
        tear down cleaning
        cleaning -> manageable (manage)
        = manageable
    "#]],
    );
}

#[test]
fn unknown_manual_step() {
    let mut bench = Bench::new(ProvisionState::Manageable);
    check(
        bench.ask(Verb::Clean, &[step("raid", "destroy", 0)]),
        expect![[r#"
        > clean
        manageable -> cleaning (clean)
        prepare cleaning
        list clean steps
        cleaning -> clean failed (fail)
        tear down cleaning
        = clean failed -> manageable, last error: node has no clean step raid.destroy; it offers: deploy.erase_devices, raid.create, vendor.first
    "#]],
    );
}

#[test]
fn inspect_out_of_band() {
    let mut bench = Bench::new(ProvisionState::Manageable);
    check(
        bench.ask(Verb::Inspect, &[]),
        expect![[r#"
            > inspect
            manageable -> inspecting (inspect)
            inspect
            finish inspection
            inspecting -> manageable (done)
            = manageable
        "#]],
    );
}

#[test]
fn inspect_in_band_until_data_or_timeout() {
    let mut bench = Bench::new(ProvisionState::Manageable)
        .answer("inspect", Outcome::AwaitAgent)
        .answer("inspect", Outcome::AwaitAgent);
    bench.ask(Verb::Inspect, &[]);
    let mut ledger = lifecycle::Ledger::default();
    assert!(lifecycle::hear_inspection_data(&mut bench.node, bench.now, &mut ledger));
    bench.run();
    bench.ask(Verb::Inspect, &[]).later(1800);
    check(
        &bench,
        expect![[r#"
            > inspect
            manageable -> inspecting (inspect)
            inspect
            inspecting -> inspect wait (wait)
            waits for inspection data, 600 s
            finish inspection
            inspecting -> manageable (done)
            > inspect
            manageable -> inspecting (inspect)
            inspect
            inspecting -> inspect wait (wait)
            waits for inspection data, 600 s
            > 1800 s later
            inspect wait -> inspect failed (fail)
            remember: the plan's way worked: false
            abort inspection
            = inspect failed -> manageable, last error: timeout reached while inspecting node 00000000-0000-0000-0000-000000000000: the ramdisk sent no data; look at the machine's console and at its timeline to see how far it booted
        "#]],
    );
}

#[test]
fn rescue_and_unrescue() {
    let mut bench = Bench::new(ProvisionState::Active).answer("rescue", Outcome::AwaitAgent);
    bench.ask(Verb::Rescue, &[]).heartbeat().ask(Verb::Unrescue, &[]);
    check(
        &bench,
        expect![[r#"
            > rescue
            active -> rescuing (rescue)
            rescue
            rescuing -> rescue wait (wait)
            waits for agent heartbeat, 600 s
            > heartbeat
            remember: the plan's way worked: true
            rescue wait -> rescuing (resume)
            finish rescue
            rescuing -> rescue (done)
            > unrescue
            rescue -> unrescuing (unrescue)
            unrescue
            unrescuing -> active (done)
            = active
        "#]],
    );
}

#[test]
fn rescue_aborted() {
    let mut bench = Bench::new(ProvisionState::Active)
        .answer("rescue", Outcome::AwaitAgent)
        .answer("clean up rescue", failed("network gone"));
    bench.ask(Verb::Rescue, &[]).ask(Verb::Abort, &[]);
    check(
        &bench,
        expect![[r#"
            > rescue
            active -> rescuing (rescue)
            rescue
            rescuing -> rescue wait (wait)
            waits for agent heartbeat, 600 s
            > abort
            rescue wait -> rescue failed (abort)
            clean up rescue FAILED: network gone
            maintenance: Some("rescue abort failure")
            = rescue failed -> rescue, last error: By request, the rescue operation was aborted.
        "#]],
    );
}

#[test]
fn adopt_fails_then_works() {
    let mut bench =
        Bench::new(ProvisionState::Manageable).answer("adopt", failed("no image given"));
    bench.ask(Verb::Adopt, &[]).ask(Verb::Adopt, &[]);
    check(
        &bench,
        expect![[r#"
        > adopt
        manageable -> adopting (adopt)
        adopt FAILED: no image given
        adopting -> adopt failed (fail)
        > adopt
        adopt failed -> adopting (adopt)
        adopt
        adopting -> active (done)
        = active
    "#]],
    );
}

#[test]
fn service_and_its_abort() {
    let mut bench = Bench::new(ProvisionState::Active).answer(
        "run service step raid.create",
        Outcome::AwaitUntil(Timestamp::from_secs(1_000_030)),
    );
    bench.ask(Verb::Service, &[step("raid", "create", 0)]).later(30);
    bench.ask(Verb::Service, &[step("x", "hold", 0)]).ask(Verb::Abort, &[]);
    check(
        &bench,
        expect![[r#"
        > service
        active -> servicing (service)
        prepare service
        list service steps
        run service step raid.create
        servicing -> service wait (wait)
        waits for wait step, 30 s
        > 30 s later
        poll service step raid.create
        service wait -> servicing (resume)
        tear down service
        servicing -> active (done)
        > service
        active -> servicing (service)
        prepare service
        list service steps
        servicing -> service hold (hold)
        waits for hold
        > abort
        service hold -> service failed (abort)
        tear down service
        service failed -> active (abort)
        = active, last error: By request, the service operation was aborted.
    "#]],
    );
}

#[test]
fn service_that_fails_is_left_by_abort() {
    let mut bench = Bench::new(ProvisionState::Active)
        .answer("run service step raid.create", failed("no controller"));
    bench.ask(Verb::Service, &[step("raid", "create", 0)]).ask(Verb::Abort, &[]);
    bench.node.maintenance = false;
    bench.ask(Verb::Abort, &[]);
    check(
        &bench,
        expect![[r#"
        > service
        active -> servicing (service)
        prepare service
        list service steps
        run service step raid.create FAILED: no controller
        servicing -> service failed (fail)
        maintenance: Some("service failure")
        tear down service
        > abort
        refused: node 00000000-0000-0000-0000-000000000000 is in maintenance (no controller); clear it first, then ask for abort again
        > abort
        service failed -> active (abort)
        = active, last error: no controller
    "#]],
    );
}

#[test]
fn tear_down_that_fails_still_forgets_the_instance() {
    let mut bench =
        Bench::new(ProvisionState::Active).answer("tear down", failed("switch unreachable"));
    bench.node.instance_uuid = Some(uuid::Uuid::nil());
    bench.ask(Verb::Deleted, &[]);
    assert_eq!(bench.node.instance_uuid, None);
    check(
        &bench,
        expect![[r#"
        > deleted
        active -> deleting (delete)
        tear down FAILED: switch unreachable
        deleting -> error (fail)
        = error, last error: switch unreachable
    "#]],
    );
}
