// SPDX-License-Identifier: Apache-2.0
//! The wire format of allocations.

use node_model::{Allocation, AllocationId, AllocationState, JsonObject, Timestamp};

use crate::body::WritableResource;
use crate::error::WireError;
use crate::field::{FieldShape, ResourceField, ResourceIdentity, WireResource};
use crate::names::{name, traits};
use crate::rows::{created_at_row, links_row, object_row, text_row, updated_at_row, uuid_row};
use crate::value::{SHORT_TEXT, object_without_secrets, text, texts};
use crate::version::ApiVersion;

/// Maximum length of a resource class.
const RESOURCE_CLASS: usize = 80;

/// An allocation that is being created or changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllocationDraft {
    /// The allocation. Its `candidate_nodes` are resolved from the names below by the caller.
    pub allocation: Allocation,
    /// Names or UUIDs of the candidate nodes.
    pub candidate_nodes: Vec<String>,
    /// Name or UUID of the node that already has the instance, for a backfill.
    pub node: Option<String>,
}

impl AllocationDraft {
    /// A draft of an existing allocation, for patching.
    #[must_use]
    pub fn new(allocation: Allocation) -> Self {
        Self { allocation, candidate_nodes: Vec::new(), node: None }
    }
}

impl WireResource for Allocation {
    const KIND: &'static str = "allocation";
    const COLLECTION: &'static str = "allocations";
    const PATH: &'static str = "allocations";
    type Draft = AllocationDraft;

    fn fields() -> &'static [ResourceField<Self>] {
        FIELDS
    }

    fn identity(&self) -> ResourceIdentity<'_> {
        ResourceIdentity::Uuid(self.id.0)
    }

    fn complete(
        draft: &mut AllocationDraft,
        _changed: &[&'static str],
        _version: ApiVersion,
    ) -> Result<(), WireError> {
        if draft.allocation.resource_class.is_none() && draft.node.is_none() {
            // Only a backfill, which has a node, may lack a resource class.
            if draft.allocation.node_id.is_none() {
                return Err(WireError::missing("resource_class"));
            }
        }
        Ok(())
    }
}

impl WritableResource for Allocation {
    fn blank(now: Timestamp, _version: ApiVersion) -> AllocationDraft {
        AllocationDraft::new(Self {
            id: AllocationId::random(),
            created_at: now,
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
        })
    }

    fn resource(draft: &AllocationDraft) -> &Self {
        &draft.allocation
    }
}

/// First microversion in which allocations can be patched.
const PATCH_SINCE: u16 = 57;

static FIELDS: &[ResourceField<Allocation>] = &[
    uuid_row!(Allocation, 52, |draft| draft.allocation.id.0),
    text_row!(Allocation, "name", 52, name)
        .listed()
        .writable(|draft, value, _| {
            draft.allocation.name = name(value)?;
            Ok(())
        })
        .patchable_since(PATCH_SINCE),
    ResourceField::<Allocation>::new("state", 52, FieldShape::Text, |w, it, _| {
        w.string(it.state.as_str())
    })
    .columns(&["state"])
    .sortable()
    .listed(),
    ResourceField::<Allocation>::new("node_uuid", 52, FieldShape::Uuid, |w, it, _| {
        w.optional_uuid(it.node_id.map(|id| id.0));
    })
    .nullable()
    .columns(&["node_uuid"])
    .listed(),
    text_row!(Allocation, "resource_class", 52, resource_class).listed().creatable(
        |draft, value, _| {
            draft.allocation.resource_class = text(value, RESOURCE_CLASS)?;
            Ok(())
        },
    ),
    ResourceField::<Allocation>::new("traits", 52, FieldShape::TextList, |w, it, _| {
        w.strings(&it.traits)
    })
    .columns(&["traits"])
    .listed()
    .creatable(|draft, value, _| {
        draft.allocation.traits = traits(value)?;
        Ok(())
    }),
    ResourceField::<Allocation>::new("candidate_nodes", 52, FieldShape::TextList, |w, it, _| {
        w.begin_array();
        for id in &it.candidate_nodes {
            w.element();
            w.uuid(id.0);
        }
        w.end_array();
    })
    .columns(&["candidate_nodes"])
    .listed()
    .creatable(|draft, value, _| {
        draft.candidate_nodes = texts(value)?;
        Ok(())
    }),
    text_row!(Allocation, "last_error", 52, last_error).listed(),
    object_row!(Allocation, "extra", 52, extra)
        .listed()
        .writable(|draft, value, _| {
            draft.allocation.extra = object_without_secrets(value)?.into();
            Ok(())
        })
        .patchable_since(PATCH_SINCE),
    text_row!(Allocation, "owner", 60, owner).listed().creatable(|draft, value, _| {
        draft.allocation.owner = text(value, SHORT_TEXT)?;
        Ok(())
    }),
    links_row!(Allocation, 52),
    created_at_row!(Allocation, 52).listed(),
    updated_at_row!(Allocation, 52).listed(),
    ResourceField::<Allocation>::create_only("node", 58, FieldShape::Text, |draft, value, _| {
        draft.node = text(value, SHORT_TEXT)?;
        Ok(())
    })
    .unknown_before(),
];
