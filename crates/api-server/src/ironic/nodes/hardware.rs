// SPDX-License-Identifier: Apache-2.0
//! BIOS settings, firmware components and inventory of a node.

use ironic_wire::{
    BiosSettingView, ListQuery, RenderContext, WireError, bios_setting_body, inventory_body,
    params, write_list,
};
use node_model::{FirmwareComponent, Node};

use crate::handler;
use crate::ironic::resource::ResourceIdent;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute};

const BIOS_SINCE: u16 = 40;
const INVENTORY_SINCE: u16 = 81;
const FIRMWARE_SINCE: u16 = 86;

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/nodes/{node}/bios", "List the BIOS settings of a node", handler!(bios))
        .resource("baremetal:node:bios:get")
        .since(BIOS_SINCE)
        .query(&["detail", "fields"]),
    ApiRoute::get(
        "/v1/nodes/{node}/bios/{setting}",
        "Show a BIOS setting of a node",
        handler!(bios_setting),
    )
    .resource("baremetal:node:bios:get")
    .since(BIOS_SINCE),
    ApiRoute::get("/v1/nodes/{node}/firmware", "List the firmware of a node", handler!(firmware))
        .resource("baremetal:node:firmware:get")
        .since(FIRMWARE_SINCE)
        .query(&["fields"]),
    ApiRoute::get(
        "/v1/nodes/{node}/inventory",
        "Show the inventory of a node",
        handler!(inventory),
    )
    .resource("baremetal:node:inventory:get")
    .since(INVENTORY_SINCE),
];

async fn bios(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (version, query) = (request.version, &request.query);
    let query = ListQuery::<BiosSettingView>::parse(params::BIOS, query, version, 1, false)?;
    let ident = ResourceIdent::from_path(&request, "node");
    let (id, settings) = request
        .app
        .store
        .read(move |reader| {
            let node: Node = ident.find(reader)?;
            Ok::<_, ApiError>((node.id, reader.bios_settings(node.id)?))
        })
        .await?;
    let context = RenderContext::new(version, &request.base_url);
    let body = write_list::<BiosSettingView, ApiError>(
        &query.selection,
        &context,
        |each| {
            settings.into_iter().for_each(|setting| each(&BiosSettingView::new(id, setting)));
            Ok(())
        },
        || None,
    )?;
    Ok(ApiResponse::ok(body))
}

async fn bios_setting(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let ident = ResourceIdent::from_path(&request, "node");
    let name = request.param("setting").to_owned();
    let view = request
        .app
        .store
        .read(move |reader| {
            let node: Node = ident.find(reader)?;
            let settings = reader.bios_settings(node.id)?;
            let found = settings.into_iter().find(|setting| setting.name == name);
            let setting = found.ok_or_else(|| {
                let excerpt: String = name.chars().take(255).collect();
                WireError::new(404, format!("Node {} has no BIOS setting '{excerpt}'.", node.id))
            })?;
            Ok::<_, ApiError>(BiosSettingView::new(node.id, setting))
        })
        .await?;
    let context = RenderContext::new(request.version, &request.base_url);
    Ok(ApiResponse::ok(bios_setting_body(&view, &context)))
}

async fn firmware(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let (version, query) = (request.version, &request.query);
    let query = ListQuery::<FirmwareComponent>::parse(params::FIRMWARE, query, version, 1, false)?;
    let ident = ResourceIdent::from_path(&request, "node");
    let components = request
        .app
        .store
        .read(move |reader| {
            let node: Node = ident.find(reader)?;
            Ok::<_, ApiError>(reader.firmware_components(node.id)?)
        })
        .await?;
    let context = RenderContext::new(version, &request.base_url);
    let body = write_list::<FirmwareComponent, ApiError>(
        &query.selection,
        &context,
        |each| {
            components.iter().for_each(each);
            Ok(())
        },
        || None,
    )?;
    Ok(ApiResponse::ok(body))
}

async fn inventory(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let ident = ResourceIdent::from_path(&request, "node");
    let found = request
        .app
        .store
        .read(move |reader| {
            let node: Node = ident.find(reader)?;
            let found = reader.inventory(node.id)?;
            found.ok_or_else(|| {
                let id = node.id.to_string();
                ApiError::from(WireError::not_found("Node inventory record for node", &id))
            })
        })
        .await?;
    Ok(ApiResponse::ok(inventory_body(&found)))
}
