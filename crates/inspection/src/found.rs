// SPDX-License-Identifier: Apache-2.0
//! What an inspection found for the node, remembered until the next one.
//!
//! Nobody vouches for a ramdisk, so what an operator said stays. But what an inspection said may
//! follow the hardware: a value that is still what the last inspection found is nobody else's.

use node_model::{Inventory, JsonObject};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What hooks and flavours found, whether or not it was written into the node.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Found {
    /// By key of `properties`; capabilities are apart.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) properties: Map<String, Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) capabilities: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_class: Option<String>,
    /// Traits that flavours gave.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) traits: Vec<String>,
}

impl Found {
    /// What was stored with an inventory.
    pub(crate) fn of(inventory: &Inventory) -> Self {
        serde_json::from_str(inventory.found.as_str()).unwrap_or_default()
    }

    pub(crate) fn stored(&self) -> JsonObject {
        // Keys are strings, so writing cannot fail; were it to, nothing would count as found.
        JsonObject::from_stored(&serde_json::to_string(self).unwrap_or_default())
    }
}
