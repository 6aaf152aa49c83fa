// SPDX-License-Identifier: Apache-2.0
//! The table of chassis.

use node_model::{Chassis, ChassisId, JsonObject, Timestamp};
use uuid::Uuid;

use crate::query::Where;
use crate::record::{Filter, columns, resource};

columns!(Chassis, ChassisColumn, "chassis", blank(), {
    Uuid "uuid" id;
    CreatedAt "created_at" created_at;
    UpdatedAt "updated_at" updated_at;
    Description "description" description;
    Extra "extra" extra;
});
resource!(Chassis, ChassisId, ChassisFilter);

/// A list of chassis is never narrowed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChassisFilter {}

impl Filter for ChassisFilter {
    fn conditions<'a>(&'a self, _to: &mut Where<'a>) {}
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
