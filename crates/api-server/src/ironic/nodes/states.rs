// SPDX-License-Identifier: Apache-2.0
//! `…/states`: the states of a node, its boot mode and secure boot.

use http::Method;
use ironic_wire::{RenderContext, WireError, node_states_body, parse_boot_mode, parse_secure_boot};
use lifecycle::{StateClass, state_class};
use node_model::Node;

use super::path_node::find_node;
use crate::handler;
use crate::ironic::resource::ApiResource;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, run_to_completion};

const SINCE: u16 = 76;

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/nodes/{node}/states", "Show the states of a node", handler!(states))
        .resource("baremetal:node:get_states"),
    ApiRoute::new(
        Method::PUT,
        "/v1/nodes/{node}/states/boot_mode",
        "Set the boot mode of a node",
        handler!(set_boot_mode),
    )
    .resource("baremetal:node:set_boot_mode")
    .since(SINCE),
    ApiRoute::new(
        Method::PUT,
        "/v1/nodes/{node}/states/secure_boot",
        "Enable or disable secure boot of a node",
        handler!(set_secure_boot),
    )
    .resource("baremetal:node:set_secure_boot")
    .since(SINCE),
];

/// The URL of `…/states`, for the `Location` header.
pub(super) fn states_url(request: &ApiRequest) -> String {
    request.link(&format!("nodes/{}/states", request.param("node")))
}

async fn states(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let node = find_node(&request).await?;
    let node = node.redacted(&request.access).unwrap_or(node);
    Ok(ApiResponse::ok(node_states_body(
        &node,
        &RenderContext::new(request.version, &request.base_url),
    )))
}

async fn set_boot_mode(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let mode = parse_boot_mode(&request.body)?;
    let node = find_idle_node(&request).await?;
    let (conductor, actor) = (request.app.conductor.clone(), request.actor());
    run_to_completion(async move { conductor.set_boot_mode(node.id, &mode, &actor).await }).await?;
    Ok(ApiResponse::accepted().with_location(&states_url(&request)))
}

async fn set_secure_boot(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let enabled = parse_secure_boot(&request.body)?;
    let node = find_idle_node(&request).await?;
    let (conductor, actor) = (request.app.conductor.clone(), request.actor());
    run_to_completion(async move { conductor.set_secure_boot(node.id, enabled, &actor).await })
        .await?;
    Ok(ApiResponse::accepted().with_location(&states_url(&request)))
}

/// The node in the path. Fails with 409 while a job runs that depends on its boot mode.
async fn find_idle_node(request: &ApiRequest) -> Result<Node, ApiError> {
    let node = find_node(request).await?;
    match state_class(node.provision_state) {
        StateClass::Stable | StateClass::Failed | StateClass::Held => Ok(node),
        StateClass::Working | StateClass::Waiting => Err(WireError::conflict(format!(
            "Node {} is in state \"{}\", and changing how it boots could disturb that; try again \
             when it has ended.",
            node.id, node.provision_state
        ))
        .into()),
    }
}
