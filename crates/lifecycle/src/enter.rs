// SPDX-License-Identifier: Apache-2.0
//! The only function that changes a provision state, and what every change entails.

use node_model::{
    AllocationId, BootWay, Event, Happening, Node, ProvisionState, Severity, Timestamp, WorkKind,
};

use crate::transitions::{default_target, next_state};

/// What came of a decision besides the changed node: for the caller to write in the same
/// transaction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    /// Journal entries, in order.
    pub happened: Vec<Happening>,
    /// Lines for the node's history.
    pub history: Vec<HistoryLine>,
    /// Changes to other things than the node.
    pub chores: Vec<Chore>,
}

/// A line for the node's history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryLine {
    /// What kind of event.
    pub event_type: &'static str,
    /// How bad.
    pub severity: Severity,
    /// What happened.
    pub event: String,
    /// How long the flow took that ended here.
    pub duration_seconds: Option<i64>,
}

/// A change that follows from a decision about a node but concerns something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chore {
    /// The allocation that held the node is over.
    RemoveAllocation(AllocationId),
    /// Virtual interfaces come off the node's ports.
    DetachVifs,
    /// The agent is gone; its token must not be accepted again.
    ForgetAgentToken,
    /// The instance is gone, and its secrets (config drive, rescue password) with it.
    ForgetInstanceSecrets,
    /// The rescue system is not (or no longer) wanted, and its password with it.
    ForgetRescuePassword,
    /// It is known now whether a boot brought the agent up: that is remembered for machines of the
    /// same model.
    NoteBoot {
        /// By which way; none if it is the one of the boot plan.
        way: Option<BootWay>,
        /// Whether it did.
        worked: bool,
    },
}

impl Ledger {
    /// Adds what came of a later decision.
    pub fn append(&mut self, later: Self) {
        self.happened.extend(later.happened);
        self.history.extend(later.history);
        self.chores.extend(later.chores);
    }

    pub(crate) fn error(&mut self, event_type: &'static str, event: &str) {
        self.history.push(HistoryLine {
            event_type,
            severity: Severity::Error,
            event: event.to_owned(),
            duration_seconds: None,
        });
    }

    pub(crate) fn info(
        &mut self,
        event_type: &'static str,
        event: String,
        duration_seconds: Option<i64>,
    ) {
        self.history.push(HistoryLine {
            event_type,
            severity: Severity::Info,
            event,
            duration_seconds,
        });
    }
}

/// Takes `node` through `event`. Answers false, and changes nothing, if the event may not happen in
/// the node's state.
///
/// Invariant: no other code assigns `provision_state` of a node that already exists.
pub(crate) fn enter(
    node: &mut Node,
    event: Event,
    why: &str,
    now: Timestamp,
    ledger: &mut Ledger,
) -> bool {
    let from = node.provision_state;
    let Some(to) = next_state(from, event) else { return false };
    node.provision_state = to;
    node.provision_updated_at = Some(now);
    node.target_provision_state = target(node, to);
    if !matches!(event, Event::Wait | Event::Hold) {
        node.wait = None;
    }
    stamp_inspection(node, from, to, now);
    ledger.happened.push(Happening::Entered {
        from: from.as_str().to_owned(),
        to: to.as_str().to_owned(),
        event: event.as_str().to_owned(),
        why: why.to_owned(),
    });
    true
}

/// A stable state has no target; manual cleaning aims at `manageable` whatever the state's default.
fn target(node: &Node, state: ProvisionState) -> Option<ProvisionState> {
    let default = default_target(state)?;
    let manual = node.work.as_ref().is_some_and(|work| work.kind == WorkKind::ManualClean);
    let cleaning = default == ProvisionState::Available && state != ProvisionState::Deleting;
    if cleaning && (manual || node.retired) {
        return Some(ProvisionState::Manageable);
    }
    Some(default)
}

fn stamp_inspection(node: &mut Node, from: ProvisionState, to: ProvisionState, now: Timestamp) {
    use ProvisionState::{InspectFail, InspectWait, Inspecting, Manageable};
    let inspecting = matches!(from, Inspecting | InspectWait);
    if to == Inspecting && !inspecting {
        node.inspection_started_at = Some(now);
        node.inspection_finished_at = None;
    } else if to == Manageable && inspecting {
        node.inspection_finished_at = Some(now);
        node.inspection_started_at = None;
    } else if to == InspectFail {
        node.inspection_started_at = None;
    }
}
