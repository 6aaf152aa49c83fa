// SPDX-License-Identifier: Apache-2.0
//! The `allocations` table.

use node_model::{Allocation, AllocationId, AllocationState, JsonObject, NodeId, Timestamp};
use uuid::Uuid;

use super::optional_param;
use crate::query::SqlBuilder;
use crate::record::{ResourceFilter, columns, resource};
use crate::value::ColumnType;

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

/// Filter for lists of allocations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AllocationFilter {
    /// With this node.
    pub node: Option<NodeId>,
    /// With this resource class.
    pub resource_class: Option<String>,
    /// In one of these states.
    pub states: Option<Vec<AllocationState>>,
    /// Owned by this project.
    pub owner: Option<String>,
}

impl ResourceFilter for AllocationFilter {
    fn add_conditions<'a>(&'a self, to: &mut SqlBuilder<'a>) {
        to.equals("node_uuid", optional_param(&self.node));
        to.equals("resource_class", optional_param(&self.resource_class));
        to.equals("owner", optional_param(&self.owner));
        if let Some(states) = &self.states {
            to.in_list("state", states.iter().map(ColumnType::bind));
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
