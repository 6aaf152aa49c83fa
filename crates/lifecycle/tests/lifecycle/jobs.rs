// SPDX-License-Identifier: Apache-2.0
//! Transcripts of all jobs.

use expect_test::{Expect, expect};
use node_model::{ProvisionState, Timestamp, Verb};

use crate::support::{JobHarness, WAIT_FOR_AGENT, failed, poll_at, step, step_with, unreachable};

fn check(harness: &JobHarness, expect: Expect) {
    expect.assert_eq(&harness.end());
}

#[test]
fn manage() {
    let mut harness = JobHarness::new(ProvisionState::Enroll);
    check(
        harness.request(Verb::Manage, &[]),
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
fn manage_fails_on_bmc_error() {
    let mut harness = JobHarness::new(ProvisionState::Enroll)
        .with_outcome("check power", failed("wrong password"));
    check(
        harness.request(Verb::Manage, &[]),
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
fn manage_retries_while_the_bmc_does_not_respond() {
    let mut harness = JobHarness::new(ProvisionState::Enroll)
        .with_outcome("check power", unreachable("no route"))
        .with_outcome("check power", unreachable("no route"));
    harness.request(Verb::Manage, &[]);
    assert!(harness.node.last_error.as_ref().unwrap().starts_with("no route (next attempt at "));
    check(
        harness.later(1).later(2),
        expect![[r#"
            > manage
            enroll -> verifying (manage)
            check power FAILED: no route
            waits for BMC response, next action in 0 s, timeout in 30 s
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
fn manage_fails_after_the_retry_timeout() {
    let mut harness = JobHarness::new(ProvisionState::Enroll);
    for _ in 0..20 {
        harness = harness.with_outcome("check power", unreachable("no route"));
    }
    harness.request(Verb::Manage, &[]);
    for _ in 0..30 {
        harness.later(1);
    }
    assert_eq!(harness.node.provision_state, ProvisionState::Enroll);
    let error = harness.node.last_error.unwrap();
    assert!(error.starts_with("no route (failed after ") && error.ends_with("in 30 s)"), "{error}");
}

#[test]
fn step_continues_after_the_bmc_was_unreachable() {
    let mut harness = JobHarness::new(ProvisionState::Manageable)
        .with_outcome("run clean step vendor.first", poll_at(Timestamp::from_secs(1_000_010)))
        .with_outcome("poll clean step vendor.first", unreachable("BMC restarts"));
    check(
        harness.request(Verb::Provide, &[]).later(10).later(1),
        expect![[r#"
            > provide
            manageable -> cleaning (provide)
            prepare cleaning
            list clean steps
            run clean step vendor.first
            cleaning -> clean wait (wait)
            waits for BMC step, next action in 10 s
            > 10 s later
            poll clean step vendor.first FAILED: BMC restarts
            waits for BMC response, next action in 0 s, timeout in 300 s
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
fn retries_during_clean_up_do_not_replace_the_error() {
    let mut harness = JobHarness::new(ProvisionState::Available)
        .with_outcome("run deploy step", failed("disk on fire"))
        .with_outcome("clean up", unreachable("BMC restarts"));
    harness.request(Verb::Active, &[]).later(1);
    assert_eq!(harness.node.provision_state, ProvisionState::DeployFail);
    assert_eq!(harness.node.last_error.as_deref(), Some("disk on fire"));
    assert!(harness.transcript.contains("BMC restarts"), "{}", harness.transcript);
}

#[test]
fn provide_runs_automated_cleaning() {
    let mut harness = JobHarness::new(ProvisionState::Manageable);
    check(
        harness.request(Verb::Provide, &[]),
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
fn provide_without_automated_cleaning() {
    let mut harness = JobHarness::new(ProvisionState::Manageable);
    harness.node.automated_clean = Some(false);
    check(
        harness.request(Verb::Provide, &[]),
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
    let mut harness = JobHarness::new(ProvisionState::Available);
    harness.request(Verb::Active, &[]);
    harness.node.retired = true;
    check(
        harness.request(Verb::Deleted, &[]),
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
fn failed_deployment_is_cleaned_up_and_can_be_repeated() {
    let mut harness = JobHarness::new(ProvisionState::Available)
        .with_outcome("run deploy step", failed("disk too small"));
    harness.request(Verb::Active, &[]);
    check(
        harness.request(Verb::Active, &[]),
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
fn clean_steps_wait_for_heartbeats() {
    let mut harness = JobHarness::new(ProvisionState::Manageable)
        .with_outcome("prepare cleaning", WAIT_FOR_AGENT)
        .with_outcome("run clean step deploy.erase_devices", WAIT_FOR_AGENT)
        .with_outcome("poll clean step deploy.erase_devices", WAIT_FOR_AGENT);
    harness.request(Verb::Provide, &[]).heartbeat().later(60).heartbeat().later(60).heartbeat();
    check(
        &harness,
        expect![[r#"
            > provide
            manageable -> cleaning (provide)
            prepare cleaning
            cleaning -> clean wait (wait)
            waits for agent heartbeat, next action in 600 s, timeout in 1800 s
            > heartbeat
            boot result: method of the plan worked: true
            clean wait -> cleaning (resume)
            list clean steps
            run clean step vendor.first
            run clean step deploy.erase_devices
            cleaning -> clean wait (wait)
            waits for agent heartbeat, timeout in 1800 s
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
fn missing_heartbeat_fails_the_clean_step_with_a_fault() {
    let mut harness = JobHarness::new(ProvisionState::Manageable)
        .with_outcome("run clean step vendor.first", WAIT_FOR_AGENT);
    harness.request(Verb::Provide, &[]).later(1799).later(1);
    check(
        &harness,
        expect![[r#"
            > provide
            manageable -> cleaning (provide)
            prepare cleaning
            list clean steps
            run clean step vendor.first
            cleaning -> clean wait (wait)
            waits for agent heartbeat, next action in 600 s, timeout in 1800 s
            > 1799 s later
            boot again
            boot: no request from the agent within 600 s after booting by its boot interface; booting again by its boot interface
            boot result: method of the plan worked: false
            > 1 s later
            clean wait -> clean failed (fail)
            maintenance: Some("clean failure")
            tear down cleaning
            = clean failed -> available, last error: Timeout reached while waiting for callback for node 00000000-0000-0000-0000-000000000000: no heartbeat from the agent after the machine was booted 2 times; tried: its boot interface; check the machine's console and its timeline to find out how far it booted
        "#]],
    );
}

#[test]
fn callback_timeout_does_not_apply_in_maintenance() {
    let mut harness = JobHarness::new(ProvisionState::Manageable)
        .with_outcome("prepare cleaning", WAIT_FOR_AGENT);
    harness.request(Verb::Provide, &[]);
    harness.node.maintenance = true;
    harness.later(100_000);
    check(
        &harness,
        expect![[r#"
            > provide
            manageable -> cleaning (provide)
            prepare cleaning
            cleaning -> clean wait (wait)
            waits for agent heartbeat, next action in 600 s, timeout in 1800 s
            > 100000 s later
            = clean wait -> available, working: clean
        "#]],
    );
}

#[test]
fn abort_waits_for_the_end_of_a_non_abortable_step() {
    let mut harness = JobHarness::new(ProvisionState::Manageable)
        .with_outcome("run clean step vendor.first", WAIT_FOR_AGENT);
    harness.request(Verb::Provide, &[]).request(Verb::Abort, &[]).heartbeat();
    check(
        &harness,
        expect![[r#"
            > provide
            manageable -> cleaning (provide)
            prepare cleaning
            list clean steps
            run clean step vendor.first
            cleaning -> clean wait (wait)
            waits for agent heartbeat, next action in 600 s, timeout in 1800 s
            > abort
            > heartbeat
            boot result: method of the plan worked: true
            poll clean step vendor.first
            clean wait -> clean failed (abort)
            tear down cleaning
            = clean failed -> available, last error: By request, the clean operation was aborted.
        "#]],
    );
}

#[test]
fn abort_ends_a_hold() {
    let mut harness = JobHarness::new(ProvisionState::Manageable);
    harness.request(Verb::Clean, &[step("power", "hold", 0), step("raid", "create", 0)]);
    harness.request(Verb::Abort, &[]);
    check(
        &harness,
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
    let mut harness = JobHarness::new(ProvisionState::Manageable);
    let steps = [
        step("power", "power_off", 0),
        step_with("deploy", "wait", r#"{"seconds":5}"#),
        step("deploy", "hold", 0),
        step("raid", "create", 0),
    ];
    harness.request(Verb::Clean, &steps).later(5).request(Verb::Unhold, &[]);
    check(
        &harness,
        expect![[r#"
            > clean
            manageable -> cleaning (clean)
            prepare cleaning
            list clean steps
            run clean step power.power_off
            power: Some("power off")
            cleaning -> clean wait (wait)
            waits for wait step, next action in 5 s
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
fn unhold_waits_for_a_heartbeat_of_a_known_agent() {
    let mut harness = JobHarness::new(ProvisionState::Manageable);
    harness.request(Verb::Clean, &[step("deploy", "hold", 0)]);
    harness.node.agent.url = Some("https://192.0.2.1:9999".to_owned());
    harness.request(Verb::Unhold, &[]).heartbeat();
    check(
        &harness,
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
fn manual_clean_fails_on_an_unknown_step() {
    let mut harness = JobHarness::new(ProvisionState::Manageable);
    check(
        harness.request(Verb::Clean, &[step("raid", "destroy", 0)]),
        expect![[r#"
        > clean
        manageable -> cleaning (clean)
        prepare cleaning
        list clean steps
        cleaning -> clean failed (fail)
        tear down cleaning
        = clean failed -> manageable, last error: node has no clean step raid.destroy; available steps: deploy.erase_devices, raid.create, vendor.first
    "#]],
    );
}

#[test]
fn inspect_out_of_band() {
    let mut harness = JobHarness::new(ProvisionState::Manageable);
    check(
        harness.request(Verb::Inspect, &[]),
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
fn inspect_in_band_ends_with_data_or_timeout() {
    let mut harness = JobHarness::new(ProvisionState::Manageable)
        .with_outcome("inspect", WAIT_FOR_AGENT)
        .with_outcome("inspect", WAIT_FOR_AGENT);
    harness.request(Verb::Inspect, &[]);
    let mut entries = lifecycle::PendingEntries::default();
    assert!(lifecycle::inspection_data_received(&mut harness.node, harness.now, &mut entries));
    harness.run();
    harness.request(Verb::Inspect, &[]).later(1800);
    check(
        &harness,
        expect![[r#"
            > inspect
            manageable -> inspecting (inspect)
            inspect
            inspecting -> inspect wait (wait)
            waits for inspection data, next action in 600 s, timeout in 1800 s
            finish inspection
            inspecting -> manageable (done)
            > inspect
            manageable -> inspecting (inspect)
            inspect
            inspecting -> inspect wait (wait)
            waits for inspection data, next action in 600 s, timeout in 1800 s
            > 1800 s later
            inspect wait -> inspect failed (fail)
            boot result: method of the plan worked: false
            abort inspection
            = inspect failed -> manageable, last error: timeout reached while inspecting node 00000000-0000-0000-0000-000000000000: the ramdisk sent no data; check the machine's console and its timeline to find out how far it booted
        "#]],
    );
}

#[test]
fn rescue_and_unrescue() {
    let mut harness =
        JobHarness::new(ProvisionState::Active).with_outcome("rescue", WAIT_FOR_AGENT);
    harness.request(Verb::Rescue, &[]).heartbeat().request(Verb::Unrescue, &[]);
    check(
        &harness,
        expect![[r#"
            > rescue
            active -> rescuing (rescue)
            rescue
            rescuing -> rescue wait (wait)
            waits for agent heartbeat, next action in 600 s, timeout in 1800 s
            > heartbeat
            boot result: method of the plan worked: true
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
fn failed_clean_up_of_an_aborted_rescue_is_a_fault() {
    let mut harness = JobHarness::new(ProvisionState::Active)
        .with_outcome("rescue", WAIT_FOR_AGENT)
        .with_outcome("clean up rescue", failed("network gone"));
    harness.request(Verb::Rescue, &[]).request(Verb::Abort, &[]);
    check(
        &harness,
        expect![[r#"
            > rescue
            active -> rescuing (rescue)
            rescue
            rescuing -> rescue wait (wait)
            waits for agent heartbeat, next action in 600 s, timeout in 1800 s
            > abort
            rescue wait -> rescue failed (abort)
            clean up rescue FAILED: network gone
            maintenance: Some("rescue abort failure")
            = rescue failed -> rescue, last error: By request, the rescue operation was aborted.
        "#]],
    );
}

#[test]
fn failed_adoption_can_be_repeated() {
    let mut harness =
        JobHarness::new(ProvisionState::Manageable).with_outcome("adopt", failed("no image given"));
    harness.request(Verb::Adopt, &[]).request(Verb::Adopt, &[]);
    check(
        &harness,
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
fn aborted_service_returns_to_active() {
    let mut harness = JobHarness::new(ProvisionState::Active)
        .with_outcome("run service step raid.create", poll_at(Timestamp::from_secs(1_000_030)));
    harness.request(Verb::Service, &[step("raid", "create", 0)]).later(30);
    harness.request(Verb::Service, &[step("x", "hold", 0)]).request(Verb::Abort, &[]);
    check(
        &harness,
        expect![[r#"
            > service
            active -> servicing (service)
            prepare service
            list service steps
            run service step raid.create
            servicing -> service wait (wait)
            waits for BMC step, next action in 30 s
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
fn abort_leaves_failed_service() {
    let mut harness = JobHarness::new(ProvisionState::Active)
        .with_outcome("run service step raid.create", failed("no controller"));
    harness.request(Verb::Service, &[step("raid", "create", 0)]).request(Verb::Abort, &[]);
    harness.node.maintenance = false;
    harness.request(Verb::Abort, &[]);
    check(
        &harness,
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
            rejected: node 00000000-0000-0000-0000-000000000000 is in maintenance (no controller); clear it first, then request abort again
            > abort
            service failed -> active (abort)
            = active, last error: no controller
        "#]],
    );
}

#[test]
fn failed_tear_down_still_removes_the_instance() {
    let mut harness = JobHarness::new(ProvisionState::Active)
        .with_outcome("tear down", failed("switch unreachable"));
    harness.node.instance_uuid = Some(uuid::Uuid::nil());
    harness.request(Verb::Deleted, &[]);
    assert_eq!(harness.node.instance_uuid, None);
    check(
        &harness,
        expect![[r#"
        > deleted
        active -> deleting (delete)
        tear down FAILED: switch unreachable
        deleting -> error (fail)
        = error, last error: switch unreachable
    "#]],
    );
}

/// A driver that waits for the agent in a state without a waiting state, such as `verifying`, leads
/// to a decision that cannot be applied.
#[test]
fn job_without_progress_fails() {
    let mut harness =
        JobHarness::new(ProvisionState::Enroll).with_outcome("check power", WAIT_FOR_AGENT);
    check(
        harness.request(Verb::Manage, &[]),
        expect![[r#"
        > manage
        enroll -> verifying (manage)
        check power
        verifying -> enroll (fail)
        = enroll, last error: internal error: the verify job makes no progress in state "verifying"; please report this
    "#]],
    );
    assert!(harness.node.work.is_none() && harness.node.due_at.is_none());

    let mut harness =
        JobHarness::new(ProvisionState::Active).with_outcome("tear down", WAIT_FOR_AGENT);
    check(
        harness.request(Verb::Deleted, &[]),
        expect![[r#"
        > deleted
        active -> deleting (delete)
        tear down
        deleting -> error (fail)
        = error, last error: internal error: the tear down job makes no progress in state "deleting"; please report this
    "#]],
    );
    assert!(harness.node.work.is_none() && harness.node.due_at.is_none());
}
