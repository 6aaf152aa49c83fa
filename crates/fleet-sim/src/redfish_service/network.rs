// SPDX-License-Identifier: Apache-2.0
//! Network ports, as Ethernet interfaces of the system and as a network adapter of the chassis.

use serde_json::{Value, json};

use super::document::{ResourceDocument, collection, link, status};
use super::error_response::RedfishErrorResponse;
use super::request_context::RequestContext;
use super::resource_kind::ResourceKind;
use super::routes::RedfishRoute;
use crate::machine::Health;
use crate::personality::ComponentKind;

pub(super) const ROUTES: &[RedfishRoute] = &[
    RedfishRoute::at(
        ResourceKind::EthernetInterfaces,
        "/redfish/v1/Systems/{system}/EthernetInterfaces",
    )
    .get(interfaces),
    RedfishRoute::at(
        ResourceKind::EthernetInterface,
        "/redfish/v1/Systems/{system}/EthernetInterfaces/{interface}",
    )
    .get(interface),
    RedfishRoute::at(
        ResourceKind::NetworkAdapters,
        "/redfish/v1/Chassis/{chassis}/NetworkAdapters",
    )
    .get(adapters),
    RedfishRoute::at(
        ResourceKind::NetworkAdapter,
        "/redfish/v1/Chassis/{chassis}/NetworkAdapters/{adapter}",
    )
    .get(adapter),
    RedfishRoute::at(
        ResourceKind::NetworkPorts,
        "/redfish/v1/Chassis/{chassis}/NetworkAdapters/{adapter}/Ports",
    )
    .get(ports),
    RedfishRoute::at(
        ResourceKind::NetworkPort,
        "/redfish/v1/Chassis/{chassis}/NetworkAdapters/{adapter}/Ports/{port}",
    )
    .get(port),
];

/// Id of the only adapter, which has all ports.
const ADAPTER: &str = "NIC.1";

fn interfaces(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#EthernetInterfaceCollection.EthernetInterfaceCollection";
    let members = (0..context.personality().network.count)
        .map(|nic| format!("{}/{}", context.path, interface_id(context, nic)));
    Ok(collection(context.path, schema, "Ethernet Interfaces", members))
}

fn interface(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let rules = &context.personality().network;
    let id = context.param("interface");
    let nic = (0..rules.count)
        .find(|nic| interface_id(context, *nic) == id)
        .ok_or_else(|| context.not_found())?;
    let schema = "#EthernetInterface.v1_9_0.EthernetInterface";
    let mut document =
        ResourceDocument::new(context.path, schema, id, &format!("Ethernet Interface {}", nic + 1));
    let mac = context.machine.identity().mac(nic);
    // Some vendors use upper case; clients must accept both.
    let mac = mac.as_str().to_uppercase();
    document.extend(json!({
        "MACAddress": mac,
        "PermanentMACAddress": mac,
        "SpeedMbps": rules.mbps,
        "FullDuplex": true,
        "InterfaceEnabled": true,
        "LinkStatus": link_status(nic),
        "Status": status(Health::Ok),
    }));
    Ok(document.into_value())
}

fn adapters(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#NetworkAdapterCollection.NetworkAdapterCollection";
    let members = std::iter::once(format!("{}/{ADAPTER}", context.path));
    Ok(collection(context.path, schema, "Network Adapters", members))
}

fn adapter(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    check_adapter(context)?;
    let rules = &context.personality().network;
    let schema = "#NetworkAdapter.v1_9_0.NetworkAdapter";
    let mut document = ResourceDocument::new(context.path, schema, ADAPTER, "Network Adapter");
    document.extend(json!({
        "Manufacturer": rules.model.split(' ').next(),
        "Model": rules.model,
        "SerialNumber": context.machine.identity().part_serial(400),
        "Controllers": [{
            "FirmwarePackageVersion": context.machine.component_version(ComponentKind::Nic),
            "ControllerCapabilities": {"NetworkPortCount": rules.count},
        }],
        "Ports": link(format!("{}/Ports", context.path)),
        "Status": status(Health::Ok),
    }));
    Ok(document.into_value())
}

fn ports(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    check_adapter(context)?;
    let members = (1..=context.personality().network.count)
        .map(|number| format!("{}/{number}", context.path));
    Ok(collection(context.path, "#PortCollection.PortCollection", "Ports", members))
}

fn port(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    check_adapter(context)?;
    let rules = &context.personality().network;
    let id = context.param("port");
    let number: u8 = id.parse().map_err(|_| context.not_found())?;
    let nic = number.checked_sub(1).filter(|nic| *nic < rules.count);
    let nic = nic.ok_or_else(|| context.not_found())?;
    let mac = context.machine.identity().mac(nic);
    let mut document =
        ResourceDocument::new(context.path, "#Port.v1_9_0.Port", id, &format!("Port {number}"));
    document.extend(json!({
        "PortId": id,
        "PortProtocol": "Ethernet",
        "CurrentSpeedGbps": rules.mbps / 1000,
        "LinkStatus": link_status(nic),
        "Ethernet": {"AssociatedMACAddresses": [mac]},
        "Status": status(Health::Ok),
    }));
    Ok(document.into_value())
}

fn check_adapter(context: &RequestContext<'_>) -> Result<(), RedfishErrorResponse> {
    if context.param("adapter") == ADAPTER { Ok(()) } else { Err(context.not_found()) }
}

fn interface_id(context: &RequestContext<'_>, nic: u8) -> String {
    context.personality().network.id.replace("{n}", &(nic + 1).to_string())
}

/// The first two ports are connected.
fn link_status(nic: u8) -> &'static str {
    if nic < 2 { "LinkUp" } else { "LinkDown" }
}
