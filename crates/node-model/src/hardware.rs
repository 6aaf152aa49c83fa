// SPDX-License-Identifier: Apache-2.0
//! What was found out about a machine: settings, firmware, inventory, and what happened to it.

use serde::{Deserialize, Serialize};

use crate::named;
use crate::{HistoryId, JsonObject, NodeId, Timestamp};

/// A firmware setting as last read from the BMC.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BiosSetting {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Option<String>,
    /// When it was first read.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// What the BMC's registry says about it (`attribute_type`, `allowable_values`, bounds, …).
    #[serde(default)]
    pub registry: JsonObject,
}

/// A piece of firmware.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FirmwareComponent {
    /// `bios`, `bmc` or `nic:<id>`.
    pub component: String,
    /// Version when first seen.
    pub initial_version: String,
    /// Version now.
    pub current_version: Option<String>,
    /// Version last written by Ferrite.
    pub last_version_flashed: Option<String>,
    /// Who made it.
    pub vendor: Option<String>,
    /// Which model.
    pub model: Option<String>,
    /// Its serial number.
    pub serial_number: Option<String>,
    /// When it was first seen.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
}

named! {
    /// How bad a line of history is.
    Severity {
        /// Something went wrong.
        Error = "ERROR",
        /// Something happened.
        Info = "INFO",
    }
}

/// A line of a node's history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryEntry {
    /// Its identity.
    pub id: HistoryId,
    /// The machine.
    pub node_id: NodeId,
    /// When.
    pub created_at: Timestamp,
    /// What kind of event: `deploying`, `monitoring`, …
    pub event_type: String,
    /// How bad.
    pub severity: Severity,
    /// What happened.
    pub event: String,
    /// The process that saw it.
    pub conductor: Option<String>,
    /// The user whose request it was.
    pub user: Option<String>,
    /// The project of that user.
    pub project: Option<String>,
    /// The provision state at that moment.
    pub state: Option<String>,
    /// The target state at that moment.
    pub target_provision_state: Option<String>,
    /// How long the flow took that ended here.
    pub duration_seconds: Option<i64>,
}

/// What the last inspection found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inventory {
    /// The machine.
    pub node_id: NodeId,
    /// When it was found.
    pub created_at: Timestamp,
    /// CPUs, disks, network cards and the rest, as the agent sent them.
    pub inventory: JsonObject,
    /// Everything else the ramdisk or the hooks found.
    pub plugin_data: JsonObject,
    /// What hooks and flavours found for the node's properties, capabilities, traits and resource
    /// class, so that the next inspection can tell it from what an operator said. Not shown.
    pub found: JsonObject,
}
