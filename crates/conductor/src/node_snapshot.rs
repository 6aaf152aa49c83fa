// SPDX-License-Identifier: Apache-2.0
//! Node snapshots: a node with its ports, volumes and decrypted secrets, for calling its driver.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use drivers::{Driver, DriverRegistry, DriverTarget};
use node_model::{
    JsonObject, Node, NodeId, Port, Portgroup, Secret, Timestamp, VolumeConnector, VolumeTarget,
};
use serde_json::{Map, Value};
use store::{NodeFilter, PortFilter, PortgroupFilter, ResourceQuery, StoreReader, VolumeFilter};

use crate::ConductorError;

/// A node with everything that was read about it in one transaction.
pub(crate) struct NodeSnapshot {
    pub(crate) node: Node,
    pub(crate) resources: Arc<NodeResources>,
    driver_info: Map<String, Value>,
    instance_info: Map<String, Value>,
    agent_token: Option<Secret<String>>,
    driver_state: JsonObject,
}

/// The ports and volumes of a node. They rarely change, so a job reuses them for [`REUSE_TIME`].
pub(crate) struct NodeResources {
    ports: Vec<Port>,
    portgroups: Vec<Portgroup>,
    volume_connectors: Vec<VolumeConnector>,
    volume_targets: Vec<VolumeTarget>,
    read_at: Timestamp,
}

/// How long resources are reused without reading them again.
const REUSE_TIME: Duration = Duration::from_secs(2);

impl NodeResources {
    fn read(reader: &mut StoreReader<'_>, node: NodeId) -> Result<Self, store::StoreError> {
        let id = Some(node);
        let volumes = || VolumeFilter { node: id, ..VolumeFilter::default() };
        let ports = PortFilter { node: id, ..PortFilter::default() };
        let portgroups = PortgroupFilter { node: id, ..PortgroupFilter::default() };
        Ok(Self {
            ports: reader.collect(&ResourceQuery { filter: ports, ..ResourceQuery::default() })?,
            portgroups: reader
                .collect(&ResourceQuery { filter: portgroups, ..ResourceQuery::default() })?,
            volume_connectors: reader
                .collect(&ResourceQuery { filter: volumes(), ..ResourceQuery::default() })?,
            volume_targets: reader
                .collect(&ResourceQuery { filter: volumes(), ..ResourceQuery::default() })?,
            read_at: reader.now(),
        })
    }

    /// Reads the resources of several nodes with one query per table.
    fn read_many(
        reader: &mut StoreReader<'_>,
        ids: &[NodeId],
    ) -> Result<HashMap<NodeId, Self>, store::StoreError> {
        let read_at = reader.now();
        let empty = || Self {
            ports: Vec::new(),
            portgroups: Vec::new(),
            volume_connectors: Vec::new(),
            volume_targets: Vec::new(),
            read_at,
        };
        let mut all: HashMap<NodeId, Self> = ids.iter().map(|id| (*id, empty())).collect();
        let nodes = Some(ids.to_vec());
        let volumes = || VolumeFilter { nodes: nodes.clone(), ..VolumeFilter::default() };
        let filter = PortFilter { nodes: nodes.clone(), ..PortFilter::default() };
        for port in reader.collect::<Port>(&ResourceQuery { filter, ..ResourceQuery::default() })? {
            if let Some(resources) = all.get_mut(&port.node_id) {
                resources.ports.push(port);
            }
        }
        let filter = PortgroupFilter { nodes: nodes.clone(), ..PortgroupFilter::default() };
        let query = ResourceQuery { filter, ..ResourceQuery::default() };
        for portgroup in reader.collect::<Portgroup>(&query)? {
            if let Some(resources) = all.get_mut(&portgroup.node_id) {
                resources.portgroups.push(portgroup);
            }
        }
        let query = ResourceQuery { filter: volumes(), ..ResourceQuery::default() };
        for connector in reader.collect::<VolumeConnector>(&query)? {
            if let Some(resources) = all.get_mut(&connector.node_id) {
                resources.volume_connectors.push(connector);
            }
        }
        let query = ResourceQuery { filter: volumes(), ..ResourceQuery::default() };
        for target in reader.collect::<VolumeTarget>(&query)? {
            if let Some(resources) = all.get_mut(&target.node_id) {
                resources.volume_targets.push(target);
            }
        }
        Ok(all)
    }
}

impl NodeSnapshot {
    /// Reads the resources and secrets of `node`.
    pub(crate) fn read(
        reader: &mut StoreReader<'_>,
        node: Node,
    ) -> Result<Self, store::StoreError> {
        let resources = Arc::new(NodeResources::read(reader, node.id)?);
        Self::with_resources(reader, node, resources)
    }

    /// Reads nodes with their resources and secrets, in the order of `ids`. Missing nodes and
    /// duplicates are skipped.
    pub(crate) fn read_many(
        reader: &mut StoreReader<'_>,
        ids: &[NodeId],
    ) -> Result<Vec<Self>, store::StoreError> {
        let mut resources = NodeResources::read_many(reader, ids)?;
        let filter = NodeFilter { ids: Some(ids.to_vec()), ..NodeFilter::default() };
        let nodes =
            reader.collect::<Node>(&ResourceQuery { filter, ..ResourceQuery::default() })?;
        let mut nodes: HashMap<NodeId, Node> =
            nodes.into_iter().map(|node| (node.id, node)).collect();
        let mut snapshots = Vec::with_capacity(nodes.len());
        for id in ids {
            if let (Some(node), Some(resources)) = (nodes.remove(id), resources.remove(id)) {
                snapshots.push(Self::with_resources(reader, node, Arc::new(resources))?);
            }
        }
        Ok(snapshots)
    }

    /// Reads the secrets of `node`, and its resources unless `before` is recent.
    pub(crate) fn refresh(
        reader: &mut StoreReader<'_>,
        node: Node,
        before: &Arc<NodeResources>,
    ) -> Result<Self, store::StoreError> {
        if reader.now().since(before.read_at) < REUSE_TIME {
            Self::with_resources(reader, node, Arc::clone(before))
        } else {
            Self::read(reader, node)
        }
    }

    fn with_resources(
        reader: &mut StoreReader<'_>,
        node: Node,
        resources: Arc<NodeResources>,
    ) -> Result<Self, store::StoreError> {
        let secrets = reader.reveal(&node)?;
        let driver_state =
            node.work.as_ref().map(|work| work.driver_state.clone()).unwrap_or_default();
        Ok(Self {
            node,
            resources,
            driver_info: secrets.driver_info,
            instance_info: secrets.instance_info,
            agent_token: secrets.agent_token,
            driver_state,
        })
    }

    /// Reads a node with its resources and secrets. Fails if the node does not exist.
    pub(crate) fn load(reader: &mut StoreReader<'_>, id: NodeId) -> Result<Self, ConductorError> {
        let node = reader.get(id)?.ok_or_else(|| ConductorError::NoSuchNode(id.to_string()))?;
        Ok(Self::read(reader, node)?)
    }

    /// Adds members to `instance_info`, for a node that does not have them yet.
    pub(crate) fn with_instance_info(mut self, instance_info: Map<String, Value>) -> Self {
        if !instance_info.is_empty() {
            let mut masked = self.node.instance_info.parse();
            masked.extend(instance_info.clone());
            self.node.instance_info = masked.into();
            self.instance_info.extend(instance_info);
        }
        self
    }

    /// Composes the driver of the node's interfaces.
    pub(crate) fn driver(&self, registry: &DriverRegistry) -> Result<Driver, ConductorError> {
        registry
            .compose(&self.node)
            .map_err(|source| ConductorError::Selection { node: self.node.label(), source })
    }

    /// The argument of driver calls.
    pub(crate) fn target<'a>(&'a self, driver: &'a Driver, now: Timestamp) -> DriverTarget<'a> {
        DriverTarget {
            driver,
            node: &self.node,
            driver_info: &self.driver_info,
            instance_info: &self.instance_info,
            agent_token: self.agent_token.as_ref(),
            ports: &self.resources.ports,
            portgroups: &self.resources.portgroups,
            volume_connectors: &self.resources.volume_connectors,
            volume_targets: &self.resources.volume_targets,
            now,
            driver_state: &self.driver_state,
            job: lifecycle::job_hints(&self.node),
            call_log: None,
        }
    }

    /// Wraps a driver's error with the name of the node.
    pub(crate) fn driver_error(&self, source: drivers::DriverError) -> ConductorError {
        ConductorError::Driver { node: self.node.label(), source }
    }
}
