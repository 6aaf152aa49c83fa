// SPDX-License-Identifier: Apache-2.0
//! State and address of a node's console.

use http::Method;
use ironic_wire::{ConsoleConnection, console_body, parse_console};

use super::path_node::find_node_id;
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, run_to_completion};

const CONSOLE: &str = "/v1/nodes/{node}/states/console";

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(CONSOLE, "Show the state and address of a node's console", handler!(show))
        .resource("baremetal:node:get_console"),
    ApiRoute::new(Method::PUT, CONSOLE, "Enable or disable a node's console", handler!(set))
        .resource("baremetal:node:set_console_state"),
];

async fn show(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let id = find_node_id(&request).await?;
    let console = request.app.conductor.console(id).await?;
    let info =
        console.info.map(|info| ConsoleConnection { kind: info.kind.to_owned(), url: info.url });
    Ok(ApiResponse::ok(console_body(console.enabled, info.as_ref())))
}

async fn set(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let enabled = parse_console(&request.body)?;
    let id = find_node_id(&request).await?;
    let (conductor, actor) = (request.app.conductor.clone(), request.actor());
    run_to_completion(async move { conductor.set_console(id, enabled, &actor).await }).await?;
    let location = request.link(&format!("nodes/{}/states/console", request.param("node")));
    Ok(ApiResponse::accepted().with_location(&location))
}
