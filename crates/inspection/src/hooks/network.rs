// SPDX-License-Identifier: Apache-2.0
//! What the network cards are plugged into.

use serde_json::{Map, Value};

use super::HookFailure;
use crate::draft::Draft;
use crate::findings::Level;
use crate::lldp;

/// More interfaces than that are not described: each has a cable, and nobody plugs in that many.
const MAX_LLDP_INTERFACES: usize = 64;

/// Sets `physical_network` of each port whose card had an address in a known network. One that is
/// there stays, unless the settings say otherwise.
pub(super) fn physical_network(draft: &mut Draft<'_>) -> Result<(), HookFailure> {
    let networks = &draft.settings.physical_network_cidr_map;
    let cards = std::mem::take(&mut draft.interfaces);
    for card in &cards {
        let mut addresses = card.interface.addresses();
        let network = addresses
            .find_map(|address| networks.iter().find(|network| network.network.contains(address)));
        let Some(network) = network else { continue };
        let keeps = draft.keeps();
        let Some(port) = draft.port_with(&card.mac) else { continue };
        let (mac, name) = (&card.mac, &network.name);
        match &port.physical_network {
            Some(known) if known == name => {}
            Some(known) if keeps => {
                let text = format!(
                    "physical_network of port {mac} stays {known}; the ramdisk's address is in {name}"
                );
                draft.note(Level::Warning, text);
            }
            Some(_) | None => {
                port.physical_network = Some(name.clone());
                let text = format!("set physical_network of port {mac} to {name}");
                draft.note(Level::Info, text);
            }
        }
    }
    draft.interfaces = cards;
    Ok(())
}

/// Sets switch, switch port and switch name of each port from LLDP. What is there already stays,
/// because an operator or a network service put it there.
pub(super) fn local_link_connection(draft: &mut Draft<'_>) -> Result<(), HookFailure> {
    let report = draft.report;
    let cards = std::mem::take(&mut draft.interfaces);
    for card in &cards {
        let Some(tlvs) = report.lldp(&card.interface) else {
            draft.note(Level::Debug, format!("no LLDP was heard on {}", card.name));
            continue;
        };
        let link = match lldp::link(tlvs) {
            Ok(link) => link,
            Err(error) => {
                let text = format!("LLDP of {} was ignored: {error}", card.name);
                draft.note(Level::Warning, text);
                continue;
            }
        };
        let Some(port) = draft.port_with(&card.mac) else { continue };
        let mut connection = port.local_link_connection.parse();
        let mut written = Vec::new();
        for (key, value) in [
            ("port_id", link.port_id),
            ("switch_id", link.switch_id),
            ("switch_info", link.switch_info),
        ] {
            if let Some(value) = value.filter(|_| !connection.contains_key(key)) {
                connection.insert(key.to_owned(), value.into());
                written.push(key);
            }
        }
        if !written.is_empty() {
            port.local_link_connection = connection.into();
            let text = format!("set {} of port {} from LLDP", written.join(", "), card.mac);
            draft.note(Level::Info, text);
        }
    }
    draft.interfaces = cards;
    Ok(())
}

/// Puts everything LLDP says into `parsed_lldp` of the plugin data, by interface.
pub(super) fn parse_lldp(draft: &mut Draft<'_>) -> Result<(), HookFailure> {
    let report = draft.report;
    let mut parsed = Map::new();
    for interface in report.interfaces().take(MAX_LLDP_INTERFACES) {
        let (Some(name), Some(tlvs)) = (interface.name, report.lldp(&interface)) else { continue };
        let facts = lldp::describe(tlvs);
        if !facts.is_empty() {
            parsed.insert(name.to_owned(), facts.into());
        }
    }
    if parsed.is_empty() {
        draft.note(Level::Warning, "no LLDP was heard on any interface".to_owned());
        return Ok(());
    }
    draft.note(Level::Info, format!("LLDP was heard on {} interfaces", parsed.len()));
    match draft.plugin_data.get_mut("parsed_lldp").and_then(Value::as_object_mut) {
        Some(known) => known.extend(parsed),
        None => {
            draft.plugin_data.insert("parsed_lldp".to_owned(), parsed.into());
        }
    }
    Ok(())
}
