// SPDX-License-Identifier: Apache-2.0
//! `PATCH /v1/nodes/{node}`.
//!
//! Everything happens in one transaction: the node as it is, the rules, the node as it will be.
//! The rules themselves are next door.

use conductor::write_ledger;
use http::Method;
use ironic_wire::{
    Drafted, ListQuery, NodeDraft, Param, ParamKind, Params, Patch, Selection, WireError,
};
use lifecycle::set_maintenance;
use node_model::{Actor, Happening, InterfaceKind, JournalEntry, Node, Timestamp};
use serde_json::Map;
use store::{NodeSecrets, Writer};

use super::change_rules;
use super::create::{already, check_chassis, find_parent, resolve_interfaces};
use crate::call::Call;
use crate::handler;
use crate::kept::Ident;
use crate::refusal::{Refusal, Reword};
use crate::reply::Reply;
use crate::routes::Route;

const PARAMS: Params = &[Param::new("reset_interfaces", 45, ParamKind::Flag)];

pub(crate) const ROUTES: &[Route] =
    &[Route::new(Method::PATCH, "/v1/nodes/{node}", "Change a node", handler!(patch))
        .query(&["reset_interfaces"])];

async fn patch(call: Call) -> Result<Reply, Refusal> {
    let reset = asks_for_reset(&call)?;
    let patch = Patch::parse(&call.body)?;
    patch.check::<Node>(call.version)?;
    if reset && !patch.touches("driver") {
        let problem = "reset_interfaces is for changing the driver, and the patch does not.";
        return Err(WireError::invalid(problem).into());
    }
    let ident = Ident::of_path(&call, "node");
    let store = call.app.store.clone();
    let (actor, now) = (call.actor(), call.now());
    let body = store
        .write(move |writer| {
            let before: Node = ident.find(writer)?;
            change_rules::check_state(&before, &patch, call.version)?;
            change_rules::check_owner(writer, &before, &patch)?;
            let (mut drafted, secrets) = apply(writer, &before, &patch, &call)?;
            if reset {
                forget_choices(&mut drafted);
            }
            change_rules::check(&before, &drafted, call.version)?;
            complete(writer, &call, &before, &mut drafted)?;
            let Drafted { draft, fields } = drafted;
            let NodeDraft { mut node, driver_info, instance_info, .. } = draft;
            let caretakers = call.app.caretakers.require(writer, &node, now)?;
            if let Some(secrets) = secrets {
                let secrets = NodeSecrets { driver_info, instance_info, ..secrets };
                writer.seal_node(&mut node, secrets)?;
            }
            if fields.contains(&"maintenance") {
                maintenance_changed(writer, &call, &mut node, now)?;
            }
            writer.save(&mut node).on_duplicate(|field| already(&node, field))?;
            release_allocation(writer, &before, &node)?;
            note(writer, &node, &fields, now, &actor);
            Ok::<_, Refusal>(caretakers.body(
                &node,
                &Selection::detail(call.version),
                call.version,
                &call.base_url,
            ))
        })
        .await?;
    Ok(Reply::ok(body))
}

/// `reset_interfaces`, where the version has it.
fn asks_for_reset(call: &Call) -> Result<bool, WireError> {
    let query = ListQuery::<Node>::parse(PARAMS, &call.query, call.version, 1, true)?;
    Ok(query.flag("reset_interfaces").unwrap_or(false))
}

/// The node with the patch applied. The secrets are only opened when the patch touches what they
/// are in; they are closed again where they were opened.
fn apply(
    writer: &Writer<'_>,
    before: &Node,
    patch: &Patch,
    call: &Call,
) -> Result<(Drafted<Node>, Option<NodeSecrets>), Refusal> {
    let opens = patch.touches("driver_info") || patch.touches("instance_info");
    if !opens {
        let draft = NodeDraft::new(before.clone(), Map::new(), Map::new());
        return Ok((patch.apply(draft, call.version)?, None));
    }
    let mut secrets = writer.reveal(before)?;
    let driver_info = std::mem::take(&mut secrets.driver_info);
    let instance_info = std::mem::take(&mut secrets.instance_info);
    let draft = NodeDraft::new(before.clone(), driver_info, instance_info);
    Ok((patch.apply(draft, call.version)?, Some(secrets)))
}

/// Interfaces that the same patch does not choose go back to what the new driver defaults to.
fn forget_choices(drafted: &mut Drafted<Node>) {
    if !drafted.has("driver") {
        return;
    }
    for kind in InterfaceKind::ALL {
        if !drafted.has(kind.field()) {
            drafted.draft.node.interfaces.set(*kind, None);
        }
    }
}

/// Fills in what the patch leaves open, and looks up what it names.
fn complete(
    writer: &mut Writer<'_>,
    call: &Call,
    before: &Node,
    drafted: &mut Drafted<Node>,
) -> Result<(), Refusal> {
    let interfaces_change = InterfaceKind::ALL.iter().any(|kind| drafted.has(kind.field()));
    if drafted.has("driver") || interfaces_change {
        resolve_interfaces(&call.app, &mut drafted.draft.node)?;
    }
    if drafted.has("chassis_uuid") {
        check_chassis(writer, &drafted.draft.node)?;
    }
    match drafted.draft.parent_node.take() {
        None => {}
        Some(None) => drafted.draft.node.parent_node = None,
        Some(Some(text)) => {
            let ident = Ident::of_text(call, &text);
            drafted.draft.node.parent_node = Some(find_parent(writer, &ident, before.id)?);
        }
    }
    if before.instance_uuid.is_some() && drafted.draft.node.instance_uuid.is_none() {
        drafted.draft.node.allocation_id = None;
    }
    Ok(())
}

/// An allocation ends with the instance it chose the node for.
fn release_allocation(
    writer: &mut Writer<'_>,
    before: &Node,
    after: &Node,
) -> Result<(), store::Error> {
    match before.allocation_id {
        Some(allocation) if after.allocation_id.is_none() => writer.delete(allocation).map(drop),
        Some(_) | None => Ok(()),
    }
}

/// All that goes with maintenance, as if it had been asked for by itself. A patch cannot give a
/// reason, so one that was given before stays.
fn maintenance_changed(
    writer: &mut Writer<'_>,
    call: &Call,
    node: &mut Node,
    now: Timestamp,
) -> Result<(), store::Error> {
    let on = node.maintenance.then(|| node.maintenance_reason.take());
    let ledger = set_maintenance(node, on, now);
    if node.due_at == Some(now) {
        writer.wake(node.id);
    }
    write_ledger(writer, node, ledger, &call.actor(), call.app.conductor.hostname())
}

fn note(
    writer: &mut Writer<'_>,
    node: &Node,
    fields: &[&'static str],
    now: Timestamp,
    actor: &Actor,
) {
    let fields: Vec<String> = fields.iter().map(|&field| field.to_owned()).collect();
    if !fields.is_empty() {
        let what = Happening::Changed { fields };
        writer.append(JournalEntry { at: now, node_id: node.id, actor: actor.clone(), what });
    }
}
