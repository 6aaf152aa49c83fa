// SPDX-License-Identifier: Apache-2.0
//! The table of allocations.

use node_model::{Allocation, AllocationId, AllocationState, JsonObject, NodeId, Timestamp};
use uuid::Uuid;

use super::given;
use crate::query::Where;
use crate::record::{Filter, columns, resource};
use crate::value::Field;

columns!(Allocation, AllocationColumn, "allocations", blank(), {
    Uuid "uuid" id;
    Name "name" name;
    NodeUuid "node_uuid" node_id;
    State "state" state;
    ResourceClass "resource_class" resource_class;
    Owner "owner" owner;
    CreatedAt "created_at" created_at;
    UpdatedAt "updated_at" updated_at;
    LastError "last_error" last_error;
    Traits "traits" traits;
    CandidateNodes "candidate_nodes" candidate_nodes;
    Extra "extra" extra;
});
resource!(Allocation, AllocationId, AllocationFilter);

/// What a list of allocations can be narrowed by.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AllocationFilter {
    /// Holding this node.
    pub node: Option<NodeId>,
    /// Asking for this resource class.
    pub resource_class: Option<String>,
    /// In one of these states.
    pub states: Option<Vec<AllocationState>>,
    /// Owned by this project.
    pub owner: Option<String>,
}

impl Filter for AllocationFilter {
    fn conditions<'a>(&'a self, to: &mut Where<'a>) {
        to.equals("node_uuid", given(&self.node));
        to.equals("resource_class", given(&self.resource_class));
        to.equals("owner", given(&self.owner));
        if let Some(states) = &self.states {
            to.any_of("state", states.iter().map(Field::bind));
        }
    }
}

fn blank() -> Allocation {
    Allocation {
        id: AllocationId(Uuid::nil()),
        created_at: Timestamp(0),
        updated_at: None,
        name: None,
        state: AllocationState::Allocating,
        node_id: None,
        resource_class: None,
        traits: Vec::new(),
        candidate_nodes: Vec::new(),
        last_error: None,
        owner: None,
        extra: JsonObject::empty(),
    }
}
