// SPDX-License-Identifier: Apache-2.0
//! `PATCH /v1/nodes/{node}`.
//!
//! Reading the node, checking the rules (`update_rules`) and saving are one transaction.

use conductor::write_pending_entries;
use http::Method;
use ironic_wire::{
    FieldSelection, ListQuery, NodeDraft, ParamKind, Patch, QueryParam, QueryParams, ResourceDraft,
    WireError,
};
use lifecycle::set_maintenance;
use node_model::{Actor, InterfaceKind, JournalEntry, JournalEvent, Node, Timestamp};
use serde_json::Map;
use store::{NodeSecrets, StoreWriter};

use super::create::{already_exists, check_chassis, find_parent, resolve_interfaces};
use super::update_rules;
use crate::handler;
use crate::ironic::resource::{ApiResource, ResourceIdent};
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, ReplaceDuplicate};

const PARAMS: QueryParams = &[QueryParam::new("reset_interfaces", 45, ParamKind::Flag)];

pub(crate) const ROUTES: &[ApiRoute] =
    &[ApiRoute::new(Method::PATCH, "/v1/nodes/{node}", "Change a node", handler!(update))
        .checked_by_handler(&["baremetal:node:update"])
        .query(&["reset_interfaces"])];

async fn update(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let resets_interfaces = parse_reset_interfaces(&request)?;
    let patch = Patch::parse(&request.body)?;
    patch.check::<Node>(request.version)?;
    if resets_interfaces && !patch.touches("driver") {
        let problem = "reset_interfaces needs a patch that changes the driver.";
        return Err(WireError::invalid(problem).into());
    }
    let ident = ResourceIdent::from_path(&request, "node");
    let store = request.app.store.clone();
    let (actor, now) = (request.actor(), request.now());
    let body = store
        .write(move |writer| {
            let before: Node = ident.find(writer)?;
            update_rules::check_policy(&before, &patch, &request.access)?;
            update_rules::check_state(&before, &patch, request.version)?;
            update_rules::check_owner(writer, &before, &patch)?;
            let (mut drafted, secrets) = apply(writer, &before, &patch, &request)?;
            if resets_interfaces {
                reset_interfaces(&mut drafted);
            }
            update_rules::check_changes(&before, &drafted, request.version)?;
            complete(writer, &request, &before, &mut drafted)?;
            let ResourceDraft { draft, fields } = drafted;
            let NodeDraft { mut node, driver_info, instance_info, .. } = draft;
            let conductors = request.app.conductor_cache.require(writer, &node, now)?;
            if let Some(secrets) = secrets {
                let secrets = NodeSecrets { driver_info, instance_info, ..secrets };
                writer.seal_node(&mut node, secrets)?;
            }
            if fields.contains(&"maintenance") {
                apply_maintenance(writer, &request, &mut node, now)?;
            }
            writer.save(&mut node).on_duplicate(|field| already_exists(&node, field))?;
            release_allocation(writer, &before, &node)?;
            record_changed_fields(writer, &node, &fields, now, &actor);
            let node = node.redacted(&request.access).unwrap_or(node);
            Ok::<_, ApiError>(conductors.node_body(
                &node,
                &FieldSelection::detail(request.version),
                request.version,
                &request.base_url,
            ))
        })
        .await?;
    Ok(ApiResponse::ok(body))
}

/// The query parameter `reset_interfaces`; false in versions without it.
fn parse_reset_interfaces(request: &ApiRequest) -> Result<bool, WireError> {
    let query = ListQuery::<Node>::parse(PARAMS, &request.query, request.version, 1, true)?;
    Ok(query.flag("reset_interfaces").unwrap_or(false))
}

/// Applies the patch. Secrets are only unsealed if the patch touches a field that contains them; the
/// caller seals them again.
fn apply(
    writer: &StoreWriter<'_>,
    before: &Node,
    patch: &Patch,
    request: &ApiRequest,
) -> Result<(ResourceDraft<Node>, Option<NodeSecrets>), ApiError> {
    const SEALED: [&str; 4] = ["driver_info", "instance_info", "extra", "properties"];
    if !SEALED.iter().any(|field| patch.touches(field)) {
        let draft = NodeDraft::new(before.clone(), Map::new(), Map::new());
        return Ok((patch.apply(draft, request.version)?, None));
    }
    let mut secrets = writer.reveal(before)?;
    let driver_info = std::mem::take(&mut secrets.driver_info);
    let instance_info = std::mem::take(&mut secrets.instance_info);
    let draft = NodeDraft::new(before.clone(), driver_info, instance_info);
    Ok((patch.apply(draft, request.version)?, Some(secrets)))
}

/// Resets the interfaces that the patch does not set to the defaults of the new driver.
fn reset_interfaces(drafted: &mut ResourceDraft<Node>) {
    if !drafted.has("driver") {
        return;
    }
    for kind in InterfaceKind::ALL {
        if !drafted.has(kind.field()) {
            drafted.draft.node.interfaces.set(*kind, None);
        }
    }
}

/// Fills in defaults and resolves references.
fn complete(
    writer: &mut StoreWriter<'_>,
    request: &ApiRequest,
    before: &Node,
    drafted: &mut ResourceDraft<Node>,
) -> Result<(), ApiError> {
    let interfaces_change = InterfaceKind::ALL.iter().any(|kind| drafted.has(kind.field()));
    if drafted.has("driver") || interfaces_change {
        resolve_interfaces(&request.app, &mut drafted.draft.node)?;
    }
    if drafted.has("chassis_uuid") {
        check_chassis(writer, &drafted.draft.node)?;
    }
    match drafted.draft.parent_node.take() {
        None => {}
        Some(None) => drafted.draft.node.parent_node = None,
        Some(Some(text)) => {
            let ident = ResourceIdent::from_text(request, &text);
            drafted.draft.node.parent_node = Some(find_parent(writer, &ident, before)?);
        }
    }
    if before.instance_uuid.is_some() && drafted.draft.node.instance_uuid.is_none() {
        drafted.draft.node.allocation_id = None;
    }
    Ok(())
}

/// Deletes the allocation of a node whose instance was removed.
fn release_allocation(
    writer: &mut StoreWriter<'_>,
    before: &Node,
    after: &Node,
) -> Result<(), store::StoreError> {
    match before.allocation_id {
        Some(allocation) if after.allocation_id.is_none() => writer.delete(allocation).map(drop),
        Some(_) | None => Ok(()),
    }
}

/// Sets or clears maintenance with all its effects, as `PUT …/maintenance` does. A patch has no reason,
/// so an existing one stays.
fn apply_maintenance(
    writer: &mut StoreWriter<'_>,
    request: &ApiRequest,
    node: &mut Node,
    now: Timestamp,
) -> Result<(), store::StoreError> {
    let on = node.maintenance.then(|| node.maintenance_reason.take());
    let entries = set_maintenance(node, on, now);
    if node.due_at == Some(now) {
        writer.wake(node.id);
    }
    write_pending_entries(writer, node, entries, &request.actor(), request.app.conductor.hostname())
}

fn record_changed_fields(
    writer: &mut StoreWriter<'_>,
    node: &Node,
    fields: &[&'static str],
    now: Timestamp,
    actor: &Actor,
) {
    let fields: Vec<String> = fields.iter().map(|&field| field.to_owned()).collect();
    if !fields.is_empty() {
        let event = JournalEvent::Changed { fields };
        writer.append(JournalEntry { at: now, node_id: node.id, actor: actor.clone(), event });
    }
}
