// SPDX-License-Identifier: Apache-2.0
//! The values that an inspection derived from a report, stored for comparison by the next one.
//!
//! Reports are unauthenticated, so values set by an operator are kept. A value that still equals the
//! one derived by the last inspection was not set by an operator, and may follow the hardware.

use node_model::{Inventory, JsonObject};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Values that hooks and flavours derived, whether or not they were written to the node.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DerivedValues {
    /// Keys of `properties`, without `capabilities`.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) properties: Map<String, Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) capabilities: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_class: Option<String>,
    /// Traits added by flavours.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) traits: Vec<String>,
}

impl DerivedValues {
    /// Returns the values stored with `inventory`; empty if they cannot be parsed.
    pub(crate) fn from_inventory(inventory: &Inventory) -> Self {
        serde_json::from_str(inventory.derived.as_str()).unwrap_or_default()
    }

    pub(crate) fn to_json(&self) -> JsonObject {
        // Maps with string keys always serialize.
        JsonObject::from_stored(&serde_json::to_string(self).unwrap_or_default())
    }
}
