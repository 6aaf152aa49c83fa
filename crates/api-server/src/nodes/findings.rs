// SPDX-License-Identifier: Apache-2.0
//! What was found out about a node's hardware: settings, firmware, inventory.

use ironic_wire::{
    BiosView, Context, ListQuery, WireError, bios_setting_body, inventory_body, params, write_list,
};
use node_model::{FirmwareComponent, Node};

use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::Route;

const BIOS_SINCE: u16 = 40;
const INVENTORY_SINCE: u16 = 81;
const FIRMWARE_SINCE: u16 = 86;

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/v1/nodes/{node}/bios", "List the BIOS settings of a node", handler!(bios))
        .since(BIOS_SINCE)
        .query(&["detail", "fields"]),
    Route::get(
        "/v1/nodes/{node}/bios/{setting}",
        "Show a BIOS setting of a node",
        handler!(bios_setting),
    )
    .since(BIOS_SINCE),
    Route::get("/v1/nodes/{node}/firmware", "List the firmware of a node", handler!(firmware))
        .since(FIRMWARE_SINCE)
        .query(&["fields"]),
    Route::get(
        "/v1/nodes/{node}/inventory",
        "Show what the last inspection of a node found",
        handler!(inventory),
    )
    .since(INVENTORY_SINCE),
];

async fn bios(call: Call) -> Result<Reply, Refusal> {
    let (version, query) = (call.version, &call.query);
    let query = ListQuery::<BiosView>::parse(params::BIOS, query, version, 1, false)?;
    let ident = Ident::of_path(&call, "node");
    let (id, settings) = call
        .app
        .store
        .read(move |reader| {
            let node: Node = ident.find(reader)?;
            Ok::<_, Refusal>((node.id, reader.bios_settings(node.id)?))
        })
        .await?;
    let context = Context::new(version, &call.base_url);
    let body = write_list::<BiosView, Refusal>(
        &query.selection,
        &context,
        |each| {
            settings.into_iter().for_each(|setting| each(&BiosView::new(id, setting)));
            Ok(())
        },
        || None,
    )?;
    Ok(Reply::ok(body))
}

async fn bios_setting(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let ident = Ident::of_path(&call, "node");
    let name = call.param("setting").to_owned();
    let view = call
        .app
        .store
        .read(move |reader| {
            let node: Node = ident.find(reader)?;
            let settings = reader.bios_settings(node.id)?;
            let found = settings.into_iter().find(|setting| setting.name == name);
            let setting = found.ok_or_else(|| {
                let shown: String = name.chars().take(255).collect();
                WireError::new(404, format!("Node {} has no BIOS setting '{shown}'.", node.id))
            })?;
            Ok::<_, Refusal>(BiosView::new(node.id, setting))
        })
        .await?;
    let context = Context::new(call.version, &call.base_url);
    Ok(Reply::ok(bios_setting_body(&view, &context)))
}

async fn firmware(call: Call) -> Result<Reply, Refusal> {
    let (version, query) = (call.version, &call.query);
    let query = ListQuery::<FirmwareComponent>::parse(params::FIRMWARE, query, version, 1, false)?;
    let ident = Ident::of_path(&call, "node");
    let components = call
        .app
        .store
        .read(move |reader| {
            let node: Node = ident.find(reader)?;
            Ok::<_, Refusal>(reader.firmware_components(node.id)?)
        })
        .await?;
    let context = Context::new(version, &call.base_url);
    let body = write_list::<FirmwareComponent, Refusal>(
        &query.selection,
        &context,
        |each| {
            components.iter().for_each(each);
            Ok(())
        },
        || None,
    )?;
    Ok(Reply::ok(body))
}

async fn inventory(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let ident = Ident::of_path(&call, "node");
    let found = call
        .app
        .store
        .read(move |reader| {
            let node: Node = ident.find(reader)?;
            let found = reader.inventory(node.id)?;
            found.ok_or_else(|| {
                let id = node.id.to_string();
                Refusal::from(WireError::not_found("Node inventory record for node", &id))
            })
        })
        .await?;
    Ok(Reply::ok(inventory_body(&found)))
}
