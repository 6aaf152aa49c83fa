// SPDX-License-Identifier: Apache-2.0
//! Simulates a job: what a verb would do, and what prevents it.
//!
//! The simulation runs the decision functions on a copy of the node and assumes that every action
//! succeeds at once. So states, actions and their order are the real ones, but waiting times are
//! not included. Whether the driver could run the actions is checked by the caller, for each of
//! [`Explanation::actions`].

use node_model::{
    Event, JobQueue, JournalEvent, Node, QueuePosition, StepFlow, Timestamp, Verb, Wait,
};
use serde::Serialize;

use crate::decide::settle;
use crate::job_queue::start_queued_job;
use crate::pending_entries::PendingEntries;
use crate::provision_request::{JobContext, ProvisionRequest, request_provision};
use crate::record::{heartbeat_received, inspection_data_received, record};
use crate::{Action, ActionOutcome, AvailableSteps, LifecycleSettings, SettleResult};

/// What a verb would do to a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Explanation {
    /// The verb.
    pub target: Verb,
    /// Whether the verb would be accepted now and no known obstacle would make the job fail.
    pub possible: bool,
    /// The obstacles.
    pub obstacles: Vec<String>,
    /// What would happen, in order.
    pub plan: Vec<String>,
    /// The final provision state.
    pub ends_in: String,
    /// What the node waits for now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Wait>,
    /// The position of the job that waits in a queue; set by the caller.
    #[serde(skip)]
    pub queue_position: Option<QueuePosition>,
    /// The queue in which the job may have to wait, and before which entry of `plan`.
    #[serde(skip)]
    pub queue: Option<(usize, JobQueue)>,
    /// The actions, in order.
    #[serde(skip)]
    pub actions: Vec<PlannedAction>,
}

/// An action of a simulated job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedAction {
    /// The action.
    pub action: Action,
    /// Whether a running agent could be reused for it.
    pub has_agent: bool,
    /// Whether `instance_info` still has content at that point.
    pub has_instance: bool,
}

/// The steps that will probably be available.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepForecast {
    /// The steps.
    pub steps: AvailableSteps,
    /// Whether the agent of this machine never listed its steps, so that those of a typical agent
    /// are assumed.
    pub is_assumed: bool,
}

/// Explains what `request` would do. `forecast` returns the expected steps of a flow.
#[must_use]
pub fn explain(
    node: &Node,
    request: &ProvisionRequest,
    context: &JobContext,
    forecast: &dyn Fn(StepFlow) -> StepForecast,
    settings: &LifecycleSettings,
    now: Timestamp,
) -> Explanation {
    let mut simulated = node.clone();
    simulated.set_power_request(None);
    let mut explanation = Explanation {
        target: request.verb,
        possible: true,
        obstacles: Vec::new(),
        plan: Vec::new(),
        ends_in: node.provision_state.as_str().to_owned(),
        // In maintenance, the next action has no time: nothing happens until maintenance ends.
        waiting: node.wait.map(|wait| Wait {
            next_action_at: wait.next_action_at.filter(|_| !node.maintenance),
            ..wait
        }),
        queue_position: None,
        queue: None,
        actions: Vec::new(),
    };
    match request_provision(&mut simulated, request, context, settings, now) {
        Ok(entries) => explanation.add_events(&entries),
        Err(error) => {
            explanation.possible = false;
            explanation.obstacles.push(error.to_string());
            return explanation;
        }
    }
    simulate(&mut simulated, forecast, settings, now, &mut explanation);
    explanation.ends_in = simulated.provision_state.as_str().to_owned();
    explanation
}

fn simulate(
    node: &mut Node,
    forecast: &dyn Fn(StepFlow) -> StepForecast,
    settings: &LifecycleSettings,
    now: Timestamp,
    explanation: &mut Explanation,
) {
    // More than any real job needs; bounds the time of a request.
    const MAX_ROUNDS: usize = 1000;
    for _ in 0..MAX_ROUNDS {
        let mut entries = PendingEntries::default();
        let result = settle(node, settings, now, &mut entries);
        explanation.add_events(&entries);
        match result {
            SettleResult::Idle => return,
            SettleResult::NeedsPlace(queue) => {
                explanation.queue = Some((explanation.plan.len(), queue));
                start_queued_job(node, queue, now);
            }
            SettleResult::Wait(..) => {
                let mut entries = PendingEntries::default();
                let continues = heartbeat_received(node, now)
                    || inspection_data_received(node, now, &mut entries);
                explanation.add_events(&entries);
                if !continues {
                    return;
                }
            }
            SettleResult::Act(action) => {
                explanation.actions.push(PlannedAction {
                    action: action.clone(),
                    has_agent: node.agent.url.is_some(),
                    has_instance: !node.instance_info.is_empty(),
                });
                let outcome = explanation.add_action(&action, forecast);
                let mut entries = record(node, &action, &outcome, 0, settings, now);
                entries.events.retain(|event| !matches!(event, JournalEvent::ActionDone { .. }));
                explanation.add_events(&entries);
            }
        }
    }
}

impl Explanation {
    /// Adds an action to the plan and returns its assumed outcome.
    fn add_action(
        &mut self,
        action: &Action,
        forecast: &dyn Fn(StepFlow) -> StepForecast,
    ) -> ActionOutcome {
        // Requested steps have no priority: they run in their order.
        self.plan.push(match action.step().map(|step| step.priority) {
            Some(priority) if priority > 0 => format!("{action} (priority {priority})"),
            Some(_) | None => action.to_string(),
        });
        let Action::ListSteps(flow) = action else { return ActionOutcome::DONE };
        let StepForecast { steps, is_assumed } = forecast(*flow);
        if is_assumed {
            self.plan.push(format!(
                "the agent lists its {flow} steps once it runs: the steps of a typical agent are \
                 assumed"
            ));
        }
        ActionOutcome::StepsListed(steps)
    }

    fn add_events(&mut self, entries: &PendingEntries) {
        for event in &entries.events {
            if let JournalEvent::StateChanged { from, to, event, reason: why } = event {
                if event == Event::Fail.as_str() {
                    self.plan.push(format!("fails: {why}"));
                    self.possible = false;
                    self.obstacles.push(why.clone());
                }
                self.plan.push(format!("{from} -> {to}"));
            } else if let JournalEvent::Waiting { reason, .. } = event {
                self.plan.push(format!("wait: {reason}"));
            }
        }
    }
}
