// SPDX-License-Identifier: Apache-2.0
//! Inspection rules: conditions over what was found, and what to do when they hold.

use crate::{JsonArray, RuleId, Timestamp};

/// Whether a rule's content may be shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sensitive {
    /// It may.
    No,
    /// Conditions and actions hold secrets and are never shown.
    Yes,
}

/// A rule that runs over inspection data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InspectionRule {
    /// Its identity.
    pub id: RuleId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// Free text.
    pub description: Option<String>,
    /// Higher runs first.
    pub priority: i64,
    /// When it runs; `main` today.
    pub phase: Option<String>,
    /// Whether its content may be shown.
    pub sensitive: Sensitive,
    /// All must hold.
    pub conditions: JsonArray,
    /// Carried out in order.
    pub actions: JsonArray,
}
