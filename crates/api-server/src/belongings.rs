// SPDX-License-Identifier: Apache-2.0
//! What ports, portgroups and volumes have in common: each belongs to a node, and a change of it
//! is a change of the node.

use ironic_wire::WireError;
use node_model::{
    Actor, Happening, InterfaceKind, JournalEntry, Node, NodeId, ProvisionState, Timestamp,
};
use store::{Reader, Writer};

use crate::kept::Ident;
use crate::refusal::Refusal;

/// States in which a node is not in use, so that its cabling may be described anew.
const UNUSED: [ProvisionState; 4] = [
    ProvisionState::Enroll,
    ProvisionState::Inspecting,
    ProvisionState::InspectWait,
    ProvisionState::Manageable,
];

/// The node a body names. That it does not exist is the request's fault: 400, not 404.
pub(crate) fn node_named(writer: &mut Writer<'_>, node: NodeId) -> Result<Node, Refusal> {
    writer
        .get(node)?
        .ok_or_else(|| WireError::invalid(format!("Node {node} could not be found.")).into())
}

/// The node a body or a query names by name or UUID. That it does not exist is the request's fault:
/// 400, not 404.
pub(crate) fn named_node(reader: &mut Reader<'_>, ident: &Ident) -> Result<Node, Refusal> {
    ident.find::<Node>(reader).map_err(|refusal| match refusal {
        Refusal::Wire(error) if error.status() == 404 => WireError::invalid(error.message()).into(),
        Refusal::Wire(_) | Refusal::Store(_) => refusal,
    })
}

/// Writes into the node's journal that something that belongs to it changed.
pub(crate) fn note(
    writer: &mut Writer<'_>,
    at: Timestamp,
    node_id: NodeId,
    actor: &Actor,
    field: &str,
) {
    let what = Happening::Changed { fields: vec![field.to_owned()] };
    writer.append(JournalEntry { at, node_id, actor: actor.clone(), what });
}

/// Refuses with 409 unless the node is not in use or in maintenance. `what` starts the sentence.
pub(crate) fn require_unused(node: &Node, what: &str) -> Result<(), WireError> {
    if node.maintenance || UNUSED.contains(&node.provision_state) {
        return Ok(());
    }
    let allowed = UNUSED.map(ProvisionState::as_str).join(", ");
    Err(WireError::conflict(format!(
        "{what} unless node {} is in maintenance or in one of the states {allowed}; it is in state \
         {}.",
        node.id, node.provision_state
    )))
}

/// Whether somebody attaches the node's ports to networks; with `noop` nobody does, and rules about
/// what bonds can carry do not apply.
pub(crate) fn network_is_managed(node: &Node) -> bool {
    node.interfaces.get(InterfaceKind::Network).is_some_and(|network| network != "noop")
}
