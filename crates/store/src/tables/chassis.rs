// SPDX-License-Identifier: Apache-2.0
//! The `chassis` table.

use node_model::{Chassis, ChassisId, JsonObject, Timestamp};
use uuid::Uuid;

use crate::query::SqlBuilder;
use crate::record::{ResourceFilter, columns, resource};

columns!(Chassis, ChassisColumn, "chassis", blank(), {
    Uuid "uuid" id;
    CreatedAt "created_at" created_at;
    UpdatedAt "updated_at" updated_at;
    Description "description" description;
    Extra "extra" extra;
});
resource!(Chassis, ChassisId, ChassisFilter);

/// Filter for lists of chassis; there are no conditions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChassisFilter {}

impl ResourceFilter for ChassisFilter {
    fn add_conditions<'a>(&'a self, _to: &mut SqlBuilder<'a>) {}
}

fn blank() -> Chassis {
    Chassis {
        id: ChassisId(Uuid::nil()),
        created_at: Timestamp(0),
        updated_at: None,
        description: None,
        extra: JsonObject::empty(),
    }
}
