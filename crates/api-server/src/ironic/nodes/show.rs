// SPDX-License-Identifier: Apache-2.0
//! `GET /v1/nodes/{node}`.

use ironic_wire::{ListQuery, params};
use node_model::Node;

use crate::handler;
use crate::ironic::conductor_cache::LiveConductors;
use crate::ironic::resource::{ApiResource, ResourceIdent};
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute};

pub(crate) const ROUTES: &[ApiRoute] =
    &[ApiRoute::get("/v1/nodes/{node}", "Show a node", handler!(show))
        .resource("baremetal:node:get")
        .query(&["fields"])];

async fn show(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let query = ListQuery::<Node>::parse(params::ONE, &request.query, request.version, 1, true)?;
    let ident = ResourceIdent::from_path(&request, "node");
    let (app, now) = (request.app.clone(), request.now());
    let body = request
        .app
        .store
        .read(move |reader| {
            let node: Node = ident.find(reader)?;
            let conductors = if query.selection.shows("conductor") {
                app.conductor_cache.get(reader, now)?
            } else {
                LiveConductors::default()
            };
            let (version, base_url) = (request.version, &request.base_url);
            let node = node.redacted(&request.access).unwrap_or(node);
            Ok::<_, ApiError>(conductors.node_body(&node, &query.selection, version, base_url))
        })
        .await?;
    Ok(ApiResponse::ok(body))
}
