// SPDX-License-Identifier: Apache-2.0
//! Where a node boots from, and interrupting it.

use http::Method;
use ironic_wire::{BootDevice, boot_device_body, supported_boot_devices_body};

use super::reach::{node_id, to_the_end};
use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::Route;

const BOOT_DEVICE: &str = "/v1/nodes/{node}/management/boot_device";

pub(crate) const ROUTES: &[Route] = &[
    Route::get(BOOT_DEVICE, "Show where a node boots from", handler!(boot_device)),
    Route::new(
        Method::PUT,
        BOOT_DEVICE,
        "Choose where a node boots from",
        handler!(set_boot_device),
    ),
    Route::get(
        "/v1/nodes/{node}/management/boot_device/supported",
        "List what a node can boot from",
        handler!(supported_boot_devices),
    ),
    Route::new(
        Method::PUT,
        "/v1/nodes/{node}/management/inject_nmi",
        "Interrupt a node",
        handler!(inject_nmi),
    )
    .since(29),
];

async fn boot_device(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let id = node_id(&call).await?;
    let setting = call.app.conductor.boot_device(id).await?;
    Ok(Reply::ok(boot_device_body(setting.device, setting.persistent)))
}

async fn supported_boot_devices(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let id = node_id(&call).await?;
    let devices = call.app.conductor.supported_boot_devices(id).await?;
    Ok(Reply::ok(supported_boot_devices_body(&devices)))
}

async fn set_boot_device(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let wanted = BootDevice::parse(&call.body)?;
    let id = node_id(&call).await?;
    let (conductor, actor) = (call.app.conductor.clone(), call.actor());
    to_the_end(async move {
        let (device, persistent) = (&wanted.boot_device, wanted.persistent);
        conductor.set_boot_device(id, device, persistent, &actor).await
    })
    .await?;
    Ok(Reply::no_content())
}

async fn inject_nmi(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let id = node_id(&call).await?;
    let (conductor, actor) = (call.app.conductor.clone(), call.actor());
    to_the_end(async move { conductor.inject_nmi(id, &actor).await }).await?;
    Ok(Reply::no_content())
}
