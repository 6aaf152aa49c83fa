// SPDX-License-Identifier: Apache-2.0
//! What machines are plugged into, as their network cards heard it and as somebody wrote it down.

use crate::{JsonObject, Mac, NodeId, PortId, Timestamp};

/// The switch port at the other end of a network card's cable, as it announced itself (LLDP).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// The kernel's name for the card.
    pub interface: String,
    /// The card.
    pub address: Mac,
    /// The switch: its chassis id, or its name if it gives none.
    pub switch_id: String,
    /// The switch's name.
    pub switch_name: Option<String>,
    /// What the switch is.
    pub switch_description: Option<String>,
    /// Where the switch is managed.
    pub management_addresses: Vec<String>,
    /// The port of the switch.
    pub port_id: String,
    /// What the port is for.
    pub port_description: Option<String>,
    /// VLANs, link aggregation, MTU, and what else is known of the port.
    pub detail: JsonObject,
}

/// A cable between a machine and a switch, or one that should be there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CableEnd {
    /// The machine.
    pub node_id: NodeId,
    /// The machine's name.
    pub node_name: Option<String>,
    /// The machine's card.
    pub address: Mac,
    /// The port the machine has for this card.
    pub port_id: Option<PortId>,
    /// The port's `local_link_connection`: where the cable should end.
    pub configured: JsonObject,
    /// When the machine last listened.
    pub listened_at: Option<Timestamp>,
    /// What it heard then on this card.
    pub heard: Option<Neighbour>,
}
