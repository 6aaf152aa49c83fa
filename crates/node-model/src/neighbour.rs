// SPDX-License-Identifier: Apache-2.0
//! Cables between machines and switches: as announced by LLDP, and as configured by an operator.

use crate::{JsonObject, Mac, NodeId, PortId, Timestamp};

/// The switch port at the other end of a NIC's cable, as announced by LLDP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// The kernel's name of the NIC.
    pub interface: String,
    /// The MAC address of the NIC.
    pub address: Mac,
    /// The chassis id of the switch, or its name if it announces none.
    pub switch_id: String,
    /// The name of the switch.
    pub switch_name: Option<String>,
    /// The system description of the switch.
    pub switch_description: Option<String>,
    /// The management addresses of the switch.
    pub management_addresses: Vec<String>,
    /// The port of the switch.
    pub port_id: String,
    /// The description of the port.
    pub port_description: Option<String>,
    /// VLANs, link aggregation, MTU and other TLVs.
    pub detail: JsonObject,
}

/// The node's end of a cable, observed or configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CableEnd {
    /// The node.
    pub node_id: NodeId,
    /// The name of the node.
    pub node_name: Option<String>,
    /// The MAC address of the NIC.
    pub address: Mac,
    /// The node's port with this MAC address.
    pub port_id: Option<PortId>,
    /// The port's `local_link_connection`: the configured other end.
    pub configured: JsonObject,
    /// When LLDP was last received on the node.
    pub observed_at: Option<Timestamp>,
    /// The neighbour received on this NIC at that time.
    pub observed: Option<Neighbour>,
}
