// SPDX-License-Identifier: Apache-2.0
//! `DELETE /v1/nodes/{node}`.

use http::Method;
use ironic_wire::WireError;
use lifecycle::delete_allowed;
use node_model::{Happening, JournalEntry, Node, ProvisionState};

use super::reach;
use crate::app::App;
use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::Route;

pub(crate) const ROUTES: &[Route] =
    &[Route::new(Method::DELETE, "/v1/nodes/{node}", "Remove a node", handler!(remove))];

async fn remove(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    stop_console(&call).await?;
    let ident = Ident::of_path(&call, "node");
    let (app, now, actor) = (call.app.clone(), call.now(), call.actor());
    let id = call
        .app
        .store
        .write(move |writer| {
            let node: Node = ident.find(writer)?;
            check(&app, &node)?;
            writer.delete(node.id)?;
            writer.append(JournalEntry {
                at: now,
                node_id: node.id,
                actor: actor.clone(),
                what: Happening::Removed,
            });
            Ok::<_, Refusal>(node.id)
        })
        .await?;
    // Whatever became of its console above.
    call.app.conductor.registry().leave_console(id).await;
    Ok(Reply::no_content())
}

/// A console that is on is switched off first. That it cannot be does not keep a broken machine here.
async fn stop_console(call: &Call) -> Result<(), Refusal> {
    let node = reach::node(call).await?;
    check(&call.app, &node)?;
    if !node.console_enabled {
        return Ok(());
    }
    let (conductor, id, actor) = (call.app.conductor.clone(), node.id, call.actor());
    let stopped =
        reach::to_the_end(async move { conductor.set_console(id, false, &actor).await }).await;
    if let Err(error) = stopped {
        tracing::warn!(node = %id, %error, "console not stopped before the node is removed");
    }
    Ok(())
}

/// The rules about which nodes may go.
fn check(app: &App, node: &Node) -> Result<(), WireError> {
    if let (Some(instance), false) = (node.instance_uuid, node.maintenance) {
        return Err(WireError::node_associated(&node.id.to_string(), &instance.to_string()));
    }
    if node.protected {
        return Err(WireError::node_protected(&node.id.to_string()));
    }
    if let Some(holder) = &node.reservation {
        return Err(WireError::node_locked(&node.id.to_string(), holder));
    }
    let available_may_go = app.conductor.rules().allow_deleting_available_nodes;
    let may_go = |state: ProvisionState| {
        delete_allowed(state) || (state == ProvisionState::Available && available_may_go)
    };
    if node.maintenance || may_go(node.provision_state) {
        return Ok(());
    }
    let states: Vec<&str> = ProvisionState::ALL
        .iter()
        .filter(|state| may_go(**state))
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
