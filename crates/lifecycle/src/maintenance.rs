// SPDX-License-Identifier: Apache-2.0
//! Sets and clears maintenance.

use node_model::{JournalEvent, Node, Timestamp};

use crate::pending_entries::PendingEntries;
use crate::transitions::{StateClass, state_class};

/// Sets maintenance with an optional reason, or clears it together with the fault if `maintenance` is
/// `None`. The caller wakes the node if its `due_at` is set.
pub fn set_maintenance(
    node: &mut Node,
    maintenance: Option<Option<String>>,
    now: Timestamp,
) -> PendingEntries {
    node.maintenance = maintenance.is_some();
    node.maintenance_reason = maintenance.flatten();
    if !node.maintenance {
        node.fault = None;
    }
    // Callback timeouts do not apply in maintenance, so the deadline must be computed again.
    let has_deadline =
        node.work.is_some() && state_class(node.provision_state) == StateClass::Waiting;
    if has_deadline || (is_unfinished(node) && node.due_at.is_none() && !node.maintenance) {
        node.due_at = Some(now);
    }
    let mut entries = PendingEntries::default();
    entries.events.push(JournalEvent::Maintenance {
        on: node.maintenance,
        reason: node.maintenance_reason.clone(),
        fault: node.fault.map(|fault| fault.as_str().to_owned()),
    });
    entries
}

/// Whether a node has unfinished work that is not due until maintenance ends, for example because it was restored
/// from a backup.
#[must_use]
pub fn is_held(node: &Node) -> bool {
    node.maintenance && node.due_at.is_none() && is_unfinished(node)
}

fn is_unfinished(node: &Node) -> bool {
    node.work.is_some() || node.power_request.is_some()
}
