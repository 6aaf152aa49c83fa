// SPDX-License-Identifier: Apache-2.0
//! Collected hardware data: BIOS settings, firmware versions, inventory; and Ironic's node history.

use serde::{Deserialize, Serialize};

use crate::named_enum;
use crate::{HistoryId, JsonObject, NodeId, Timestamp};

/// A BIOS setting, as last read from the BMC.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BiosSetting {
    /// The name.
    pub name: String,
    /// The value.
    pub value: Option<String>,
    /// When it was first read.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// The entry of the BMC's attribute registry (`attribute_type`, `allowable_values`, bounds, …).
    #[serde(default)]
    pub registry: JsonObject,
}

/// A firmware component.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FirmwareComponent {
    /// `bios`, `bmc` or `nic:<id>`.
    pub component: String,
    /// The version when it was first read.
    pub initial_version: String,
    /// The current version.
    pub current_version: Option<String>,
    /// The version last written by Ferrite.
    pub last_version_flashed: Option<String>,
    /// The vendor.
    pub vendor: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The serial number.
    pub serial_number: Option<String>,
    /// When it was first read.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
}

named_enum! {
    /// The severity of a history entry.
    Severity {
        /// An error.
        Error = "ERROR",
        /// Information.
        Info = "INFO",
    }
}

/// An entry of a node's history, as in Ironic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryEntry {
    /// The id.
    pub id: HistoryId,
    /// The node.
    pub node_id: NodeId,
    /// When it happened.
    pub created_at: Timestamp,
    /// The type of event: `deploying`, `monitoring`, …
    pub event_type: String,
    /// The severity.
    pub severity: Severity,
    /// The message.
    pub event: String,
    /// The conductor that recorded it.
    pub conductor: Option<String>,
    /// The user who made the request.
    pub user: Option<String>,
    /// The project of that user.
    pub project: Option<String>,
    /// The provision state at that time.
    pub state: Option<String>,
    /// The target provision state at that time.
    pub target_provision_state: Option<String>,
    /// The duration of the job that ended here.
    pub duration_seconds: Option<i64>,
}

/// The result of the last inspection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inventory {
    /// The node.
    pub node_id: NodeId,
    /// When it was collected.
    pub created_at: Timestamp,
    /// CPUs, disks, NICs and the rest, as sent by the agent.
    pub inventory: JsonObject,
    /// All other data from the ramdisk and the hooks.
    pub plugin_data: JsonObject,
    /// Properties, capabilities, traits and resource class that hooks and flavours derived, so that
    /// the next inspection can distinguish them from an operator's values. Not shown to users.
    pub derived: JsonObject,
}
