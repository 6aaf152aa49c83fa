// SPDX-License-Identifier: Apache-2.0
//! Network cards and bonds of them.

use crate::{JsonObject, Mac, NodeId, PortId, PortgroupId, Timestamp};

/// A network card.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Its identity.
    pub id: PortId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// The machine it is in.
    pub node_id: NodeId,
    /// Hardware address, unique.
    pub address: Mac,
    /// Unique name.
    pub name: Option<String>,
    /// Free text.
    pub description: Option<String>,
    /// Whether the machine may boot over it.
    pub pxe_enabled: bool,
    /// The switch and switch port at the other end of the cable.
    pub local_link_connection: JsonObject,
    /// The bond it belongs to.
    pub portgroup_id: Option<PortgroupId>,
    /// The physical network it reaches.
    pub physical_network: Option<String>,
    /// Whether it is a SmartNIC.
    pub is_smartnic: bool,
    /// Who made it.
    pub vendor: Option<String>,
    /// What it is used for.
    pub category: Option<String>,
    /// Whether it may be put into a bond made on demand.
    pub available_for_dynamic_portgroup: bool,
    /// Whatever the operator wants to keep with it.
    pub extra: JsonObject,
    /// What network drivers remember about it (attached VIFs among it).
    pub internal_info: JsonObject,
}

impl Port {
    /// A network card that is known by its address only.
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

/// Several ports bonded into one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Portgroup {
    /// Its identity.
    pub id: PortgroupId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// The machine it is in.
    pub node_id: NodeId,
    /// Hardware address of the bond.
    pub address: Option<Mac>,
    /// Unique name.
    pub name: Option<String>,
    /// Bonding mode.
    pub mode: String,
    /// Bonding options.
    pub properties: JsonObject,
    /// Whether its ports may be used one by one.
    pub standalone_ports_supported: bool,
    /// The physical network it reaches.
    pub physical_network: Option<String>,
    /// What it is used for.
    pub category: Option<String>,
    /// Whether it was made on demand.
    pub dynamic_portgroup: bool,
    /// Whatever the operator wants to keep with it.
    pub extra: JsonObject,
    /// What network drivers remember about it.
    pub internal_info: JsonObject,
}
