// SPDX-License-Identifier: Apache-2.0
//! Flavours: kinds of machines, told apart by what inspection finds.

use crate::{FlavourId, JsonArray, JsonObject, Timestamp};

/// A kind of machine: conditions over what was found, and what machines that fulfil them are given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flavour {
    /// Its identity.
    pub id: FlavourId,
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// Free text.
    pub description: Option<String>,
    /// Higher is looked at first, and the first that fits gives the resource class.
    pub priority: i64,
    /// All must hold; the language of inspection rules.
    pub conditions: JsonArray,
    /// The resource class of such machines.
    pub resource_class: Option<String>,
    /// Traits that such machines get.
    pub traits: Vec<String>,
    /// Properties that such machines get.
    pub properties: JsonObject,
    /// Capabilities that such machines get.
    pub capabilities: JsonObject,
    /// Whether it replaces a resource class, properties and capabilities that are there already.
    pub overwrite: bool,
}
