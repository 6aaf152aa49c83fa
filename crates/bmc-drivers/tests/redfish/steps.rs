// SPDX-License-Identifier: Apache-2.0
//! Steps that take their time, run as a conductor runs them: it calls, writes down what is asked
//! for, and calls again at the moment it is told.

use bmc_drivers::{Error, NodeChanges, Outcome};
use node_model::{InterfaceKind, JsonObject, Step, StepFlow, Timestamp};
use serde_json::Value;

use crate::rig::{Rig, SPEED};

/// More calls than any step may need.
const MOST_CALLS: usize = 1000;

/// How often a conductor is interrupted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conductor {
    /// Never.
    Steady,
    /// After every call, before it has written down what was asked for: it makes each call again.
    Dying,
}

/// One call of a step.
#[derive(Debug)]
pub(crate) struct Watched {
    /// The notes it was given.
    pub(crate) before: JsonObject,
    /// What it changed.
    pub(crate) deeds: Vec<String>,
    /// The notes it asked for.
    pub(crate) after: JsonObject,
}

impl Watched {
    /// Whether the machine was switched.
    pub(crate) fn switched(&self) -> bool {
        self.deeds.iter().any(|deed| deed.contains("ComputerSystem.Reset"))
    }

    /// Whether it was written down before that it would be.
    pub(crate) fn was_due(&self) -> bool {
        self.before.as_str().contains("\"reboot\":true")
    }
}

/// What a step changed at its end; it is written down already.
#[derive(Debug)]
pub(crate) struct Kept(pub(crate) NodeChanges);

impl Rig {
    /// Runs a step to its end, and keeps what it changed.
    pub(crate) async fn run_step(
        &mut self,
        kind: InterfaceKind,
        name: &str,
        arguments: Value,
    ) -> Result<Kept, Error> {
        self.run_step_by(Conductor::Steady, kind, name, arguments).await
    }

    /// Runs a step to its end by such a conductor.
    pub(crate) async fn run_step_by(
        &mut self,
        conductor: Conductor,
        kind: InterfaceKind,
        name: &str,
        arguments: Value,
    ) -> Result<Kept, Error> {
        let flow = if name == "apply_configuration" && kind == InterfaceKind::Raid {
            StepFlow::Deploy
        } else {
            StepFlow::Clean
        };
        let mut step = Step::new(kind.as_str(), name, 0);
        step.args = JsonObject::from(arguments.as_object().cloned().expect("an object"));
        let mut notes = JsonObject::empty();
        let mut now = self.fleet.now();
        for call in 0..MOST_CALLS {
            let outcome = self.call(kind, flow, &step, &notes, now).await?;
            let dies = conductor == Conductor::Dying && call % 2 == 0;
            match outcome {
                _ if dies => {}
                Outcome::Done(changes) => {
                    self.keep(&changes);
                    return Ok(Kept(changes));
                }
                Outcome::WaitUntil { moment, changes } => {
                    self.pass_time(now, moment);
                    now = moment;
                    notes = changes.notes.clone().expect("a step that waits has notes");
                    self.keep(&changes);
                }
                Outcome::WaitForAgent(_) | Outcome::AgentIsUp(_) | Outcome::AgentWorks { .. } => {
                    panic!("there is no agent")
                }
            }
        }
        panic!("{kind}.{name} does not end: {notes:?}");
    }

    /// Runs a step to its end, and tells what each call was given, did and wrote down.
    pub(crate) async fn watch_step(
        &mut self,
        kind: InterfaceKind,
        name: &str,
        arguments: Value,
    ) -> Vec<Watched> {
        let mut step = Step::new(kind.as_str(), name, 0);
        step.args = JsonObject::from(arguments.as_object().cloned().expect("an object"));
        let (mut notes, mut now) = (JsonObject::empty(), self.fleet.now());
        let mut watched = Vec::new();
        self.deeds();
        for _ in 0..MOST_CALLS {
            let outcome = self.call(kind, StepFlow::Clean, &step, &notes, now).await;
            let deeds = self.deeds();
            match outcome.unwrap_or_else(|error| panic!("{kind}.{name}: {error}")) {
                Outcome::WaitUntil { moment, changes } => {
                    self.pass_time(now, moment);
                    now = moment;
                    let later = changes.notes.clone().expect("a step that waits has notes");
                    watched.push(Watched { before: notes, deeds, after: later.clone() });
                    notes = later;
                    self.keep(&changes);
                }
                Outcome::Done(_) => return watched,
                Outcome::WaitForAgent(_) | Outcome::AgentIsUp(_) | Outcome::AgentWorks { .. } => {
                    panic!("there is no agent")
                }
            }
        }
        panic!("{kind}.{name} does not end: {notes:?}");
    }

    /// Makes one call.
    pub(crate) async fn call(
        &self,
        kind: InterfaceKind,
        flow: StepFlow,
        step: &Step,
        notes: &JsonObject,
        now: Timestamp,
    ) -> Result<Outcome, Error> {
        let mut target = self.target();
        target.now = now;
        target.notes = notes;
        self.driver.interface(kind).execute_step(&target, flow, step).await
    }

    /// Lets the machine's time pass, which is faster than ours.
    fn pass_time(&self, from: Timestamp, to: Timestamp) {
        let passed = to.since(from).div_f64(SPEED);
        self.machine().with(|machine, now| machine.advance(now.plus(passed)));
    }
}
