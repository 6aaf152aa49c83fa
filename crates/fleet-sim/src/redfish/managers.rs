// SPDX-License-Identifier: Apache-2.0
//! The BMC about itself.

use serde_json::{Value, json};

use super::actions::parameter;
use super::document::{Document, collection, link, status};
use super::kind::Kind;
use super::refusal::Refusal;
use super::routes::Route;
use super::visit::{Reply, Visit};
use crate::machine::Health;
use crate::personality::ComponentKind;

pub(super) const ROUTES: &[Route] = &[
    Route::at(Kind::Managers, "/redfish/v1/Managers").get(list),
    Route::at(Kind::Manager, "/redfish/v1/Managers/{manager}").get(show).patch(change).volatile(),
    Route::at(Kind::Manager, "/redfish/v1/Managers/{manager}/Actions/Manager.Reset").post(reset),
    Route::at(Kind::ManagerInterfaces, "/redfish/v1/Managers/{manager}/EthernetInterfaces")
        .get(interfaces),
    Route::at(
        Kind::ManagerInterface,
        "/redfish/v1/Managers/{manager}/EthernetInterfaces/{interface}",
    )
    .get(interface),
];

const RESET: &str = "Manager.Reset";
const INTERFACE: &str = "1";
/// The number of the BMC's own network port.
const OWN_CARD: u8 = 255;

fn list(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#ManagerCollection.ManagerCollection";
    Ok(collection(visit.path, schema, "Managers", std::iter::once(visit.manager())))
}

fn show(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let path = visit.manager();
    let schema = "#Manager.v1_18_0.Manager";
    let mut document = Document::new(&path, schema, &visit.manager_id(), "Manager");
    visit.link_those_there(
        &mut document,
        &path,
        &[("VirtualMedia", Kind::ManagerMedia), ("EthernetInterfaces", Kind::ManagerInterfaces)],
    );
    document.extend(json!({
        "ManagerType": "BMC",
        "Manufacturer": visit.personality().manufacturer,
        "Model": visit.personality().manager_model,
        "FirmwareVersion": visit.machine.version_of(ComponentKind::Bmc),
        "UUID": visit.machine.identity().uuid(),
        "PowerState": "On",
        "DateTime": visit.now.to_string(),
        "DateTimeLocalOffset": "+00:00",
        "Status": status(Health::Ok),
        "GraphicalConsole": {
            "ServiceEnabled": true, "MaxConcurrentSessions": 2, "ConnectTypesSupported": ["KVMIP"],
        },
        "SerialConsole": {
            "ServiceEnabled": true, "MaxConcurrentSessions": 1,
            "ConnectTypesSupported": ["SSH", "IPMI"],
        },
        "Actions": {"#Manager.Reset": {
            "target": format!("{path}/Actions/{RESET}"),
            "ResetType@Redfish.AllowableValues": ["GracefulRestart", "ForceRestart"],
        }},
        "Links": {
            "ManagerForServers": [link(visit.system())],
            "ManagerForChassis": [link(visit.chassis())],
        },
    }));
    Ok(document.done())
}

/// The clock can be set, and goes on as before: every BMC of the fleet has the same one.
fn change(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    visit.only(&["DateTime", "DateTimeLocalOffset"])?;
    visit.text("DateTime")?;
    visit.text("DateTimeLocalOffset")?;
    Ok(Reply::ok(show(visit)?))
}

fn reset(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    // Without a body, some clients mean the graceful one.
    if visit.body.contains_key("ResetType") {
        let known = |name: &str| matches!(name, "GracefulRestart" | "ForceRestart").then_some(());
        parameter(visit, RESET, "ResetType", known)?;
    }
    visit.machine.restart_bmc(visit.now);
    Ok(Reply::no_content())
}

fn interfaces(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#EthernetInterfaceCollection.EthernetInterfaceCollection";
    let members = std::iter::once(format!("{}/{INTERFACE}", visit.path));
    Ok(collection(visit.path, schema, "Manager Ethernet Interfaces", members))
}

fn interface(visit: &Visit<'_>) -> Result<Value, Refusal> {
    if visit.param("interface") != INTERFACE {
        return Err(visit.not_found());
    }
    let schema = "#EthernetInterface.v1_9_0.EthernetInterface";
    let mut document = Document::new(visit.path, schema, INTERFACE, "Manager Ethernet Interface");
    let mac = visit.machine.identity().mac(OWN_CARD);
    document.extend(json!({
        "MACAddress": mac,
        "PermanentMACAddress": mac,
        "SpeedMbps": 1000,
        "LinkStatus": "LinkUp",
        "Status": status(Health::Ok),
    }));
    Ok(document.done())
}
