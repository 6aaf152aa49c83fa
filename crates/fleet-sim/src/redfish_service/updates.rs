// SPDX-License-Identifier: Apache-2.0
//! Firmware inventory and updates from a URL.

use serde_json::{Value, json};

use super::document::{ResourceDocument, collection, status};
use super::error_response::RedfishErrorResponse;
use super::request_context::{ChangeResponse, ROOT, RequestContext};
use super::resource_kind::ResourceKind;
use super::routes::RedfishRoute;
use super::tasks;
use crate::machine::Health;
use crate::personality::ComponentKind;

pub(super) const ROUTES: &[RedfishRoute] = &[
    RedfishRoute::at(ResourceKind::UpdateService, "/redfish/v1/UpdateService").get(service),
    RedfishRoute::at(
        ResourceKind::UpdateService,
        "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate",
    )
    .post(simple_update),
    RedfishRoute::at(
        ResourceKind::FirmwareInventory,
        "/redfish/v1/UpdateService/FirmwareInventory",
    )
    .get(list),
    RedfishRoute::at(
        ResourceKind::FirmwareComponent,
        "/redfish/v1/UpdateService/FirmwareInventory/{component}",
    )
    .get(show),
];

const UPDATE: &str = "UpdateService.SimpleUpdate";
const INVENTORY: &str = "/redfish/v1/UpdateService/FirmwareInventory";
const PROTOCOLS: &[&str] = &["HTTP", "HTTPS", "NFS", "CIFS", "TFTP", "FTP"];

fn service(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#UpdateService.v1_11_3.UpdateService";
    let mut document =
        ResourceDocument::new(context.path, schema, "UpdateService", "Update Service");
    document
        .set("ServiceEnabled", true)
        .set("Status", status(Health::Ok))
        .link("FirmwareInventory", INVENTORY.to_owned())
        .set(
            "Actions",
            json!({"#UpdateService.SimpleUpdate": {
                "target": format!("{}/Actions/{UPDATE}", context.path),
                "TransferProtocol@Redfish.AllowableValues": PROTOCOLS,
                "@Redfish.OperationApplyTimeSupport": {
                    "SupportedValues": ["Immediate", "OnReset"],
                },
            }}),
        );
    Ok(document.into_value())
}

fn list(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#SoftwareInventoryCollection.SoftwareInventoryCollection";
    let members =
        context.personality().firmware.iter().map(|rule| format!("{INVENTORY}/{}", rule.id));
    Ok(collection(context.path, schema, "Firmware Inventory", members))
}

fn show(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let id = context.param("component");
    let index = component_index(context, id).ok_or_else(|| context.not_found())?;
    let rule = context.personality().firmware.get(index).ok_or_else(|| context.not_found())?;
    let schema = "#SoftwareInventory.v1_10_0.SoftwareInventory";
    let mut document = ResourceDocument::new(context.path, schema, &rule.id, &rule.name);
    document.extend(json!({
        "Version": context.machine.firmware_version(index),
        "SoftwareId": rule.id,
        "Manufacturer": context.personality().manufacturer,
        "Updateable": rule.updateable,
        "Status": status(Health::Ok),
    }));
    Ok(document.into_value())
}

fn simple_update(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    let image = context
        .string_property("ImageURI")?
        .ok_or(RedfishErrorResponse::parameter_missing(UPDATE, "ImageURI"))?;
    if let Some(protocol) = context.string_property("TransferProtocol")?
        && !PROTOCOLS.contains(&protocol)
    {
        return Err(RedfishErrorResponse::parameter_value(UPDATE, "TransferProtocol", protocol));
    }
    let component = target_component(context)?;
    let image = image.to_owned();
    let task = context.machine.update_firmware(&image, component, context.now)?;
    tasks::accepted_response(context, task)
}

/// Returns the index of the component in `Targets`; `None` if there are no targets.
fn target_component(context: &RequestContext<'_>) -> Result<Option<usize>, RedfishErrorResponse> {
    let targets = match context.body.get("Targets") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(targets)) => targets,
        Some(other) => return Err(RedfishErrorResponse::property_type("Targets", other)),
    };
    let Some(first) = targets.first() else { return Ok(None) };
    let path =
        first.as_str().ok_or_else(|| RedfishErrorResponse::property_type("Targets", first))?;
    let id = path.trim_end_matches('/').rsplit('/').next().unwrap_or(path);
    // The system stands for its BIOS, the manager for the BMC firmware.
    let of_kind = |kind| context.personality().firmware.iter().position(|rule| rule.kind == kind);
    let index = match path.strip_prefix(ROOT) {
        Some(rest) if rest.starts_with("/Systems/") => of_kind(ComponentKind::Bios),
        Some(rest) if rest.starts_with("/Managers/") => of_kind(ComponentKind::Bmc),
        Some(_) | None => component_index(context, id),
    };
    match index {
        Some(index) => Ok(Some(index)),
        None => Err(RedfishErrorResponse::parameter_value(UPDATE, "Targets", path)),
    }
}

fn component_index(context: &RequestContext<'_>, id: &str) -> Option<usize> {
    context.personality().firmware.iter().position(|rule| rule.id == id)
}
