// SPDX-License-Identifier: Apache-2.0
//! A machine whose agent stays silent is booted again, by another way if there is one, until time is
//! up.

use expect_test::{Expect, expect};
use lifecycle::{Action, Ledger, Next, Outcome, record, settle};
use node_model::{
    BOOT_WAY, BOOT_WAYS_TRIED, InterfaceKind, ProvisionState, Timestamp, Verb, WaitReason,
};
use serde_json::json;

use crate::support::{Bench, failed, unreachable};

fn check(bench: &Bench, expect: Expect) {
    expect.assert_eq(&bench.end());
}

/// A machine that is cleaned, and whose ramdisk is on its way.
fn cleaning() -> Bench {
    let mut bench =
        Bench::new(ProvisionState::Manageable).answer("prepare cleaning", Outcome::AwaitAgent);
    bench.node.interfaces.set(InterfaceKind::Boot, Some("ipxe"));
    bench.ask(Verb::Provide, &[]);
    bench
}

/// Writes down by which way the machine boots, as the boot interface `automatic` does.
fn by(bench: &mut Bench, tried: &[&str]) {
    bench.node.driver_internal_info.set(BOOT_WAY, *tried.last().expect("there is one"));
    bench.node.driver_internal_info.set(BOOT_WAYS_TRIED, json!(tried));
}

/// Carries out the boot that is due, by the last way of `tried`.
fn boot_by(bench: &mut Bench, seconds: i64, tried: &[&str]) {
    bench.now = Timestamp(bench.now.0 + seconds * 1_000_000);
    let next = settle(&mut bench.node, &bench.settings, bench.now, &mut Ledger::default());
    assert_eq!(next, Next::Act(Action::BootAgain));
    by(bench, tried);
    let outcome = Outcome::AwaitAgent;
    record(&mut bench.node, &Action::BootAgain, &outcome, 0, &bench.settings, bench.now);
    bench.run();
}

/// Seconds until something happens of itself, which `due_at` and the wait agree about.
fn due(bench: &Bench) -> u64 {
    let due = bench.node.due_at.expect("it is due");
    assert_eq!(bench.node.wait.expect("it waits").until.moment(), Some(due));
    due.since(bench.now).as_secs()
}

#[test]
fn the_machine_is_booted_again_until_the_callback_is_overdue() {
    let mut bench = cleaning();
    check(
        bench.later(599).later(1).later(600).later(599).later(1),
        expect![[r#"
            > provide
            manageable -> cleaning (provide)
            prepare cleaning
            cleaning -> clean wait (wait)
            waits for agent heartbeat, 600 s
            > 599 s later
            > 1 s later
            boot again
            boot: the agent did not call within 600 s of booting by ipxe; booting again by ipxe
            remember: the plan's way worked: false
            > 600 s later
            boot again
            boot: the agent did not call within 600 s of booting by ipxe; booting again by ipxe
            > 599 s later
            > 1 s later
            clean wait -> clean failed (fail)
            tear down cleaning
            = clean failed -> available, last error: Timeout reached while waiting for callback for node 00000000-0000-0000-0000-000000000000: the agent did not call after the machine was booted 3 times; tried: ipxe; look at the machine's console and at its timeline to see how far it booted
        "#]],
    );
}

#[test]
fn an_agent_that_calls_is_left_alone() {
    let mut bench = cleaning();
    check(
        bench.later(600).later(599).heartbeat(),
        expect![[r#"
        > provide
        manageable -> cleaning (provide)
        prepare cleaning
        cleaning -> clean wait (wait)
        waits for agent heartbeat, 600 s
        > 600 s later
        boot again
        boot: the agent did not call within 600 s of booting by ipxe; booting again by ipxe
        remember: the plan's way worked: false
        > 599 s later
        > heartbeat
        remember: the plan's way worked: true
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
fn an_agent_that_was_seen_is_not_rebooted_though_it_never_calls() {
    let mut bench = cleaning();
    bench.later(10).lookup();
    assert_eq!(due(&bench), 1790);
    bench.later(1789);
    assert_eq!(bench.node.provision_state, ProvisionState::CleanWait);
    bench.later(1);
    assert_eq!(bench.node.provision_state, ProvisionState::CleanFail);
    assert!(!bench.story.contains("boot again") && !bench.story.contains("worked: false"));
}

#[test]
fn another_way_gets_its_own_time() {
    let mut bench =
        Bench::new(ProvisionState::Manageable).answer("prepare cleaning", Outcome::AwaitAgent);
    by(&mut bench, &["virtual media"]);
    bench.ask(Verb::Provide, &[]);
    boot_by(&mut bench, 600, &["virtual media", "http"]);
    boot_by(&mut bench, 600, &["virtual media", "http", "ipxe"]);
    // There is no other way left: the last gets as many boots as fit into its time.
    check(
        bench.later(600).later(600).later(599).later(1),
        expect![[r#"
            > provide
            manageable -> cleaning (provide)
            prepare cleaning
            cleaning -> clean wait (wait)
            waits for agent heartbeat, 600 s
            > 600 s later
            boot again
            boot: the agent did not call within 600 s of booting by ipxe; booting again by ipxe
            remember: ipxe worked: false
            > 600 s later
            boot again
            boot: the agent did not call within 600 s of booting by ipxe; booting again by ipxe
            > 599 s later
            > 1 s later
            clean wait -> clean failed (fail)
            tear down cleaning
            = clean failed -> available, last error: Timeout reached while waiting for callback for node 00000000-0000-0000-0000-000000000000: the agent did not call after the machine was booted 5 times; tried: virtual media, http, ipxe; look at the machine's console and at its timeline to see how far it booted
        "#]],
    );
}

#[test]
fn the_next_moment_is_the_nearer_one() {
    for (retry, callback, due_in) in
        [(600, 1800, 600), (0, 1800, 1800), (1800, 1800, 1800), (600, 300, 300), (600, 0, 600)]
    {
        let mut bench =
            Bench::new(ProvisionState::Manageable).answer("inspect", Outcome::AwaitAgent);
        bench.settings.boot_retry_timeout = retry;
        bench.settings.inspect_wait_timeout = callback;
        bench.ask(Verb::Inspect, &[]);
        assert_eq!(due(&bench), due_in, "{retry} {callback}");
        assert_eq!(bench.node.wait.unwrap().why, WaitReason::InspectionData);
    }
}

#[test]
fn a_deployment_boots_its_agent_in_a_step_and_runs_later_ones_in_peace() {
    let mut bench = Bench::new(ProvisionState::Available)
        .answer("run deploy step deploy.deploy", Outcome::AwaitAgent)
        .answer("poll deploy step deploy.deploy", Outcome::AwaitAgent);
    bench.ask(Verb::Active, &[]);
    assert_eq!(due(&bench), 600);
    bench.later(600);
    assert!(bench.story.contains("boot again"), "{}", bench.story);
    // The agent is there and busy: it may take its time between calls.
    bench.heartbeat();
    assert_eq!(due(&bench), 1800);
}

#[test]
fn a_machine_in_maintenance_is_left_alone() {
    let mut bench = cleaning();
    bench.node.maintenance = true;
    bench.later(700);
    assert!(!bench.story.contains("boot again") && bench.node.due_at.is_none());
    bench.node.maintenance = false;
    bench.later(0);
    assert!(bench.story.contains("boot again"), "{}", bench.story);
}

#[test]
fn a_machine_that_cannot_be_booted_again_says_so() {
    let mut bench = cleaning().answer("boot again", failed("the BMC has no power"));
    check(
        bench.later(600),
        expect![[r#"
        > provide
        manageable -> cleaning (provide)
        prepare cleaning
        cleaning -> clean wait (wait)
        waits for agent heartbeat, 600 s
        > 600 s later
        boot again FAILED: the BMC has no power
        clean wait -> clean failed (fail)
        remember: the plan's way worked: false
        tear down cleaning
        = clean failed -> available, last error: the agent did not call within 600 s, and the machine could not be booted again: the BMC has no power
    "#]],
    );
}

#[test]
fn a_bmc_that_is_silent_meanwhile_is_tried_again_and_the_agent_still_heard() {
    let mut bench = cleaning().answer("boot again", unreachable("no route"));
    bench.later(600);
    let retry = bench.node.work.as_ref().unwrap().retry.clone().unwrap();
    assert_eq!(bench.node.due_at, Some(retry.at));
    assert_eq!(bench.node.wait.unwrap().why, WaitReason::AgentHeartbeat);
    let mut called = cleaning().answer("boot again", unreachable("no route"));
    called.later(600).heartbeat();
    assert_eq!(called.node.provision_state, ProvisionState::Available);
    assert_eq!(called.node.last_error, None);
    check(
        bench.later(1),
        expect![[r#"
        > provide
        manageable -> cleaning (provide)
        prepare cleaning
        cleaning -> clean wait (wait)
        waits for agent heartbeat, 600 s
        > 600 s later
        boot again FAILED: no route
        > 1 s later
        boot again
        boot: the agent did not call within 600 s of booting by ipxe; booting again by ipxe
        remember: the plan's way worked: false
        = clean wait -> available, working: clean
    "#]],
    );
}

#[test]
fn what_happens_while_the_machine_is_booted_again_wins() {
    let begin = |verb: Verb| {
        let mut bench = Bench::new(ProvisionState::Manageable)
            .answer("inspect", Outcome::AwaitAgent)
            .answer("prepare cleaning", Outcome::AwaitAgent);
        bench.ask(verb, &[]);
        bench.now = Timestamp(bench.now.0 + 600_000_000);
        let next = settle(&mut bench.node, &bench.settings, bench.now, &mut Ledger::default());
        assert_eq!(next, Next::Act(Action::BootAgain));
        bench
    };
    let end = |bench: &mut Bench, outcome: &Outcome| {
        record(&mut bench.node, &Action::BootAgain, outcome, 0, &bench.settings, bench.now);
        bench.run();
    };
    for outcome in [Outcome::Done, failed("no power"), unreachable("no route")] {
        let mut bench = begin(Verb::Inspect);
        lifecycle::hear_inspection_data(&mut bench.node, bench.now, &mut Ledger::default());
        end(&mut bench, &outcome);
        assert_eq!(bench.node.provision_state, ProvisionState::Manageable);

        let mut bench = begin(Verb::Provide);
        bench.try_ask(Verb::Abort, &[]).unwrap();
        end(&mut bench, &outcome);
        assert_eq!(bench.node.provision_state, ProvisionState::CleanFail);
        assert!(bench.story.contains("tear down cleaning"), "{}", bench.story);
    }
    // The agent that called was switched off with the machine: it has to call again.
    let mut bench = begin(Verb::Provide);
    lifecycle::see_agent(&mut bench.node, &mut Ledger::default());
    lifecycle::hear_agent(&mut bench.node, bench.now);
    end(&mut bench, &Outcome::Done);
    assert_eq!(bench.node.provision_state, ProvisionState::CleanWait);
    bench.heartbeat();
    assert_eq!(bench.node.provision_state, ProvisionState::Available);
}

/// An agent that was left over from a failed job is not the one that is booted in the next, though
/// agents may be reused: with another address, that one would not be believed.
#[test]
fn an_agent_of_a_failed_job_is_not_the_one_of_the_next() {
    let asked_after = |seconds: i64| {
        let mut bench =
            Bench::new(ProvisionState::CleanFail).answer("prepare cleaning", Outcome::AwaitAgent);
        bench.settings.fast_track = true;
        bench.node.agent.last_heartbeat = Some(bench.now);
        bench.node.agent.url = Some("https://192.0.2.1:9999".to_owned());
        bench.node.agent.has_token = true;
        bench.later(seconds).ask(Verb::Manage, &[]);
        bench.try_ask(Verb::Provide, &[]).expect("it can be cleaned");
        bench
    };
    let knows = |bench: &Bench| (bench.node.agent.url.is_some(), bench.node.agent.has_token);
    // It was not heard for too long to be there still.
    assert_eq!(knows(&asked_after(300)), (false, false));
    assert_eq!(knows(&asked_after(299)), (true, true));
}

/// Whoever ends an agent says so when that is done. By then the next one may have called, if what
/// was done was to boot the next one.
#[test]
fn an_agent_that_called_before_its_boot_was_written_down_is_not_forgotten() {
    let began = Timestamp::from_secs(1_000);
    for (replaced_at, is_known) in [(None, false), (Some(999), false), (Some(1_001), true)] {
        let mut bench = cleaning();
        bench.node.agent.url = Some("https://192.0.2.1:9999".to_owned());
        bench.node.agent.has_token = true;
        bench.node.agent.replaced_at = replaced_at.map(Timestamp::from_secs);
        lifecycle::agent_ended(&mut bench.node, began, &mut Ledger::default());
        assert_eq!(bench.node.agent.url.is_some(), is_known, "{replaced_at:?}");
        assert_eq!(bench.node.agent.has_token, is_known, "{replaced_at:?}");
    }
}
