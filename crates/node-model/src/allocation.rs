// SPDX-License-Identifier: Apache-2.0
//! Allocations: requests for any node with a resource class and traits.

use crate::named_enum;
use crate::{AllocationId, JsonObject, NodeId, Timestamp};

named_enum! {
    /// The state of an allocation.
    AllocationState {
        /// Not processed yet.
        Allocating = "allocating",
        /// Holds a node.
        Active = "active",
        /// No node matches.
        Error = "error",
    }
}

/// A request for a node by resource class and traits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// The id; also the instance uuid of the node.
    pub id: AllocationId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// The unique name.
    pub name: Option<String>,
    /// The state.
    pub state: AllocationState,
    /// The allocated node.
    pub node_id: Option<NodeId>,
    /// The requested resource class.
    pub resource_class: Option<String>,
    /// The requested traits.
    pub traits: Vec<String>,
    /// Restricts the search to these nodes; empty means all.
    pub candidate_nodes: Vec<NodeId>,
    /// Why no node matched.
    pub last_error: Option<String>,
    /// The project that owns it.
    pub owner: Option<String>,
    /// Free-form data of the operator.
    pub extra: JsonObject,
}
