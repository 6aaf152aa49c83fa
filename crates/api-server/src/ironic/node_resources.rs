// SPDX-License-Identifier: Apache-2.0
//! Checks shared by the resources of a node: ports, portgroups, volumes.

use access_policy::PolicyTarget;
use ironic_wire::WireError;
use node_model::{InterfaceKind, JournalEntry, JournalEvent, Node, NodeId, ProvisionState};
use store::{StoreReader, StoreWriter};

use super::resource::ResourceIdent;
use crate::server::{ApiError, ApiRequest};

/// States in which a node is not in use, so that its network connections may be changed.
const UNUSED: [ProvisionState; 4] = [
    ProvisionState::Enroll,
    ProvisionState::Inspecting,
    ProvisionState::InspectWait,
    ProvisionState::Manageable,
];

/// The node that a body references by UUID. Fails with 400, not 404, if it does not exist.
pub(crate) fn referenced_node(
    writer: &mut StoreWriter<'_>,
    node: NodeId,
) -> Result<Node, ApiError> {
    writer
        .get(node)?
        .ok_or_else(|| WireError::invalid(format!("Node {node} could not be found.")).into())
}

/// The node that a body or query references by name or UUID. Fails with 400, not 404, if it does not
/// exist.
pub(crate) fn find_referenced_node(
    reader: &mut StoreReader<'_>,
    ident: &ResourceIdent,
) -> Result<Node, ApiError> {
    ident.find::<Node>(reader).map_err(|error| match error {
        ApiError::Wire(error) if error.status() == 404 => {
            WireError::invalid(error.message()).into()
        }
        ApiError::Wire(_) | ApiError::Store(_) => error,
    })
}

/// The node of a new resource, which the caller must see and for which `rule` must match.
///
/// As in Ironic, a caller who may not see the node gets 403, because the rule is then evaluated for a
/// node without owner.
pub(crate) fn parent_of_new_resource(
    reader: &mut StoreReader<'_>,
    ident: &ResourceIdent,
    request: &ApiRequest,
    rule: &'static str,
) -> Result<Node, ApiError> {
    let found = find_referenced_node(reader, ident);
    let target = match &found {
        Ok(node) => PolicyTarget::node(node.owner.as_deref(), node.lessee.as_deref()),
        Err(_) => PolicyTarget::NONE,
    };
    request.access.require(rule, &target)?;
    found
}

/// Checks that a resource of the node `before` may be given to the node `after`: the caller must see
/// it, and it must have the same owner. The error does not reveal whether the node exists.
pub(crate) fn check_node_link(
    reader: &mut StoreReader<'_>,
    before: NodeId,
    after: NodeId,
    field: &str,
    request: &ApiRequest,
) -> Result<(), ApiError> {
    if before == after {
        return Ok(());
    }
    let new_node = ResourceIdent::from_text(request, &after.to_string()).find::<Node>(reader);
    let old_owner = reader.get(before)?.and_then(|node| node.owner);
    match new_node {
        Ok(node) if node.owner == old_owner => Ok(()),
        Ok(_) | Err(ApiError::Wire(_)) => {
            let problem = format!("there is no node {after}, or it has another owner");
            Err(WireError::invalid_field(field, &problem).into())
        }
        Err(error @ ApiError::Store(_)) => Err(error),
    }
}

/// Records in the node's journal that `field` changed.
pub(crate) fn record_change(
    writer: &mut StoreWriter<'_>,
    node_id: NodeId,
    field: &str,
    request: &ApiRequest,
) {
    let event = JournalEvent::Changed { fields: vec![field.to_owned()] };
    writer.append(JournalEntry { at: request.now(), node_id, actor: request.actor(), event });
}

/// Fails with 409 unless the node is in maintenance or not in use. `what` starts the message.
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

/// Whether the node's network interface attaches ports to networks. With `noop` it does not, and the
/// rules for portgroup members do not apply.
pub(crate) fn network_is_managed(node: &Node) -> bool {
    node.interfaces.get(InterfaceKind::Network).is_some_and(|network| network != "noop")
}
