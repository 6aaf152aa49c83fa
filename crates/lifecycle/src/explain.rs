// SPDX-License-Identifier: Apache-2.0
//! Plays a job through without doing it: what would happen, and what stands in the way.
//!
//! It runs the very functions that decide in production on a copy of the node, and pretends that
//! every action succeeds at once. So it tells the states, the actions and their order as they would
//! really be, but not how long a machine's agent would be waited for in between. Whether the driver
//! could carry the actions out is for the caller to find out, who knows it: see
//! [`Explanation::actions`].

use node_model::{Event, Happening, Node, StepFlow, Timestamp, Verb, Wait};
use serde::Serialize;

use crate::ask::{Ask, ask};
use crate::decide::settle;
use crate::enter::Ledger;
use crate::record::{hear_agent, hear_inspection_data, record};
use crate::{Action, Next, Offers, Outcome, Settings};

/// What a verb would do to a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Explanation {
    /// The verb that was asked about.
    pub target: Verb,
    /// Whether it would be accepted now, and nothing that is known now would make it fail.
    pub possible: bool,
    /// What stands in the way, if not.
    pub obstacles: Vec<String>,
    /// What would happen, in order.
    pub plan: Vec<String>,
    /// Where the node would end.
    pub ends_in: String,
    /// What the node is waiting for right now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Wait>,
    /// What would be done to the machine, in order.
    #[serde(skip)]
    pub actions: Vec<Imagined>,
}

/// Something that would be done to a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Imagined {
    /// What.
    pub action: Action,
    /// Whether an agent that runs on it already could be used for it.
    pub has_agent: bool,
    /// What would be left of `instance_info` by then.
    pub has_instance: bool,
}

/// The steps on offer, as far as they can be told beforehand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Foreseen {
    /// The steps.
    pub offers: Offers,
    /// Whether the agent on the machine was never asked, so that its steps are those that agents
    /// usually have.
    pub is_usual: bool,
}

/// Explains what `request` would do. `offers` tells which steps there will be for a flow.
#[must_use]
pub fn explain(
    node: &Node,
    request: &Ask,
    offers: &dyn Fn(StepFlow) -> Foreseen,
    settings: &Settings,
    now: Timestamp,
) -> Explanation {
    let mut imagined = node.clone();
    imagined.power_request = None;
    let mut explanation = Explanation {
        target: request.verb,
        possible: true,
        obstacles: Vec::new(),
        plan: Vec::new(),
        ends_in: node.provision_state.as_str().to_owned(),
        waiting: node.wait,
        actions: Vec::new(),
    };
    match ask(&mut imagined, request, settings, now) {
        Ok(ledger) => explanation.tell(&ledger),
        Err(refusal) => {
            explanation.possible = false;
            explanation.obstacles.push(refusal.to_string());
            return explanation;
        }
    }
    play(&mut imagined, offers, settings, now, &mut explanation);
    explanation.ends_in = imagined.provision_state.as_str().to_owned();
    explanation
}

fn play(
    node: &mut Node,
    offers: &dyn Fn(StepFlow) -> Foreseen,
    settings: &Settings,
    now: Timestamp,
    explanation: &mut Explanation,
) {
    // Enough for any real job; a list of steps that never ends must not hang the question.
    const LONGEST: usize = 1000;
    for _ in 0..LONGEST {
        let mut ledger = Ledger::default();
        let next = settle(node, settings, now, &mut ledger);
        explanation.tell(&ledger);
        match next {
            Next::Rest => return,
            Next::Wait(..) => {
                let mut ledger = Ledger::default();
                let moved = hear_agent(node, now) || hear_inspection_data(node, now, &mut ledger);
                explanation.tell(&ledger);
                if !moved {
                    return;
                }
            }
            Next::Act(action) => {
                explanation.actions.push(Imagined {
                    action: action.clone(),
                    has_agent: node.agent.url.is_some(),
                    has_instance: !node.instance_info.is_empty(),
                });
                let outcome = explanation.imagine(&action, offers);
                let mut ledger = record(node, &action, &outcome, 0, settings, now);
                ledger.happened.retain(|what| !matches!(what, Happening::Did { .. }));
                explanation.tell(&ledger);
            }
        }
    }
}

impl Explanation {
    /// Tells of an action, and how it would turn out.
    fn imagine(&mut self, action: &Action, offers: &dyn Fn(StepFlow) -> Foreseen) -> Outcome {
        // A step that was asked for has no priority: it runs when its turn comes.
        self.plan.push(match action.step().map(|step| step.priority) {
            Some(priority) if priority > 0 => format!("{action} (priority {priority})"),
            Some(_) | None => action.to_string(),
        });
        let Action::ListSteps(flow) = action else { return Outcome::Done };
        let Foreseen { offers, is_usual } = offers(*flow);
        if is_usual {
            self.plan.push(format!(
                "the agent says which {flow} steps it has once it runs: expected are those that \
                 agents usually have"
            ));
        }
        Outcome::Offers(offers)
    }

    fn tell(&mut self, ledger: &Ledger) {
        for happening in &ledger.happened {
            match happening {
                Happening::Entered { from, to, event, why } => {
                    if event == Event::Fail.as_str() {
                        self.plan.push(format!("fails: {why}"));
                        self.possible = false;
                        self.obstacles.push(why.clone());
                    }
                    self.plan.push(format!("{from} -> {to}"));
                }
                Happening::Waiting { why, .. } => self.plan.push(format!("wait: {why}")),
                // Nothing that is done fails here.
                Happening::Failed { .. }
                | Happening::Enrolled
                | Happening::Changed { .. }
                | Happening::Removed
                | Happening::Asked { .. }
                | Happening::Did { .. }
                | Happening::Power { .. }
                | Happening::Maintenance { .. }
                | Happening::Noted { .. }
                | Happening::BmcCalls { .. }
                | Happening::Seen { .. }
                | Happening::Heard { .. } => {}
            }
        }
    }
}
