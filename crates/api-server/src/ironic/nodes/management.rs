// SPDX-License-Identifier: Apache-2.0
//! Boot device and NMI.

use http::Method;
use ironic_wire::{BootDeviceRequest, boot_device_body, supported_boot_devices_body};

use super::path_node::find_node_id;
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, run_to_completion};

const BOOT_DEVICE: &str = "/v1/nodes/{node}/management/boot_device";

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(BOOT_DEVICE, "Show the boot device of a node", handler!(boot_device))
        .resource("baremetal:node:get_boot_device"),
    ApiRoute::new(
        Method::PUT,
        BOOT_DEVICE,
        "Set the boot device of a node",
        handler!(set_boot_device),
    )
    .resource("baremetal:node:set_boot_device"),
    ApiRoute::get(
        "/v1/nodes/{node}/management/boot_device/supported",
        "List the boot devices that a node supports",
        handler!(supported_boot_devices),
    )
    .resource("baremetal:node:get_boot_device"),
    ApiRoute::new(
        Method::PUT,
        "/v1/nodes/{node}/management/inject_nmi",
        "Send an NMI to a node",
        handler!(inject_nmi),
    )
    .resource("baremetal:node:inject_nmi")
    .since(29),
];

async fn boot_device(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let id = find_node_id(&request).await?;
    let setting = request.app.conductor.boot_device(id).await?;
    Ok(ApiResponse::ok(boot_device_body(setting.device, setting.persistent)))
}

async fn supported_boot_devices(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let id = find_node_id(&request).await?;
    let devices = request.app.conductor.supported_boot_devices(id).await?;
    Ok(ApiResponse::ok(supported_boot_devices_body(&devices)))
}

async fn set_boot_device(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let body = BootDeviceRequest::parse(&request.body)?;
    let id = find_node_id(&request).await?;
    let (conductor, actor) = (request.app.conductor.clone(), request.actor());
    run_to_completion(async move {
        let (device, persistent) = (&body.boot_device, body.persistent);
        conductor.set_boot_device(id, device, persistent, &actor).await
    })
    .await?;
    Ok(ApiResponse::no_content())
}

async fn inject_nmi(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let id = find_node_id(&request).await?;
    let (conductor, actor) = (request.app.conductor.clone(), request.actor());
    run_to_completion(async move { conductor.inject_nmi(id, &actor).await }).await?;
    Ok(ApiResponse::no_content())
}
