// SPDX-License-Identifier: Apache-2.0
//! Allocations as Ironic shows them.

use node_model::{Allocation, AllocationId, AllocationState, JsonObject, Timestamp};

use crate::body::Writable;
use crate::error::WireError;
use crate::field::{Field, Identity, Resource, Shape};
use crate::names::{name, traits};
use crate::rows::{created_at_row, links_row, object_row, text_row, updated_at_row, uuid_row};
use crate::value::{SHORT_TEXT, object, text, texts};
use crate::version::ApiVersion;

/// The longest resource class.
const RESOURCE_CLASS: usize = 80;

/// An allocation being created or changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllocationDraft {
    /// The allocation; its `candidate_nodes` are still to be found from the names below.
    pub allocation: Allocation,
    /// The candidates as the user named them.
    pub candidate_nodes: Vec<String>,
    /// The machine that already holds the instance, as the user named it: a backfill.
    pub node: Option<String>,
}

impl AllocationDraft {
    /// A draft of an allocation as it is now, for patching.
    #[must_use]
    pub fn new(allocation: Allocation) -> Self {
        Self { allocation, candidate_nodes: Vec::new(), node: None }
    }
}

impl Resource for Allocation {
    const KIND: &'static str = "allocation";
    const COLLECTION: &'static str = "allocations";
    const PATH: &'static str = "allocations";
    type Draft = AllocationDraft;

    fn fields() -> &'static [Field<Self>] {
        FIELDS
    }

    fn identity(&self) -> Identity<'_> {
        Identity::Uuid(self.id.0)
    }

    fn complete(
        draft: &mut AllocationDraft,
        _changed: &[&'static str],
        _version: ApiVersion,
    ) -> Result<(), WireError> {
        if draft.allocation.resource_class.is_none() && draft.node.is_none() {
            // An allocation without a class can only exist as a backfill, which has its node.
            if draft.allocation.node_id.is_none() {
                return Err(WireError::missing("resource_class"));
            }
        }
        Ok(())
    }
}

impl Writable for Allocation {
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

    fn of(draft: &AllocationDraft) -> &Self {
        &draft.allocation
    }
}

/// Since when allocations can be patched.
const PATCH_SINCE: u16 = 57;

static FIELDS: &[Field<Allocation>] = &[
    uuid_row!(Allocation, 52, |draft| draft.allocation.id.0),
    text_row!(Allocation, "name", 52, name)
        .listed()
        .written(|draft, value, _| {
            draft.allocation.name = name(value)?;
            Ok(())
        })
        .patched_since(PATCH_SINCE),
    Field::<Allocation>::new("state", 52, Shape::Text, |w, it, _| w.string(it.state.as_str()))
        .needs(&["state"])
        .sortable()
        .listed(),
    Field::<Allocation>::new("node_uuid", 52, Shape::Uuid, |w, it, _| {
        w.optional_uuid(it.node_id.map(|id| id.0));
    })
    .nullable()
    .needs(&["node_uuid"])
    .listed(),
    text_row!(Allocation, "resource_class", 52, resource_class).listed().created(
        |draft, value, _| {
            draft.allocation.resource_class = text(value, RESOURCE_CLASS)?;
            Ok(())
        },
    ),
    Field::<Allocation>::new("traits", 52, Shape::TextList, |w, it, _| w.strings(&it.traits))
        .needs(&["traits"])
        .listed()
        .created(|draft, value, _| {
            draft.allocation.traits = traits(value)?;
            Ok(())
        }),
    Field::<Allocation>::new("candidate_nodes", 52, Shape::TextList, |w, it, _| {
        w.begin_array();
        for id in &it.candidate_nodes {
            w.element();
            w.uuid(id.0);
        }
        w.end_array();
    })
    .needs(&["candidate_nodes"])
    .listed()
    .created(|draft, value, _| {
        draft.candidate_nodes = texts(value)?;
        Ok(())
    }),
    text_row!(Allocation, "last_error", 52, last_error).listed(),
    object_row!(Allocation, "extra", 52, extra)
        .listed()
        .written(|draft, value, _| {
            draft.allocation.extra = object(value)?.into();
            Ok(())
        })
        .patched_since(PATCH_SINCE),
    text_row!(Allocation, "owner", 60, owner).listed().created(|draft, value, _| {
        draft.allocation.owner = text(value, SHORT_TEXT)?;
        Ok(())
    }),
    links_row!(Allocation, 52),
    created_at_row!(Allocation, 52).listed(),
    updated_at_row!(Allocation, 52).listed(),
    Field::<Allocation>::only_created("node", 58, Shape::Text, |draft, value, _| {
        draft.node = text(value, SHORT_TEXT)?;
        Ok(())
    })
    .unknown_before(),
];
