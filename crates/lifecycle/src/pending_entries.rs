// SPDX-License-Identifier: Apache-2.0
//! What a decision adds besides the changed node: journal events, history, follow-up changes.

use node_model::{AllocationId, BootMethod, JournalEvent, Severity};

/// Entries and changes for the caller to write in the same transaction as the node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PendingEntries {
    /// Journal events, in order.
    pub events: Vec<JournalEvent>,
    /// Entries for the node's history.
    pub history: Vec<PendingHistoryEntry>,
    /// Changes to other records than the node.
    pub follow_ups: Vec<FollowUpChange>,
}

/// An entry for the node's history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingHistoryEntry {
    /// The type of event, as in Ironic.
    pub event_type: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The message.
    pub event: String,
    /// The duration of the job that ended here.
    pub duration_seconds: Option<i64>,
}

/// A change that follows from a decision about a node and concerns another record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FollowUpChange {
    /// Deletes the allocation that held the node.
    RemoveAllocation(AllocationId),
    /// Detaches the virtual interfaces from the node's ports.
    DetachVifs,
    /// Deletes the agent token: the agent is gone, and its token must not be accepted again.
    DeleteAgentToken,
    /// Deletes the secrets of the instance (config drive, rescue password).
    DeleteInstanceSecrets,
    /// Deletes the rescue password.
    DeleteRescuePassword,
    /// Records whether a boot started the agent, in the statistics of the machine's model.
    RecordBootResult {
        /// The boot method; `None` means the one of the boot plan.
        method: Option<BootMethod>,
        /// Whether the agent made a request.
        worked: bool,
    },
}

impl PendingEntries {
    /// Appends the entries of a later decision.
    pub fn append(&mut self, later: Self) {
        self.events.extend(later.events);
        self.history.extend(later.history);
        self.follow_ups.extend(later.follow_ups);
    }

    pub(crate) fn error(&mut self, event_type: &'static str, event: &str) {
        self.history.push(PendingHistoryEntry {
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
        self.history.push(PendingHistoryEntry {
            event_type,
            severity: Severity::Info,
            event,
            duration_seconds,
        });
    }
}
