// SPDX-License-Identifier: Apache-2.0
//! Whatever happens to a machine, in whatever order, these hold.

use lifecycle::{
    Action, Chore, Foreseen, Ledger, Next, Outcome, Rest, ask, ask_power, default_target,
    hear_agent, hear_inspection_data, next_state, record, rest, see_agent, settle,
};
use node_model::{Happening, PowerTarget, ProvisionState, Step, Timestamp, Verb, WaitReason};
use proptest::prelude::*;

use crate::support::{Bench, actor, asking, failed, offers, step, step_with, unreachable};

/// Something that can happen to a machine from outside.
#[derive(Clone, Debug)]
enum Stimulus {
    Ask(Verb, usize),
    Power(PowerTarget),
    Heartbeat,
    /// The agent looks its node up and says no more.
    Lookup,
    InspectionData,
    Time(i64),
    Maintenance(bool),
    /// The next action turns out like this.
    Turns(usize),
    /// The process dies between doing and recording: the action is done again.
    Crash,
}

fn stimulus() -> impl Strategy<Value = Stimulus> {
    prop_oneof![
        6 => (0..Verb::ALL.len(), 0usize..4).prop_map(|(verb, steps)| Stimulus::Ask(Verb::ALL[verb], steps)),
        1 => (0..PowerTarget::ALL.len()).prop_map(|target| Stimulus::Power(PowerTarget::ALL[target])),
        2 => Just(Stimulus::Heartbeat),
        1 => Just(Stimulus::Lookup),
        1 => Just(Stimulus::InspectionData),
        2 => (0i64..4000).prop_map(Stimulus::Time),
        1 => any::<bool>().prop_map(Stimulus::Maintenance),
        4 => (0usize..6).prop_map(Stimulus::Turns),
        1 => Just(Stimulus::Crash),
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

struct World {
    bench: Bench,
    turns: usize,
    crash: bool,
    state: ProvisionState,
    /// How many boots were started of which it is not known yet whether they worked.
    open_boots: usize,
}

impl World {
    fn new() -> Self {
        Self {
            bench: Bench::new(ProvisionState::Enroll),
            turns: 0,
            crash: false,
            state: ProvisionState::Enroll,
            open_boots: 0,
        }
    }

    /// A boot turns out once, or never if the job was aborted.
    fn count(&mut self, ledger: &Ledger) {
        let known = ledger.chores.iter().filter(|chore| matches!(chore, Chore::NoteBoot { .. }));
        self.open_boots =
            self.open_boots.checked_sub(known.count()).expect("a boot turns out once");
    }

    /// Every change of state is told, and only by transitions that exist.
    fn check_ledger(&mut self, ledger: &Ledger) {
        for happening in &ledger.happened {
            if let Happening::Entered { from, to, event, .. } = happening {
                assert_eq!(from, self.state.as_str(), "the journal skipped a transition");
                let event = event.parse().expect("a known event");
                let next = next_state(self.state, event).expect("a transition of the table");
                assert_eq!(to, next.as_str());
                self.state = next;
            }
        }
        assert_eq!(self.state, self.bench.node.provision_state, "a change of state was not told");
        self.count(ledger);
    }

    fn outcome(&self, action: &Action) -> Outcome {
        match (self.turns, action) {
            (0 | 1, Action::ListSteps(flow)) => Outcome::Offers(offers(*flow)),
            (0 | 1, _) => Outcome::Done,
            (
                2,
                Action::RunStep { .. }
                | Action::PollStep { .. }
                | Action::Rescue
                | Action::Inspect
                | Action::PrepareCleaning,
            ) => Outcome::AwaitAgent,
            (3, Action::RunStep { .. }) => {
                Outcome::AwaitUntil(self.bench.now.plus(std::time::Duration::from_secs(9)))
            }
            (4, _) => failed("it broke"),
            (5, _) => unreachable("no answer"),
            (_, Action::ListSteps(flow)) => Outcome::Offers(offers(*flow)),
            _ => Outcome::Done,
        }
    }

    fn run(&mut self) {
        for _ in 0..100 {
            let mut ledger = Ledger::default();
            let next =
                settle(&mut self.bench.node, &self.bench.settings, self.bench.now, &mut ledger);
            self.check_ledger(&ledger);
            let action = match next {
                Next::Act(action) => action,
                Next::Wait(why, until) => {
                    let power = self.bench.node.power_request.as_ref();
                    if let Some(retry) = power.and_then(|request| request.retry.as_ref()) {
                        assert_eq!((why, until), (WaitReason::BmcAnswer, Some(retry.at)));
                    } else {
                        let wait = self.bench.node.wait.expect("a waiting node says why");
                        assert_eq!((wait.why, wait.until.moment()), (why, until));
                    }
                    assert_eq!(self.bench.node.due_at, until);
                    return;
                }
                Next::Rest => return,
            };
            assert!(
                rest(self.bench.node.provision_state) != Rest::Stable
                    || matches!(action, Action::SetPower { .. })
                    || self.bench.node.provision_state == ProvisionState::Enroll
                    || self.bench.node.provision_state == ProvisionState::Error,
                "{action} in {}",
                self.bench.node.provision_state
            );
            if std::mem::take(&mut self.crash) {
                continue; // Done, but never recorded: the same action must come again.
            }
            let boots = self.bench.node.work.as_ref().and_then(|work| work.notes.get("boots"));
            let is_unknown = self.bench.node.agent.url.is_none() && boots.is_none();
            if action == Action::BootAgain {
                self.check_boot_again();
            }
            let outcome = self.outcome(&action);
            self.turns = 0;
            let ledger = record(
                &mut self.bench.node,
                &action,
                &outcome,
                0,
                &self.bench.settings,
                self.bench.now,
            );
            let booted = match (&action, &outcome) {
                (Action::BootAgain, Outcome::Done) => true,
                (Action::RunStep { .. } | Action::PollStep { .. }, Outcome::AwaitAgent) => {
                    is_unknown
                }
                (_, Outcome::AwaitAgent) => true,
                _ => false,
            };
            self.check_ledger(&ledger);
            self.open_boots += usize::from(booted);
        }
        panic!("the node never comes to rest: {:?}", self.bench.node.work);
    }

    /// Nobody is rebooted who has called, is held, waits for something else, or is looked at.
    fn check_boot_again(&self) {
        let node = &self.bench.node;
        assert!(rest(node.provision_state) == Rest::Waiting && !node.maintenance);
        let why = node.wait.expect("a waiting node says why").why;
        assert!(matches!(why, WaitReason::AgentHeartbeat | WaitReason::InspectionData), "{why}");
        assert!(!node.work.as_ref().expect("there is a job").heard);
        assert!(self.open_boots > 0, "it was booted, and nothing was heard of it");
    }

    fn apply(&mut self, stimulus: &Stimulus) {
        let now = self.bench.now;
        match stimulus {
            Stimulus::Ask(verb, steps) => {
                let before = self.bench.node.clone();
                let steps = if matches!(verb, Verb::Clean | Verb::Service) {
                    user_steps(*steps)
                } else {
                    Vec::new()
                };
                let settings = self.bench.settings.clone();
                match ask(&mut self.bench.node, &asking(*verb, &steps), &settings, now) {
                    Ok(ledger) => self.check_ledger(&ledger),
                    Err(_) => assert_eq!(self.bench.node, before, "a refused verb left a trace"),
                }
            }
            Stimulus::Power(target) => {
                let _ = ask_power(&mut self.bench.node, *target, None, actor(), now);
            }
            Stimulus::Heartbeat => {
                let mut ledger = Ledger::default();
                see_agent(&mut self.bench.node, &mut ledger);
                self.count(&ledger);
                self.bench.node.agent.last_heartbeat = Some(now);
                self.bench.node.agent.url = Some("https://192.0.2.1:9999".to_owned());
                hear_agent(&mut self.bench.node, now);
            }
            Stimulus::Lookup => {
                let mut ledger = Ledger::default();
                see_agent(&mut self.bench.node, &mut ledger);
                self.count(&ledger);
            }
            Stimulus::InspectionData => {
                let mut ledger = Ledger::default();
                hear_inspection_data(&mut self.bench.node, now, &mut ledger);
                self.check_ledger(&ledger);
            }
            Stimulus::Time(seconds) => self.bench.now = Timestamp(now.0 + seconds * 1_000_000),
            Stimulus::Maintenance(on) => self.bench.node.maintenance = *on,
            Stimulus::Turns(how) => self.turns = *how,
            Stimulus::Crash => self.crash = true,
        }
    }

    /// What is true of every node that nobody is working on.
    fn check_at_rest(&self) {
        let node = &self.bench.node;
        let state = node.provision_state;
        assert_eq!(
            node.target_provision_state.is_none(),
            default_target(state).is_none(),
            "{state} aims at {:?}",
            node.target_provision_state
        );
        let power = node.power_request.as_ref().and_then(|request| request.retry.as_ref());
        let work = node.work.as_ref().and_then(|work| work.retry.as_ref());
        if let Some(retry) = power.or(work) {
            assert_eq!(node.due_at, Some(retry.at), "a BMC that is silent is asked again");
            return;
        }
        match rest(state) {
            Rest::Stable | Rest::Failed => {
                assert!(node.work.is_none(), "{state} with {:?}", node.work);
                assert!(node.due_at.is_none());
            }
            Rest::Waiting | Rest::Held => {
                assert!(node.work.is_some(), "{state} without a job");
                assert!(node.wait.is_some(), "{state} does not say why it waits");
            }
            Rest::Working => panic!("{state} at rest: {:?}", node.work),
        }
        assert!(node.power_request.is_none());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_order_of_events_keeps_the_invariants(stimuli in prop::collection::vec(stimulus(), 1..40)) {
        let mut world = World::new();
        for stimulus in &stimuli {
            world.apply(stimulus);
            if !matches!(stimulus, Stimulus::Turns(_) | Stimulus::Crash) {
                world.run();
                world.check_at_rest();
            }
        }
    }

    #[test]
    fn an_explanation_is_never_wrong(prefix in prop::collection::vec(stimulus(), 0..15), verb in 0..Verb::ALL.len()) {
        let mut world = World::new();
        for stimulus in &prefix {
            world.apply(stimulus);
            if !matches!(stimulus, Stimulus::Turns(_) | Stimulus::Crash) {
                world.run();
            }
        }
        world.run();
        let request = asking(Verb::ALL[verb], &[]);
        let node = world.bench.node.clone();
        let foreseen = |flow| Foreseen { offers: offers(flow), is_usual: false };
        let told = lifecycle::explain(&node, &request, &foreseen, &world.bench.settings, world.bench.now);
        let accepted = ask(&mut world.bench.node, &request, &world.bench.settings, world.bench.now);
        prop_assert_eq!(told.possible, told.obstacles.is_empty());
        match accepted {
            Err(refusal) => {
                prop_assert_eq!(told.obstacles, vec![refusal.to_string()]);
                prop_assert!(told.plan.is_empty());
            }
            Ok(_) => {
                let fails = told.plan.iter().any(|line| line.starts_with("fails: "));
                prop_assert_eq!(told.possible, !fails, "{:?}", told.plan);
            }
        }
    }
}
