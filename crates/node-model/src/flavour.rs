// SPDX-License-Identifier: Apache-2.0
//! Flavours: classes of machines, defined by conditions over the inventory.

use crate::{FlavourId, JsonArray, JsonObject, Timestamp};

/// Conditions over the inventory, and what machines that satisfy them are given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flavour {
    /// The id.
    pub id: FlavourId,
    /// The name.
    pub name: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// Free text.
    pub description: Option<String>,
    /// Flavours with a higher priority are evaluated first; the first match sets the resource class.
    pub priority: i64,
    /// All must hold. The syntax is that of inspection rules.
    pub conditions: JsonArray,
    /// The resource class of matching machines.
    pub resource_class: Option<String>,
    /// Traits added to matching machines.
    pub traits: Vec<String>,
    /// Properties set on matching machines.
    pub properties: JsonObject,
    /// Capabilities set on matching machines.
    pub capabilities: JsonObject,
    /// Whether existing resource class, properties and capabilities are replaced.
    pub overwrite: bool,
}
