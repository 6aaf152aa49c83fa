// SPDX-License-Identifier: Apache-2.0
//! Steps of interfaces and their outcomes.

use std::borrow::Cow;

use node_model::{
    ActionProgress, AvailableStep, InterfaceKind, Step, StepArgument, StepFlow, Timestamp,
};

use crate::{DriverTarget, NodeChanges};

/// The result of a call that may take longer than one call.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct StepOutcome {
    /// Whether the call is done, and when it has to be repeated if not.
    pub progress: ActionProgress,
    /// What the caller stores before it repeats the call.
    pub changes: NodeChanges,
}

impl StepOutcome {
    /// The call is done.
    pub const fn done(changes: NodeChanges) -> Self {
        Self { progress: ActionProgress::Done, changes }
    }

    /// The call is done and the agent runs; its steps have to be listed.
    pub const fn agent_ready(changes: NodeChanges) -> Self {
        Self { progress: ActionProgress::AgentReady, changes }
    }

    /// The agent runs a command. Repeat the call after its next heartbeat, or at `time`.
    pub const fn poll_agent_at(time: Timestamp, changes: NodeChanges) -> Self {
        Self { progress: ActionProgress::PollAgentAt(time), changes }
    }

    /// The machine or its BMC works without an agent. Repeat the call at `time`.
    pub const fn poll_at(time: Timestamp, changes: NodeChanges) -> Self {
        Self { progress: ActionProgress::PollAt(time), changes }
    }

    /// Store the changes, then repeat the call at once.
    pub const fn checkpoint(changes: NodeChanges) -> Self {
        Self { progress: ActionProgress::Checkpoint, changes }
    }

    /// The same outcome with the changes of an earlier call, which this one overrides.
    pub fn after(self, before: NodeChanges) -> Self {
        Self { changes: before.and(self.changes), ..self }
    }

    /// Whether the call is done.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self.progress, ActionProgress::Done)
    }
}

impl DriverTarget<'_> {
    /// Whether an earlier call for the same stage or step returned [`Self::wait_for_agent`] or
    /// [`Self::wait_for_installer`]. It is repeated only after a heartbeat, so the agent runs.
    pub fn agent_was_awaited(&self) -> bool {
        self.driver_state.get(AGENT_AWAITED_KEY).is_some()
    }

    /// The outcome of a call that made `changes` and waits for the agent.
    pub fn wait_for_agent(&self, changes: NodeChanges) -> StepOutcome {
        let changes = changes.and(NodeChanges::driver_state_key(AGENT_AWAITED_KEY, true));
        StepOutcome { progress: ActionProgress::WaitForAgent, changes }
    }

    /// The outcome of a call that made `changes` and waits for an installer.
    pub fn wait_for_installer(&self, changes: NodeChanges) -> StepOutcome {
        StepOutcome { progress: ActionProgress::WaitForInstaller, ..self.wait_for_agent(changes) }
    }
}

/// Key of the driver state: the call waits for the agent.
const AGENT_AWAITED_KEY: &str = "agent_awaited";

/// A row of an implementation's table of steps.
#[derive(Debug)]
pub struct StepDefinition {
    /// Name of the step.
    pub name: &'static str,
    /// The flows it is available in.
    pub flows: &'static [StepFlow],
    /// Priority; 0 runs only on request.
    pub priority: i64,
    /// Whether it may be aborted.
    pub abortable: bool,
    /// Whether it needs the agent.
    pub requires_ramdisk: bool,
    /// Its arguments.
    pub arguments: &'static [StepArgument],
}

/// The table of a deploy interface that does everything in one step, without the agent.
pub const SINGLE_DEPLOY_STEP: &[StepDefinition] = &[StepDefinition {
    name: "deploy",
    flows: &[StepFlow::Deploy],
    priority: 100,
    abortable: false,
    requires_ramdisk: false,
    arguments: &[],
}];

/// The steps of `table` that belong to `flow`.
pub fn steps_of_flow(
    table: &[StepDefinition],
    interface: InterfaceKind,
    flow: StepFlow,
) -> Vec<AvailableStep> {
    let rows = table.iter().filter(|row| row.flows.contains(&flow));
    rows.map(|row| AvailableStep {
        step: Step {
            abortable: row.abortable,
            requires_ramdisk: row.requires_ramdisk,
            ..Step::new(interface.as_str(), row.name, row.priority)
        },
        arguments: Cow::Borrowed(row.arguments),
    })
    .collect()
}

/// Whether one of `tables` has the step `name` in `flow`.
#[must_use]
pub fn has_step(tables: &[&[StepDefinition]], name: &str, flow: StepFlow) -> bool {
    tables.iter().any(|table| table.iter().any(|row| row.name == name && row.flows.contains(&flow)))
}
