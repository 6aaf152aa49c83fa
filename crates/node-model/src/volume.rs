// SPDX-License-Identifier: Apache-2.0
//! Remote volumes and how a node reaches them.

use crate::{JsonObject, NodeId, Timestamp, VolumeConnectorId, VolumeTargetId};

/// The node's end of a storage network: an initiator name or a port name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeConnector {
    /// Its identity.
    pub id: VolumeConnectorId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// The machine.
    pub node_id: NodeId,
    /// `iqn`, `wwpn`, `wwnn`, `ip`, `mac`, …
    pub kind: String,
    /// The initiator or port name; unique within its kind.
    pub connector_id: String,
    /// Whatever the operator wants to keep with it.
    pub extra: JsonObject,
}

/// A remote volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeTarget {
    /// Its identity.
    pub id: VolumeTargetId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// The machine.
    pub node_id: NodeId,
    /// `iscsi`, `fibre_channel`, …
    pub volume_type: String,
    /// The volume in the storage service.
    pub volume_id: String,
    /// Zero for the volume booted from; unique within a node.
    pub boot_index: i64,
    /// How to connect. Secrets are masked.
    pub properties: JsonObject,
    /// The secrets of `properties`, encrypted by the store.
    pub sealed: Vec<u8>,
    /// Whatever the operator wants to keep with it.
    pub extra: JsonObject,
}
