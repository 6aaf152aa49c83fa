// SPDX-License-Identifier: Apache-2.0
//! Volume connectors and targets as Ironic shows them.

use node_model::{
    JsonObject, NodeId, Timestamp, VolumeConnector, VolumeConnectorId, VolumeTarget, VolumeTargetId,
};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::body::Writable;
use crate::field::{Field, Identity, Resource, Shape};
use crate::rows::{
    created_at_row, links_row, node_uuid_row, object_row, updated_at_row, uuid_row, whole_text_row,
};
use crate::value::{SHORT_TEXT, expected, mandatory_text, object};
use crate::version::ApiVersion;

/// The longest type of a connector.
const CONNECTOR_TYPE: usize = 32;
/// The longest type of a volume.
const VOLUME_TYPE: usize = 64;
/// The longest id of a volume.
const VOLUME_ID: usize = 36;

/// A volume target being created or changed, its properties in full, secrets included.
#[derive(Clone, PartialEq, Debug)]
pub struct VolumeTargetDraft {
    /// Everything but the properties.
    pub target: VolumeTarget,
    /// How to connect, in full.
    pub properties: Map<String, Value>,
}

impl Resource for VolumeConnector {
    const KIND: &'static str = "volume connector";
    const COLLECTION: &'static str = "connectors";
    const PATH: &'static str = "volume/connectors";
    type Draft = Self;

    fn fields() -> &'static [Field<Self>] {
        CONNECTOR_FIELDS
    }

    fn identity(&self) -> Identity<'_> {
        Identity::Uuid(self.id.0)
    }
}

impl Writable for VolumeConnector {
    fn blank(now: Timestamp, _version: ApiVersion) -> Self {
        Self {
            id: VolumeConnectorId::random(),
            created_at: now,
            updated_at: None,
            node_id: NodeId(Uuid::nil()),
            kind: String::new(),
            connector_id: String::new(),
            extra: JsonObject::empty(),
        }
    }

    fn of(draft: &Self) -> &Self {
        draft
    }
}

static CONNECTOR_FIELDS: &[Field<VolumeConnector>] = &[
    uuid_row!(VolumeConnector, 32, |draft| draft.id.0),
    node_uuid_row!(VolumeConnector, 32, |draft| draft.node_id.0).listed().required(),
    whole_text_row!(VolumeConnector, "type", 32, kind)
        .listed()
        .written(|draft, value, _| {
            draft.kind = mandatory_text(value, CONNECTOR_TYPE)?;
            Ok(())
        })
        .required(),
    whole_text_row!(VolumeConnector, "connector_id", 32, connector_id)
        .listed()
        .written(|draft, value, _| {
            draft.connector_id = mandatory_text(value, SHORT_TEXT)?;
            Ok(())
        })
        .required(),
    links_row!(VolumeConnector, 32),
    created_at_row!(VolumeConnector, 32),
    updated_at_row!(VolumeConnector, 32),
    object_row!(VolumeConnector, "extra", 32, extra).written(|draft, value, _| {
        draft.extra = object(value)?.into();
        Ok(())
    }),
];

impl Resource for VolumeTarget {
    const KIND: &'static str = "volume target";
    const COLLECTION: &'static str = "targets";
    const PATH: &'static str = "volume/targets";
    type Draft = VolumeTargetDraft;

    fn fields() -> &'static [Field<Self>] {
        TARGET_FIELDS
    }

    fn identity(&self) -> Identity<'_> {
        Identity::Uuid(self.id.0)
    }
}

impl Writable for VolumeTarget {
    fn blank(now: Timestamp, _version: ApiVersion) -> VolumeTargetDraft {
        VolumeTargetDraft {
            target: Self {
                id: VolumeTargetId::random(),
                created_at: now,
                updated_at: None,
                node_id: NodeId(Uuid::nil()),
                volume_type: String::new(),
                volume_id: String::new(),
                boot_index: 0,
                properties: JsonObject::empty(),
                sealed: Vec::new(),
                extra: JsonObject::empty(),
            },
            properties: Map::new(),
        }
    }

    fn of(draft: &VolumeTargetDraft) -> &Self {
        &draft.target
    }

    fn revealed(draft: &VolumeTargetDraft, field: &'static str) -> Option<Value> {
        (field == "properties").then(|| Value::Object(draft.properties.clone()))
    }
}

static TARGET_FIELDS: &[Field<VolumeTarget>] = &[
    uuid_row!(VolumeTarget, 32, |draft| draft.target.id.0),
    node_uuid_row!(VolumeTarget, 32, |draft| draft.target.node_id.0).listed().required(),
    whole_text_row!(VolumeTarget, "volume_type", 32, volume_type)
        .listed()
        .written(|draft, value, _| {
            draft.target.volume_type = mandatory_text(value, VOLUME_TYPE)?;
            Ok(())
        })
        .required(),
    Field::<VolumeTarget>::new("boot_index", 32, Shape::Integer, |w, target, _| {
        w.integer(target.boot_index);
    })
    .needs(&["boot_index"])
    .sortable()
    .listed()
    .written(|draft, value, _| {
        draft.target.boot_index = value.as_i64().ok_or_else(|| expected("an integer", &value))?;
        Ok(())
    })
    .required(),
    whole_text_row!(VolumeTarget, "volume_id", 32, volume_id)
        .listed()
        .written(|draft, value, _| {
            draft.target.volume_id = mandatory_text(value, VOLUME_ID)?;
            Ok(())
        })
        .required(),
    links_row!(VolumeTarget, 32),
    created_at_row!(VolumeTarget, 32),
    updated_at_row!(VolumeTarget, 32),
    Field::<VolumeTarget>::new("properties", 32, Shape::Object, |w, it, _| {
        w.object_without_passwords(&it.properties);
    })
    .needs(&["properties"])
    .written(|draft, value, _| {
        draft.properties = object(value)?;
        Ok(())
    }),
    object_row!(VolumeTarget, "extra", 32, extra).written(|draft, value, _| {
        draft.target.extra = object(value)?.into();
        Ok(())
    }),
];
