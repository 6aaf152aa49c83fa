// SPDX-License-Identifier: Apache-2.0
//! Which network cards count, and the ports that follow from them.

use node_model::{JsonObject, Mac};
use serde_json::{Map, Value};

use super::HookFailure;
use crate::address::is_loopback;
use crate::draft::{Draft, FoundInterface};
use crate::findings::Level;
use crate::settings::{AddPorts, KeepPorts};

/// Finds the cards with a name and a valid address, and among them those that get a port. Leaves
/// `all_interfaces`, `valid_interfaces` and `macs` in the plugin data, as Ironic does.
pub(super) fn validate(draft: &mut Draft<'_>) -> Result<(), HookFailure> {
    let report = draft.report;
    let pxe_mac =
        report.hardware("boot", "pxe_interface").and_then(Value::as_str).and_then(pxe_mac);
    let mut found: Vec<FoundInterface<'_>> = Vec::new();
    for interface in report.interfaces() {
        let Some(name) = interface.name else {
            draft.note(Level::Warning, "ignored a network interface without a name".to_owned());
            continue;
        };
        let Ok(mac) = interface.mac_address.parse::<Mac>() else {
            let text = format!("ignored network interface {name}: its MAC address is not valid");
            draft.note(Level::Warning, text);
            continue;
        };
        // Of two with one name the later counts.
        found.retain(|known| known.name != name);
        let pxe_enabled = pxe_mac.as_ref() == Some(&mac);
        found.push(FoundInterface { name, mac, interface, pxe_enabled, valid: false });
    }
    if found.is_empty() {
        return Err(HookFailure::NoInterfaces);
    }

    let add_ports = draft.settings.add_ports;
    for card in &mut found {
        let loopback = card.name == "lo" || card.interface.ip().is_some_and(is_loopback);
        card.valid = !loopback
            && match add_ports {
                AddPorts::All | AddPorts::Disabled => true,
                AddPorts::Active => card.interface.ip().is_some(),
                AddPorts::Pxe => card.pxe_enabled || pxe_mac.is_none(),
            };
    }
    if pxe_mac.is_none() && add_ports == AddPorts::Pxe {
        let text = "the ramdisk does not say which interface it booted from; all of them count";
        draft.note(Level::Warning, text.to_owned());
    }
    let valid = found.iter().filter(|card| card.valid).count();
    if valid == 0 {
        return Err(HookFailure::NoWantedInterfaces(setting_name(add_ports)));
    }
    draft.note(Level::Info, format!("{valid} of {} network interfaces count", found.len()));
    publish(draft, &found);
    draft.interfaces = found;
    Ok(())
}

/// Creates ports for the cards that count, deletes those that the settings do not keep, and makes
/// `pxe_enabled` of the others true. Their client id is set if they have none, or if the settings say
/// that it is replaced.
pub(super) fn ports(draft: &mut Draft<'_>) -> Result<(), HookFailure> {
    let cards = std::mem::take(&mut draft.interfaces);
    if draft.settings.add_ports != AddPorts::Disabled {
        for card in cards.iter().filter(|card| card.valid) {
            add(draft, card);
        }
    }
    let keep = draft.settings.keep_ports;
    let kept = |mac: &Mac| match keep {
        KeepPorts::All => true,
        KeepPorts::Present => cards.iter().any(|card| card.mac == *mac),
        KeepPorts::Added => cards.iter().any(|card| card.valid && card.mac == *mac),
    };
    // Where nobody told which card it was, all ports stay as they are.
    let is_known = cards.iter().any(|card| card.pxe_enabled);
    let update_pxe_enabled = draft.settings.update_pxe_enabled && is_known;
    let keeps = draft.keeps();
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
                keep_name(keep)
            );
            notes.push((Level::Info, text));
            draft_port.deleted = true;
            continue;
        }
        let mut same_mac = cards.iter().filter(|card| card.mac == port.address);
        let pxe_enabled = same_mac.clone().any(|card| card.pxe_enabled);
        if update_pxe_enabled && port.pxe_enabled != pxe_enabled {
            port.pxe_enabled = pxe_enabled;
            let text = format!("set pxe_enabled of port {} to {pxe_enabled}", port.address);
            notes.push((Level::Info, text));
        }
        let client_id = same_mac.next_back().and_then(|card| card.interface.client_id);
        let Some(client_id) = client_id else { continue };
        match port.extra.get("client-id").filter(|known| !known.is_null()) {
            Some(known) if known == client_id => {}
            Some(_) if keeps => {
                let text = format!(
                    "the client id of port {} stays; the ramdisk has another",
                    port.address
                );
                notes.push((Level::Warning, text));
            }
            Some(_) | None => {
                port.extra.set("client-id", client_id);
                notes.push((Level::Info, format!("set the client id of port {}", port.address)));
            }
        }
    }
    for (level, text) in notes {
        draft.note(level, text);
    }
    draft.interfaces = cards;
    Ok(())
}

fn add(draft: &mut Draft<'_>, card: &FoundInterface<'_>) {
    if draft.port_with(&card.mac).is_some() {
        draft.note(Level::Debug, format!("port {} exists", card.mac));
        return;
    }
    let mut extra = JsonObject::empty();
    if let Some(client_id) = card.interface.client_id {
        extra.set("client-id", client_id);
    }
    draft.add_port(card.mac.clone(), card.pxe_enabled, extra);
    let booted = if card.pxe_enabled { ", which the machine booted from" } else { "" };
    draft.note(Level::Info, format!("created port {} for {}{booted}", card.mac, card.name));
}

fn publish(draft: &mut Draft<'_>, found: &[FoundInterface<'_>]) {
    let shown = |card: &FoundInterface<'_>| {
        let mut fields = card.interface.fields.clone();
        fields.insert("pxe_enabled".to_owned(), card.pxe_enabled.into());
        fields.insert("ipv6_address".to_owned(), card.interface.ipv6_address.into());
        (card.name.to_owned(), Value::from(fields))
    };
    let all: Map<String, Value> = found.iter().map(shown).collect();
    let valid: Map<String, Value> = found.iter().filter(|card| card.valid).map(shown).collect();
    let macs: Vec<&str> =
        found.iter().filter(|card| card.valid).map(|card| card.interface.mac_address).collect();
    draft.plugin_data.insert("all_interfaces".to_owned(), all.into());
    draft.plugin_data.insert("valid_interfaces".to_owned(), valid.into());
    draft.plugin_data.insert("macs".to_owned(), macs.into());
}

/// The address of the card booted from. PXELINUX writes the hardware type before it:
/// `01-52-54-00-aa-bb-01`.
pub(crate) fn pxe_mac(text: &str) -> Option<Mac> {
    text.parse().ok().or_else(|| text.split_once('-')?.1.parse().ok())
}

const fn keep_name(keep_ports: KeepPorts) -> &'static str {
    match keep_ports {
        KeepPorts::All => "all",
        KeepPorts::Present => "present",
        KeepPorts::Added => "added",
    }
}

const fn setting_name(add_ports: AddPorts) -> &'static str {
    match add_ports {
        AddPorts::All => "all",
        AddPorts::Active => "active",
        AddPorts::Pxe => "pxe",
        AddPorts::Disabled => "disabled",
    }
}
