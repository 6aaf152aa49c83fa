// SPDX-License-Identifier: Apache-2.0
//! `…/maintenance`: sets and clears maintenance.

use http::Method;
use ironic_wire::parse_maintenance;

use super::path_node::find_node_id;
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute};

const PATH: &str = "/v1/nodes/{node}/maintenance";

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::new(Method::PUT, PATH, "Put a node into maintenance", handler!(set))
        .resource("baremetal:node:set_maintenance")
        .query(&["reason"]),
    ApiRoute::new(Method::DELETE, PATH, "Take a node out of maintenance", handler!(clear))
        .resource("baremetal:node:clear_maintenance"),
];

async fn set(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&["reason"])?;
    let reason = parse_maintenance(&request.body)?;
    let reason = reason.or_else(|| request.query_value("reason").map(str::to_owned));
    set_maintenance(&request, Some(reason)).await
}

async fn clear(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    set_maintenance(&request, None).await
}

/// `maintenance` is `None` to clear it, else the optional reason.
async fn set_maintenance(
    request: &ApiRequest,
    maintenance: Option<Option<String>>,
) -> Result<ApiResponse, ApiError> {
    let node = find_node_id(request).await?;
    request.app.conductor.set_maintenance(node, maintenance, request.actor()).await?;
    Ok(ApiResponse::accepted())
}
