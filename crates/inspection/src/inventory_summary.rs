// SPDX-License-Identifier: Apache-2.0
//! A short summary of a machine's hardware, for operators who decide whether to enrol it.
//!
//! Reports are unauthenticated: every text and every list is bounded.

use node_model::{JsonObject, Mac};
use serde_json::{Map, Value, json};

use crate::lookup::{bmc_addresses, candidate_macs};
use crate::{HardwareReport, lldp};

/// Longer texts are truncated.
const MAX_TEXT_CHARS: usize = 128;
/// The maximum number of NICs, disks and neighbours each.
const MAX_ITEMS: usize = 16;

/// Returns the summary of a report.
#[must_use]
pub fn inventory_summary(report: &HardwareReport) -> JsonObject {
    let value = |section: &str, key: &str| report.inventory_value(section, key).and_then(scalar);
    let firmware = report.inventory_value("system_vendor", "firmware");
    let disks = report.disks().take(MAX_ITEMS).map(|disk| {
        let member = |key: &str| disk.get(key).and_then(scalar);
        json!({
            "name": member("name"), "size": member("size"), "model": member("model"),
            "serial": member("serial"), "rotational": member("rotational"),
        })
    });
    let interfaces = report.interfaces().take(MAX_ITEMS).map(|interface| {
        let member = |key: &str| interface.fields.get(key).and_then(scalar);
        json!({
            "name": interface.name.map(truncate), "mac": truncate(interface.mac_address),
            "ip_address": interface.ip_address().map(truncate),
            "has_carrier": member("has_carrier"), "speed_mbps": member("speed_mbps"),
        })
    });
    let neighbours = lldp::neighbours(report).unwrap_or_default().into_iter().take(MAX_ITEMS);
    let neighbours = neighbours.map(|neighbour| {
        json!({
            "interface": truncate(&neighbour.interface), "switch": truncate(&neighbour.switch_id),
            "switch_name": neighbour.switch_name.as_deref().map(truncate),
            "switch_port": truncate(&neighbour.port_id),
        })
    });
    let mut summary: Map<String, Value> = Map::new();
    for (key, value) in [
        ("vendor", value("system_vendor", "manufacturer")),
        ("model", value("system_vendor", "product_name")),
        ("serial_number", value("system_vendor", "serial_number")),
        ("firmware", firmware.and_then(|firmware| firmware.get("version")).and_then(scalar)),
        ("architecture", value("cpu", "architecture")),
        ("cpus", value("cpu", "count")),
        ("cpu_model", value("cpu", "model_name")),
        ("memory_mb", value("memory", "physical_mb")),
        ("boot_mode", value("boot", "current_boot_mode")),
        ("error", report.plugin_data().get("error").and_then(scalar)),
        (
            "bmc_addresses",
            Some(bmc_addresses(report).iter().map(|text| truncated_value(text)).collect()),
        ),
        ("disks", Some(disks.collect())),
        ("interfaces", Some(interfaces.collect())),
        ("neighbours", Some(neighbours.collect())),
    ] {
        if let Some(value) = value {
            summary.insert(key.to_owned(), value);
        }
    }
    summary.into()
}

/// Returns the MAC address that identifies a machine: the NIC it booted from, otherwise the first.
#[must_use]
pub fn boot_mac(report: &HardwareReport) -> Option<Mac> {
    let macs = candidate_macs(report);
    let booted = report.inventory_value("boot", "pxe_interface").and_then(Value::as_str);
    let booted = booted.and_then(crate::hooks::pxe_mac);
    booted.filter(|mac| macs.contains(mac)).or_else(|| macs.into_iter().next())
}

fn scalar(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) => Some(truncated_value(text)),
        Value::Bool(_) | Value::Number(_) => Some(value.clone()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn truncated_value(text: &str) -> Value {
    truncate(text).into()
}

fn truncate(text: &str) -> String {
    text.trim().chars().filter(|c| !c.is_control()).take(MAX_TEXT_CHARS).collect()
}
