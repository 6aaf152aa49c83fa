// SPDX-License-Identifier: Apache-2.0
//! Invariants that hold for any order of events.

use lifecycle::{
    Action, ActionOutcome, FollowUpChange, PendingEntries, SettleResult, StateClass, StepForecast,
    confirm_boot, default_target, heartbeat_received, inspection_data_received, next_state,
    queue_job, record, request_power, request_provision, set_maintenance, settle, start_queued_job,
    state_class,
};
use node_model::{
    JobQueue, JournalEvent, PowerRequest, PowerTarget, ProvisionState, Step, Timestamp, Verb,
    WaitReason,
};
use proptest::prelude::*;

use crate::support::{
    CHECKPOINT, JobHarness, WAIT_FOR_AGENT, actor, available_steps, context, failed, poll_agent_at,
    poll_at, request, step, step_with, unreachable,
};

/// An event from outside.
#[derive(Clone, Debug)]
enum TestEvent {
    Request(Verb, usize),
    Power(PowerTarget),
    Heartbeat,
    /// A lookup of the agent, without a heartbeat.
    Lookup,
    InspectionData,
    Time(i64),
    Maintenance(bool),
    /// Chooses the outcome of the next action.
    Outcome(usize),
    /// A place in the queue of the job becomes free.
    FreePlace,
    /// The process dies between running and recording an action: the action is repeated.
    Crash,
}

fn test_event() -> impl Strategy<Value = TestEvent> {
    prop_oneof![
        6 => (0..Verb::ALL.len(), 0usize..4).prop_map(|(verb, steps)| TestEvent::Request(Verb::ALL[verb], steps)),
        1 => (0..PowerTarget::ALL.len()).prop_map(|target| TestEvent::Power(PowerTarget::ALL[target])),
        2 => Just(TestEvent::Heartbeat),
        1 => Just(TestEvent::Lookup),
        1 => Just(TestEvent::InspectionData),
        2 => (0i64..4000).prop_map(TestEvent::Time),
        1 => any::<bool>().prop_map(TestEvent::Maintenance),
        4 => (0usize..8).prop_map(TestEvent::Outcome),
        1 => Just(TestEvent::FreePlace),
        1 => Just(TestEvent::Crash),
    ]
}

fn user_steps(choice: usize) -> Vec<Step> {
    match choice {
        0 => vec![step("raid", "create", 0)],
        1 => vec![step("x", "hold", 0), step("raid", "create", 0)],
        2 => vec![step_with("x", "wait", r#"{"seconds":3}"#), step("x", "wait", 0)],
        _ => vec![step("power", "power_off", 0), step("raid", "no_such_step", 0)],
    }
}

struct PropertyTest {
    harness: JobHarness,
    outcome: usize,
    crash: bool,
    state: ProvisionState,
    /// The number of boots without a recorded result.
    open_boots: usize,
}

impl PropertyTest {
    fn new() -> Self {
        Self {
            harness: JobHarness::new(ProvisionState::Enroll),
            outcome: 0,
            crash: false,
            state: ProvisionState::Enroll,
            open_boots: 0,
        }
    }

    /// A boot has one result, or none if the job was aborted.
    fn count_boot_results(&mut self, entries: &PendingEntries) {
        let results = entries
            .follow_ups
            .iter()
            .filter(|change| matches!(change, FollowUpChange::RecordBootResult { .. }));
        self.open_boots =
            self.open_boots.checked_sub(results.count()).expect("a boot has one result");
    }

    /// Every state change is in the journal, and follows the transition table.
    fn check_entries(&mut self, entries: &PendingEntries) {
        for event in &entries.events {
            if let JournalEvent::StateChanged { from, to, event, .. } = event {
                assert_eq!(from, self.state.as_str(), "the journal skipped a transition");
                let event = event.parse().expect("a known event");
                let next = next_state(self.state, event).expect("a transition of the table");
                assert_eq!(to, next.as_str());
                self.state = next;
            }
        }
        assert_eq!(
            self.state, self.harness.node.provision_state,
            "a state change is not in the journal"
        );
        self.count_boot_results(entries);
    }

    fn outcome(&self, action: &Action) -> ActionOutcome {
        match (self.outcome, action) {
            (0 | 1, Action::ListSteps(flow)) => ActionOutcome::StepsListed(available_steps(*flow)),
            (0 | 1, _) => ActionOutcome::DONE,
            (
                2,
                Action::RunStep { .. }
                | Action::PollStep { .. }
                | Action::Rescue
                | Action::Inspect
                | Action::PrepareCleaning,
            ) => WAIT_FOR_AGENT,
            (3, Action::RunStep { .. }) => {
                poll_at(self.harness.now.plus(std::time::Duration::from_secs(9)))
            }
            (6, Action::RunStep { .. } | Action::PollStep { .. }) => {
                poll_agent_at(self.harness.now.plus(std::time::Duration::from_secs(9)))
            }
            (7, Action::RunStep { .. }) => CHECKPOINT,
            (4, _) => failed("broken"),
            (5, _) => unreachable("no response"),
            (_, Action::ListSteps(flow)) => ActionOutcome::StepsListed(available_steps(*flow)),
            _ => ActionOutcome::DONE,
        }
    }

    fn run(&mut self) {
        for _ in 0..100 {
            let mut entries = PendingEntries::default();
            let result = settle(
                &mut self.harness.node,
                &self.harness.settings,
                self.harness.now,
                &mut entries,
            );
            self.check_entries(&entries);
            let action = match result {
                SettleResult::Act(action) => action,
                SettleResult::NeedsPlace(queue) => {
                    // One of four outcomes also finds the queue full.
                    if self.outcome == 3 {
                        queue_job(&mut self.harness.node, queue, self.harness.now);
                        self.outcome = 0;
                    } else {
                        start_queued_job(&mut self.harness.node, queue, self.harness.now);
                    }
                    continue;
                }
                SettleResult::Wait(reason, due) => {
                    let power = self.harness.node.power_request.as_ref();
                    if let Some(retry) = power.and_then(|request| request.retry.as_ref()) {
                        assert_eq!((reason, due), (WaitReason::BmcResponse, Some(retry.at)));
                    } else {
                        let wait =
                            self.harness.node.wait.expect("a waiting node has a wait reason");
                        assert_eq!(wait.reason, reason);
                        assert!(due == wait.due_at() || self.harness.node.maintenance);
                    }
                    assert_eq!(self.harness.node.due_at, due);
                    return;
                }
                SettleResult::Idle => return,
            };
            assert!(
                state_class(self.harness.node.provision_state) != StateClass::Stable
                    || matches!(action, Action::SetPower { .. })
                    || self.harness.node.provision_state == ProvisionState::Enroll
                    || self.harness.node.provision_state == ProvisionState::Error,
                "{action} in {}",
                self.harness.node.provision_state
            );
            self.check_wait();
            if std::mem::take(&mut self.crash) {
                continue; // Run, but not recorded: the same action must come again.
            }
            let boot = self.harness.node.work.as_ref().and_then(|work| work.boot);
            let is_unknown = self.harness.node.agent.url.is_none() && boot.is_none();
            if action == Action::BootAgain {
                self.check_boot_again();
            }
            let outcome = self.outcome(&action);
            self.outcome = 0;
            let entries = record(
                &mut self.harness.node,
                &action,
                &outcome,
                0,
                &self.harness.settings,
                self.harness.now,
            );
            let waits = outcome == WAIT_FOR_AGENT;
            let booted = if action == Action::BootAgain {
                waits || outcome == ActionOutcome::DONE
            } else if action.step().is_some() {
                waits && is_unknown
            } else {
                waits
            };
            self.check_entries(&entries);
            self.open_boots += usize::from(booted);
        }
        panic!("the node does not settle: {:?}", self.harness.node.work);
    }

    /// A node that acts has a wait reason only if its job waits or the action is retried.
    fn check_wait(&self) {
        let node = &self.harness.node;
        let power = node.power_request.as_ref().and_then(|request| request.retry.as_ref());
        let work = node.work.as_ref();
        let is_retry = power.or(work.and_then(|work| work.retry.as_ref())).is_some();
        let is_awaiting = work.is_some_and(|work| work.awaiting);
        assert!(node.wait.is_none() || is_awaiting || is_retry, "{:?}", node.wait);
    }

    /// Only nodes that wait for the first request of an agent, outside of maintenance, are booted
    /// again.
    fn check_boot_again(&self) {
        let node = &self.harness.node;
        assert!(state_class(node.provision_state) == StateClass::Waiting && !node.maintenance);
        let reason = node.wait.expect("a waiting node has a wait reason").reason;
        assert!(
            matches!(reason, WaitReason::AgentHeartbeat | WaitReason::InspectionData),
            "{reason}"
        );
        assert!(!node.work.as_ref().expect("a job").heartbeat_received);
        assert!(self.open_boots > 0, "a boot without a result");
    }

    fn apply(&mut self, event: &TestEvent) {
        let now = self.harness.now;
        match event {
            TestEvent::Request(verb, steps) => {
                let before = self.harness.node.clone();
                let steps = if matches!(verb, Verb::Clean | Verb::Service) {
                    user_steps(*steps)
                } else {
                    Vec::new()
                };
                let settings = self.harness.settings.clone();
                let request = request(*verb, &steps);
                match request_provision(
                    &mut self.harness.node,
                    &request,
                    &context(),
                    &settings,
                    now,
                ) {
                    Ok(entries) => self.check_entries(&entries),
                    Err(_) => {
                        assert_eq!(self.harness.node, before, "a rejected verb changed the node")
                    }
                }
            }
            TestEvent::Power(target) => {
                let _ = request_power(&mut self.harness.node, *target, None, actor(), now);
            }
            TestEvent::Heartbeat => {
                let mut entries = PendingEntries::default();
                confirm_boot(&mut self.harness.node, &mut entries);
                self.count_boot_results(&entries);
                self.harness.node.agent.last_heartbeat = Some(now);
                self.harness.node.agent.url = Some("https://192.0.2.1:9999".to_owned());
                heartbeat_received(&mut self.harness.node, now);
            }
            TestEvent::Lookup => {
                let mut entries = PendingEntries::default();
                confirm_boot(&mut self.harness.node, &mut entries);
                self.count_boot_results(&entries);
            }
            TestEvent::InspectionData => {
                let mut entries = PendingEntries::default();
                inspection_data_received(&mut self.harness.node, now, &mut entries);
                self.check_entries(&entries);
            }
            TestEvent::Time(seconds) => self.harness.now = Timestamp(now.0 + seconds * 1_000_000),
            TestEvent::Maintenance(on) => {
                set_maintenance(&mut self.harness.node, on.then_some(None), now);
            }
            TestEvent::FreePlace => {
                if let (Some(queue), Some(_)) =
                    (self.harness.node.job_queue, self.harness.node.queued_at)
                {
                    assert!(start_queued_job(&mut self.harness.node, queue, now));
                }
            }
            TestEvent::Outcome(how) => self.outcome = *how,
            TestEvent::Crash => self.crash = true,
        }
    }

    /// Invariants of a node that is idle or waits.
    fn check_settled(&self) {
        let node = &self.harness.node;
        let state = node.provision_state;
        assert_eq!(
            node.target_provision_state.is_none(),
            default_target(state).is_none(),
            "{state} aims at {:?}",
            node.target_provision_state
        );
        let target = node.power_request.as_ref().map(PowerRequest::target_state);
        assert_eq!(node.target_power_state, target);
        if node.work.as_ref().is_some_and(|work| work.awaiting) {
            assert!(node.wait.is_some(), "a job waits without a reason");
        }
        let queue = node.work.as_ref().and_then(|work| JobQueue::of(work.kind));
        assert!(node.job_queue.is_none() || node.job_queue == queue, "{:?}", node.job_queue);
        let is_queued = node.wait.is_some_and(|wait| wait.reason == WaitReason::JobQueue);
        assert_eq!(node.queued_at.is_some(), is_queued, "{:?}", node.wait);
        let power = node.power_request.as_ref().and_then(|request| request.retry.as_ref());
        let work = node.work.as_ref().and_then(|work| work.retry.as_ref());
        if let Some(retry) = power.or(work) {
            assert_eq!(node.due_at, Some(retry.at), "a retry is due");
            return;
        }
        match state_class(state) {
            StateClass::Stable | StateClass::Failed => {
                assert!(node.work.is_none(), "{state} with {:?}", node.work);
                assert!(node.due_at.is_none());
            }
            StateClass::Waiting => {
                assert!(node.work.is_some(), "{state} without a job");
                let wait = node.wait.expect("a waiting node has a wait reason");
                // A job must not wait forever, and must not time out in maintenance.
                let due = if node.maintenance { None } else { wait.due_at() };
                assert_eq!(node.due_at, due, "{wait:?}");
                let has_end = node.due_at.is_some() || node.maintenance || is_queued;
                assert!(has_end, "{wait:?} without an end");
            }
            StateClass::Held => {
                assert!(node.work.is_some(), "{state} without a job");
                assert_eq!(node.wait.map(|wait| wait.reason), Some(WaitReason::Hold));
                assert_eq!(node.due_at, None, "only an operator ends a hold");
            }
            StateClass::Working => panic!("settled in {state}: {:?}", node.work),
        }
        assert!(node.power_request.is_none());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn invariants_hold_for_any_order_of_events(events in prop::collection::vec(test_event(), 1..40)) {
        let mut test = PropertyTest::new();
        for event in &events {
            test.apply(event);
            if !matches!(event, TestEvent::Outcome(_) | TestEvent::Crash) {
                test.run();
                test.check_settled();
            }
        }
    }

    #[test]
    fn explanations_match_the_decisions(prefix in prop::collection::vec(test_event(), 0..15), verb in 0..Verb::ALL.len()) {
        let mut test = PropertyTest::new();
        for event in &prefix {
            test.apply(event);
            if !matches!(event, TestEvent::Outcome(_) | TestEvent::Crash) {
                test.run();
            }
        }
        test.run();
        let request = request(Verb::ALL[verb], &[]);
        let node = test.harness.node.clone();
        let forecast = |flow| StepForecast { steps: available_steps(flow), is_assumed: false };
        let (settings, now) = (test.harness.settings.clone(), test.harness.now);
        let explanation =
            lifecycle::explain(&node, &request, &context(), &forecast, &settings, now);
        let accepted =
            request_provision(&mut test.harness.node, &request, &context(), &settings, now);
        prop_assert_eq!(explanation.possible, explanation.obstacles.is_empty());
        match accepted {
            Err(error) => {
                prop_assert_eq!(explanation.obstacles, vec![error.to_string()]);
                prop_assert!(explanation.plan.is_empty());
            }
            Ok(_) => {
                let fails = explanation.plan.iter().any(|line| line.starts_with("fails: "));
                prop_assert_eq!(explanation.possible, !fails, "{:?}", explanation.plan);
            }
        }
    }
}
