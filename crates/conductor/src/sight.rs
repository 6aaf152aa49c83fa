// SPDX-License-Identifier: Apache-2.0
//! A node as drivers see it: composed driver, revealed secrets, ports and volumes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bmc_drivers::{Driver, Registry, Target};
use node_model::{
    ConductorInfo, JsonObject, Node, NodeId, Port, Portgroup, Secret, Timestamp, VolumeConnector,
    VolumeTarget,
};
use serde_json::{Map, Value};
use store::{NodeFilter, PortFilter, PortgroupFilter, Query, Reader, VolumeFilter};

use crate::{Error, Settings};

/// Everything read about a node before a driver is called.
pub(crate) struct Sight {
    pub(crate) node: Node,
    pub(crate) belongings: Arc<Belongings>,
    driver_info: Map<String, Value>,
    instance_info: Map<String, Value>,
    agent_token: Option<Secret<String>>,
    notes: JsonObject,
}

/// What belongs to a node. It seldom changes, so a job reads it again only now and then.
pub(crate) struct Belongings {
    ports: Vec<Port>,
    portgroups: Vec<Portgroup>,
    volume_connectors: Vec<VolumeConnector>,
    volume_targets: Vec<VolumeTarget>,
    read_at: Timestamp,
}

impl Belongings {
    fn read(reader: &mut Reader<'_>, node: NodeId) -> Result<Self, store::Error> {
        let id = Some(node);
        let volumes = || VolumeFilter { node: id, ..VolumeFilter::default() };
        Ok(Self {
            ports: reader.collect(&Query {
                filter: PortFilter { node: id, ..PortFilter::default() },
                ..Query::default()
            })?,
            portgroups: reader.collect(&Query {
                filter: PortgroupFilter { node: id, ..PortgroupFilter::default() },
                ..Query::default()
            })?,
            volume_connectors: reader.collect(&Query { filter: volumes(), ..Query::default() })?,
            volume_targets: reader.collect(&Query { filter: volumes(), ..Query::default() })?,
            read_at: reader.now(),
        })
    }
}

impl Belongings {
    fn of_many(
        reader: &mut Reader<'_>,
        ids: &[NodeId],
    ) -> Result<HashMap<NodeId, Self>, store::Error> {
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
        for port in reader.collect::<Port>(&Query { filter, ..Query::default() })? {
            if let Some(of_node) = all.get_mut(&port.node_id) {
                of_node.ports.push(port);
            }
        }
        let filter = PortgroupFilter { nodes: nodes.clone(), ..PortgroupFilter::default() };
        for bond in reader.collect::<Portgroup>(&Query { filter, ..Query::default() })? {
            if let Some(of_node) = all.get_mut(&bond.node_id) {
                of_node.portgroups.push(bond);
            }
        }
        let query = Query { filter: volumes(), ..Query::default() };
        for connector in reader.collect::<VolumeConnector>(&query)? {
            if let Some(of_node) = all.get_mut(&connector.node_id) {
                of_node.volume_connectors.push(connector);
            }
        }
        let query = Query { filter: volumes(), ..Query::default() };
        for target in reader.collect::<VolumeTarget>(&query)? {
            if let Some(of_node) = all.get_mut(&target.node_id) {
                of_node.volume_targets.push(target);
            }
        }
        Ok(all)
    }
}

/// How long what belongs to a node is believed to be as it was.
const FRESH_FOR: Duration = Duration::from_secs(2);

impl Sight {
    /// Reads what belongs to `node`.
    pub(crate) fn of(reader: &mut Reader<'_>, node: Node) -> Result<Self, store::Error> {
        let belongings = Arc::new(Belongings::read(reader, node.id)?);
        Self::with(reader, node, belongings)
    }

    /// Reads nodes and what belongs to them, in the order of `ids`. Those that are not there are left
    /// out.
    pub(crate) fn many(reader: &mut Reader<'_>, ids: &[NodeId]) -> Result<Vec<Self>, store::Error> {
        let mut belongings = Belongings::of_many(reader, ids)?;
        let filter = NodeFilter { ids: Some(ids.to_vec()), ..NodeFilter::default() };
        let nodes = reader.collect::<Node>(&Query { filter, ..Query::default() })?;
        let mut nodes: HashMap<NodeId, Node> =
            nodes.into_iter().map(|node| (node.id, node)).collect();
        let mut sights = Vec::with_capacity(nodes.len());
        for id in ids {
            // One that is named twice is there once.
            let (Some(node), Some(belongings)) = (nodes.remove(id), belongings.remove(id)) else {
                continue;
            };
            sights.push(Self::with(reader, node, Arc::new(belongings))?);
        }
        Ok(sights)
    }

    /// Reads what belongs to `node`, unless that was done a moment ago.
    pub(crate) fn again(
        reader: &mut Reader<'_>,
        node: Node,
        before: &Arc<Belongings>,
    ) -> Result<Self, store::Error> {
        if reader.now().since(before.read_at) < FRESH_FOR {
            Self::with(reader, node, Arc::clone(before))
        } else {
            Self::of(reader, node)
        }
    }

    fn with(
        reader: &mut Reader<'_>,
        node: Node,
        belongings: Arc<Belongings>,
    ) -> Result<Self, store::Error> {
        let secrets = reader.reveal(&node)?;
        let notes = node.work.as_ref().map(|work| work.notes.clone()).unwrap_or_default();
        Ok(Self {
            node,
            belongings,
            driver_info: secrets.driver_info,
            instance_info: secrets.instance_info,
            agent_token: secrets.agent_token,
            notes,
        })
    }

    /// Reads a node and what belongs to it.
    pub(crate) fn load(reader: &mut Reader<'_>, id: NodeId) -> Result<Self, Error> {
        let node = reader.get(id)?.ok_or_else(|| Error::NoSuchNode(id.to_string()))?;
        Ok(Self::of(reader, node)?)
    }

    /// The same, as if the node had been given these members of `instance_info`.
    pub(crate) fn given(mut self, instance_info: Map<String, Value>) -> Self {
        if !instance_info.is_empty() {
            let mut shown = self.node.instance_info.parse();
            shown.extend(instance_info.clone());
            self.node.instance_info = shown.into();
            self.instance_info.extend(instance_info);
        }
        self
    }

    /// The driver the node's interfaces make up.
    pub(crate) fn driver(&self, registry: &Registry) -> Result<Driver, Error> {
        registry
            .compose(&self.node)
            .map_err(|source| Error::Selection { node: self.node.label(), source })
    }

    /// What an interface is given.
    pub(crate) fn target<'a>(&'a self, driver: &'a Driver, now: Timestamp) -> Target<'a> {
        Target {
            driver,
            node: &self.node,
            driver_info: &self.driver_info,
            instance_info: &self.instance_info,
            agent_token: self.agent_token.as_ref(),
            ports: &self.belongings.ports,
            portgroups: &self.belongings.portgroups,
            volume_connectors: &self.belongings.volume_connectors,
            volume_targets: &self.belongings.volume_targets,
            now,
            notes: &self.notes,
            calls: None,
        }
    }

    /// The error of a driver, with the machine's name.
    pub(crate) fn failed(&self, source: bmc_drivers::Error) -> Error {
        Error::Driver { node: self.node.label(), source }
    }
}

/// The processes that share the database and have given a sign of life lately.
pub(crate) fn alive_conductors(
    reader: &mut Reader<'_>,
    settings: &Settings,
) -> Result<Vec<ConductorInfo>, store::Error> {
    let patience = Duration::from_secs(settings.heartbeat_timeout);
    let now = reader.now();
    let mut conductors = reader.conductors()?;
    conductors.retain(|known| known.online && now.since(known.updated_at) <= patience);
    Ok(conductors)
}

/// Which of `conductors` looks after a node: of those alive, in its group and with its driver, the
/// one with the highest hash of both names. Every process computes the same answer, and a process
/// that comes or goes moves only its own share. None for an orphan.
#[must_use]
pub fn conductor_of<'a>(
    node: &Node,
    conductors: impl IntoIterator<Item = &'a ConductorInfo>,
) -> Option<&'a str> {
    conductors
        .into_iter()
        .filter(|conductor| {
            conductor.conductor_group == node.conductor_group
                && conductor.drivers.contains(&node.driver)
        })
        .map(|conductor| conductor.hostname.as_str())
        .max_by_key(|hostname| weight(hostname, node.id))
}

/// FNV-1a over the host name and the node's id, mixed once more so that close names spread.
fn weight(hostname: &str, node: NodeId) -> u64 {
    let bytes = hostname.bytes().chain(node.0.into_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conductor(hostname: &str, drivers: &[&str]) -> ConductorInfo {
        ConductorInfo {
            hostname: hostname.to_owned(),
            run: None,
            conductor_group: String::new(),
            drivers: drivers.iter().map(|driver| (*driver).to_owned()).collect(),
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            online: true,
        }
    }

    #[test]
    fn nodes_spread_evenly_and_stay_when_another_conductor_leaves() {
        let three: Vec<_> =
            ["a", "b", "c"].iter().map(|name| conductor(name, &["fake-hardware"])).collect();
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..3000 {
            let node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
            let owner = conductor_of(&node, &three).unwrap();
            *counts.entry(owner).or_insert(0) += 1;
            if owner != "c" {
                assert_eq!(conductor_of(&node, &three[..2]), Some(owner));
            }
        }
        assert!(counts.values().all(|count| (800..1200).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_node_nobody_can_drive_is_an_orphan() {
        let node = Node::new(NodeId::random(), "redfish", Timestamp(0));
        assert_eq!(conductor_of(&node, &[conductor("a", &["fake-hardware"])]), None);
    }
}
