// SPDX-License-Identifier: Apache-2.0
//! The chassis resource.

use serde_json::{Value, json};

use super::actions::parameter;
use super::document::{ResourceDocument, collection, link};
use super::error_response::RedfishErrorResponse;
use super::request_context::{ChangeResponse, RequestContext};
use super::resource_kind::ResourceKind;
use super::routes::RedfishRoute;
use crate::machine::{IndicatorLed, ResetType};

pub(super) const ROUTES: &[RedfishRoute] = &[
    RedfishRoute::at(ResourceKind::ChassisList, "/redfish/v1/Chassis").get(list),
    RedfishRoute::at(ResourceKind::Chassis, "/redfish/v1/Chassis/{chassis}")
        .get(show)
        .patch(change),
    RedfishRoute::at(ResourceKind::Chassis, "/redfish/v1/Chassis/{chassis}/Actions/Chassis.Reset")
        .post(reset),
];

const RESET: &str = "Chassis.Reset";
/// Reset types of the chassis.
const RESETS: &[ResetType] = &[ResetType::On, ResetType::ForceOff, ResetType::PowerCycle];

/// Resources that the chassis links to.
const SUBRESOURCES: &[(&str, ResourceKind)] = &[
    ("Thermal", ResourceKind::Thermal),
    ("Power", ResourceKind::Power),
    ("Sensors", ResourceKind::Sensors),
    ("ThermalSubsystem", ResourceKind::ThermalSubsystem),
    ("PowerSubsystem", ResourceKind::PowerSubsystem),
    ("NetworkAdapters", ResourceKind::NetworkAdapters),
];

fn list(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#ChassisCollection.ChassisCollection";
    Ok(collection(context.path, schema, "Chassis", std::iter::once(context.chassis_path())))
}

fn show(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let machine = &*context.machine;
    let path = context.chassis_path();
    let schema = "#Chassis.v1_23_0.Chassis";
    let mut document = ResourceDocument::new(&path, schema, &context.chassis_id(), "Chassis");
    document.extend(json!({
        "ChassisType": "RackMount",
        "Manufacturer": context.personality().manufacturer,
        "Model": context.personality().model,
        "SerialNumber": context.serial(),
        "SKU": context.serial(),
        "AssetTag": null,
        "PowerState": machine.power_state().name(),
        "IndicatorLED": machine.indicator().name(),
        "LocationIndicatorActive": machine.indicator() != IndicatorLed::Off,
        "Status": {
            "State": "Enabled",
            "Health": machine.health().name(),
            "HealthRollup": machine.health().name(),
        },
        "Actions": {"#Chassis.Reset": {
            "target": format!("{path}/Actions/{RESET}"),
            "ResetType@Redfish.AllowableValues": RESETS,
        }},
        "Links": {
            "ComputerSystems": [link(context.system_path())],
            "ManagedBy": [link(context.manager_path())],
        },
    }));
    context.link_existing(&mut document, &path, SUBRESOURCES);
    Ok(document.into_value())
}

fn change(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    context.reject_unknown_properties(&["IndicatorLED", "LocationIndicatorActive", "AssetTag"])?;
    if let Some(light) = super::systems::indicator_from_body(context)? {
        context.machine.set_indicator(light);
    }
    Ok(ChangeResponse::ok(show(context)?))
}

fn reset(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    let parse = |name: &str| ResetType::from_name(name).filter(|reset| RESETS.contains(reset));
    let reset = parameter(context, RESET, "ResetType", parse)?;
    if !context.power_stuck {
        context.machine.reset(reset, context.now)?;
    }
    Ok(ChangeResponse::no_content())
}
