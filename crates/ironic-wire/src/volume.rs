// SPDX-License-Identifier: Apache-2.0
//! The wire format of volume connectors and targets.

use node_model::{
    JsonObject, NodeId, Timestamp, VolumeConnector, VolumeConnectorId, VolumeTarget, VolumeTargetId,
};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::body::WritableResource;
use crate::field::{FieldShape, ResourceField, ResourceIdentity, WireResource};
use crate::rows::{
    created_at_row, links_row, node_uuid_row, non_null_text_row, object_row, updated_at_row,
    uuid_row,
};
use crate::value::{SHORT_TEXT, mandatory_text, object, object_without_secrets, unexpected_type};
use crate::version::ApiVersion;

/// Maximum length of a connector type.
const CONNECTOR_TYPE: usize = 32;
/// Maximum length of a volume type.
const VOLUME_TYPE: usize = 64;
/// Maximum length of a volume id.
const VOLUME_ID: usize = 36;

/// A volume target that is being created or changed, with its properties in plain text.
#[derive(Clone, PartialEq, Debug)]
pub struct VolumeTargetDraft {
    /// All fields except the properties.
    pub target: VolumeTarget,
    /// The properties with secrets.
    pub properties: Map<String, Value>,
}

impl WireResource for VolumeConnector {
    const KIND: &'static str = "volume connector";
    const COLLECTION: &'static str = "connectors";
    const PATH: &'static str = "volume/connectors";
    type Draft = Self;

    fn fields() -> &'static [ResourceField<Self>] {
        CONNECTOR_FIELDS
    }

    fn identity(&self) -> ResourceIdentity<'_> {
        ResourceIdentity::Uuid(self.id.0)
    }
}

impl WritableResource for VolumeConnector {
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

    fn resource(draft: &Self) -> &Self {
        draft
    }
}

static CONNECTOR_FIELDS: &[ResourceField<VolumeConnector>] = &[
    uuid_row!(VolumeConnector, 32, |draft| draft.id.0),
    node_uuid_row!(VolumeConnector, 32, |draft| draft.node_id.0).listed().required(),
    non_null_text_row!(VolumeConnector, "type", 32, kind)
        .listed()
        .writable(|draft, value, _| {
            draft.kind = mandatory_text(value, CONNECTOR_TYPE)?;
            Ok(())
        })
        .required(),
    non_null_text_row!(VolumeConnector, "connector_id", 32, connector_id)
        .listed()
        .writable(|draft, value, _| {
            draft.connector_id = mandatory_text(value, SHORT_TEXT)?;
            Ok(())
        })
        .required(),
    links_row!(VolumeConnector, 32),
    created_at_row!(VolumeConnector, 32),
    updated_at_row!(VolumeConnector, 32),
    object_row!(VolumeConnector, "extra", 32, extra).writable(|draft, value, _| {
        draft.extra = object_without_secrets(value)?.into();
        Ok(())
    }),
];

impl WireResource for VolumeTarget {
    const KIND: &'static str = "volume target";
    const COLLECTION: &'static str = "targets";
    const PATH: &'static str = "volume/targets";
    type Draft = VolumeTargetDraft;

    fn fields() -> &'static [ResourceField<Self>] {
        TARGET_FIELDS
    }

    fn identity(&self) -> ResourceIdentity<'_> {
        ResourceIdentity::Uuid(self.id.0)
    }
}

impl WritableResource for VolumeTarget {
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

    fn resource(draft: &VolumeTargetDraft) -> &Self {
        &draft.target
    }

    fn revealed_value(draft: &VolumeTargetDraft, field: &'static str) -> Option<Value> {
        (field == "properties").then(|| Value::Object(draft.properties.clone()))
    }
}

static TARGET_FIELDS: &[ResourceField<VolumeTarget>] = &[
    uuid_row!(VolumeTarget, 32, |draft| draft.target.id.0),
    node_uuid_row!(VolumeTarget, 32, |draft| draft.target.node_id.0).listed().required(),
    non_null_text_row!(VolumeTarget, "volume_type", 32, volume_type)
        .listed()
        .writable(|draft, value, _| {
            draft.target.volume_type = mandatory_text(value, VOLUME_TYPE)?;
            Ok(())
        })
        .required(),
    ResourceField::<VolumeTarget>::new("boot_index", 32, FieldShape::Integer, |w, target, _| {
        w.integer(target.boot_index);
    })
    .columns(&["boot_index"])
    .sortable()
    .listed()
    .writable(|draft, value, _| {
        draft.target.boot_index =
            value.as_i64().ok_or_else(|| unexpected_type("an integer", &value))?;
        Ok(())
    })
    .required(),
    non_null_text_row!(VolumeTarget, "volume_id", 32, volume_id)
        .listed()
        .writable(|draft, value, _| {
            draft.target.volume_id = mandatory_text(value, VOLUME_ID)?;
            Ok(())
        })
        .required(),
    links_row!(VolumeTarget, 32),
    created_at_row!(VolumeTarget, 32),
    updated_at_row!(VolumeTarget, 32),
    ResourceField::<VolumeTarget>::new("properties", 32, FieldShape::Object, |w, it, _| {
        w.object_with_masked_urls(&it.properties);
    })
    .columns(&["properties"])
    .writable(|draft, value, _| {
        draft.properties = object(value)?;
        Ok(())
    }),
    object_row!(VolumeTarget, "extra", 32, extra).writable(|draft, value, _| {
        draft.target.extra = object_without_secrets(value)?.into();
        Ok(())
    }),
];
