// SPDX-License-Identifier: Apache-2.0
//! Machines whose agent makes no request are booted again, with other boot methods if there are any,
//! until the callback timeout.

use expect_test::{Expect, expect};
use lifecycle::{Action, ActionOutcome, PendingEntries, SettleResult, record, settle};
use node_model::{
    BOOT_METHOD_KEY, BOOT_METHODS_TRIED_KEY, InterfaceKind, ProvisionState, Timestamp, Verb,
    WaitReason,
};
use serde_json::json;

use crate::support::{JobHarness, WAIT_FOR_AGENT, failed, unreachable};

fn check(harness: &JobHarness, expect: Expect) {
    expect.assert_eq(&harness.end());
}

/// A node in cleaning whose ramdisk is booting.
fn cleaning() -> JobHarness {
    let mut harness = JobHarness::new(ProvisionState::Manageable)
        .with_outcome("prepare cleaning", WAIT_FOR_AGENT);
    harness.node.interfaces.set(InterfaceKind::Boot, Some("ipxe"));
    harness.request(Verb::Provide, &[]);
    harness
}

/// Records the boot method, as the boot interface `automatic` does.
fn set_boot_methods(harness: &mut JobHarness, tried: &[&str]) {
    harness.node.driver_internal_info.set(BOOT_METHOD_KEY, *tried.last().expect("a method"));
    harness.node.driver_internal_info.set(BOOT_METHODS_TRIED_KEY, json!(tried));
}

/// Runs the due boot, with the last method of `tried`.
fn boot_again_with(harness: &mut JobHarness, seconds: i64, tried: &[&str]) {
    harness.now = Timestamp(harness.now.0 + seconds * 1_000_000);
    let result =
        settle(&mut harness.node, &harness.settings, harness.now, &mut PendingEntries::default());
    assert_eq!(result, SettleResult::Act(Action::BootAgain));
    set_boot_methods(harness, tried);
    let outcome = WAIT_FOR_AGENT;
    record(&mut harness.node, &Action::BootAgain, &outcome, 0, &harness.settings, harness.now);
    harness.run();
}

/// Seconds until the deadline, which `due_at` and the wait agree about.
fn seconds_until_due(harness: &JobHarness) -> u64 {
    let due = harness.node.due_at.expect("a due time");
    assert_eq!(harness.node.wait.expect("a wait").due_at(), Some(due));
    due.since(harness.now).as_secs()
}

#[test]
fn boots_again_until_the_callback_timeout() {
    let mut harness = cleaning();
    check(
        harness.later(599).later(1).later(600).later(599).later(1),
        expect![[r#"
            > provide
            manageable -> cleaning (provide)
            prepare cleaning
            cleaning -> clean wait (wait)
            waits for agent heartbeat, next action in 600 s, timeout in 1800 s
            > 599 s later
            > 1 s later
            boot again
            boot: no request from the agent within 600 s after booting by ipxe; booting again by ipxe
            boot result: method of the plan worked: false
            > 600 s later
            boot again
            boot: no request from the agent within 600 s after booting by ipxe; booting again by ipxe
            > 599 s later
            > 1 s later
            clean wait -> clean failed (fail)
            tear down cleaning
            = clean failed -> available, last error: Timeout reached while waiting for callback for node 00000000-0000-0000-0000-000000000000: no heartbeat from the agent after the machine was booted 3 times; tried: ipxe; check the machine's console and its timeline to find out how far it booted
        "#]],
    );
}

#[test]
fn does_not_boot_again_after_a_heartbeat() {
    let mut harness = cleaning();
    check(
        harness.later(600).later(599).heartbeat(),
        expect![[r#"
            > provide
            manageable -> cleaning (provide)
            prepare cleaning
            cleaning -> clean wait (wait)
            waits for agent heartbeat, next action in 600 s, timeout in 1800 s
            > 600 s later
            boot again
            boot: no request from the agent within 600 s after booting by ipxe; booting again by ipxe
            boot result: method of the plan worked: false
            > 599 s later
            > heartbeat
            boot result: method of the plan worked: true
            clean wait -> cleaning (resume)
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
fn does_not_boot_again_after_a_lookup() {
    let mut harness = cleaning();
    harness.later(10).lookup();
    assert_eq!(seconds_until_due(&harness), 1790);
    harness.later(1789);
    assert_eq!(harness.node.provision_state, ProvisionState::CleanWait);
    harness.later(1);
    assert_eq!(harness.node.provision_state, ProvisionState::CleanFail);
    assert!(
        !harness.transcript.contains("boot again") && !harness.transcript.contains("worked: false")
    );
}

#[test]
fn another_boot_method_restarts_the_callback_timeout() {
    let mut harness = JobHarness::new(ProvisionState::Manageable)
        .with_outcome("prepare cleaning", WAIT_FOR_AGENT);
    set_boot_methods(&mut harness, &["virtual media"]);
    harness.request(Verb::Provide, &[]);
    boot_again_with(&mut harness, 600, &["virtual media", "http"]);
    boot_again_with(&mut harness, 600, &["virtual media", "http", "ipxe"]);
    // No other method is left: the last one is repeated until the timeout.
    check(
        harness.later(600).later(600).later(599).later(1),
        expect![[r#"
            > provide
            manageable -> cleaning (provide)
            prepare cleaning
            cleaning -> clean wait (wait)
            waits for agent heartbeat, next action in 600 s, timeout in 1800 s
            > 600 s later
            boot again
            boot: no request from the agent within 600 s after booting by ipxe; booting again by ipxe
            boot result: ipxe worked: false
            > 600 s later
            boot again
            boot: no request from the agent within 600 s after booting by ipxe; booting again by ipxe
            > 599 s later
            > 1 s later
            clean wait -> clean failed (fail)
            tear down cleaning
            = clean failed -> available, last error: Timeout reached while waiting for callback for node 00000000-0000-0000-0000-000000000000: no heartbeat from the agent after the machine was booted 5 times; tried: virtual media, http, ipxe; check the machine's console and its timeline to find out how far it booted
        "#]],
    );
}

#[test]
fn due_time_is_the_earlier_of_boot_retry_and_callback_timeout() {
    for (retry, callback, due_in) in
        [(600, 1800, 600), (0, 1800, 1800), (1800, 1800, 1800), (600, 300, 300), (600, 0, 600)]
    {
        let mut harness =
            JobHarness::new(ProvisionState::Manageable).with_outcome("inspect", WAIT_FOR_AGENT);
        harness.settings.boot_retry_timeout = retry;
        harness.settings.inspect_wait_timeout = callback;
        harness.request(Verb::Inspect, &[]);
        assert_eq!(seconds_until_due(&harness), due_in, "{retry} {callback}");
        assert_eq!(harness.node.wait.unwrap().reason, WaitReason::InspectionData);
    }
}

#[test]
fn deployment_boots_again_only_in_the_step_that_boots_the_agent() {
    let mut harness = JobHarness::new(ProvisionState::Available)
        .with_outcome("run deploy step deploy.deploy", WAIT_FOR_AGENT)
        .with_outcome("poll deploy step deploy.deploy", WAIT_FOR_AGENT);
    harness.request(Verb::Active, &[]);
    assert_eq!(seconds_until_due(&harness), 600);
    harness.later(600);
    assert!(harness.transcript.contains("boot again"), "{}", harness.transcript);
    // The agent runs: only the callback timeout applies between heartbeats.
    harness.heartbeat();
    assert_eq!(seconds_until_due(&harness), 1800);
}

#[test]
fn does_not_boot_again_in_maintenance() {
    let mut harness = cleaning();
    harness.node.maintenance = true;
    harness.later(700);
    assert!(!harness.transcript.contains("boot again") && harness.node.due_at.is_none());
    harness.node.maintenance = false;
    harness.later(0);
    assert!(harness.transcript.contains("boot again"), "{}", harness.transcript);
}

#[test]
fn job_fails_if_booting_again_fails() {
    let mut harness = cleaning().with_outcome("boot again", failed("the BMC has no power"));
    check(
        harness.later(600),
        expect![[r#"
            > provide
            manageable -> cleaning (provide)
            prepare cleaning
            cleaning -> clean wait (wait)
            waits for agent heartbeat, next action in 600 s, timeout in 1800 s
            > 600 s later
            boot again FAILED: the BMC has no power
            clean wait -> clean failed (fail)
            boot result: method of the plan worked: false
            tear down cleaning
            = clean failed -> available, last error: no request from the agent within 600 s, and booting the machine again failed: the BMC has no power
        "#]],
    );
}

#[test]
fn retries_an_unreachable_bmc_and_still_accepts_heartbeats() {
    let mut harness = cleaning().with_outcome("boot again", unreachable("no route"));
    harness.later(600);
    let retry = harness.node.work.as_ref().unwrap().retry.clone().unwrap();
    assert_eq!(harness.node.due_at, Some(retry.at));
    assert_eq!(harness.node.wait.unwrap().reason, WaitReason::AgentHeartbeat);
    let mut confirmed = cleaning().with_outcome("boot again", unreachable("no route"));
    confirmed.later(600).heartbeat();
    assert_eq!(confirmed.node.provision_state, ProvisionState::Available);
    assert_eq!(confirmed.node.last_error, None);
    check(
        harness.later(1),
        expect![[r#"
            > provide
            manageable -> cleaning (provide)
            prepare cleaning
            cleaning -> clean wait (wait)
            waits for agent heartbeat, next action in 600 s, timeout in 1800 s
            > 600 s later
            boot again FAILED: no route
            > 1 s later
            boot again
            boot: no request from the agent within 600 s after booting by ipxe; booting again by ipxe
            boot result: method of the plan worked: false
            = clean wait -> available, working: clean
        "#]],
    );
}

#[test]
fn events_during_another_boot_take_precedence() {
    let begin = |verb: Verb| {
        let mut harness = JobHarness::new(ProvisionState::Manageable)
            .with_outcome("inspect", WAIT_FOR_AGENT)
            .with_outcome("prepare cleaning", WAIT_FOR_AGENT);
        harness.request(verb, &[]);
        harness.now = Timestamp(harness.now.0 + 600_000_000);
        let result = settle(
            &mut harness.node,
            &harness.settings,
            harness.now,
            &mut PendingEntries::default(),
        );
        assert_eq!(result, SettleResult::Act(Action::BootAgain));
        harness
    };
    let end = |harness: &mut JobHarness, outcome: &ActionOutcome| {
        record(&mut harness.node, &Action::BootAgain, outcome, 0, &harness.settings, harness.now);
        harness.run();
    };
    for outcome in [ActionOutcome::DONE, failed("no power"), unreachable("no route")] {
        let mut harness = begin(Verb::Inspect);
        lifecycle::inspection_data_received(
            &mut harness.node,
            harness.now,
            &mut PendingEntries::default(),
        );
        end(&mut harness, &outcome);
        assert_eq!(harness.node.provision_state, ProvisionState::Manageable);

        let mut harness = begin(Verb::Provide);
        harness.try_request(Verb::Abort, &[]).unwrap();
        end(&mut harness, &outcome);
        assert_eq!(harness.node.provision_state, ProvisionState::CleanFail);
        assert!(harness.transcript.contains("tear down cleaning"), "{}", harness.transcript);
    }
    // The agent that sent the heartbeat was powered off with the machine: another one is needed.
    let mut harness = begin(Verb::Provide);
    lifecycle::confirm_boot(&mut harness.node, &mut PendingEntries::default());
    lifecycle::heartbeat_received(&mut harness.node, harness.now);
    end(&mut harness, &ActionOutcome::DONE);
    assert_eq!(harness.node.provision_state, ProvisionState::CleanWait);
    harness.heartbeat();
    assert_eq!(harness.node.provision_state, ProvisionState::Available);
}

/// A stale agent of a failed job is cleared although fast track is on: the agent that the next job
/// boots may have another address and would be rejected.
#[test]
fn clears_a_stale_agent_of_a_failed_job() {
    let provide_after = |seconds: i64| {
        let mut harness = JobHarness::new(ProvisionState::CleanFail)
            .with_outcome("prepare cleaning", WAIT_FOR_AGENT);
        harness.settings.fast_track = true;
        harness.node.agent.last_heartbeat = Some(harness.now);
        harness.node.agent.url = Some("https://192.0.2.1:9999".to_owned());
        harness.node.agent.has_token = true;
        harness.later(seconds).request(Verb::Manage, &[]);
        harness.try_request(Verb::Provide, &[]).expect("cleaning is accepted");
        harness
    };
    let known =
        |harness: &JobHarness| (harness.node.agent.url.is_some(), harness.node.agent.has_token);
    // Its last heartbeat is too old.
    assert_eq!(known(&provide_after(300)), (false, false));
    assert_eq!(known(&provide_after(299)), (true, true));
}

/// The end of an agent is recorded when the action is done. If the action booted a new agent, that one
/// may have made a request already.
#[test]
fn keeps_an_agent_that_called_before_its_boot_was_recorded() {
    let began = Timestamp::from_secs(1_000);
    for (replaced_at, is_known) in [(None, false), (Some(999), false), (Some(1_001), true)] {
        let mut harness = cleaning();
        harness.node.agent.url = Some("https://192.0.2.1:9999".to_owned());
        harness.node.agent.has_token = true;
        harness.node.agent.replaced_at = replaced_at.map(Timestamp::from_secs);
        lifecycle::agent_stopped(&mut harness.node, began, &mut PendingEntries::default());
        assert_eq!(harness.node.agent.url.is_some(), is_known, "{replaced_at:?}");
        assert_eq!(harness.node.agent.has_token, is_known, "{replaced_at:?}");
    }
}
