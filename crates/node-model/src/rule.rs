// SPDX-License-Identifier: Apache-2.0
//! Inspection rules: conditions over inspection data, and actions.

use crate::{JsonArray, RuleId, Timestamp};

/// Whether a rule's content may be shown to users.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sensitive {
    /// It may be shown.
    No,
    /// Conditions and actions contain secrets and are never shown.
    Yes,
}

/// A rule over inspection data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InspectionRule {
    /// The id.
    pub id: RuleId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// Free text.
    pub description: Option<String>,
    /// Rules with a higher priority run first.
    pub priority: i64,
    /// The phase in which it runs; only `main` exists.
    pub phase: Option<String>,
    /// Whether its content may be shown to users.
    pub sensitive: Sensitive,
    /// All must hold.
    pub conditions: JsonArray,
    /// Run in order.
    pub actions: JsonArray,
}
