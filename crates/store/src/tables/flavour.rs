// SPDX-License-Identifier: Apache-2.0
//! The `flavours` table.

use node_model::{Flavour, FlavourId, JsonArray, JsonObject, Timestamp};
use uuid::Uuid;

use crate::query::SqlBuilder;
use crate::record::{ResourceFilter, columns, resource};

columns!(Flavour, FlavourColumn, "flavours", blank_flavour(), {
    Uuid "uuid" id;
    Name "name" name;
    CreatedAt "created_at" created_at;
    UpdatedAt "updated_at" updated_at;
    Description "description" description;
    Priority "priority" priority;
    Conditions "conditions" conditions;
    ResourceClass "resource_class" resource_class;
    Traits "traits" traits;
    Properties "properties" properties;
    Capabilities "capabilities" capabilities;
    Overwrite "overwrite" overwrite;
});
resource!(Flavour, FlavourId, FlavourFilter);

/// Filter for lists of flavours; there are no conditions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlavourFilter;

impl ResourceFilter for FlavourFilter {
    fn add_conditions<'a>(&'a self, _: &mut SqlBuilder<'a>) {}
}

fn blank_flavour() -> Flavour {
    Flavour {
        id: FlavourId(Uuid::nil()),
        name: String::new(),
        created_at: Timestamp(0),
        updated_at: None,
        description: None,
        priority: 0,
        conditions: JsonArray::empty(),
        resource_class: None,
        traits: Vec::new(),
        properties: JsonObject::empty(),
        capabilities: JsonObject::empty(),
        overwrite: false,
    }
}
