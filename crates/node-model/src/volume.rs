// SPDX-License-Identifier: Apache-2.0
//! Remote volumes and volume connectors.

use crate::{JsonObject, NodeId, Timestamp, VolumeConnectorId, VolumeTargetId};

/// The node's end of a storage network: an initiator name or a port name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeConnector {
    /// The id.
    pub id: VolumeConnectorId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// The node.
    pub node_id: NodeId,
    /// `iqn`, `wwpn`, `wwnn`, `ip`, `mac`, …
    pub kind: String,
    /// The initiator or port name; unique within its kind.
    pub connector_id: String,
    /// Free-form data of the operator.
    pub extra: JsonObject,
}

/// A remote volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeTarget {
    /// The id.
    pub id: VolumeTargetId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// The node.
    pub node_id: NodeId,
    /// `iscsi`, `fibre_channel`, …
    pub volume_type: String,
    /// The id of the volume in the storage service.
    pub volume_id: String,
    /// Zero for the boot volume; unique within a node.
    pub boot_index: i64,
    /// The connection properties. Secrets are masked.
    pub properties: JsonObject,
    /// The secrets of `properties`, encrypted by the store.
    pub sealed: Vec<u8>,
    /// Free-form data of the operator.
    pub extra: JsonObject,
}
