// SPDX-License-Identifier: Apache-2.0
//! The box the machine is in.

use serde_json::{Value, json};

use super::actions::parameter;
use super::document::{Document, collection, link};
use super::kind::Kind;
use super::refusal::Refusal;
use super::routes::Route;
use super::visit::{Reply, Visit};
use crate::machine::{Indicator, Reset};

pub(super) const ROUTES: &[Route] = &[
    Route::at(Kind::ChassisList, "/redfish/v1/Chassis").get(list),
    Route::at(Kind::Chassis, "/redfish/v1/Chassis/{chassis}").get(show).patch(change),
    Route::at(Kind::Chassis, "/redfish/v1/Chassis/{chassis}/Actions/Chassis.Reset").post(reset),
];

const RESET: &str = "Chassis.Reset";
/// What can be asked of a whole box.
const RESETS: &[Reset] = &[Reset::On, Reset::ForceOff, Reset::PowerCycle];

/// What the chassis links to.
const PARTS: &[(&str, Kind)] = &[
    ("Thermal", Kind::Thermal),
    ("Power", Kind::Power),
    ("Sensors", Kind::Sensors),
    ("ThermalSubsystem", Kind::ThermalSubsystem),
    ("PowerSubsystem", Kind::PowerSubsystem),
    ("NetworkAdapters", Kind::NetworkAdapters),
];

fn list(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#ChassisCollection.ChassisCollection";
    Ok(collection(visit.path, schema, "Chassis", std::iter::once(visit.chassis())))
}

fn show(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let machine = &*visit.machine;
    let path = visit.chassis();
    let schema = "#Chassis.v1_23_0.Chassis";
    let mut document = Document::new(&path, schema, &visit.chassis_id(), "Chassis");
    document.extend(json!({
        "ChassisType": "RackMount",
        "Manufacturer": visit.personality().manufacturer,
        "Model": visit.personality().model,
        "SerialNumber": visit.serial(),
        "SKU": visit.serial(),
        "AssetTag": null,
        "PowerState": machine.power_state().name(),
        "IndicatorLED": machine.indicator().name(),
        "LocationIndicatorActive": machine.indicator() != Indicator::Off,
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
            "ComputerSystems": [link(visit.system())],
            "ManagedBy": [link(visit.manager())],
        },
    }));
    visit.link_those_there(&mut document, &path, PARTS);
    Ok(document.done())
}

fn change(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    visit.only(&["IndicatorLED", "LocationIndicatorActive", "AssetTag"])?;
    if let Some(light) = super::systems::indicator_in(visit)? {
        visit.machine.set_indicator(light);
    }
    Ok(Reply::ok(show(visit)?))
}

fn reset(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    let known = |name: &str| Reset::named(name).filter(|reset| RESETS.contains(reset));
    let reset = parameter(visit, RESET, "ResetType", known)?;
    if !visit.power_is_stuck {
        visit.machine.reset(reset, visit.now)?;
    }
    Ok(Reply::no_content())
}
