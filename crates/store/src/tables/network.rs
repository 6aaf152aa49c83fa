// SPDX-License-Identifier: Apache-2.0
//! The tables of ports and portgroups.

use node_model::{JsonObject, Mac, NodeId, Port, PortId, Portgroup, PortgroupId, Timestamp};
use uuid::Uuid;

use super::{given, of_nodes};
use crate::query::Where;
use crate::record::{Filter, columns, resource};
use crate::value::Field;

columns!(Port, PortColumn, "ports", blank_port(), {
    Uuid "uuid" id;
    Address "address" address;
    NodeUuid "node_uuid" node_id;
    Name "name" name;
    CreatedAt "created_at" created_at;
    UpdatedAt "updated_at" updated_at;
    PortgroupUuid "portgroup_uuid" portgroup_id;
    PxeEnabled "pxe_enabled" pxe_enabled;
    IsSmartnic "is_smartnic" is_smartnic;
    PhysicalNetwork "physical_network" physical_network;
    Vendor "vendor" vendor;
    Category "category" category;
    AvailableForDynamicPortgroup "available_for_dynamic_portgroup" available_for_dynamic_portgroup;
    Description "description" description;
    LocalLinkConnection "local_link_connection" local_link_connection;
    Extra "extra" extra;
    InternalInfo "internal_info" internal_info;
});
resource!(Port, PortId, PortFilter);

columns!(Portgroup, PortgroupColumn, "portgroups", blank_portgroup(), {
    Uuid "uuid" id;
    Address "address" address;
    NodeUuid "node_uuid" node_id;
    Name "name" name;
    CreatedAt "created_at" created_at;
    UpdatedAt "updated_at" updated_at;
    Mode "mode" mode;
    StandalonePortsSupported "standalone_ports_supported" standalone_ports_supported;
    PhysicalNetwork "physical_network" physical_network;
    Category "category" category;
    DynamicPortgroup "dynamic_portgroup" dynamic_portgroup;
    Properties "properties" properties;
    Extra "extra" extra;
    InternalInfo "internal_info" internal_info;
});
resource!(Portgroup, PortgroupId, PortgroupFilter);

/// What a list of ports can be narrowed by.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortFilter {
    /// In this node.
    pub node: Option<NodeId>,
    /// In one of these nodes.
    pub nodes: Option<Vec<NodeId>>,
    /// The one with this address.
    pub address: Option<Mac>,
    /// In this bond.
    pub portgroup: Option<PortgroupId>,
    /// In nodes of one of these shards.
    pub shards: Option<Vec<String>>,
    /// In nodes of one of these conductor groups.
    pub conductor_groups: Option<Vec<String>>,
    /// In nodes owned or used by this project.
    pub project: Option<String>,
    /// With this text in the description, whatever the case.
    pub description_contains: Option<String>,
}

impl Filter for PortFilter {
    fn conditions<'a>(&'a self, to: &mut Where<'a>) {
        to.equals("node_uuid", given(&self.node));
        in_any(to, &self.nodes);
        to.equals("address", given(&self.address));
        to.equals("portgroup_uuid", given(&self.portgroup));
        of_nodes(to, &self.shards, &self.conductor_groups, &self.project);
        to.contains_text("description", self.description_contains.as_deref());
    }
}

/// What a list of portgroups can be narrowed by.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortgroupFilter {
    /// In this node.
    pub node: Option<NodeId>,
    /// In one of these nodes.
    pub nodes: Option<Vec<NodeId>>,
    /// The one with this address.
    pub address: Option<Mac>,
    /// In nodes of one of these shards.
    pub shards: Option<Vec<String>>,
    /// In nodes of one of these conductor groups.
    pub conductor_groups: Option<Vec<String>>,
    /// In nodes owned or used by this project.
    pub project: Option<String>,
}

impl Filter for PortgroupFilter {
    fn conditions<'a>(&'a self, to: &mut Where<'a>) {
        to.equals("node_uuid", given(&self.node));
        in_any(to, &self.nodes);
        to.equals("address", given(&self.address));
        of_nodes(to, &self.shards, &self.conductor_groups, &self.project);
    }
}

/// What belongs to one of these nodes.
pub(super) fn in_any<'a>(to: &mut Where<'a>, nodes: &'a Option<Vec<NodeId>>) {
    if let Some(nodes) = nodes {
        to.any_of("node_uuid", nodes.iter().map(Field::bind));
    }
}

fn blank_port() -> Port {
    Port {
        id: PortId(Uuid::nil()),
        created_at: Timestamp(0),
        updated_at: None,
        node_id: NodeId(Uuid::nil()),
        address: "00:00:00:00:00:00".parse().expect("six bytes are an address"),
        name: None,
        description: None,
        pxe_enabled: true,
        local_link_connection: JsonObject::empty(),
        portgroup_id: None,
        physical_network: None,
        is_smartnic: false,
        vendor: None,
        category: None,
        available_for_dynamic_portgroup: false,
        extra: JsonObject::empty(),
        internal_info: JsonObject::empty(),
    }
}

fn blank_portgroup() -> Portgroup {
    Portgroup {
        id: PortgroupId(Uuid::nil()),
        created_at: Timestamp(0),
        updated_at: None,
        node_id: NodeId(Uuid::nil()),
        address: None,
        name: None,
        mode: String::new(),
        properties: JsonObject::empty(),
        standalone_ports_supported: true,
        physical_network: None,
        category: None,
        dynamic_portgroup: false,
        extra: JsonObject::empty(),
        internal_info: JsonObject::empty(),
    }
}
