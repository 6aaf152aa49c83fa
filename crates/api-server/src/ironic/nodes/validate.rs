// SPDX-License-Identifier: Apache-2.0
//! `…/validate`: checks the settings of each interface of a node.

use ironic_wire::{WireError, as_uuid, validate_body};
use node_model::Node;

use crate::handler;
use crate::ironic::resource::ResourceIdent;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute};

/// First version with node names.
const NAMES_SINCE: u16 = 5;

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/nodes/{node}/validate", "Validate a node", handler!(validate_path_node))
        .resource("baremetal:node:validate"),
    ApiRoute::get(
        "/v1/nodes/validate",
        "Validate the node given in the query",
        handler!(validate_query_node),
    )
    .resource("baremetal:node:validate")
    .query(&["node", "node_uuid"]),
];

async fn validate_path_node(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let ident = ResourceIdent::from_path(&request, "node");
    validate(&request, ident).await
}

async fn validate_query_node(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&["node", "node_uuid"])?;
    let ident = request.query_value("node_uuid").or_else(|| request.query_value("node"));
    let text = ident.ok_or_else(|| WireError::missing("node"))?;
    if as_uuid(text).is_none() && !request.version.has(NAMES_SINCE) {
        return Err(WireError::too_new("node names", NAMES_SINCE).into());
    }
    let ident = ResourceIdent::from_text(&request, text).with_rule("baremetal:node:validate");
    validate(&request, ident).await
}

async fn validate(request: &ApiRequest, ident: ResourceIdent) -> Result<ApiResponse, ApiError> {
    let node: Node = request.app.store.read(move |reader| ident.find(reader)).await?;
    let results = request.app.conductor.validate(node.id).await?;
    Ok(ApiResponse::ok(validate_body(&results)))
}
