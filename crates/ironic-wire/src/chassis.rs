// SPDX-License-Identifier: Apache-2.0
//! The wire format of chassis.

use node_model::{Chassis, ChassisId, JsonObject, Timestamp};

use crate::body::WritableResource;
use crate::field::{FieldShape, ResourceField, ResourceIdentity, WireResource};
use crate::rows::{created_at_row, links_row, object_row, text_row, updated_at_row, uuid_row};
use crate::value::{SHORT_TEXT, object_without_secrets, text};
use crate::version::ApiVersion;

impl WireResource for Chassis {
    const KIND: &'static str = "chassis";
    const COLLECTION: &'static str = "chassis";
    const PATH: &'static str = "chassis";
    type Draft = Self;

    fn fields() -> &'static [ResourceField<Self>] {
        FIELDS
    }

    fn identity(&self) -> ResourceIdentity<'_> {
        ResourceIdentity::Uuid(self.id.0)
    }
}

impl WritableResource for Chassis {
    fn blank(now: Timestamp, _version: ApiVersion) -> Self {
        Self {
            id: ChassisId::random(),
            created_at: now,
            updated_at: None,
            description: None,
            extra: JsonObject::empty(),
        }
    }

    fn resource(draft: &Self) -> &Self {
        draft
    }
}

static FIELDS: &[ResourceField<Chassis>] = &[
    uuid_row!(Chassis, 1, |draft| draft.id.0),
    text_row!(Chassis, "description", 1, description).listed().writable(|draft, value, _| {
        draft.description = text(value, SHORT_TEXT)?;
        Ok(())
    }),
    links_row!(Chassis, 1),
    created_at_row!(Chassis, 1),
    updated_at_row!(Chassis, 1),
    object_row!(Chassis, "extra", 1, extra).writable(|draft, value, _| {
        draft.extra = object_without_secrets(value)?.into();
        Ok(())
    }),
    ResourceField::<Chassis>::new("nodes", 1, FieldShape::Links, |w, chassis, context| {
        // Ironic wraps these links in another array, and clients expect it.
        w.begin_array();
        context.links(w, "chassis", chassis.identity(), "/nodes");
        w.end_array();
    })
    .columns(&["uuid"]),
];
