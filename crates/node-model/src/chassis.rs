// SPDX-License-Identifier: Apache-2.0
//! A rack or enclosure that groups nodes.

use crate::{ChassisId, JsonObject, Timestamp};

/// A group of nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chassis {
    /// The id.
    pub id: ChassisId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// Free text.
    pub description: Option<String>,
    /// Free-form data of the operator.
    pub extra: JsonObject,
}
