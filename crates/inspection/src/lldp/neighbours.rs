// SPDX-License-Identifier: Apache-2.0
//! The LLDP neighbours of all NICs, independent of the configured hooks.

use node_model::{Mac, Neighbour};
use serde_json::{Map, Value};

use super::parse_tlvs;
use crate::HardwareReport;

/// More cables than any machine has; further neighbours are ignored.
const MAX_NEIGHBOURS: usize = 64;
/// The maximum length that can be indexed in every supported database, in characters.
const MAX_TEXT_CHARS: usize = 255;
/// Further management addresses are ignored.
const MAX_ADDRESSES: usize = 8;

/// Properties of a switch port besides its identification, and their names in `detail`.
const DETAIL: &[(&str, &str)] = &[
    ("switch_port_untagged_vlan_id", "untagged_vlan"),
    ("switch_port_vlans", "vlans"),
    ("switch_port_management_vlan_id", "management_vlan"),
    ("switch_port_link_aggregation_support", "aggregation_supported"),
    ("switch_port_link_aggregation_enabled", "aggregation_enabled"),
    ("switch_port_link_aggregation_id", "aggregation_id"),
    ("switch_port_mtu", "mtu"),
    ("switch_port_mau_type", "medium"),
    ("switch_capabilities_enabled", "switch_capabilities"),
];

/// Returns the neighbours of the NICs. Returns `None` if the ramdisk did not collect LLDP, so that
/// stored neighbours are kept.
#[must_use]
pub fn neighbours(report: &HardwareReport) -> Option<Vec<Neighbour>> {
    if !report.has_lldp_data() {
        return None;
    }
    let neighbours = report.interfaces().filter_map(|interface| {
        let mut facts = parse_tlvs(report.lldp(&interface)?);
        let address: Mac = interface.mac_address.parse().ok()?;
        let switch_name = text(&mut facts, "switch_system_name");
        Some(Neighbour {
            interface: truncate(interface.name.unwrap_or_default()),
            address,
            switch_id: text(&mut facts, "switch_chassis_id").or_else(|| switch_name.clone())?,
            switch_name,
            switch_description: text(&mut facts, "switch_system_description"),
            management_addresses: addresses(&facts),
            port_id: text(&mut facts, "switch_port_id").unwrap_or_default(),
            port_description: text(&mut facts, "switch_port_description"),
            detail: detail(&mut facts).into(),
        })
    });
    Some(neighbours.take(MAX_NEIGHBOURS).collect())
}

fn text(facts: &mut Map<String, Value>, key: &str) -> Option<String> {
    match facts.remove(key) {
        Some(Value::String(text)) if !text.is_empty() => Some(truncate(&text)),
        Some(_) | None => None,
    }
}

/// Truncates the text and removes control characters: PostgreSQL cannot store NUL.
fn truncate(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_TEXT_CHARS).collect()
}

fn addresses(facts: &Map<String, Value>) -> Vec<String> {
    let list = facts.get("switch_mgmt_addresses").and_then(Value::as_array);
    let texts = list.into_iter().flatten().filter_map(Value::as_str);
    texts.take(MAX_ADDRESSES).map(str::to_owned).collect()
}

fn detail(facts: &mut Map<String, Value>) -> Map<String, Value> {
    let entries =
        DETAIL.iter().filter_map(|(key, name)| Some(((*name).to_owned(), facts.remove(*key)?)));
    entries.collect()
}
