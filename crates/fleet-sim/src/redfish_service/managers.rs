// SPDX-License-Identifier: Apache-2.0
//! The manager resource: the BMC itself.

use serde_json::{Value, json};

use super::actions::parameter;
use super::dell;
use super::document::{ResourceDocument, collection, link, status};
use super::error_response::RedfishErrorResponse;
use super::request_context::{ChangeResponse, RequestContext};
use super::resource_kind::ResourceKind;
use super::routes::RedfishRoute;
use crate::machine::Health;
use crate::personality::ComponentKind;

pub(super) const ROUTES: &[RedfishRoute] = &[
    RedfishRoute::at(ResourceKind::Managers, "/redfish/v1/Managers").get(list),
    RedfishRoute::at(ResourceKind::Manager, "/redfish/v1/Managers/{manager}")
        .get(show)
        .patch(change)
        .volatile(),
    RedfishRoute::at(ResourceKind::Manager, "/redfish/v1/Managers/{manager}/Actions/Manager.Reset")
        .post(reset),
    RedfishRoute::at(
        ResourceKind::ManagerInterfaces,
        "/redfish/v1/Managers/{manager}/EthernetInterfaces",
    )
    .get(interfaces),
    RedfishRoute::at(
        ResourceKind::ManagerInterface,
        "/redfish/v1/Managers/{manager}/EthernetInterfaces/{interface}",
    )
    .get(interface),
];

const RESET: &str = "Manager.Reset";
const INTERFACE: &str = "1";
/// Number of the BMC's own network port.
const BMC_NIC: u8 = 255;

fn list(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#ManagerCollection.ManagerCollection";
    Ok(collection(context.path, schema, "Managers", std::iter::once(context.manager_path())))
}

fn show(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let path = context.manager_path();
    let schema = "#Manager.v1_18_0.Manager";
    let mut document = ResourceDocument::new(&path, schema, &context.manager_id(), "Manager");
    context.link_existing(
        &mut document,
        &path,
        &[
            ("VirtualMedia", ResourceKind::ManagerMedia),
            ("EthernetInterfaces", ResourceKind::ManagerInterfaces),
        ],
    );
    document.extend(json!({
        "ManagerType": "BMC",
        "Manufacturer": context.personality().manufacturer,
        "Model": context.personality().manager_model,
        "FirmwareVersion": context.machine.component_version(ComponentKind::Bmc),
        "UUID": context.machine.identity().uuid(),
        "PowerState": "On",
        "DateTime": context.now.to_string(),
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
            "ManagerForServers": [link(context.system_path())],
            "ManagerForChassis": [link(context.chassis_path())],
        },
    }));
    dell::extend_manager(context, &mut document);
    Ok(document.into_value())
}

/// Accepts a new clock time without an effect: all BMCs of the fleet share one clock.
fn change(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    context.reject_unknown_properties(&["DateTime", "DateTimeLocalOffset"])?;
    context.string_property("DateTime")?;
    context.string_property("DateTimeLocalOffset")?;
    Ok(ChangeResponse::ok(show(context)?))
}

fn reset(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    // A missing ResetType means GracefulRestart for some clients.
    if context.body.contains_key("ResetType") {
        let parse = |name: &str| matches!(name, "GracefulRestart" | "ForceRestart").then_some(());
        parameter(context, RESET, "ResetType", parse)?;
    }
    context.machine.restart_bmc(context.now);
    Ok(ChangeResponse::no_content())
}

fn interfaces(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#EthernetInterfaceCollection.EthernetInterfaceCollection";
    let members = std::iter::once(format!("{}/{INTERFACE}", context.path));
    Ok(collection(context.path, schema, "Manager Ethernet Interfaces", members))
}

fn interface(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    if context.param("interface") != INTERFACE {
        return Err(context.not_found());
    }
    let schema = "#EthernetInterface.v1_9_0.EthernetInterface";
    let mut document =
        ResourceDocument::new(context.path, schema, INTERFACE, "Manager Ethernet Interface");
    let mac = context.machine.identity().mac(BMC_NIC);
    document.extend(json!({
        "MACAddress": mac,
        "PermanentMACAddress": mac,
        "SpeedMbps": 1000,
        "LinkStatus": "LinkUp",
        "Status": status(Health::Ok),
    }));
    Ok(document.into_value())
}
