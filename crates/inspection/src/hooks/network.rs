// SPDX-License-Identifier: Apache-2.0
//! Hooks that set the physical network and the switch port of ports.

use serde_json::{Map, Value};

use super::HookError;
use crate::inspection_draft::InspectionDraft;
use crate::inspection_result::InspectionLogLevel;
use crate::lldp;

/// LLDP data of further interfaces are ignored: no machine has that many cables.
const MAX_LLDP_INTERFACES: usize = 64;

/// Sets `physical_network` of each port whose interface had an IP address in a configured network.
/// An existing value is kept, unless the settings permit overwriting it.
pub(super) fn physical_network(draft: &mut InspectionDraft<'_>) -> Result<(), HookError> {
    let networks = &draft.settings.physical_network_cidr_map;
    let nics = std::mem::take(&mut draft.interfaces);
    for nic in &nics {
        let mut addresses = nic.interface.ip_addresses();
        let network = addresses
            .find_map(|address| networks.iter().find(|network| network.network.contains(address)));
        let Some(network) = network else { continue };
        let keeps_existing = draft.keeps_existing();
        let Some(port) = draft.port_by_mac(&nic.mac) else { continue };
        let (mac, name) = (&nic.mac, &network.name);
        match &port.physical_network {
            Some(known) if known == name => {}
            Some(known) if keeps_existing => {
                let text = format!(
                    "kept physical_network = {known} of port {mac}; the ramdisk's address is in {name}"
                );
                draft.log(InspectionLogLevel::Warning, text);
            }
            Some(_) | None => {
                port.physical_network = Some(name.clone());
                let text = format!("set physical_network of port {mac} to {name}");
                draft.log(InspectionLogLevel::Info, text);
            }
        }
    }
    draft.interfaces = nics;
    Ok(())
}

/// Sets switch, switch port and switch name of each port from LLDP. Existing values are kept: an
/// operator or a network service set them.
pub(super) fn local_link_connection(draft: &mut InspectionDraft<'_>) -> Result<(), HookError> {
    let report = draft.report;
    let nics = std::mem::take(&mut draft.interfaces);
    for nic in &nics {
        let Some(tlvs) = report.lldp(&nic.interface) else {
            draft.log(InspectionLogLevel::Debug, format!("no LLDP received on {}", nic.name));
            continue;
        };
        let link = match lldp::parse_link(tlvs) {
            Ok(link) => link,
            Err(error) => {
                let text = format!("LLDP of {} was ignored: {error}", nic.name);
                draft.log(InspectionLogLevel::Warning, text);
                continue;
            }
        };
        let Some(port) = draft.port_by_mac(&nic.mac) else { continue };
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
            let text = format!("set {} of port {} from LLDP", written.join(", "), nic.mac);
            draft.log(InspectionLogLevel::Info, text);
        }
    }
    draft.interfaces = nics;
    Ok(())
}

/// Stores the parsed LLDP data of each interface in `parsed_lldp` of the plugin data.
pub(super) fn parse_lldp(draft: &mut InspectionDraft<'_>) -> Result<(), HookError> {
    let report = draft.report;
    let mut parsed = Map::new();
    for interface in report.interfaces().take(MAX_LLDP_INTERFACES) {
        let (Some(name), Some(tlvs)) = (interface.name, report.lldp(&interface)) else { continue };
        let facts = lldp::parse_tlvs(tlvs);
        if !facts.is_empty() {
            parsed.insert(name.to_owned(), facts.into());
        }
    }
    if parsed.is_empty() {
        draft.log(InspectionLogLevel::Warning, "no LLDP received on any interface".to_owned());
        return Ok(());
    }
    draft.log(InspectionLogLevel::Info, format!("LLDP received on {} interfaces", parsed.len()));
    match draft.plugin_data.get_mut("parsed_lldp").and_then(Value::as_object_mut) {
        Some(known) => known.extend(parsed),
        None => {
            draft.plugin_data.insert("parsed_lldp".to_owned(), parsed.into());
        }
    }
    Ok(())
}
