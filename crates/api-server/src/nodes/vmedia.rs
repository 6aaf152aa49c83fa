// SPDX-License-Identifier: Apache-2.0
//! Images in a node's virtual drives.

use conductor::MediaDevice;
use http::Method;
use ironic_wire::{JsonWriter, VirtualMedia};

use super::reach::{node_id, to_the_end};
use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::Route;

const SINCE: u16 = 89;
const SHOWN_SINCE: u16 = 93;
const ALL: &str = "/v1/nodes/{node}/vmedia";

pub(crate) const ROUTES: &[Route] = &[
    Route::get(ALL, "List the virtual drives of a node", handler!(list)).since(SHOWN_SINCE),
    Route::new(Method::POST, ALL, "Put an image into a virtual drive", handler!(attach))
        .since(SINCE),
    Route::new(Method::DELETE, ALL, "Empty virtual drives of a node", handler!(detach))
        .since(SINCE)
        .query(&["device_types"]),
];

async fn list(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let id = node_id(&call).await?;
    let slots = call.app.conductor.virtual_media(id).await?;
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
    Ok(Reply::ok(body.into_bytes()))
}

async fn attach(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let media = VirtualMedia::parse(&call.body)?;
    let id = node_id(&call).await?;
    let (conductor, actor) = (call.app.conductor.clone(), call.actor());
    to_the_end(async move {
        let (device, url) = (&media.device_type, &media.image_url);
        conductor.attach_virtual_media(id, device, url, &actor).await
    })
    .await?;
    Ok(Reply::no_content())
}

async fn detach(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &["device_types"])?;
    let devices = VirtualMedia::parse_device_types(call.query_value("device_types"))?;
    let id = node_id(&call).await?;
    let (conductor, actor) = (call.app.conductor.clone(), call.actor());
    to_the_end(async move { conductor.detach_virtual_media(id, &devices, &actor).await }).await?;
    Ok(Reply::no_content())
}

/// Drives are asked for by Ironic's words and listed with Redfish's.
const fn media_type(device: MediaDevice) -> &'static str {
    match device {
        MediaDevice::Cdrom => "CD",
        MediaDevice::Disk => "USBStick",
        MediaDevice::Floppy => "Floppy",
    }
}
