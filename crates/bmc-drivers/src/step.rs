// SPDX-License-Identifier: Apache-2.0
//! The steps an interface offers, and what comes of carrying one out.

use std::borrow::Cow;

use node_model::{InterfaceKind, Step, StepArgument, StepFlow, StepOffer, Timestamp};

use crate::{NodeChanges, Target};

/// How far a call came.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Outcome {
    /// All done.
    Done(NodeChanges),
    /// The machine is on its way to an agent, or the agent works. When it has called, make the
    /// same call again, with the notes that come with this: the answer then is whether it is done.
    WaitForAgent(NodeChanges),
    /// All done, and the agent is up: it may have steps of its own, so it is to be asked for them.
    AgentIsUp(NodeChanges),
    /// The agent is busy with it. When it has called, and at that moment in any case, make the same
    /// call again with the notes that come with this.
    AgentWorks {
        /// When to look again.
        moment: Timestamp,
        /// What to write until then.
        changes: NodeChanges,
    },
    /// The machine works by itself. Make the same call again at that moment, with the notes that
    /// come with this.
    WaitUntil {
        /// When to look again.
        moment: Timestamp,
        /// What to write until then.
        changes: NodeChanges,
    },
}

impl Outcome {
    /// The same, after `before` was changed already.
    pub fn after(self, before: NodeChanges) -> Self {
        match self {
            Self::Done(changes) => Self::Done(before.and(changes)),
            Self::WaitForAgent(changes) => Self::WaitForAgent(before.and(changes)),
            Self::AgentIsUp(changes) => Self::AgentIsUp(before.and(changes)),
            Self::AgentWorks { moment, changes } => {
                Self::AgentWorks { moment, changes: before.and(changes) }
            }
            Self::WaitUntil { moment, changes } => {
                Self::WaitUntil { moment, changes: before.and(changes) }
            }
        }
    }

    /// What the caller should write down.
    pub const fn changes(&self) -> &NodeChanges {
        match self {
            Self::Done(changes)
            | Self::WaitForAgent(changes)
            | Self::AgentIsUp(changes)
            | Self::AgentWorks { changes, .. }
            | Self::WaitUntil { changes, .. } => changes,
        }
    }
}

impl Target<'_> {
    /// Whether an earlier call for the same stage or step was told to wait for the agent. Since it
    /// is made again only when the agent has called, the agent is there.
    pub(crate) fn agent_was_awaited(&self) -> bool {
        self.notes.get(AGENT_AWAITED).is_some()
    }

    /// The answer of a call that waits for the agent, after having made `changes`.
    pub(crate) fn wait_for_agent(&self, changes: NodeChanges) -> Outcome {
        let notes = changes.notes.as_ref().unwrap_or(self.notes);
        let awaited = NodeChanges::note(notes, AGENT_AWAITED, true);
        Outcome::WaitForAgent(changes.and(awaited))
    }
}

/// The note that the agent is awaited.
const AGENT_AWAITED: &str = "agent_awaited";

/// A row of an implementation's table of steps.
#[derive(Debug)]
pub(crate) struct StepRow {
    pub(crate) name: &'static str,
    pub(crate) flows: &'static [StepFlow],
    pub(crate) priority: i64,
    pub(crate) abortable: bool,
    pub(crate) requires_ramdisk: bool,
    pub(crate) arguments: &'static [StepArgument],
}

/// The table of a deploy interface that does everything in one step, without the agent.
pub(crate) const DEPLOY_AT_ONCE: &[StepRow] = &[StepRow {
    name: "deploy",
    flows: &[StepFlow::Deploy],
    priority: 100,
    abortable: false,
    requires_ramdisk: false,
    arguments: &[],
}];

/// The steps of `table` that belong to `flow`.
pub(crate) fn offers(
    table: &[StepRow],
    interface: InterfaceKind,
    flow: StepFlow,
) -> Vec<StepOffer> {
    let rows = table.iter().filter(|row| row.flows.contains(&flow));
    rows.map(|row| StepOffer {
        step: Step {
            abortable: row.abortable,
            requires_ramdisk: row.requires_ramdisk,
            ..Step::new(interface.as_str(), row.name, row.priority)
        },
        arguments: Cow::Borrowed(row.arguments),
    })
    .collect()
}
