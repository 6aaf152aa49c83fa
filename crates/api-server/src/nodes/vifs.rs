// SPDX-License-Identifier: Apache-2.0
//! The virtual network interfaces attached to a node.

use conductor::VifInfo;
use http::Method;
use ironic_wire::{VifAttachment, WireError, as_uuid, vifs_body};
use node_model::{JsonObject, PortId, PortgroupId};
use uuid::Uuid;

use super::reach::{node_id, to_the_end};
use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::Route;

const SINCE: u16 = 28;
const ALL: &str = "/v1/nodes/{node}/vifs";

pub(crate) const ROUTES: &[Route] = &[
    Route::get(ALL, "List the VIFs of a node", handler!(list)).since(SINCE),
    Route::new(Method::POST, ALL, "Attach a VIF to a node", handler!(attach)).since(SINCE),
    Route::new(
        Method::DELETE,
        "/v1/nodes/{node}/vifs/{vif}",
        "Detach a VIF from a node",
        handler!(detach),
    )
    .since(SINCE),
];

async fn list(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let id = node_id(&call).await?;
    let vifs = call.app.conductor.vifs(id).await?;
    Ok(Reply::ok(vifs_body(vifs.iter().map(|vif| vif.id.as_str()))))
}

async fn attach(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let mut asked = VifAttachment::parse(&call.body, call.version)?;
    for known in ["id", "port_uuid", "portgroup_uuid"] {
        asked.info.remove(known);
    }
    let vif = VifInfo {
        id: asked.id,
        port: optional_uuid("port_uuid", asked.port_uuid.as_deref())?.map(PortId),
        portgroup: optional_uuid("portgroup_uuid", asked.portgroup_uuid.as_deref())?
            .map(PortgroupId),
        rest: JsonObject::from(asked.info),
    };
    let id = node_id(&call).await?;
    let (conductor, actor) = (call.app.conductor.clone(), call.actor());
    to_the_end(async move { conductor.attach_vif(id, vif, &actor).await }).await?;
    Ok(Reply::no_content())
}

async fn detach(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let id = node_id(&call).await?;
    let vif = call.param("vif").to_owned();
    let (conductor, actor) = (call.app.conductor.clone(), call.actor());
    to_the_end(async move { conductor.detach_vif(id, &vif, &actor).await }).await?;
    Ok(Reply::no_content())
}

fn optional_uuid(field: &str, text: Option<&str>) -> Result<Option<Uuid>, WireError> {
    match text {
        None => Ok(None),
        Some(text) => as_uuid(text)
            .map(Some)
            .ok_or_else(|| WireError::invalid_field(field, "expected a UUID")),
    }
}
