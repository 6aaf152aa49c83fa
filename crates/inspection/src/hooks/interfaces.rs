// SPDX-License-Identifier: Apache-2.0
//! Hooks that select network interfaces and maintain their ports.

use node_model::{JsonObject, Mac};
use serde_json::{Map, Value};

use super::HookError;
use crate::address::is_loopback;
use crate::inspection_draft::{InspectionDraft, ValidatedInterface};
use crate::inspection_result::InspectionLogLevel;
use crate::settings::{AddPorts, KeepPorts};

/// Finds the interfaces with a name and a valid MAC address, and selects those that get a port.
/// Stores `all_interfaces`, `valid_interfaces` and `macs` in the plugin data, as Ironic does.
pub(super) fn validate(draft: &mut InspectionDraft<'_>) -> Result<(), HookError> {
    let report = draft.report;
    let pxe_mac =
        report.inventory_value("boot", "pxe_interface").and_then(Value::as_str).and_then(pxe_mac);
    let mut validated: Vec<ValidatedInterface<'_>> = Vec::new();
    for interface in report.interfaces() {
        let Some(name) = interface.name else {
            draft.log(
                InspectionLogLevel::Warning,
                "ignored a network interface without a name".to_owned(),
            );
            continue;
        };
        let Ok(mac) = interface.mac_address.parse::<Mac>() else {
            let text = format!("ignored network interface {name}: its MAC address is not valid");
            draft.log(InspectionLogLevel::Warning, text);
            continue;
        };
        // Of two interfaces with the same name, the later one is used.
        validated.retain(|known| known.name != name);
        let pxe_enabled = pxe_mac.as_ref() == Some(&mac);
        validated.push(ValidatedInterface { name, mac, interface, pxe_enabled, selected: false });
    }
    if validated.is_empty() {
        return Err(HookError::NoInterfaces);
    }

    let add_ports = draft.settings.add_ports;
    for nic in &mut validated {
        let loopback = nic.name == "lo" || nic.interface.ip_address().is_some_and(is_loopback);
        nic.selected = !loopback
            && match add_ports {
                AddPorts::All | AddPorts::Disabled => true,
                AddPorts::Active => nic.interface.ip_address().is_some(),
                AddPorts::Pxe => nic.pxe_enabled || pxe_mac.is_none(),
            };
    }
    if pxe_mac.is_none() && add_ports == AddPorts::Pxe {
        let text = "the boot interface is unknown; all interfaces are selected";
        draft.log(InspectionLogLevel::Warning, text.to_owned());
    }
    let selected = validated.iter().filter(|nic| nic.selected).count();
    if selected == 0 {
        return Err(HookError::NoSelectedInterfaces(add_ports_name(add_ports)));
    }
    draft.log(
        InspectionLogLevel::Info,
        format!("{selected} of {} network interfaces selected", validated.len()),
    );
    store_interfaces(draft, &validated);
    draft.interfaces = validated;
    Ok(())
}

/// Creates ports for selected interfaces, deletes ports that `keep_ports` does not keep, and updates
/// `pxe_enabled` of the others. Sets their client id if it is missing or the settings permit
/// overwriting it.
pub(super) fn ports(draft: &mut InspectionDraft<'_>) -> Result<(), HookError> {
    let nics = std::mem::take(&mut draft.interfaces);
    if draft.settings.add_ports != AddPorts::Disabled {
        for nic in nics.iter().filter(|nic| nic.selected) {
            add_port(draft, nic);
        }
    }
    let keep = draft.settings.keep_ports;
    let kept = |mac: &Mac| match keep {
        KeepPorts::All => true,
        KeepPorts::Present => nics.iter().any(|nic| nic.mac == *mac),
        KeepPorts::Added => nics.iter().any(|nic| nic.selected && nic.mac == *mac),
    };
    // If the boot interface is unknown, `pxe_enabled` of all ports is kept.
    let is_known = nics.iter().any(|nic| nic.pxe_enabled);
    let update_pxe_enabled = draft.settings.update_pxe_enabled && is_known;
    let keeps_existing = draft.keeps_existing();
    let mut notes = Vec::new();
    for draft_port in &mut draft.ports {
        if draft_port.is_new() {
            continue;
        }
        let port = &mut draft_port.port;
        if !kept(&port.address) {
            let text = format!(
                "deleted port {}, which keep_ports = {} does not keep",
                port.address,
                keep_ports_name(keep)
            );
            notes.push((InspectionLogLevel::Info, text));
            draft_port.deleted = true;
            continue;
        }
        let mut same_mac = nics.iter().filter(|nic| nic.mac == port.address);
        let pxe_enabled = same_mac.clone().any(|nic| nic.pxe_enabled);
        if update_pxe_enabled && port.pxe_enabled != pxe_enabled {
            port.pxe_enabled = pxe_enabled;
            let text = format!("set pxe_enabled of port {} to {pxe_enabled}", port.address);
            notes.push((InspectionLogLevel::Info, text));
        }
        let client_id = same_mac.next_back().and_then(|nic| nic.interface.client_id);
        let Some(client_id) = client_id else { continue };
        match port.extra.get("client-id").filter(|known| !known.is_null()) {
            Some(known) if known == client_id => {}
            Some(_) if keeps_existing => {
                let text =
                    format!("kept the client id of port {}; the ramdisk has another", port.address);
                notes.push((InspectionLogLevel::Warning, text));
            }
            Some(_) | None => {
                port.extra.set("client-id", client_id);
                notes.push((
                    InspectionLogLevel::Info,
                    format!("set the client id of port {}", port.address),
                ));
            }
        }
    }
    for (level, text) in notes {
        draft.log(level, text);
    }
    draft.interfaces = nics;
    Ok(())
}

fn add_port(draft: &mut InspectionDraft<'_>, nic: &ValidatedInterface<'_>) {
    if draft.port_by_mac(&nic.mac).is_some() {
        draft.log(InspectionLogLevel::Debug, format!("port {} exists", nic.mac));
        return;
    }
    let mut extra = JsonObject::empty();
    if let Some(client_id) = nic.interface.client_id {
        extra.set("client-id", client_id);
    }
    draft.add_port(nic.mac.clone(), nic.pxe_enabled, extra);
    let booted = if nic.pxe_enabled { ", which the machine booted from" } else { "" };
    draft.log(
        InspectionLogLevel::Info,
        format!("created port {} for {}{booted}", nic.mac, nic.name),
    );
}

fn store_interfaces(draft: &mut InspectionDraft<'_>, validated: &[ValidatedInterface<'_>]) {
    let to_entry = |nic: &ValidatedInterface<'_>| {
        let mut fields = nic.interface.fields.clone();
        fields.insert("pxe_enabled".to_owned(), nic.pxe_enabled.into());
        fields.insert("ipv6_address".to_owned(), nic.interface.ipv6_address.into());
        (nic.name.to_owned(), Value::from(fields))
    };
    let all: Map<String, Value> = validated.iter().map(to_entry).collect();
    let valid: Map<String, Value> =
        validated.iter().filter(|nic| nic.selected).map(to_entry).collect();
    let macs: Vec<&str> =
        validated.iter().filter(|nic| nic.selected).map(|nic| nic.interface.mac_address).collect();
    draft.plugin_data.insert("all_interfaces".to_owned(), all.into());
    draft.plugin_data.insert("valid_interfaces".to_owned(), valid.into());
    draft.plugin_data.insert("macs".to_owned(), macs.into());
}

/// Parses the MAC address of the boot interface. PXELINUX prefixes it with the hardware type:
/// `01-52-54-00-aa-bb-01`.
pub(crate) fn pxe_mac(text: &str) -> Option<Mac> {
    text.parse().ok().or_else(|| text.split_once('-')?.1.parse().ok())
}

const fn keep_ports_name(keep_ports: KeepPorts) -> &'static str {
    match keep_ports {
        KeepPorts::All => "all",
        KeepPorts::Present => "present",
        KeepPorts::Added => "added",
    }
}

const fn add_ports_name(add_ports: AddPorts) -> &'static str {
    match add_ports {
        AddPorts::All => "all",
        AddPorts::Active => "active",
        AddPorts::Pxe => "pxe",
        AddPorts::Disabled => "disabled",
    }
}
