// SPDX-License-Identifier: Apache-2.0
//! Virtual media, under the system, under the manager, or both; with actions or by PATCH.

use serde_json::{Value, json};

use super::document::{ResourceDocument, collection};
use super::error_response::RedfishErrorResponse;
use super::request_context::{ChangeResponse, RequestContext};
use super::resource_kind::ResourceKind;
use super::routes::RedfishRoute;
use crate::machine::InsertedMedia;

pub(super) const ROUTES: &[RedfishRoute] = &[
    RedfishRoute::at(ResourceKind::SystemMedia, "/redfish/v1/Systems/{system}/VirtualMedia")
        .get(list),
    RedfishRoute::at(
        ResourceKind::SystemMedium,
        "/redfish/v1/Systems/{system}/VirtualMedia/{slot}",
    )
    .get(show)
    .patch(change),
    RedfishRoute::at(
        ResourceKind::SystemMedium,
        "/redfish/v1/Systems/{system}/VirtualMedia/{slot}/Actions/VirtualMedia.InsertMedia",
    )
    .post(insert),
    RedfishRoute::at(
        ResourceKind::SystemMedium,
        "/redfish/v1/Systems/{system}/VirtualMedia/{slot}/Actions/VirtualMedia.EjectMedia",
    )
    .post(eject),
    RedfishRoute::at(ResourceKind::ManagerMedia, "/redfish/v1/Managers/{manager}/VirtualMedia")
        .get(list),
    RedfishRoute::at(
        ResourceKind::ManagerMedium,
        "/redfish/v1/Managers/{manager}/VirtualMedia/{slot}",
    )
    .get(show)
    .patch(change),
    RedfishRoute::at(
        ResourceKind::ManagerMedium,
        "/redfish/v1/Managers/{manager}/VirtualMedia/{slot}/Actions/VirtualMedia.InsertMedia",
    )
    .post(insert),
    RedfishRoute::at(
        ResourceKind::ManagerMedium,
        "/redfish/v1/Managers/{manager}/VirtualMedia/{slot}/Actions/VirtualMedia.EjectMedia",
    )
    .post(eject),
];

const INSERT: &str = "VirtualMedia.InsertMedia";

/// Properties that insert a medium, by action or PATCH.
const PARAMETERS: &[&str] = &[
    "Image",
    "Inserted",
    "WriteProtected",
    "UserName",
    "Password",
    "TransferMethod",
    "TransferProtocolType",
    "MediaTypes",
    "VerifyCertificate",
];

fn list(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let slots = context.personality().media.slots.iter();
    let members = slots.map(|slot| format!("{}/{}", context.path, slot.id));
    let schema = "#VirtualMediaCollection.VirtualMediaCollection";
    Ok(collection(context.path, schema, "Virtual Media", members))
}

fn show(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let index = slot_index(context)?;
    let rules = &context.personality().media;
    let rule = rules.slots.get(index).ok_or_else(|| context.not_found())?;
    let media = context.machine.inserted_media().get(index).and_then(Option::as_ref);
    let image = media.map(|media| &*media.image);
    let schema = "#VirtualMedia.v1_6_0.VirtualMedia";
    let mut document = ResourceDocument::new(context.path, schema, &rule.id, "Virtual Media");
    document.extend(json!({
        "MediaTypes": rule.kinds,
        "Image": image,
        "ImageName": image.map(|image| image.rsplit('/').next()),
        "Inserted": media.is_some_and(|media| media.inserted),
        "WriteProtected": media.is_none_or(|media| media.write_protected),
        "ConnectedVia": if media.is_some() { "URI" } else { "NotConnected" },
        "TransferMethod": media.map(|_| "Stream"),
        "TransferProtocolType": image.map(protocol),
        "UserName": media.map(|media| media.user_name.as_deref().unwrap_or("")),
        "Password": null,
        "VerifyCertificate": false,
    }));
    if rules.actions {
        let action = |name: &str| format!("{}/Actions/VirtualMedia.{name}", context.path);
        document.set(
            "Actions",
            json!({
                "#VirtualMedia.InsertMedia": {"target": action("InsertMedia")},
                "#VirtualMedia.EjectMedia": {"target": action("EjectMedia")},
            }),
        );
    }
    Ok(document.into_value())
}

fn insert(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    let index = slot_index(context)?;
    let rules = &context.personality().media;
    if !rules.actions {
        return Err(context.not_found());
    }
    for name in context.body.keys() {
        if rules.rejected_parameters.contains(name) || !PARAMETERS.contains(&name.as_str()) {
            return Err(RedfishErrorResponse::parameter_unknown(INSERT, name));
        }
    }
    for name in &rules.required_parameters {
        if !context.body.contains_key(name) {
            return Err(RedfishErrorResponse::parameter_missing(INSERT, name));
        }
    }
    let media = media_from_body(context)?
        .ok_or(RedfishErrorResponse::parameter_missing(INSERT, "Image"))?;
    context.machine.insert_media(index, media)?;
    Ok(ChangeResponse::no_content())
}

fn eject(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    let index = slot_index(context)?;
    if !context.personality().media.actions {
        return Err(context.not_found());
    }
    context.machine.eject_media(index)?;
    Ok(ChangeResponse::no_content())
}

/// Inserts or ejects by PATCH, for BMCs without actions.
fn change(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    let index = slot_index(context)?;
    context.reject_unknown_properties(PARAMETERS)?;
    if context.personality().media.actions {
        // With actions, only VerifyCertificate can be patched.
        return match context.body.keys().find(|name| *name != "VerifyCertificate") {
            None => Ok(ChangeResponse::ok(show(context)?)),
            Some(name) => Err(RedfishErrorResponse::property_unknown(name)),
        };
    }
    match media_from_body(context)? {
        Some(media) if media.inserted => context.machine.insert_media(index, media)?,
        Some(_) | None => context.machine.eject_media(index)?,
    }
    Ok(ChangeResponse::ok(show(context)?))
}

/// Returns the medium that the body describes; `None` if its image is absent, null or empty.
fn media_from_body(
    context: &RequestContext<'_>,
) -> Result<Option<InsertedMedia>, RedfishErrorResponse> {
    let Some(image) = context.string_property("Image")?.filter(|image| !image.is_empty()) else {
        return Ok(None);
    };
    Ok(Some(InsertedMedia {
        image: image.into(),
        inserted: context.bool_property("Inserted")?.unwrap_or(true),
        write_protected: context.bool_property("WriteProtected")?.unwrap_or(true),
        user_name: context.string_property("UserName")?.map(Into::into),
        since: context.now,
    }))
}

fn slot_index(context: &RequestContext<'_>) -> Result<usize, RedfishErrorResponse> {
    let id = context.param("slot");
    let mut slots = context.personality().media.slots.iter();
    slots.position(|slot| slot.id == id).ok_or_else(|| context.not_found())
}

fn protocol(image: &str) -> String {
    image.split_once("://").map_or("OEM", |(scheme, _)| scheme).to_ascii_uppercase()
}
