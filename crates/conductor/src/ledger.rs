// SPDX-License-Identifier: Apache-2.0
//! Writes what follows from a decision: journal, history, and changes to other things than the node.

use bmc_drivers::boot_model;
use lifecycle::{Chore, Ledger};
use node_model::{Actor, BootWay, HistoryEntry, HistoryId, JournalEntry, Node, Port};
use serde_json::Map;
use store::{PortFilter, Query, Writer};

/// Writes `ledger` about `node` in the caller's transaction. Chores may change the node, so it is
/// saved by the caller afterwards.
pub fn write_ledger(
    tx: &mut Writer<'_>,
    node: &mut Node,
    ledger: Ledger,
    actor: &Actor,
    conductor: &str,
) -> Result<(), store::Error> {
    let at = tx.now();
    for chore in ledger.chores {
        do_chore(tx, node, chore)?;
    }
    for what in ledger.happened {
        tx.append(JournalEntry { at, node_id: node.id, actor: actor.clone(), what });
    }
    let user = match actor {
        Actor::User { name, .. } => name.clone(),
        Actor::Agent { .. } | Actor::Machine { .. } | Actor::Conductor { .. } => None,
    };
    for line in ledger.history {
        tx.add_history(&HistoryEntry {
            id: HistoryId::random(),
            node_id: node.id,
            created_at: at,
            event_type: line.event_type.to_owned(),
            severity: line.severity,
            event: line.event,
            conductor: Some(conductor.to_owned()),
            user: user.clone(),
            project: None,
            state: Some(node.provision_state.as_str().to_owned()),
            target_provision_state: node
                .target_provision_state
                .map(|state| state.as_str().to_owned()),
            duration_seconds: line.duration_seconds,
        })?;
    }
    Ok(())
}

fn do_chore(tx: &mut Writer<'_>, node: &mut Node, chore: Chore) -> Result<(), store::Error> {
    match chore {
        Chore::RemoveAllocation(allocation) => {
            tx.delete(allocation)?;
        }
        Chore::DetachVifs => detach_vifs(tx, node)?,
        Chore::ForgetAgentToken => {
            if !node.sealed.is_empty() {
                let mut secrets = tx.reveal(node)?;
                secrets.agent_token = None;
                tx.seal_node(node, secrets)?;
            }
        }
        Chore::ForgetRescuePassword => {
            if !node.sealed.is_empty() {
                let mut secrets = tx.reveal(node)?;
                secrets.instance_info.remove("rescue_password");
                tx.seal_node(node, secrets)?;
            }
        }
        Chore::ForgetInstanceSecrets => {
            if !node.sealed.is_empty() {
                let mut secrets = tx.reveal(node)?;
                secrets.instance_info = Map::new();
                tx.seal_node(node, secrets)?;
            }
        }
        Chore::NoteBoot { way, worked } => note_boot(tx, node, way, worked)?,
    }
    Ok(())
}

/// Remembers for machines of the node's model whether it booted. Nothing is remembered about
/// machines whose model is not known, or that nobody told what to boot.
fn note_boot(
    tx: &mut Writer<'_>,
    node: &Node,
    way: Option<BootWay>,
    worked: bool,
) -> Result<(), store::Error> {
    let Some(model) = boot_model(node) else { return Ok(()) };
    let way = match way {
        Some(way) => Some(way),
        None => tx.boot_plan(node.id)?.map(|plan| plan.way),
    };
    let Some(way) = way else { return Ok(()) };
    tx.note_boot(&model, way, worked)
}

/// The key under which a port remembers the virtual interface attached to it.
pub(crate) const TENANT_VIF: &str = "tenant_vif_port_id";

fn detach_vifs(tx: &mut Writer<'_>, node: &Node) -> Result<(), store::Error> {
    let query = Query::<Port> {
        filter: PortFilter { node: Some(node.id), ..PortFilter::default() },
        ..Query::default()
    };
    for port in tx.collect(&query)? {
        // A list is not locked: the port is read again before it is written.
        let Some(mut port) = tx.get(port.id)? else { continue };
        if port.internal_info.get(TENANT_VIF).is_some() {
            port.internal_info.remove(TENANT_VIF);
            tx.save(&mut port)?;
        }
    }
    Ok(())
}
