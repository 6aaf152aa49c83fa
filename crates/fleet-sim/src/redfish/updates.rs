// SPDX-License-Identifier: Apache-2.0
//! Firmware: what is installed, and updates from a URL.

use serde_json::{Value, json};

use super::document::{Document, collection, status};
use super::kind::Kind;
use super::refusal::Refusal;
use super::routes::Route;
use super::tasks;
use super::visit::{ROOT, Reply, Visit};
use crate::machine::Health;
use crate::personality::ComponentKind;

pub(super) const ROUTES: &[Route] = &[
    Route::at(Kind::UpdateService, "/redfish/v1/UpdateService").get(service),
    Route::at(Kind::UpdateService, "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate")
        .post(simple_update),
    Route::at(Kind::FirmwareInventory, "/redfish/v1/UpdateService/FirmwareInventory").get(list),
    Route::at(Kind::FirmwareComponent, "/redfish/v1/UpdateService/FirmwareInventory/{component}")
        .get(show),
];

const UPDATE: &str = "UpdateService.SimpleUpdate";
const INVENTORY: &str = "/redfish/v1/UpdateService/FirmwareInventory";
const PROTOCOLS: &[&str] = &["HTTP", "HTTPS", "NFS", "CIFS", "TFTP", "FTP"];

fn service(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#UpdateService.v1_11_3.UpdateService";
    let mut document = Document::new(visit.path, schema, "UpdateService", "Update Service");
    document
        .put("ServiceEnabled", true)
        .put("Status", status(Health::Ok))
        .link("FirmwareInventory", INVENTORY.to_owned())
        .put(
            "Actions",
            json!({"#UpdateService.SimpleUpdate": {
                "target": format!("{}/Actions/{UPDATE}", visit.path),
                "TransferProtocol@Redfish.AllowableValues": PROTOCOLS,
                "@Redfish.OperationApplyTimeSupport": {
                    "SupportedValues": ["Immediate", "OnReset"],
                },
            }}),
        );
    Ok(document.done())
}

fn list(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#SoftwareInventoryCollection.SoftwareInventoryCollection";
    let members =
        visit.personality().firmware.iter().map(|rule| format!("{INVENTORY}/{}", rule.id));
    Ok(collection(visit.path, schema, "Firmware Inventory", members))
}

fn show(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let id = visit.param("component");
    let place = component(visit, id).ok_or_else(|| visit.not_found())?;
    let rule = visit.personality().firmware.get(place).ok_or_else(|| visit.not_found())?;
    let schema = "#SoftwareInventory.v1_10_0.SoftwareInventory";
    let mut document = Document::new(visit.path, schema, &rule.id, &rule.name);
    document.extend(json!({
        "Version": visit.machine.firmware_version(place),
        "SoftwareId": rule.id,
        "Manufacturer": visit.personality().manufacturer,
        "Updateable": rule.updateable,
        "Status": status(Health::Ok),
    }));
    Ok(document.done())
}

fn simple_update(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    let image = visit.text("ImageURI")?.ok_or(Refusal::parameter_missing(UPDATE, "ImageURI"))?;
    if let Some(protocol) = visit.text("TransferProtocol")?
        && !PROTOCOLS.contains(&protocol)
    {
        return Err(Refusal::parameter_value(UPDATE, "TransferProtocol", protocol));
    }
    let component = target(visit)?;
    let image = image.to_owned();
    let task = visit.machine.update_firmware(&image, component, visit.now)?;
    tasks::accepted(visit, task)
}

/// The component that the request is for, if it says: by its place in the inventory.
fn target(visit: &Visit<'_>) -> Result<Option<usize>, Refusal> {
    let targets = match visit.body.get("Targets") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(targets)) => targets,
        Some(other) => return Err(Refusal::property_type("Targets", other)),
    };
    let Some(first) = targets.first() else { return Ok(None) };
    let path = first.as_str().ok_or_else(|| Refusal::property_type("Targets", first))?;
    let id = path.trim_end_matches('/').rsplit('/').next().unwrap_or(path);
    // The system and the manager stand for their firmware.
    let of_kind = |kind| visit.personality().firmware.iter().position(|rule| rule.kind == kind);
    let place = match path.strip_prefix(ROOT) {
        Some(rest) if rest.starts_with("/Systems/") => of_kind(ComponentKind::Bios),
        Some(rest) if rest.starts_with("/Managers/") => of_kind(ComponentKind::Bmc),
        Some(_) | None => component(visit, id),
    };
    match place {
        Some(place) => Ok(Some(place)),
        None => Err(Refusal::parameter_value(UPDATE, "Targets", path)),
    }
}

fn component(visit: &Visit<'_>, id: &str) -> Option<usize> {
    visit.personality().firmware.iter().position(|rule| rule.id == id)
}
