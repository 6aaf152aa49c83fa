// SPDX-License-Identifier: Apache-2.0
//! Network ports, seen from the system and as a card in the chassis.

use serde_json::{Value, json};

use super::document::{Document, collection, link, status};
use super::kind::Kind;
use super::refusal::Refusal;
use super::routes::Route;
use super::visit::Visit;
use crate::machine::Health;
use crate::personality::ComponentKind;

pub(super) const ROUTES: &[Route] = &[
    Route::at(Kind::EthernetInterfaces, "/redfish/v1/Systems/{system}/EthernetInterfaces")
        .get(interfaces),
    Route::at(
        Kind::EthernetInterface,
        "/redfish/v1/Systems/{system}/EthernetInterfaces/{interface}",
    )
    .get(interface),
    Route::at(Kind::NetworkAdapters, "/redfish/v1/Chassis/{chassis}/NetworkAdapters").get(adapters),
    Route::at(Kind::NetworkAdapter, "/redfish/v1/Chassis/{chassis}/NetworkAdapters/{adapter}")
        .get(adapter),
    Route::at(Kind::NetworkPorts, "/redfish/v1/Chassis/{chassis}/NetworkAdapters/{adapter}/Ports")
        .get(ports),
    Route::at(
        Kind::NetworkPort,
        "/redfish/v1/Chassis/{chassis}/NetworkAdapters/{adapter}/Ports/{port}",
    )
    .get(port),
];

/// The only card has all ports.
const ADAPTER: &str = "NIC.1";

fn interfaces(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#EthernetInterfaceCollection.EthernetInterfaceCollection";
    let members = (0..visit.personality().network.count)
        .map(|card| format!("{}/{}", visit.path, id_of(visit, card)));
    Ok(collection(visit.path, schema, "Ethernet Interfaces", members))
}

fn interface(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let rules = &visit.personality().network;
    let id = visit.param("interface");
    let card =
        (0..rules.count).find(|card| id_of(visit, *card) == id).ok_or_else(|| visit.not_found())?;
    let schema = "#EthernetInterface.v1_9_0.EthernetInterface";
    let mut document =
        Document::new(visit.path, schema, id, &format!("Ethernet Interface {}", card + 1));
    let mac = visit.machine.identity().mac(card);
    // Some makers write them in capitals; clients have to cope.
    let shown = mac.as_str().to_uppercase();
    document.extend(json!({
        "MACAddress": shown,
        "PermanentMACAddress": shown,
        "SpeedMbps": rules.mbps,
        "FullDuplex": true,
        "InterfaceEnabled": true,
        "LinkStatus": link_status(card),
        "Status": status(Health::Ok),
    }));
    Ok(document.done())
}

fn adapters(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#NetworkAdapterCollection.NetworkAdapterCollection";
    let members = std::iter::once(format!("{}/{ADAPTER}", visit.path));
    Ok(collection(visit.path, schema, "Network Adapters", members))
}

fn adapter(visit: &Visit<'_>) -> Result<Value, Refusal> {
    check_adapter(visit)?;
    let rules = &visit.personality().network;
    let schema = "#NetworkAdapter.v1_9_0.NetworkAdapter";
    let mut document = Document::new(visit.path, schema, ADAPTER, "Network Adapter");
    document.extend(json!({
        "Manufacturer": rules.model.split(' ').next(),
        "Model": rules.model,
        "SerialNumber": visit.machine.identity().part_serial(400),
        "Controllers": [{
            "FirmwarePackageVersion": visit.machine.version_of(ComponentKind::Nic),
            "ControllerCapabilities": {"NetworkPortCount": rules.count},
        }],
        "Ports": link(format!("{}/Ports", visit.path)),
        "Status": status(Health::Ok),
    }));
    Ok(document.done())
}

fn ports(visit: &Visit<'_>) -> Result<Value, Refusal> {
    check_adapter(visit)?;
    let members =
        (1..=visit.personality().network.count).map(|number| format!("{}/{number}", visit.path));
    Ok(collection(visit.path, "#PortCollection.PortCollection", "Ports", members))
}

fn port(visit: &Visit<'_>) -> Result<Value, Refusal> {
    check_adapter(visit)?;
    let rules = &visit.personality().network;
    let id = visit.param("port");
    let number: u8 = id.parse().map_err(|_| visit.not_found())?;
    let card = number.checked_sub(1).filter(|card| *card < rules.count);
    let card = card.ok_or_else(|| visit.not_found())?;
    let mac = visit.machine.identity().mac(card);
    let mut document =
        Document::new(visit.path, "#Port.v1_9_0.Port", id, &format!("Port {number}"));
    document.extend(json!({
        "PortId": id,
        "PortProtocol": "Ethernet",
        "CurrentSpeedGbps": rules.mbps / 1000,
        "LinkStatus": link_status(card),
        "Ethernet": {"AssociatedMACAddresses": [mac]},
        "Status": status(Health::Ok),
    }));
    Ok(document.done())
}

fn check_adapter(visit: &Visit<'_>) -> Result<(), Refusal> {
    if visit.param("adapter") == ADAPTER { Ok(()) } else { Err(visit.not_found()) }
}

fn id_of(visit: &Visit<'_>, card: u8) -> String {
    visit.personality().network.id.replace("{n}", &(card + 1).to_string())
}

/// The first two ports have a cable.
fn link_status(card: u8) -> &'static str {
    if card < 2 { "LinkUp" } else { "LinkDown" }
}
