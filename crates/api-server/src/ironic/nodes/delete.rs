// SPDX-License-Identifier: Apache-2.0
//! `DELETE /v1/nodes/{node}`.

use access_policy::PolicyTarget;
use http::Method;
use ironic_wire::WireError;
use lifecycle::delete_allowed;
use node_model::{JournalEntry, JournalEvent, Node, ProvisionState};

use super::path_node::find_node;
use crate::app::App;
use crate::handler;
use crate::ironic::resource::ResourceIdent;
use crate::server::access::CallerAccess;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, run_to_completion};

pub(crate) const ROUTES: &[ApiRoute] =
    &[ApiRoute::new(Method::DELETE, "/v1/nodes/{node}", "Delete a node", handler!(delete))
        .checked_by_handler(&["baremetal:node:delete", "baremetal:node:delete:self_owned_node"])];

async fn delete(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    stop_console(&request).await?;
    let ident = ResourceIdent::from_path(&request, "node");
    let access = request.access.clone();
    let (app, now, actor) = (request.app.clone(), request.now(), request.actor());
    let id = request
        .app
        .store
        .write(move |writer| {
            let node: Node = ident.find(writer)?;
            check_policy(&app, &node, &access)?;
            check_deletable(&app, &node)?;
            writer.delete(node.id)?;
            writer.append(JournalEntry {
                at: now,
                node_id: node.id,
                actor: actor.clone(),
                event: JournalEvent::Removed,
            });
            Ok::<_, ApiError>(node.id)
        })
        .await?;
    // Stopping the console may have failed above.
    request.app.conductor.release_console(id).await;
    Ok(ApiResponse::no_content())
}

/// Stops an enabled console. A failure does not prevent the deletion of a broken machine.
async fn stop_console(request: &ApiRequest) -> Result<(), ApiError> {
    let node = find_node(request).await?;
    check_policy(&request.app, &node, &request.access)?;
    check_deletable(&request.app, &node)?;
    if !node.console_enabled {
        return Ok(());
    }
    let (conductor, id, actor) = (request.app.conductor.clone(), node.id, request.actor());
    let stopped =
        run_to_completion(async move { conductor.set_console(id, false, &actor).await }).await;
    if let Err(error) = stopped {
        tracing::warn!(node = %id, %error, "stopping the console before node deletion failed");
    }
    Ok(())
}

/// Fails with 403 if the caller may delete neither all nodes nor those of its project.
fn check_policy(app: &App, node: &Node, access: &CallerAccess) -> Result<(), WireError> {
    let target = PolicyTarget::node(node.owner.as_deref(), node.lessee.as_deref());
    let owns = app.config.project_admin_can_manage_own_nodes
        && access.allows("baremetal:node:delete:self_owned_node", &target);
    if owns { Ok(()) } else { access.require("baremetal:node:delete", &target) }
}

/// Fails if the node must not be deleted.
fn check_deletable(app: &App, node: &Node) -> Result<(), WireError> {
    if let (Some(instance), false) = (node.instance_uuid, node.maintenance) {
        return Err(WireError::node_associated(&node.id.to_string(), &instance.to_string()));
    }
    if node.protected {
        return Err(WireError::node_protected(&node.id.to_string()));
    }
    if let Some(holder) = &node.reservation {
        return Err(WireError::node_locked(&node.id.to_string(), holder));
    }
    let may_delete_available = app.conductor.rules().allow_deleting_available_nodes;
    let may_delete = |state: ProvisionState| {
        delete_allowed(state) || (state == ProvisionState::Available && may_delete_available)
    };
    if node.maintenance || may_delete(node.provision_state) {
        return Ok(());
    }
    let states: Vec<&str> = ProvisionState::ALL
        .iter()
        .filter(|state| may_delete(**state))
        .map(|state| state.as_str())
        .collect();
    Err(WireError::conflict(format!(
        "Can not delete node {} while it is in state {}. Bring it to one of {}, or set maintenance \
         first.",
        node.label(),
        node.provision_state,
        states.join(", ")
    )))
}
