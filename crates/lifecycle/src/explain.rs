// SPDX-License-Identifier: Apache-2.0
//! Plays a job through without doing it: what would happen, and what stands in the way.
//!
//! It runs the very functions that decide in production on a copy of the node, and pretends that
//! every action succeeds at once. So it tells the states, the actions and their order as they would
//! really be, but not how long a machine's agent would be waited for in between.

use node_model::{Happening, Node, StepFlow, Timestamp, Verb, Wait};
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
    /// Whether it would be accepted now.
    pub possible: bool,
    /// What stands in the way, if it would not.
    pub obstacles: Vec<String>,
    /// What would happen, in order.
    pub plan: Vec<String>,
    /// Where the node would end.
    pub ends_in: String,
    /// What the node is waiting for right now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Wait>,
}

/// Explains what `request` would do. `offers` tells which steps the driver has for a flow.
#[must_use]
pub fn explain(
    node: &Node,
    request: &Ask,
    offers: &dyn Fn(StepFlow) -> Offers,
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
    };
    match ask(&mut imagined, request, settings, now) {
        Ok(ledger) => tell(&ledger, &mut explanation.plan),
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
    offers: &dyn Fn(StepFlow) -> Offers,
    settings: &Settings,
    now: Timestamp,
    explanation: &mut Explanation,
) {
    // Enough for any real job; a list of steps that never ends must not hang the question.
    const LONGEST: usize = 1000;
    for _ in 0..LONGEST {
        let mut ledger = Ledger::default();
        let next = settle(node, settings, now, &mut ledger);
        tell(&ledger, &mut explanation.plan);
        match next {
            Next::Rest => return,
            Next::Wait(..) => {
                let mut ledger = Ledger::default();
                let moved = hear_agent(node, now) || hear_inspection_data(node, now, &mut ledger);
                tell(&ledger, &mut explanation.plan);
                if !moved {
                    return;
                }
            }
            Next::Act(action) => {
                explanation.plan.push(action.to_string());
                let outcome = imagine(&action, offers);
                let mut ledger = record(node, &action, &outcome, 0, settings, now);
                ledger.happened.retain(|what| !matches!(what, Happening::Did { .. }));
                tell(&ledger, &mut explanation.plan);
            }
        }
    }
}

fn imagine(action: &Action, offers: &dyn Fn(StepFlow) -> Offers) -> Outcome {
    if let Action::ListSteps(flow) = action {
        Outcome::Offers(offers(*flow))
    } else {
        Outcome::Done
    }
}

fn tell(ledger: &Ledger, plan: &mut Vec<String>) {
    for happening in &ledger.happened {
        match happening {
            Happening::Entered { from, to, .. } => plan.push(format!("{from} -> {to}")),
            Happening::Waiting { why, .. } => plan.push(format!("wait: {why}")),
            Happening::Failed { error, .. } => plan.push(format!("fails: {error}")),
            Happening::Enrolled
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
