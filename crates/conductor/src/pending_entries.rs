// SPDX-License-Identifier: Apache-2.0
//! Writes what a decision adds: journal entries, history, and changes of other records.

use drivers::boot_model;
use lifecycle::{FollowUpChange, PendingEntries};
use node_model::{Actor, BootMethod, HistoryEntry, HistoryId, JournalEntry, Node, Port};
use serde_json::Map;
use store::{PortFilter, ResourceQuery, StoreWriter};

/// Writes `entries` in the caller's transaction. Follow-up changes may change the node, so the caller
/// saves it afterwards.
pub fn write_pending_entries(
    tx: &mut StoreWriter<'_>,
    node: &mut Node,
    entries: PendingEntries,
    actor: &Actor,
    conductor: &str,
) -> Result<(), store::StoreError> {
    let at = tx.now();
    for change in entries.follow_ups {
        apply_follow_up(tx, node, change)?;
    }
    for event in entries.events {
        tx.append(JournalEntry { at, node_id: node.id, actor: actor.clone(), event });
    }
    let (user, project) = match actor {
        Actor::User { name, project, .. } => (name.clone(), project.clone()),
        Actor::Agent { .. } | Actor::Machine { .. } | Actor::Conductor { .. } => (None, None),
    };
    for entry in entries.history {
        tx.add_history(&HistoryEntry {
            id: HistoryId::random(),
            node_id: node.id,
            created_at: at,
            event_type: entry.event_type.to_owned(),
            severity: entry.severity,
            event: entry.event,
            conductor: Some(conductor.to_owned()),
            user: user.clone(),
            project: project.clone(),
            state: Some(node.provision_state.as_str().to_owned()),
            target_provision_state: node
                .target_provision_state
                .map(|state| state.as_str().to_owned()),
            duration_seconds: entry.duration_seconds,
        })?;
    }
    Ok(())
}

fn apply_follow_up(
    tx: &mut StoreWriter<'_>,
    node: &mut Node,
    change: FollowUpChange,
) -> Result<(), store::StoreError> {
    match change {
        FollowUpChange::RemoveAllocation(allocation) => {
            tx.delete(allocation)?;
        }
        FollowUpChange::DetachVifs => detach_vifs(tx, node)?,
        FollowUpChange::DeleteAgentToken => {
            if !node.sealed.is_empty() {
                let mut secrets = tx.reveal(node)?;
                secrets.agent_token = None;
                tx.seal_node(node, secrets)?;
            }
        }
        FollowUpChange::DeleteRescuePassword => {
            if !node.sealed.is_empty() {
                let mut secrets = tx.reveal(node)?;
                secrets.instance_info.remove("rescue_password");
                tx.seal_node(node, secrets)?;
            }
        }
        FollowUpChange::DeleteInstanceSecrets => {
            if !node.sealed.is_empty() {
                let mut secrets = tx.reveal(node)?;
                secrets.instance_info = Map::new();
                tx.seal_node(node, secrets)?;
            }
        }
        FollowUpChange::RecordBootResult { method, worked } => {
            record_boot_result(tx, node, method, worked)?
        }
    }
    Ok(())
}

/// Updates the boot statistics of the node's model. Skipped if the model is unknown, or if the boot
/// method is neither given nor part of a boot plan.
fn record_boot_result(
    tx: &mut StoreWriter<'_>,
    node: &Node,
    method: Option<BootMethod>,
    worked: bool,
) -> Result<(), store::StoreError> {
    let Some(model) = boot_model(node) else { return Ok(()) };
    let method = match method {
        Some(method) => Some(method),
        None => tx.boot_plan(node.id)?.map(|plan| plan.method),
    };
    let Some(method) = method else { return Ok(()) };
    tx.record_boot_result(&model, method, worked)
}

/// The key of a port's `internal_info` with the attached virtual interface, as in Ironic.
pub const TENANT_VIF: &str = "tenant_vif_port_id";

fn detach_vifs(tx: &mut StoreWriter<'_>, node: &Node) -> Result<(), store::StoreError> {
    let query = ResourceQuery::<Port> {
        filter: PortFilter { node: Some(node.id), ..PortFilter::default() },
        ..ResourceQuery::default()
    };
    for port in tx.collect(&query)? {
        // Rows of a list are not locked: read the port again before writing it.
        let Some(mut port) = tx.get(port.id)? else { continue };
        if port.internal_info.get(TENANT_VIF).is_some() {
            port.internal_info.remove(TENANT_VIF);
            tx.save(&mut port)?;
        }
    }
    Ok(())
}
