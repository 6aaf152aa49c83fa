// SPDX-License-Identifier: Apache-2.0
//! Lookup and heartbeat of the ramdisk agent. No user is authenticated: the conductor checks the boot
//! proof of a lookup and the token of a heartbeat.

use conductor::{AgentCaller, AgentLookup};
use http::Method;
use ironic_wire::{LookupResponse, WireError};
use node_model::{Node, NodeId};

use super::resource::ResourceIdent;
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, BodyLimit, RouteAccess};

const SINCE: u16 = 22;

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/lookup", "Look up the node of an agent", handler!(lookup))
        .since(SINCE)
        .access(RouteAccess::Public)
        .rate_limited()
        .query(&["addresses", "node_uuid"]),
    ApiRoute::new(
        Method::POST,
        "/v1/heartbeat/{node}",
        "Receive the heartbeat of an agent",
        handler!(heartbeat),
    )
    .since(SINCE)
    .access(RouteAccess::Public)
    .rate_limited()
    .body_limit(BodyLimit::Message),
];

async fn lookup(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let query = ironic_wire::LookupQuery::parse(&request.query)?;
    let found = request
        .app
        .conductor
        .lookup(AgentLookup {
            node: query.node_uuid.map(NodeId),
            macs: query.addresses,
            caller: agent_caller(&request),
        })
        .await?;
    // The same error for "no such node" and "no job on the node": callers are not authenticated.
    let config = found.ok_or_else(|| WireError::new(404, "No node waits for this agent."))?;
    let response = LookupResponse {
        node: &config.node,
        issued_token: config.token.as_ref().map(|token| token.reveal().as_str()),
        heartbeat_timeout: config.heartbeat_timeout,
        skip_bmc_detect: config.skip_bmc_detect,
    };
    Ok(ApiResponse::ok(response.body(request.version, &request.base_url)?))
}

async fn heartbeat(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let heartbeat = match ironic_wire::parse_heartbeat(&request.body, request.version) {
        Ok(heartbeat) => heartbeat,
        Err(invalid) => {
            // As in Ironic, an unknown node is reported first.
            let ident = ResourceIdent::from_path(&request, "node");
            request.app.store.read(move |reader| ident.find::<Node>(reader)).await?;
            return Err(invalid.into());
        }
    };
    let id = agent_node_id(&request).await?;
    request.app.conductor.heartbeat(id, heartbeat, agent_caller(&request)).await?;
    request.mark_client_known();
    Ok(ApiResponse::accepted())
}

/// The sender of an agent's request.
pub(crate) fn agent_caller(request: &ApiRequest) -> AgentCaller {
    AgentCaller {
        address: request.client_address,
        secret: request.boot_secret.clone(),
        request_id: request.request_id.to_string(),
    }
}

/// The id of the node in the path of an agent's request. A UUID is not looked up here, because the
/// conductor reads the node anyway and heartbeats are the most frequent requests.
pub(crate) async fn agent_node_id(request: &ApiRequest) -> Result<NodeId, ApiError> {
    if let Some(uuid) = ironic_wire::as_uuid(request.param("node")) {
        return Ok(NodeId(uuid));
    }
    let ident = ResourceIdent::from_path(request, "node");
    let node: Node = request.app.store.read(move |reader| ident.find(reader)).await?;
    Ok(node.id)
}
