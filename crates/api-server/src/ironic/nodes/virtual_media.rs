// SPDX-License-Identifier: Apache-2.0
//! Virtual media of a node.

use http::Method;
use ironic_wire::{JsonWriter, VirtualMedia};
use node_model::MediaDevice;

use super::path_node::find_node_id;
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, run_to_completion};

const SINCE: u16 = 89;
const LIST_SINCE: u16 = 93;
const ALL: &str = "/v1/nodes/{node}/vmedia";

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(ALL, "List the virtual media of a node", handler!(list))
        .resource("baremetal:node:vmedia:get")
        .since(LIST_SINCE),
    ApiRoute::new(Method::POST, ALL, "Attach virtual media to a node", handler!(attach))
        .resource("baremetal:node:vmedia:attach")
        .since(SINCE),
    ApiRoute::new(Method::DELETE, ALL, "Detach virtual media from a node", handler!(detach))
        .resource("baremetal:node:vmedia:detach")
        .since(SINCE)
        .query(&["device_types"]),
];

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let id = find_node_id(&request).await?;
    let slots = request.app.conductor.virtual_media(id).await?;
    let mut body = JsonWriter::with_capacity(128 * slots.len().max(1));
    body.begin_array();
    for slot in &slots {
        body.element();
        body.begin_object();
        body.key("media_types");
        body.strings([media_type(slot.device)]);
        body.key("inserted");
        body.boolean(slot.image_url.is_some());
        body.key("image");
        body.optional_string(slot.image_url.as_deref());
        body.end_object();
    }
    body.end_array();
    Ok(ApiResponse::ok(body.into_bytes()))
}

async fn attach(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let media = VirtualMedia::parse(&request.body)?;
    let id = find_node_id(&request).await?;
    let (conductor, actor) = (request.app.conductor.clone(), request.actor());
    run_to_completion(async move {
        conductor
            .attach_virtual_media(
                id,
                &media.device_type,
                &media.image_url,
                &media.image_download_source,
                &actor,
            )
            .await
    })
    .await?;
    Ok(ApiResponse::no_content())
}

async fn detach(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&["device_types"])?;
    let devices = VirtualMedia::parse_device_types(request.query_value("device_types"))?;
    let id = find_node_id(&request).await?;
    let (conductor, actor) = (request.app.conductor.clone(), request.actor());
    run_to_completion(async move { conductor.detach_virtual_media(id, &devices, &actor).await })
        .await?;
    Ok(ApiResponse::no_content())
}

/// Requests use Ironic's device names; as in Ironic, the list uses Redfish's media types.
const fn media_type(device: MediaDevice) -> &'static str {
    match device {
        MediaDevice::Cdrom => "CD",
        MediaDevice::Disk => "USBStick",
        MediaDevice::Floppy => "Floppy",
    }
}
