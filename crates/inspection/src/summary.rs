// SPDX-License-Identifier: Apache-2.0
//! A machine in short, for an operator who decides whether to enrol it.
//!
//! The words come from a machine nobody vouches for: each is cut, and so is every list.

use node_model::{JsonObject, Mac};
use serde_json::{Map, Value, json};

use crate::lookup::{bmc_addresses, candidate_macs};
use crate::{Report, lldp};

/// The longest text that is kept.
const MAX_TEXT_CHARS: usize = 128;
/// The most cards, disks and neighbours that are named.
const MAX_ITEMS: usize = 16;

/// What a report says about its machine, in short.
#[must_use]
pub fn summary(report: &Report) -> JsonObject {
    let hardware = |section: &str, key: &str| report.hardware(section, key).and_then(scalar);
    let firmware = report.hardware("system_vendor", "firmware");
    let disks = report.disks().take(MAX_ITEMS).map(|disk| {
        let part = |key: &str| disk.get(key).and_then(scalar);
        json!({
            "name": part("name"), "size": part("size"), "model": part("model"),
            "serial": part("serial"), "rotational": part("rotational"),
        })
    });
    let cards = report.interfaces().take(MAX_ITEMS).map(|card| {
        let part = |key: &str| card.fields.get(key).and_then(scalar);
        json!({
            "name": card.name.map(short), "mac": short(card.mac_address),
            "ip_address": card.ip().map(short), "has_carrier": part("has_carrier"),
            "speed_mbps": part("speed_mbps"),
        })
    });
    let neighbours = lldp::neighbours(report).unwrap_or_default().into_iter().take(MAX_ITEMS);
    let neighbours = neighbours.map(|heard| {
        json!({
            "interface": short(&heard.interface), "switch": short(&heard.switch_id),
            "switch_name": heard.switch_name.as_deref().map(short),
            "switch_port": short(&heard.port_id),
        })
    });
    let mut short: Map<String, Value> = Map::new();
    for (key, value) in [
        ("vendor", hardware("system_vendor", "manufacturer")),
        ("model", hardware("system_vendor", "product_name")),
        ("serial_number", hardware("system_vendor", "serial_number")),
        ("firmware", firmware.and_then(|firmware| firmware.get("version")).and_then(scalar)),
        ("architecture", hardware("cpu", "architecture")),
        ("cpus", hardware("cpu", "count")),
        ("cpu_model", hardware("cpu", "model_name")),
        ("memory_mb", hardware("memory", "physical_mb")),
        ("boot_mode", hardware("boot", "current_boot_mode")),
        ("error", report.plugin_data().get("error").and_then(scalar)),
        ("bmc_addresses", Some(bmc_addresses(report).iter().map(|text| cut(text)).collect())),
        ("disks", Some(disks.collect())),
        ("interfaces", Some(cards.collect())),
        ("neighbours", Some(neighbours.collect())),
    ] {
        if let Some(value) = value {
            short.insert(key.to_owned(), value);
        }
    }
    short.into()
}

/// The card a machine is known by: the one it booted from, else the first.
#[must_use]
pub fn boot_card(report: &Report) -> Option<Mac> {
    let macs = candidate_macs(report);
    let booted = report.hardware("boot", "pxe_interface").and_then(Value::as_str);
    let booted = booted.and_then(crate::hooks::pxe_mac);
    booted.filter(|mac| macs.contains(mac)).or_else(|| macs.into_iter().next())
}

fn scalar(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) => Some(cut(text)),
        Value::Bool(_) | Value::Number(_) => Some(value.clone()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn cut(text: &str) -> Value {
    short(text).into()
}

fn short(text: &str) -> String {
    text.trim().chars().filter(|c| !c.is_control()).take(MAX_TEXT_CHARS).collect()
}
