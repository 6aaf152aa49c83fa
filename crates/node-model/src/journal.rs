// SPDX-License-Identifier: Apache-2.0
//! The journal: everything that happened to a node, in order, with the reason.
//!
//! An entry is written in the same transaction as the change it describes, so the journal neither
//! misses a change nor contains one that was not stored.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{NodeId, Timestamp};

/// Who caused a journal event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Actor {
    /// A user of the API.
    User {
        /// The authenticated name, if any.
        name: Option<String>,
        /// The project of the caller, if its roles apply to one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        project: Option<String>,
        /// The id of the API request.
        request_id: String,
    },
    /// The ramdisk agent on the machine.
    Agent {
        /// The id of the API request.
        request_id: String,
    },
    /// The machine itself while it boots.
    Machine {
        /// Its MAC or IP address.
        address: String,
    },
    /// A conductor process.
    Conductor {
        /// Its host name.
        hostname: String,
    },
}

/// The typed content of a journal entry. Stored as JSON; the names of kinds and fields are part of
/// the stored format and of the API. The aliases are names in entries that earlier versions stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum JournalEvent {
    /// The node was enrolled.
    Enrolled,
    /// Fields were changed through the API.
    Changed {
        /// The names of the fields.
        fields: Vec<String>,
    },
    /// The node was deleted.
    Removed,
    /// A provision verb or a power change was requested and accepted.
    Requested {
        /// The verb or the power target.
        target: String,
    },
    /// The provision state changed. Written by `lifecycle::enter` only.
    #[serde(alias = "entered")]
    StateChanged {
        /// The state before.
        from: String,
        /// The state after.
        to: String,
        /// The event of the transition table.
        event: String,
        /// The reason, for users.
        #[serde(alias = "why")]
        reason: String,
    },
    /// An action succeeded.
    ActionDone {
        /// The name of the action.
        action: String,
        /// Its duration in milliseconds.
        took_ms: u64,
        /// Its result, if there is one to show.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
    },
    /// An action failed.
    ActionFailed {
        /// The name of the action.
        action: String,
        /// Its duration in milliseconds.
        took_ms: u64,
        /// The error, with its causes.
        error: String,
    },
    /// The requests that an action sent to the BMC, in order.
    BmcCalls {
        /// The requests.
        calls: Vec<BmcCall>,
        /// The number of requests that were not recorded.
        #[serde(default, skip_serializing_if = "is_zero")]
        left_out: u64,
    },
    /// The node began to wait.
    Waiting {
        /// The wait reason.
        #[serde(alias = "why")]
        reason: String,
        /// When the wait fails.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        /// When the next action starts: a poll, a retry, another boot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_action_at: Option<Timestamp>,
    },
    /// The power state changed, by a request or by itself.
    Power {
        /// The state before.
        from: Option<String>,
        /// The state after.
        to: Option<String>,
        /// The cause of the change.
        #[serde(alias = "why")]
        reason: String,
    },
    /// Maintenance was set or cleared.
    Maintenance {
        /// Whether it is set now.
        on: bool,
        /// The reason.
        reason: Option<String>,
        /// The fault, if Ferrite set maintenance itself.
        fault: Option<String>,
    },
    /// A message of an inspection hook, a rule, a step or another component.
    Note {
        /// The component.
        by: String,
        /// The message.
        text: String,
    },
    /// The machine used a boot service or printed on its console.
    NetworkActivity {
        /// The service: `dhcp`, `tftp`, `http`, `console`.
        by: String,
        /// The request and its reply.
        text: String,
        /// How many times in a row.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        times: u32,
    },
    /// The agent called the API.
    AgentCall {
        /// The call: `lookup`, `heartbeat`, `inspection data`.
        #[serde(alias = "what")]
        call: String,
    },
}

/// Defines the kinds of journal events. A variant without a kind does not compile.
macro_rules! journal_kinds {
    ($($variant:ident = $kind:literal,)*) => {
        impl JournalEvent {
            /// The kinds of events, as in JSON, in the order of declaration.
            pub const KINDS: &'static [&'static str] = &[$($kind),*];

            /// The kind of the event, as in JSON.
            #[must_use]
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $kind,)*
                }
            }
        }
    };
}

journal_kinds! {
    Enrolled = "enrolled",
    Changed = "changed",
    Removed = "removed",
    Requested = "requested",
    StateChanged = "state_changed",
    ActionDone = "action_done",
    ActionFailed = "action_failed",
    BmcCalls = "bmc_calls",
    Waiting = "waiting",
    Power = "power",
    Maintenance = "maintenance",
    Note = "note",
    NetworkActivity = "network_activity",
    AgentCall = "agent_call",
}

/// One request to a BMC and its response.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BmcCall {
    /// The request.
    #[serde(alias = "what")]
    pub request: String,
    /// The response.
    pub result: String,
    /// The duration in milliseconds.
    pub took_ms: u64,
    /// How many times in a row.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub times: u32,
}

const fn one() -> u32 {
    1
}

const fn is_one(times: &u32) -> bool {
    *times == 1
}

const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// An entry to be appended to the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalEntry {
    /// When it happened.
    pub at: Timestamp,
    /// The node.
    pub node_id: NodeId,
    /// Who caused it.
    pub actor: Actor,
    /// What happened.
    pub event: JournalEvent,
}

/// A stored entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalRow {
    /// The position in the order of all entries.
    pub seq: i64,
    /// The entry.
    pub entry: JournalEntry,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_are_the_tags_of_the_json() {
        for kind in JournalEvent::KINDS {
            match serde_json::from_value::<JournalEvent>(json!({ "kind": kind })) {
                Ok(event) => assert_eq!(event.kind(), *kind),
                Err(error) => assert!(error.to_string().starts_with("missing field"), "{error}"),
            }
        }
    }

    #[test]
    fn reads_fields_stored_by_earlier_versions() {
        let changed =
            json!({"kind": "entered", "from": "a", "to": "b", "event": "done", "why": "so"});
        let waiting = json!({"kind": "waiting", "why": "hold"});
        let power = json!({"kind": "power", "from": null, "to": null, "why": "so"});
        let call = json!({"kind": "agent_call", "what": "lookup"});
        let calls = json!({"kind": "bmc_calls", "calls": [
            {"what": "GET /", "result": "200", "took_ms": 1}]});
        for stored in [changed, waiting, power, call, calls] {
            let event: JournalEvent = serde_json::from_value(stored).unwrap();
            let written = json!(event);
            assert_eq!(serde_json::from_value::<JournalEvent>(written.clone()).unwrap(), event);
            assert!(!written.to_string().contains("\"wh"), "{written}");
        }
    }
}
