// SPDX-License-Identifier: Apache-2.0
//! A node on a table, and somebody who carries out actions as the test says.

use std::fmt::Write as _;

use lifecycle::{
    Action, Ask, Chore, Failure, Ledger, Next, Offers, Outcome, Refusal, Settings, ask, record,
    settle,
};
use node_model::{
    Actor, Happening, JsonObject, Node, NodeId, ProvisionState, Silent, Step, StepFlow, StepOffer,
    Timestamp, Verb,
};
use uuid::Uuid;

pub(crate) struct Bench {
    pub(crate) node: Node,
    pub(crate) settings: Settings,
    pub(crate) now: Timestamp,
    pub(crate) story: String,
    pub(crate) answers: Vec<(&'static str, Outcome)>,
}

pub(crate) fn actor() -> Actor {
    Actor::User { name: Some("test".to_owned()), request_id: "req-1".to_owned() }
}

pub(crate) fn asking(verb: Verb, steps: &[Step]) -> Ask {
    Ask {
        verb,
        steps: steps.to_vec(),
        template_steps: Vec::new(),
        disable_ramdisk: false,
        actor: actor(),
        work_id: Uuid::nil(),
    }
}

pub(crate) fn step(interface: &str, name: &str, priority: i64) -> Step {
    Step::new(interface, name, priority)
}

pub(crate) fn step_with(interface: &str, name: &str, args: &str) -> Step {
    Step { args: JsonObject::from_stored(args), ..Step::new(interface, name, 0) }
}

pub(crate) fn offers(flow: StepFlow) -> Offers {
    let offer = |interface: &str, name: &str, priority: i64, abortable: bool| StepOffer {
        step: Step { abortable, ..Step::new(interface, name, priority) },
        arguments: (&[]).into(),
    };
    Offers::all(match flow {
        StepFlow::Clean => vec![
            offer("deploy", "erase_devices", 10, true),
            offer("raid", "create", 0, false),
            offer("vendor", "first", 99, false),
        ],
        StepFlow::Deploy => vec![offer("deploy", "deploy", 100, false)],
        StepFlow::Service => vec![offer("raid", "create", 0, false)],
        StepFlow::Verify => Vec::new(),
    })
}

impl Bench {
    pub(crate) fn new(state: ProvisionState) -> Self {
        let mut node = Node::new(NodeId(Uuid::nil()), "fake-hardware", Timestamp(0));
        node.provision_state = state;
        Self {
            node,
            settings: Settings { boot_retry_timeout: 600, ..Settings::default() },
            now: Timestamp::from_secs(1_000_000),
            story: String::new(),
            answers: Vec::new(),
        }
    }

    /// From now on the first action whose name starts with `action` turns out as `outcome`, once.
    pub(crate) fn answer(mut self, action: &'static str, outcome: Outcome) -> Self {
        self.answers.push((action, outcome));
        self
    }

    pub(crate) fn ask(&mut self, verb: Verb, steps: &[Step]) -> &mut Self {
        let _ = writeln!(self.story, "> {verb}");
        match self.try_ask(verb, steps) {
            Ok(()) => self.run(),
            Err(refusal) => {
                let _ = writeln!(self.story, "refused: {refusal}");
                self
            }
        }
    }

    pub(crate) fn try_ask(&mut self, verb: Verb, steps: &[Step]) -> Result<(), Refusal> {
        let ledger = ask(&mut self.node, &asking(verb, steps), &self.settings, self.now)?;
        self.tell(&ledger);
        Ok(())
    }

    /// Does what has to be done until there is nothing more to do.
    pub(crate) fn run(&mut self) -> &mut Self {
        for _ in 0..200 {
            let mut ledger = Ledger::default();
            let next = settle(&mut self.node, &self.settings, self.now, &mut ledger);
            self.tell(&ledger);
            match next {
                Next::Act(action) => self.act(&action),
                Next::Wait(..) | Next::Rest => return self,
            }
        }
        panic!("the job never ends:\n{}", self.story);
    }

    fn act(&mut self, action: &Action) {
        let name = action.to_string();
        let place = self.answers.iter().position(|(prefix, _)| name.starts_with(prefix));
        let outcome = match (place, action) {
            (Some(place), _) => self.answers.remove(place).1,
            (None, Action::ListSteps(flow)) => Outcome::Offers(offers(*flow)),
            (None, _) => Outcome::Done,
        };
        let ledger = record(&mut self.node, action, &outcome, 0, &self.settings, self.now);
        self.tell(&ledger);
    }

    pub(crate) fn later(&mut self, seconds: i64) -> &mut Self {
        self.now = Timestamp(self.now.0 + seconds * 1_000_000);
        let _ = writeln!(self.story, "> {seconds} s later");
        self.run()
    }

    pub(crate) fn heartbeat(&mut self) -> &mut Self {
        let _ = writeln!(self.story, "> heartbeat");
        self.hear();
        self.run()
    }

    /// The agent looks its node up and says no more.
    pub(crate) fn lookup(&mut self) -> &mut Self {
        let _ = writeln!(self.story, "> lookup");
        let mut ledger = Ledger::default();
        lifecycle::see_agent(&mut self.node, &mut ledger);
        self.tell(&ledger);
        self.run()
    }

    fn hear(&mut self) {
        let mut ledger = Ledger::default();
        lifecycle::see_agent(&mut self.node, &mut ledger);
        self.tell(&ledger);
        self.node.agent.last_heartbeat = Some(self.now);
        self.node.agent.url = Some("https://192.0.2.1:9999".to_owned());
        lifecycle::hear_agent(&mut self.node, self.now);
    }

    fn tell(&mut self, ledger: &Ledger) {
        for happening in &ledger.happened {
            let line = match happening {
                Happening::Entered { from, to, event, .. } => format!("{from} -> {to} ({event})"),
                Happening::Did { action, .. } => action.clone(),
                Happening::Failed { action, error, .. } => format!("{action} FAILED: {error}"),
                Happening::Waiting { why, until } => format!(
                    "waits for {why}{}",
                    until.map_or(String::new(), |until| format!(
                        ", {} s",
                        until.since(self.now).as_secs()
                    ))
                ),
                Happening::Maintenance { fault, .. } => format!("maintenance: {fault:?}"),
                Happening::Power { to, .. } => format!("power: {to:?}"),
                Happening::Noted { by, text } => format!("{by}: {text}"),
                Happening::Asked { .. } => continue,
                Happening::Enrolled
                | Happening::Changed { .. }
                | Happening::Removed
                | Happening::BmcCalls { .. }
                | Happening::Seen { .. }
                | Happening::Heard { .. } => format!("{happening:?}"),
            };
            let _ = writeln!(self.story, "{line}");
        }
        for chore in &ledger.chores {
            if let Chore::NoteBoot { way, worked } = chore {
                let way = way.map_or("the plan's way", node_model::BootWay::as_str);
                let _ = writeln!(self.story, "remember: {way} worked: {worked}");
            }
        }
    }

    /// The story so far and where it ended.
    pub(crate) fn end(&self) -> String {
        let node = &self.node;
        let mut story = self.story.clone();
        let _ = write!(story, "= {}", node.provision_state);
        if let Some(target) = node.target_provision_state {
            let _ = write!(story, " -> {target}");
        }
        if let Some(error) = &node.last_error {
            let _ = write!(story, ", last error: {error}");
        }
        if let Some(work) = &node.work {
            let _ = write!(story, ", working: {}", work.kind);
        }
        story.push('\n');
        story
    }
}

pub(crate) fn unreachable(message: &str) -> Outcome {
    Outcome::Unreachable(Silent::Bmc, Failure::new(message))
}

pub(crate) fn failed(message: &str) -> Outcome {
    Outcome::Failed(Failure::new(message))
}
