// SPDX-License-Identifier: Apache-2.0
//! The journal: everything that happened to a machine, in order, and why.
//!
//! Entries are written in the same transaction as the change they tell of, so the journal can
//! neither miss a change nor tell of one that did not happen.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{NodeId, Timestamp};

/// Who made something happen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Actor {
    /// A user of the API.
    User {
        /// The name they signed in with, if any.
        name: Option<String>,
        /// The request that did it.
        request_id: String,
    },
    /// The ramdisk agent on the machine.
    Agent {
        /// The request that did it.
        request_id: String,
    },
    /// The machine itself, booting.
    Machine {
        /// Its card or its address.
        address: String,
    },
    /// A conductor process.
    Conductor {
        /// Its name.
        hostname: String,
    },
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Happening {
    /// The machine was enrolled.
    Enrolled,
    /// Fields were changed through the API.
    Changed {
        /// Which.
        fields: Vec<String>,
    },
    /// The machine was removed.
    Removed,
    /// A provision verb or power target was asked for and accepted.
    Asked {
        /// The verb or target.
        target: String,
    },
    /// The provision state changed. Written by exactly one function.
    Entered {
        /// Before.
        from: String,
        /// After.
        to: String,
        /// Because of which event.
        event: String,
        /// In words.
        why: String,
    },
    /// An action ended well.
    Did {
        /// Which.
        action: String,
        /// How long it took, in milliseconds.
        took_ms: u64,
        /// What came of it, if there is something to say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
    },
    /// An action failed.
    Failed {
        /// Which.
        action: String,
        /// How long it took, in milliseconds.
        took_ms: u64,
        /// What went wrong.
        error: String,
    },
    /// What was said to the BMC in the course of an action, in order.
    BmcCalls {
        /// The calls.
        calls: Vec<BmcCall>,
        /// How many more there were.
        #[serde(default, skip_serializing_if = "is_zero")]
        left_out: u64,
    },
    /// The machine stopped moving.
    Waiting {
        /// What for.
        why: String,
        /// Until when.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// Power changed, by us or by itself.
    Power {
        /// Before.
        from: Option<String>,
        /// After.
        to: Option<String>,
        /// Why we believe so.
        why: String,
    },
    /// Maintenance was set or cleared.
    Maintenance {
        /// Whether it is set now.
        on: bool,
        /// Why.
        reason: Option<String>,
        /// The fault behind it.
        fault: Option<String>,
    },
    /// An inspection hook or rule did something worth telling.
    Noted {
        /// Which.
        by: String,
        /// What.
        text: String,
    },
    /// The machine was seen on the network, booting.
    Seen {
        /// By which service: `dhcp`, `tftp`, `http`.
        by: String,
        /// What it asked for and was given.
        text: String,
        /// How many times in a row.
        #[serde(default = "once", skip_serializing_if = "is_once")]
        times: u32,
    },
    /// The agent called.
    Heard {
        /// What it wanted: `lookup`, `heartbeat`, `inspection data`.
        what: String,
    },
}

/// One request to a BMC and its answer, in words.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BmcCall {
    /// What was asked.
    pub what: String,
    /// What came back.
    pub result: String,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// How many times in a row.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub times: u32,
}

const fn once() -> u32 {
    1
}

const fn is_once(times: &u32) -> bool {
    *times == 1
}

const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// An entry about to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalEntry {
    /// When it happened.
    pub at: Timestamp,
    /// To which machine.
    pub node_id: NodeId,
    /// Who made it happen.
    pub actor: Actor,
    /// What happened.
    pub what: Happening,
}

/// An entry as read back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// Its place in the order of all entries.
    pub seq: i64,
    /// The entry.
    pub entry: JournalEntry,
}
