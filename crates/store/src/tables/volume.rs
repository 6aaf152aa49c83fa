// SPDX-License-Identifier: Apache-2.0
//! The `volume_connectors` and `volume_targets` tables.

use node_model::{
    JsonObject, NodeId, Timestamp, VolumeConnector, VolumeConnectorId, VolumeTarget, VolumeTargetId,
};
use uuid::Uuid;

use super::network::node_in;
use super::{filter_by_node, optional_param};
use crate::query::SqlBuilder;
use crate::record::{ResourceFilter, columns, resource};

columns!(VolumeConnector, VolumeConnectorColumn, "volume_connectors", blank_connector(), {
    Uuid "uuid" id;
    NodeUuid "node_uuid" node_id;
    Type "type" kind;
    ConnectorId "connector_id" connector_id;
    CreatedAt "created_at" created_at;
    UpdatedAt "updated_at" updated_at;
    Extra "extra" extra;
});
resource!(VolumeConnector, VolumeConnectorId, VolumeFilter);

columns!(VolumeTarget, VolumeTargetColumn, "volume_targets", blank_target(), {
    Uuid "uuid" id;
    NodeUuid "node_uuid" node_id;
    VolumeType "volume_type" volume_type;
    VolumeId "volume_id" volume_id;
    BootIndex "boot_index" boot_index;
    CreatedAt "created_at" created_at;
    UpdatedAt "updated_at" updated_at;
    Properties "properties" properties;
    Extra "extra" extra;
    Sealed "sealed" sealed;
});
resource!(VolumeTarget, VolumeTargetId, VolumeFilter);

/// Filter for lists of volume connectors and targets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VolumeFilter {
    /// Of this node.
    pub node: Option<NodeId>,
    /// Of one of these nodes.
    pub nodes: Option<Vec<NodeId>>,
    /// Of nodes owned or leased by this project.
    pub project: Option<String>,
}

impl ResourceFilter for VolumeFilter {
    fn add_conditions<'a>(&'a self, to: &mut SqlBuilder<'a>) {
        to.equals("node_uuid", optional_param(&self.node));
        node_in(to, &self.nodes);
        filter_by_node(to, &None, &None, &self.project);
    }
}

fn blank_connector() -> VolumeConnector {
    VolumeConnector {
        id: VolumeConnectorId(Uuid::nil()),
        created_at: Timestamp(0),
        updated_at: None,
        node_id: NodeId(Uuid::nil()),
        kind: String::new(),
        connector_id: String::new(),
        extra: JsonObject::empty(),
    }
}

fn blank_target() -> VolumeTarget {
    VolumeTarget {
        id: VolumeTargetId(Uuid::nil()),
        created_at: Timestamp(0),
        updated_at: None,
        node_id: NodeId(Uuid::nil()),
        volume_type: String::new(),
        volume_id: String::new(),
        boot_index: 0,
        properties: JsonObject::empty(),
        sealed: Vec::new(),
        extra: JsonObject::empty(),
    }
}
