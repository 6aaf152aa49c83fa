// SPDX-License-Identifier: Apache-2.0
//! Ports and portgroups.

use crate::{JsonObject, Mac, NodeId, PortId, PortgroupId, Timestamp};

/// The record of one NIC.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// The id.
    pub id: PortId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// The node.
    pub node_id: NodeId,
    /// The MAC address, unique.
    pub address: Mac,
    /// The unique name.
    pub name: Option<String>,
    /// Free text.
    pub description: Option<String>,
    /// Whether the machine may boot over it.
    pub pxe_enabled: bool,
    /// The switch and the switch port that the NIC is connected to.
    pub local_link_connection: JsonObject,
    /// The portgroup it belongs to.
    pub portgroup_id: Option<PortgroupId>,
    /// The physical network it is connected to.
    pub physical_network: Option<String>,
    /// Whether it is a SmartNIC.
    pub is_smartnic: bool,
    /// The vendor.
    pub vendor: Option<String>,
    /// What it is used for.
    pub category: Option<String>,
    /// Whether it may become part of a dynamic portgroup.
    pub available_for_dynamic_portgroup: bool,
    /// Free-form data of the operator.
    pub extra: JsonObject,
    /// Data of network interfaces, such as attached VIFs.
    pub internal_info: JsonObject,
}

impl Port {
    /// A port of which only the MAC address is known.
    #[must_use]
    pub fn new(id: PortId, node_id: NodeId, address: Mac, now: Timestamp) -> Self {
        Self {
            id,
            created_at: now,
            updated_at: None,
            node_id,
            address,
            name: None,
            description: None,
            pxe_enabled: true,
            local_link_connection: JsonObject::empty(),
            portgroup_id: None,
            physical_network: None,
            is_smartnic: false,
            vendor: None,
            category: None,
            available_for_dynamic_portgroup: true,
            extra: JsonObject::empty(),
            internal_info: JsonObject::empty(),
        }
    }
}

/// A bond of several ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Portgroup {
    /// The id.
    pub id: PortgroupId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// The node.
    pub node_id: NodeId,
    /// The MAC address of the bond.
    pub address: Option<Mac>,
    /// The unique name.
    pub name: Option<String>,
    /// The bonding mode.
    pub mode: String,
    /// The bonding options.
    pub properties: JsonObject,
    /// Whether its ports may be used individually.
    pub standalone_ports_supported: bool,
    /// The physical network it is connected to.
    pub physical_network: Option<String>,
    /// What it is used for.
    pub category: Option<String>,
    /// Whether it was created on demand.
    pub dynamic_portgroup: bool,
    /// Free-form data of the operator.
    pub extra: JsonObject,
    /// Data of network interfaces.
    pub internal_info: JsonObject,
}
