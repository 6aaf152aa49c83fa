// SPDX-License-Identifier: Apache-2.0
//! The virtual network interfaces attached to a node.

use http::Method;
use ironic_wire::{VifAttachment, WireError, as_uuid, vifs_body};
use node_model::VifInfo;
use node_model::{JsonObject, PortId, PortgroupId};
use uuid::Uuid;

use super::path_node::find_node_id;
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, run_to_completion};

const SINCE: u16 = 28;
const ALL: &str = "/v1/nodes/{node}/vifs";

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(ALL, "List the VIFs of a node", handler!(list))
        .resource("baremetal:node:vif:list")
        .since(SINCE),
    ApiRoute::new(Method::POST, ALL, "Attach a VIF to a node", handler!(attach))
        .resource("baremetal:node:vif:attach")
        .since(SINCE),
    ApiRoute::new(
        Method::DELETE,
        "/v1/nodes/{node}/vifs/{vif}",
        "Detach a VIF from a node",
        handler!(detach),
    )
    .resource("baremetal:node:vif:detach")
    .since(SINCE),
];

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let id = find_node_id(&request).await?;
    let vifs = request.app.conductor.vifs(id).await?;
    Ok(ApiResponse::ok(vifs_body(vifs.iter().map(|vif| vif.id.as_str()))))
}

async fn attach(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let mut body = VifAttachment::parse(&request.body, request.version)?;
    for field in ["id", "port_uuid", "portgroup_uuid"] {
        body.info.remove(field);
    }
    let vif = VifInfo {
        id: body.id,
        port: optional_uuid("port_uuid", body.port_uuid.as_deref())?.map(PortId),
        portgroup: optional_uuid("portgroup_uuid", body.portgroup_uuid.as_deref())?
            .map(PortgroupId),
        rest: JsonObject::from(body.info),
    };
    let id = find_node_id(&request).await?;
    let (conductor, actor) = (request.app.conductor.clone(), request.actor());
    run_to_completion(async move { conductor.attach_vif(id, vif, &actor).await }).await?;
    Ok(ApiResponse::no_content())
}

async fn detach(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let id = find_node_id(&request).await?;
    let vif = request.param("vif").to_owned();
    let (conductor, actor) = (request.app.conductor.clone(), request.actor());
    run_to_completion(async move { conductor.detach_vif(id, &vif, &actor).await }).await?;
    Ok(ApiResponse::no_content())
}

fn optional_uuid(field: &str, text: Option<&str>) -> Result<Option<Uuid>, WireError> {
    match text {
        None => Ok(None),
        Some(text) => as_uuid(text)
            .map(Some)
            .ok_or_else(|| WireError::invalid_field(field, "expected a UUID")),
    }
}
