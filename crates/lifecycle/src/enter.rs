// SPDX-License-Identifier: Apache-2.0
//! The only function that changes a provision state, with everything that a change implies.

use node_model::{Event, JournalEvent, Node, ProvisionState, Timestamp, WorkKind};

use crate::pending_entries::PendingEntries;
use crate::transitions::{default_target, next_state};

/// Applies `event` to `node`. Returns false and changes nothing if the transition table does not
/// allow the event in the node's state.
///
/// Invariant: no other code assigns `provision_state` of an existing node.
pub(crate) fn enter(
    node: &mut Node,
    event: Event,
    why: &str,
    now: Timestamp,
    entries: &mut PendingEntries,
) -> bool {
    let from = node.provision_state;
    let Some(to) = next_state(from, event) else { return false };
    node.provision_state = to;
    node.provision_updated_at = Some(now);
    node.target_provision_state = target_state(node, to);
    if !matches!(event, Event::Wait | Event::Hold) {
        node.wait = None;
    }
    update_inspection_times(node, from, to, now);
    entries.events.push(JournalEvent::StateChanged {
        from: from.as_str().to_owned(),
        to: to.as_str().to_owned(),
        event: event.as_str().to_owned(),
        reason: why.to_owned(),
    });
    true
}

/// Stable states have no target. Manual cleaning and cleaning of retired nodes lead to `manageable`.
fn target_state(node: &Node, state: ProvisionState) -> Option<ProvisionState> {
    let default = default_target(state)?;
    let is_manual = node.work.as_ref().is_some_and(|work| work.kind == WorkKind::ManualClean);
    let is_cleaning = default == ProvisionState::Available && state != ProvisionState::Deleting;
    if is_cleaning && (is_manual || node.retired) {
        return Some(ProvisionState::Manageable);
    }
    Some(default)
}

fn update_inspection_times(
    node: &mut Node,
    from: ProvisionState,
    to: ProvisionState,
    now: Timestamp,
) {
    use ProvisionState::{InspectFail, InspectWait, Inspecting, Manageable};
    let was_inspecting = matches!(from, Inspecting | InspectWait);
    if to == Inspecting && !was_inspecting {
        node.inspection_started_at = Some(now);
        node.inspection_finished_at = None;
    } else if to == Manageable && was_inspecting {
        node.inspection_finished_at = Some(now);
        node.inspection_started_at = None;
    } else if to == InspectFail {
        node.inspection_started_at = None;
    }
}
