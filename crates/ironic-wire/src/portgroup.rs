// SPDX-License-Identifier: Apache-2.0
//! The wire format of portgroups.

use node_model::{JsonObject, NodeId, Portgroup, PortgroupId, Timestamp};
use uuid::Uuid;

use crate::body::WritableResource;
use crate::field::{FieldShape, ResourceField, ResourceIdentity, WireResource};
use crate::names::name;
use crate::port::{CATEGORY, PHYSICAL_NETWORK};
use crate::rows::{
    created_at_row, flag_row, links_row, node_uuid_row, non_null_text_row, object_row, text_row,
    updated_at_row, uuid_row,
};
use crate::value::{SHORT_TEXT, flag, mac, object_without_secrets, text, text_or_null};
use crate::version::ApiVersion;

/// The default bonding mode.
const DEFAULT_MODE: &str = "active-backup";

impl WireResource for Portgroup {
    const KIND: &'static str = "portgroup";
    const COLLECTION: &'static str = "portgroups";
    const PATH: &'static str = "portgroups";
    type Draft = Self;

    fn fields() -> &'static [ResourceField<Self>] {
        FIELDS
    }

    fn identity(&self) -> ResourceIdentity<'_> {
        ResourceIdentity::Uuid(self.id.0)
    }
}

impl WritableResource for Portgroup {
    fn blank(now: Timestamp, _version: ApiVersion) -> Self {
        Self {
            id: PortgroupId::random(),
            created_at: now,
            updated_at: None,
            node_id: NodeId(Uuid::nil()),
            address: None,
            name: None,
            mode: DEFAULT_MODE.to_owned(),
            properties: JsonObject::empty(),
            standalone_ports_supported: true,
            physical_network: None,
            category: None,
            dynamic_portgroup: false,
            extra: JsonObject::empty(),
            internal_info: JsonObject::empty(),
        }
    }

    fn resource(draft: &Self) -> &Self {
        draft
    }
}

static FIELDS: &[ResourceField<Portgroup>] = &[
    uuid_row!(Portgroup, 23, |draft| draft.id.0),
    ResourceField::<Portgroup>::new("address", 23, FieldShape::Text, |w, group, _| {
        w.optional_string(group.address.as_ref().map(|address| address.as_str()));
    })
    .nullable()
    .columns(&["address"])
    .sortable()
    .listed()
    .writable(|draft, value, _| {
        draft.address = mac(&value)?;
        Ok(())
    }),
    text_row!(Portgroup, "name", 23, name).listed().writable(|draft, value, _| {
        draft.name = name(value)?;
        Ok(())
    }),
    links_row!(Portgroup, 23),
    created_at_row!(Portgroup, 23),
    updated_at_row!(Portgroup, 23),
    node_uuid_row!(Portgroup, 23, |draft| draft.node_id.0).required(),
    object_row!(Portgroup, "extra", 23, extra).writable(|draft, value, _| {
        draft.extra = object_without_secrets(value)?.into();
        Ok(())
    }),
    object_row!(Portgroup, "internal_info", 23, internal_info),
    flag_row!(Portgroup, "standalone_ports_supported", 23, standalone_ports_supported).writable(
        |draft, value, _| {
            draft.standalone_ports_supported = flag(&value)?.unwrap_or(true);
            Ok(())
        },
    ),
    ResourceField::<Portgroup>::new("ports", 23, FieldShape::Links, |w, group, context| {
        context.links(w, "portgroups", group.identity(), "/ports");
    })
    .columns(&["uuid"]),
    non_null_text_row!(Portgroup, "mode", 26, mode).writable(|draft, value, _| {
        draft.mode = text(value, SHORT_TEXT)?.unwrap_or_else(|| DEFAULT_MODE.to_owned());
        Ok(())
    }),
    object_row!(Portgroup, "properties", 26, properties).writable(|draft, value, _| {
        draft.properties = object_without_secrets(value)?.into();
        Ok(())
    }),
    text_row!(Portgroup, "physical_network", 102, physical_network).writable(|draft, value, _| {
        draft.physical_network = text_or_null(value, PHYSICAL_NETWORK)?;
        Ok(())
    }),
    text_row!(Portgroup, "category", 103, category).writable(|draft, value, _| {
        draft.category = text(value, CATEGORY)?;
        Ok(())
    }),
    flag_row!(Portgroup, "dynamic_portgroup", 111, dynamic_portgroup),
];
