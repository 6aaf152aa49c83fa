// SPDX-License-Identifier: Apache-2.0
//! Runs long steps as a conductor does: call the step, store its changes, and call it again at the
//! requested time.

use std::time::Duration;

use drivers::{DriverError, NodeChanges, StepOutcome};
use node_model::{ActionProgress, InterfaceKind, JsonObject, Step, StepFlow, Timestamp};
use serde_json::Value;

use crate::rig::{RedfishRig, SPEED};

/// More calls than any step needs.
const MAX_CALLS: usize = 1000;
/// Retries of a call that fails with a transient error, and the delay before each. Together they are
/// longer than any restart of a simulated BMC.
const MAX_RETRIES: u32 = 100;
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// Whether the simulated conductor loses results.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConductorBehaviour {
    /// It stores the result of every call.
    Reliable,
    /// It crashes after every other call before the result is stored, and repeats the call.
    LosesEveryOtherOutcome,
}

/// One recorded call of a step.
#[derive(Debug)]
pub(crate) struct StepCall {
    /// The driver state before the call.
    pub(crate) before: JsonObject,
    /// The requests other than GET.
    pub(crate) writes: Vec<String>,
    /// The progress that the call reported.
    pub(crate) progress_text: Option<String>,
}

impl StepCall {
    /// Whether the machine was reset.
    pub(crate) fn has_reset(&self) -> bool {
        self.writes.iter().any(|write| write.contains("ComputerSystem.Reset"))
    }

    /// Whether the driver state already recorded that a reboot is due.
    pub(crate) fn had_stored_reboot(&self) -> bool {
        self.before.as_str().contains("\"reboot\":true")
    }
}

/// The final changes of a step, which are already applied.
#[derive(Debug)]
pub(crate) struct AppliedChanges(pub(crate) NodeChanges);

impl RedfishRig {
    /// Runs a step to its end and applies its changes.
    pub(crate) async fn run_step(
        &mut self,
        kind: InterfaceKind,
        name: &str,
        arguments: Value,
    ) -> Result<AppliedChanges, DriverError> {
        self.run_step_by(ConductorBehaviour::Reliable, kind, name, arguments).await
    }

    /// Runs a step to its end with a conductor of this behaviour.
    pub(crate) async fn run_step_by(
        &mut self,
        conductor: ConductorBehaviour,
        kind: InterfaceKind,
        name: &str,
        arguments: Value,
    ) -> Result<AppliedChanges, DriverError> {
        let flow = if name == "apply_configuration" && kind == InterfaceKind::Raid {
            StepFlow::Deploy
        } else {
            StepFlow::Clean
        };
        let mut step = Step::new(kind.as_str(), name, 0);
        step.args = JsonObject::from(arguments.as_object().cloned().expect("an object"));
        let mut state = JsonObject::empty();
        let mut now = self.fleet.now();
        for call in 0..MAX_CALLS {
            let outcome = self.call(kind, flow, &step, &state, now).await?;
            let loses_outcome =
                conductor == ConductorBehaviour::LosesEveryOtherOutcome && call % 2 == 0;
            if loses_outcome {
                continue;
            }
            self.apply(&outcome.changes);
            if outcome.is_done() {
                return Ok(AppliedChanges(outcome.changes));
            }
            outcome.changes.apply_to_driver_state(&mut state);
            let next = next_call(&outcome, now);
            self.pass_time(now, next);
            now = next;
        }
        panic!("{kind}.{name} does not end: {state:?}");
    }

    /// Runs a step to its end and returns its calls.
    pub(crate) async fn record_step(
        &mut self,
        kind: InterfaceKind,
        name: &str,
        arguments: Value,
    ) -> Vec<StepCall> {
        let mut step = Step::new(kind.as_str(), name, 0);
        step.args = JsonObject::from(arguments.as_object().cloned().expect("an object"));
        let (mut state, mut now) = (JsonObject::empty(), self.fleet.now());
        let mut calls = Vec::new();
        self.writes();
        for _ in 0..MAX_CALLS {
            let outcome = self.call(kind, StepFlow::Clean, &step, &state, now).await;
            let writes = self.writes();
            let outcome = outcome.unwrap_or_else(|error| panic!("{kind}.{name}: {error}"));
            if outcome.is_done() {
                return calls;
            }
            let before = state.clone();
            outcome.changes.apply_to_driver_state(&mut state);
            let progress_text = outcome.changes.progress_text.clone();
            calls.push(StepCall { before, writes, progress_text });
            let next = next_call(&outcome, now);
            self.pass_time(now, next);
            now = next;
            self.apply(&outcome.changes);
        }
        panic!("{kind}.{name} does not end: {state:?}");
    }

    /// Makes one call of a step. A transient error is retried, as the conductor does: the simulated
    /// BMC may restart during the call.
    pub(crate) async fn call(
        &self,
        kind: InterfaceKind,
        flow: StepFlow,
        step: &Step,
        state: &JsonObject,
        now: Timestamp,
    ) -> Result<StepOutcome, DriverError> {
        let mut target = self.target();
        target.now = now;
        target.driver_state = state;
        let mut retries = MAX_RETRIES;
        loop {
            let result = self.driver.interface(kind).execute_step(&target, flow, step).await;
            match result {
                Err(error) if error.is_transient() && retries > 0 => {
                    retries -= 1;
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                result => return result,
            }
        }
    }

    /// Advances the simulated machine by the accelerated time.
    fn pass_time(&self, from: Timestamp, to: Timestamp) {
        let passed = to.since(from).div_f64(SPEED);
        self.machine().with_model(|machine, now| machine.advance(now.plus(passed)));
    }
}

/// The time of the next call of an unfinished step.
fn next_call(outcome: &StepOutcome, now: Timestamp) -> Timestamp {
    assert!(!outcome.changes.driver_state.is_empty(), "a step that waits has driver state");
    match outcome.progress {
        ActionProgress::PollAt(time) => time,
        ActionProgress::Checkpoint => now,
        ActionProgress::Done
        | ActionProgress::AgentReady
        | ActionProgress::WaitForAgent
        | ActionProgress::WaitForInstaller
        | ActionProgress::PollAgentAt(_) => panic!("there is no agent: {outcome:?}"),
    }
}
