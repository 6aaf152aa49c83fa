// SPDX-License-Identifier: Apache-2.0
//! Which switch port each network card is plugged into, whichever hooks are configured.

use node_model::{Mac, Neighbour};
use serde_json::{Map, Value};

use super::describe;
use crate::Report;

/// More cables than any machine has.
const MAX_NEIGHBOURS: usize = 64;
/// The longest text that is kept, in characters: what an index takes on every database.
const MAX_TEXT_CHARS: usize = 255;
/// The most addresses of a switch that are kept.
const MAX_ADDRESSES: usize = 8;

/// What is kept of a switch port besides its names, and what it is called here.
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

/// What each card heard. None if the ramdisk did not listen, which says nothing about the cables.
#[must_use]
pub fn neighbours(report: &Report) -> Option<Vec<Neighbour>> {
    if !report.listened() {
        return None;
    }
    let heard = report.interfaces().filter_map(|interface| {
        let mut facts = describe(report.lldp(&interface)?);
        let address: Mac = interface.mac_address.parse().ok()?;
        let switch_name = text(&mut facts, "switch_system_name");
        Some(Neighbour {
            interface: short(interface.name.unwrap_or_default()),
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
    Some(heard.take(MAX_NEIGHBOURS).collect())
}

fn text(facts: &mut Map<String, Value>, key: &str) -> Option<String> {
    match facts.remove(key) {
        Some(Value::String(text)) if !text.is_empty() => Some(short(&text)),
        Some(_) | None => None,
    }
}

/// A NUL is a character that PostgreSQL does not keep.
fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_TEXT_CHARS).collect()
}

fn addresses(facts: &Map<String, Value>) -> Vec<String> {
    let list = facts.get("switch_mgmt_addresses").and_then(Value::as_array);
    let texts = list.into_iter().flatten().filter_map(Value::as_str);
    texts.take(MAX_ADDRESSES).map(str::to_owned).collect()
}

fn detail(facts: &mut Map<String, Value>) -> Map<String, Value> {
    let known =
        DETAIL.iter().filter_map(|(key, name)| Some(((*name).to_owned(), facts.remove(*key)?)));
    known.collect()
}
