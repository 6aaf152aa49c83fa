// SPDX-License-Identifier: Apache-2.0
//! The `ports` and `portgroups` tables.

use node_model::{JsonObject, Mac, NodeId, Port, PortId, Portgroup, PortgroupId, Timestamp};
use uuid::Uuid;

use super::{filter_by_node, optional_param};
use crate::query::SqlBuilder;
use crate::record::{ResourceFilter, columns, resource};
use crate::value::ColumnType;

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

/// Filter for lists of ports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortFilter {
    /// Of this node.
    pub node: Option<NodeId>,
    /// Of one of these nodes.
    pub nodes: Option<Vec<NodeId>>,
    /// With this MAC address.
    pub address: Option<Mac>,
    /// In this portgroup.
    pub portgroup: Option<PortgroupId>,
    /// Of nodes in one of these shards.
    pub shards: Option<Vec<String>>,
    /// Of nodes in one of these conductor groups.
    pub conductor_groups: Option<Vec<String>>,
    /// Of nodes owned or leased by this project.
    pub project: Option<String>,
    /// With this text in the description, ignoring case.
    pub description_contains: Option<String>,
}

impl ResourceFilter for PortFilter {
    fn add_conditions<'a>(&'a self, to: &mut SqlBuilder<'a>) {
        to.equals("node_uuid", optional_param(&self.node));
        node_in(to, &self.nodes);
        to.equals("address", optional_param(&self.address));
        to.equals("portgroup_uuid", optional_param(&self.portgroup));
        filter_by_node(to, &self.shards, &self.conductor_groups, &self.project);
        to.contains_ignoring_case("description", self.description_contains.as_deref());
    }
}

/// Filter for lists of portgroups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortgroupFilter {
    /// Of this node.
    pub node: Option<NodeId>,
    /// Of one of these nodes.
    pub nodes: Option<Vec<NodeId>>,
    /// With this MAC address.
    pub address: Option<Mac>,
    /// Of nodes in one of these shards.
    pub shards: Option<Vec<String>>,
    /// Of nodes in one of these conductor groups.
    pub conductor_groups: Option<Vec<String>>,
    /// Of nodes owned or leased by this project.
    pub project: Option<String>,
}

impl ResourceFilter for PortgroupFilter {
    fn add_conditions<'a>(&'a self, to: &mut SqlBuilder<'a>) {
        to.equals("node_uuid", optional_param(&self.node));
        node_in(to, &self.nodes);
        to.equals("address", optional_param(&self.address));
        filter_by_node(to, &self.shards, &self.conductor_groups, &self.project);
    }
}

/// Restricts rows to those of these nodes.
pub(super) fn node_in<'a>(to: &mut SqlBuilder<'a>, nodes: &'a Option<Vec<NodeId>>) {
    if let Some(nodes) = nodes {
        to.in_list("node_uuid", nodes.iter().map(ColumnType::bind));
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
