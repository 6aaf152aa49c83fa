// SPDX-License-Identifier: Apache-2.0
//! `POST /v1/nodes`: enrolling a machine.

use http::Method;
use ironic_wire::{NodeDraft, Selection, WireError, create as draft};
use node_model::{Happening, JournalEntry, Node, NodeId};
use serde_json::Map;
use store::{NodeSecrets, Reader};

use crate::app::App;
use crate::belongings;
use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident};
use crate::refusal::{Refusal, Reword};
use crate::reply::Reply;
use crate::routes::Route;

pub(crate) const ROUTES: &[Route] =
    &[Route::new(Method::POST, "/v1/nodes", "Enrol a node", handler!(create))];

async fn create(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let (now, actor) = (call.now(), call.actor());
    let NodeDraft { mut node, driver_info, instance_info, parent_node } =
        draft::<Node>(&call.body, call.version, now)?.draft;
    fill_defaults(&call.app, &mut node);
    let parent = parent_node.flatten().map(|text| Ident::of_text(&call, &text));
    let id = node.id;
    let (app, version, base_url) = (call.app.clone(), call.version, call.base_url.clone());
    let body = call
        .app
        .store
        .write(move |writer| {
            let mut node = node.clone();
            let caretakers = app.caretakers.require(writer, &node, now)?;
            resolve_interfaces(&app, &mut node)?;
            check_chassis(writer, &node)?;
            if let Some(ident) = &parent {
                node.parent_node = Some(find_parent(writer, ident, node.id)?);
            }
            let secrets = NodeSecrets {
                driver_info: driver_info.clone(),
                instance_info: instance_info.clone(),
                driver_internal_info: Map::new(),
                agent_token: None,
            };
            writer.seal_node(&mut node, secrets)?;
            writer.insert(&node).on_duplicate(|field| already(&node, field))?;
            writer.append(JournalEntry {
                at: now,
                node_id: node.id,
                actor: actor.clone(),
                what: Happening::Enrolled,
            });
            Ok::<_, Refusal>(caretakers.body(
                &node,
                &Selection::detail(version),
                version,
                &base_url,
            ))
        })
        .await?;
    Ok(Reply::created(body, &call.link(&format!("nodes/{id}"))))
}

/// What the operator set for nodes that do not say.
fn fill_defaults(app: &App, node: &mut Node) {
    if node.conductor_group.is_empty() {
        node.conductor_group = app.config.default_conductor_group.to_lowercase();
    }
    if node.resource_class.as_deref().is_none_or(str::is_empty) {
        node.resource_class.clone_from(&app.config.default_resource_class);
    }
}

/// Checks the interfaces the node chooses and fills in those it does not; 400 for what cannot be.
pub(super) fn resolve_interfaces(app: &App, node: &mut Node) -> Result<(), WireError> {
    let resolved = app.conductor.registry().resolve(&node.driver, &mut node.interfaces);
    resolved.map_err(|problem| WireError::invalid(format!("Node {}: {problem}", node.label())))
}

/// Refuses with 400 a chassis that does not exist.
pub(super) fn check_chassis(reader: &mut Reader<'_>, node: &Node) -> Result<(), Refusal> {
    let Some(chassis) = node.chassis_id else { return Ok(()) };
    match reader.get(chassis)? {
        Some(_) => Ok(()),
        None => Err(WireError::invalid(format!("Chassis {chassis} could not be found.")).into()),
    }
}

/// The node that `child` shall be a part of; 400 if there is none, or if it is `child` itself, which
/// nobody would find in a list again.
pub(super) fn find_parent(
    reader: &mut Reader<'_>,
    ident: &Ident,
    child: NodeId,
) -> Result<NodeId, Refusal> {
    let parent = belongings::named_node(reader, ident).map_err(|refusal| match refusal {
        Refusal::Wire(error) if error.status() == 400 => {
            WireError::invalid_field("parent_node", error.message()).into()
        }
        other @ (Refusal::Wire(_) | Refusal::Store(_)) => other,
    })?;
    let parent = parent.id;
    if parent == child {
        let problem = "a node can not be a part of itself";
        return Err(WireError::invalid_field("parent_node", problem).into());
    }
    Ok(parent)
}

/// 409 for what another node already has.
pub(super) fn already(node: &Node, field: &str) -> WireError {
    match field {
        "name" => WireError::conflict(format!(
            "A node with name {} already exists.",
            node.name.as_deref().unwrap_or_default()
        )),
        "instance_uuid" => WireError::conflict(format!(
            "Instance {} is already on another node and can not be on node {} too.",
            node.instance_uuid.unwrap_or_default(),
            node.id
        )),
        _ => WireError::conflict(format!("A node with UUID {} already exists.", node.id)),
    }
}
