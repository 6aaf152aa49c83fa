// SPDX-License-Identifier: Apache-2.0
//! How a node stands, and what its firmware boots in.

use http::Method;
use ironic_wire::{Context, WireError, node_states_body, parse_boot_mode, parse_secure_boot};
use lifecycle::{Rest, rest};
use node_model::Node;

use super::reach::{node, to_the_end};
use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::Route;

const SINCE: u16 = 76;

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/v1/nodes/{node}/states", "Show how a node stands", handler!(states)),
    Route::new(
        Method::PUT,
        "/v1/nodes/{node}/states/boot_mode",
        "Change the mode a node's firmware boots in",
        handler!(set_boot_mode),
    )
    .since(SINCE),
    Route::new(
        Method::PUT,
        "/v1/nodes/{node}/states/secure_boot",
        "Switch a node's secure boot",
        handler!(set_secure_boot),
    )
    .since(SINCE),
];

/// `…/states`: where the progress of a change can be followed.
pub(super) fn location(call: &Call) -> String {
    call.link(&format!("nodes/{}/states", call.param("node")))
}

async fn states(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let node = node(&call).await?;
    Ok(Reply::ok(node_states_body(&node, &Context::new(call.version, &call.base_url))))
}

async fn set_boot_mode(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let mode = parse_boot_mode(&call.body)?;
    let node = settled_node(&call).await?;
    let (conductor, actor) = (call.app.conductor.clone(), call.actor());
    to_the_end(async move { conductor.set_boot_mode(node.id, &mode, &actor).await }).await?;
    Ok(Reply::accepted().with_location(&location(&call)))
}

async fn set_secure_boot(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let on = parse_secure_boot(&call.body)?;
    let node = settled_node(&call).await?;
    let (conductor, actor) = (call.app.conductor.clone(), call.actor());
    to_the_end(async move { conductor.set_secure_boot(node.id, on, &actor).await }).await?;
    Ok(Reply::accepted().with_location(&location(&call)))
}

/// The node, if no job is under way that relies on how its firmware boots.
async fn settled_node(call: &Call) -> Result<Node, Refusal> {
    let node = node(call).await?;
    match rest(node.provision_state) {
        Rest::Stable | Rest::Failed | Rest::Held => Ok(node),
        Rest::Working | Rest::Waiting => Err(WireError::conflict(format!(
            "Node {} is in state \"{}\", and changing how it boots could disturb that; try again \
             when it has ended.",
            node.id, node.provision_state
        ))
        .into()),
    }
}
