// SPDX-License-Identifier: Apache-2.0
//! Virtual media, under the system, under the manager, or both; with actions or by PATCH.

use serde_json::{Value, json};

use super::document::{Document, collection};
use super::kind::Kind;
use super::refusal::Refusal;
use super::routes::Route;
use super::visit::{Reply, Visit};
use crate::machine::Media;

pub(super) const ROUTES: &[Route] = &[
    Route::at(Kind::SystemMedia, "/redfish/v1/Systems/{system}/VirtualMedia").get(list),
    Route::at(Kind::SystemMedium, "/redfish/v1/Systems/{system}/VirtualMedia/{slot}")
        .get(show)
        .patch(change),
    Route::at(
        Kind::SystemMedium,
        "/redfish/v1/Systems/{system}/VirtualMedia/{slot}/Actions/VirtualMedia.InsertMedia",
    )
    .post(insert),
    Route::at(
        Kind::SystemMedium,
        "/redfish/v1/Systems/{system}/VirtualMedia/{slot}/Actions/VirtualMedia.EjectMedia",
    )
    .post(eject),
    Route::at(Kind::ManagerMedia, "/redfish/v1/Managers/{manager}/VirtualMedia").get(list),
    Route::at(Kind::ManagerMedium, "/redfish/v1/Managers/{manager}/VirtualMedia/{slot}")
        .get(show)
        .patch(change),
    Route::at(
        Kind::ManagerMedium,
        "/redfish/v1/Managers/{manager}/VirtualMedia/{slot}/Actions/VirtualMedia.InsertMedia",
    )
    .post(insert),
    Route::at(
        Kind::ManagerMedium,
        "/redfish/v1/Managers/{manager}/VirtualMedia/{slot}/Actions/VirtualMedia.EjectMedia",
    )
    .post(eject),
];

const INSERT: &str = "VirtualMedia.InsertMedia";

/// What inserting takes, as an action or in a PATCH.
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

fn list(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let slots = visit.personality().media.slots.iter();
    let members = slots.map(|slot| format!("{}/{}", visit.path, slot.id));
    let schema = "#VirtualMediaCollection.VirtualMediaCollection";
    Ok(collection(visit.path, schema, "Virtual Media", members))
}

fn show(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let place = slot(visit)?;
    let rules = &visit.personality().media;
    let rule = rules.slots.get(place).ok_or_else(|| visit.not_found())?;
    let media = visit.machine.media().get(place).and_then(Option::as_ref);
    let image = media.map(|media| &*media.image);
    let schema = "#VirtualMedia.v1_6_0.VirtualMedia";
    let mut document = Document::new(visit.path, schema, &rule.id, "Virtual Media");
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
        let action = |name: &str| format!("{}/Actions/VirtualMedia.{name}", visit.path);
        document.put(
            "Actions",
            json!({
                "#VirtualMedia.InsertMedia": {"target": action("InsertMedia")},
                "#VirtualMedia.EjectMedia": {"target": action("EjectMedia")},
            }),
        );
    }
    Ok(document.done())
}

fn insert(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    let place = slot(visit)?;
    let rules = &visit.personality().media;
    if !rules.actions {
        return Err(visit.not_found());
    }
    for name in visit.body.keys() {
        if rules.refuses.contains(name) || !PARAMETERS.contains(&name.as_str()) {
            return Err(Refusal::parameter_unknown(INSERT, name));
        }
    }
    for name in &rules.needs {
        if !visit.body.contains_key(name) {
            return Err(Refusal::parameter_missing(INSERT, name));
        }
    }
    let media = wanted(visit)?.ok_or(Refusal::parameter_missing(INSERT, "Image"))?;
    visit.machine.insert_media(place, media)?;
    Ok(Reply::no_content())
}

fn eject(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    let place = slot(visit)?;
    if !visit.personality().media.actions {
        return Err(visit.not_found());
    }
    visit.machine.eject_media(place)?;
    Ok(Reply::no_content())
}

/// Inserts or ejects by writing to the slot, which is the only way where there are no actions.
fn change(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    let place = slot(visit)?;
    visit.only(PARAMETERS)?;
    if visit.personality().media.actions {
        // The slot itself takes only what does not insert anything.
        return match visit.body.keys().find(|name| *name != "VerifyCertificate") {
            None => Ok(Reply::ok(show(visit)?)),
            Some(name) => Err(Refusal::property_unknown(name)),
        };
    }
    match wanted(visit)? {
        Some(media) if media.inserted => visit.machine.insert_media(place, media)?,
        Some(_) | None => visit.machine.eject_media(place)?,
    }
    Ok(Reply::ok(show(visit)?))
}

/// The medium that the body describes; none if its image is missing, null or empty.
fn wanted(visit: &Visit<'_>) -> Result<Option<Media>, Refusal> {
    let Some(image) = visit.text("Image")?.filter(|image| !image.is_empty()) else {
        return Ok(None);
    };
    Ok(Some(Media {
        image: image.into(),
        inserted: visit.flag("Inserted")?.unwrap_or(true),
        write_protected: visit.flag("WriteProtected")?.unwrap_or(true),
        user_name: visit.text("UserName")?.map(Into::into),
        since: visit.now,
    }))
}

fn slot(visit: &Visit<'_>) -> Result<usize, Refusal> {
    let id = visit.param("slot");
    let mut slots = visit.personality().media.slots.iter();
    slots.position(|slot| slot.id == id).ok_or_else(|| visit.not_found())
}

fn protocol(image: &str) -> String {
    image.split_once("://").map_or("OEM", |(scheme, _)| scheme).to_ascii_uppercase()
}
