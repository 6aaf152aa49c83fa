// SPDX-License-Identifier: Apache-2.0
//! `POST /v1/nodes`: enrols a machine.

use access_policy::PolicyTarget;
use http::Method;
use ironic_wire::{FieldSelection, NodeDraft, WireError};
use node_model::{JournalEntry, JournalEvent, Node, NodeId};
use serde_json::Map;
use store::{NodeSecrets, StoreReader};

use crate::app::App;
use crate::handler;
use crate::ironic::node_resources::find_referenced_node;
use crate::ironic::resource::ResourceIdent;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, ReplaceDuplicate};

pub(crate) const ROUTES: &[ApiRoute] =
    &[ApiRoute::new(Method::POST, "/v1/nodes", "Enrol a node", handler!(create))
        .checked_by_handler(&["baremetal:node:create", "baremetal:node:create:self_owned_node"])];

async fn create(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let (now, actor) = (request.now(), request.actor());
    let NodeDraft { mut node, driver_info, instance_info, parent_node } =
        ironic_wire::create::<Node>(&request.body, request.version, now)?.draft;
    set_owner(&request, &mut node)?;
    fill_defaults(&request.app, &mut node);
    let parent = parent_node.flatten().map(|text| ResourceIdent::from_text(&request, &text));
    let id = node.id;
    let (app, version, base_url) = (request.app.clone(), request.version, request.base_url.clone());
    let body = request
        .app
        .store
        .write(move |writer| {
            let mut node = node.clone();
            let conductors = app.conductor_cache.require(writer, &node, now)?;
            resolve_interfaces(&app, &mut node)?;
            check_chassis(writer, &node)?;
            if let Some(ident) = &parent {
                node.parent_node = Some(find_parent(writer, ident, &node)?);
            }
            let secrets = NodeSecrets {
                driver_info: driver_info.clone(),
                instance_info: instance_info.clone(),
                driver_internal_info: Map::new(),
                agent_token: None,
            };
            writer.seal_node(&mut node, secrets)?;
            writer.insert(&node).on_duplicate(|field| already_exists(&node, field))?;
            writer.append(JournalEntry {
                at: now,
                node_id: node.id,
                actor: actor.clone(),
                event: JournalEvent::Enrolled,
            });
            Ok::<_, ApiError>(conductors.node_body(
                &node,
                &FieldSelection::detail(version),
                version,
                &base_url,
            ))
        })
        .await?;
    Ok(ApiResponse::created(body, &request.link(&format!("nodes/{id}"))))
}

/// Checks that the caller may create the node. A node created by a caller of a project belongs to
/// that project.
fn set_owner(request: &ApiRequest, node: &mut Node) -> Result<(), WireError> {
    let access = &request.access;
    let is_self_service = request.app.config.project_admin_can_manage_own_nodes
        && (access.is_system() || access.project().is_some())
        && access.allows("baremetal:node:create:self_owned_node", &PolicyTarget::NONE);
    if !is_self_service {
        return access.require("baremetal:node:create", &PolicyTarget::NONE);
    }
    let Some(project) = access.project() else { return Ok(()) };
    if node.owner.as_deref().is_some_and(|owner| !owner.is_empty() && owner != project) {
        let problem = "callers of a project can only create nodes that their project owns";
        return Err(WireError::invalid_field("owner", problem));
    }
    node.owner = Some(project.to_owned());
    Ok(())
}

/// Sets the configured defaults for fields that the request leaves empty.
fn fill_defaults(app: &App, node: &mut Node) {
    if node.conductor_group.is_empty() {
        node.conductor_group = app.config.default_conductor_group.to_lowercase();
    }
    if node.resource_class.as_deref().is_none_or(str::is_empty) {
        node.resource_class.clone_from(&app.config.default_resource_class);
    }
}

/// Sets defaults for unset interfaces. Fails with 400 if an interface is not enabled or unsupported.
pub(super) fn resolve_interfaces(app: &App, node: &mut Node) -> Result<(), WireError> {
    let result = app.conductor.resolve_interfaces(node);
    result.map_err(|problem| WireError::invalid(format!("Node {}: {problem}", node.label())))
}

/// Fails with 400 if the chassis of the node does not exist.
pub(super) fn check_chassis(reader: &mut StoreReader<'_>, node: &Node) -> Result<(), ApiError> {
    let Some(chassis) = node.chassis_id else { return Ok(()) };
    match reader.get(chassis)? {
        Some(_) => Ok(()),
        None => Err(WireError::invalid(format!("Chassis {chassis} could not be found.")).into()),
    }
}

/// The parent of `child`. Fails with 400 if it does not exist, has another owner, or is `child` itself:
/// lists would not contain such a node.
pub(super) fn find_parent(
    reader: &mut StoreReader<'_>,
    ident: &ResourceIdent,
    child: &Node,
) -> Result<NodeId, ApiError> {
    let parent = find_referenced_node(reader, ident).map_err(|error| match error {
        ApiError::Wire(error) if error.status() == 400 => {
            WireError::invalid_field("parent_node", error.message()).into()
        }
        other @ (ApiError::Wire(_) | ApiError::Store(_)) => other,
    })?;
    if parent.id == child.id {
        let problem = "a node can not be its own parent";
        return Err(WireError::invalid_field("parent_node", problem).into());
    }
    if parent.owner != child.owner {
        let problem = format!("Node {} could not be found.", ident.excerpt());
        return Err(WireError::invalid_field("parent_node", &problem).into());
    }
    Ok(parent.id)
}

/// The error for a value of `field` that another node already has.
pub(super) fn already_exists(node: &Node, field: &str) -> WireError {
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
