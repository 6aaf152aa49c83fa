// SPDX-License-Identifier: Apache-2.0
//! Chassis as Ironic shows them.

use node_model::{Chassis, ChassisId, JsonObject, Timestamp};

use crate::body::Writable;
use crate::field::{Field, Identity, Resource, Shape};
use crate::rows::{created_at_row, links_row, object_row, text_row, updated_at_row, uuid_row};
use crate::value::{SHORT_TEXT, object, text};
use crate::version::ApiVersion;

impl Resource for Chassis {
    const KIND: &'static str = "chassis";
    const COLLECTION: &'static str = "chassis";
    const PATH: &'static str = "chassis";
    type Draft = Self;

    fn fields() -> &'static [Field<Self>] {
        FIELDS
    }

    fn identity(&self) -> Identity<'_> {
        Identity::Uuid(self.id.0)
    }
}

impl Writable for Chassis {
    fn blank(now: Timestamp, _version: ApiVersion) -> Self {
        Self {
            id: ChassisId::random(),
            created_at: now,
            updated_at: None,
            description: None,
            extra: JsonObject::empty(),
        }
    }

    fn of(draft: &Self) -> &Self {
        draft
    }
}

static FIELDS: &[Field<Chassis>] = &[
    uuid_row!(Chassis, 1, |draft| draft.id.0),
    text_row!(Chassis, "description", 1, description).listed().written(|draft, value, _| {
        draft.description = text(value, SHORT_TEXT)?;
        Ok(())
    }),
    links_row!(Chassis, 1),
    created_at_row!(Chassis, 1),
    updated_at_row!(Chassis, 1),
    object_row!(Chassis, "extra", 1, extra).written(|draft, value, _| {
        draft.extra = object(value)?.into();
        Ok(())
    }),
    Field::<Chassis>::new("nodes", 1, Shape::Links, |w, chassis, context| {
        // Ironic wraps this one pair of links in another array; clients have learnt to expect it.
        w.begin_array();
        context.links(w, "chassis", chassis.identity(), "/nodes");
        w.end_array();
    })
    .needs(&["uuid"]),
];
