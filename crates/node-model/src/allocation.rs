// SPDX-License-Identifier: Apache-2.0
//! A request for any machine of a kind.

use crate::named;
use crate::{AllocationId, JsonObject, NodeId, Timestamp};

named! {
    /// How far an allocation has come.
    AllocationState {
        /// A machine is being looked for.
        Allocating = "allocating",
        /// A machine was found and is held.
        Active = "active",
        /// None was found.
        Error = "error",
    }
}

/// A request for a machine by resource class and traits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// Its identity; also the instance uuid of the machine it holds.
    pub id: AllocationId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// Unique name.
    pub name: Option<String>,
    /// How far it has come.
    pub state: AllocationState,
    /// The machine it holds.
    pub node_id: Option<NodeId>,
    /// The kind of machine wanted.
    pub resource_class: Option<String>,
    /// Traits the machine must have.
    pub traits: Vec<String>,
    /// Only these machines.
    pub candidate_nodes: Vec<NodeId>,
    /// Why no machine was found.
    pub last_error: Option<String>,
    /// Project that owns it.
    pub owner: Option<String>,
    /// Whatever the operator wants to keep with it.
    pub extra: JsonObject,
}
