// SPDX-License-Identifier: Apache-2.0
//! The node and its ports as sent to agents, with Ironic's names and without secrets.

use drivers::DriverTarget;
use serde_json::{Map, Value, json};

/// The node.
pub(super) fn node_for_agent(target: &DriverTarget<'_>) -> Map<String, Value> {
    let node = target.node;
    let fields = [
        ("uuid", json!(node.id.to_string())),
        ("name", json!(node.name)),
        ("driver", json!(node.driver)),
        ("driver_info", Value::Object(node.driver_info.parse())),
        ("driver_internal_info", Value::Object(node.driver_internal_info.parse())),
        ("instance_info", Value::Object(without_config_drive(node.instance_info.parse()))),
        ("instance_uuid", json!(node.instance_uuid)),
        ("properties", Value::Object(node.properties.parse())),
        ("extra", Value::Object(node.extra.parse())),
        ("raid_config", Value::Object(node.raid_config.parse())),
        ("target_raid_config", Value::Object(node.target_raid_config.parse())),
        ("resource_class", json!(node.resource_class)),
        ("traits", json!(node.traits)),
        ("provision_state", json!(node.provision_state)),
        ("target_provision_state", json!(node.target_provision_state)),
        ("maintenance", json!(node.maintenance)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The node's ports.
pub(super) fn ports_for_agent(target: &DriverTarget<'_>) -> Vec<Value> {
    let ports = target.ports.iter().map(|port| {
        json!({
            "uuid": port.id.to_string(),
            "address": port.address,
            "pxe_enabled": port.pxe_enabled,
            "physical_network": port.physical_network,
            "extra": port.extra.parse(),
        })
    });
    ports.collect()
}

/// Removes the config drive, which may be large and is sent with the step that writes it.
fn without_config_drive(mut instance_info: Map<String, Value>) -> Map<String, Value> {
    instance_info.remove("configdrive");
    instance_info
}
