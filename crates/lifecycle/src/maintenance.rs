// SPDX-License-Identifier: Apache-2.0
//! Hands off, and hands on again.

use node_model::{Happening, Node, Timestamp};

use crate::enter::Ledger;
use crate::transitions::{Rest, rest};

/// Puts `node` into maintenance, for a reason if one is given, or (with none) takes it out again,
/// which ends a fault too. The caller wakes the node if its `due_at` is set.
pub fn set_maintenance(node: &mut Node, on: Option<Option<String>>, now: Timestamp) -> Ledger {
    node.maintenance = on.is_some();
    node.maintenance_reason = on.flatten();
    if !node.maintenance {
        node.fault = None;
    }
    // Callback timeouts stand still in maintenance: let them be computed anew.
    if node.work.is_some() && rest(node.provision_state) == Rest::Waiting {
        node.due_at = Some(now);
    }
    let mut ledger = Ledger::default();
    ledger.happened.push(Happening::Maintenance {
        on: node.maintenance,
        reason: node.maintenance_reason.clone(),
        fault: node.fault.map(|fault| fault.as_str().to_owned()),
    });
    ledger
}
