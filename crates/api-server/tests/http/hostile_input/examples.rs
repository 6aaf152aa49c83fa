// SPDX-License-Identifier: Apache-2.0
//! Valid path parameters and bodies for every route.
//!
//! The tests fail for a new route without an entry here.

use serde_json::{Value, json};

/// The node of all node resources.
pub(crate) const NODE: &str = "11111111-1111-4111-8111-111111111111";

/// The value of the path parameter `name`.
pub(crate) fn path_param(name: &str) -> &'static str {
    match name {
        "node" => NODE,
        "port" => "22222222-2222-4222-8222-222222222222",
        "portgroup" => "33333333-3333-4333-8333-333333333333",
        "chassis" => "44444444-4444-4444-8444-444444444444",
        "allocation" => "55555555-5555-4555-8555-555555555555",
        "connector" => "66666666-6666-4666-8666-666666666666",
        "target" => "77777777-7777-4777-8777-777777777777",
        "template" => "88888888-8888-4888-8888-888888888888",
        "runbook" => "99999999-9999-4999-8999-999999999999",
        "rule" => "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa",
        "event" => "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb",
        "log" => "cccccccc-cccc-4ccc-8ccc-cccccccccccc",
        "deployment" => "dddddddd-dddd-4ddd-8ddd-dddddddddddd",
        "token" => "eeeeeeee-eeee-4eee-8eee-eeeeeeeeeeee",
        "flavour" => "large",
        "project" => "storage",
        "user" => "alice",
        "conductor" => "conductor-1",
        "driver" => "fake-hardware",
        "setting" => "setting_1",
        "indicator" => "led@chassis",
        "trait" => "CUSTOM_A",
        "vif" => "vif-1",
        "mac" => "52:54:00:00:00:01",
        "name" => "boot.ipxe",
        "method" => "third_method_sync",
        other => panic!("hostile_input/examples.rs has no value for {{{other}}}"),
    }
}

/// A valid body, with all fields that no schema describes; `None` for routes without a body.
pub(crate) fn example_body(method: &str, template: &str) -> Option<Value> {
    if template.contains("/vendor_passthru") && ["POST", "PUT", "PATCH"].contains(&method) {
        return Some(json!({"bar": "meow"}));
    }
    let step = json!({"interface": "deploy", "step": "upgrade", "args": {}, "priority": 1});
    let ordered = json!({"interface": "deploy", "step": "upgrade", "args": {}, "order": 1});
    let example = match (method, template.strip_prefix("/v1/").unwrap_or(template)) {
        ("GET" | "DELETE", _)
        | ("PUT", "nodes/{node}/management/inject_nmi")
        | ("POST", "ferrite/nodes/{node}/bmc" | "ferrite/nodes/{node}/warm")
        | ("PUT", "nodes/{node}/traits/{trait}" | "runbooks/{runbook}/traits/{trait}") => {
            return None;
        }
        ("PATCH", "ferrite/deployments/{deployment}") => json!({"lease": {"extend_by": 3600}}),
        ("PATCH", "ferrite/projects/{project}") => json!({"description": "disks", "enabled": true}),
        ("PATCH", "ferrite/users/{user}") => {
            json!({"description": "operator", "enabled": true, "roles": ["admin@system"]})
        }
        ("PATCH", _) => json!([{"op": "add", "path": "/extra/a", "value": 1}]),
        ("POST", "ferrite/nodes/{node}/console") => json!({"text": "ls\r"}),
        ("POST", "ferrite/explain") => {
            json!({"target": "manage", "nodes": [NODE], "instance_info": {"a": 1}})
        }
        ("POST", "ferrite/nodes/{node}/explain") => json!({
            "target": "clean", "clean_steps": [{"interface": "deploy", "step": "erase_devices"}],
            "disable_ramdisk": false,
        }),
        ("POST", "ferrite/bmc-identity") => {
            json!({"driver": "fake-hardware", "driver_info": {"a": 1}})
        }
        ("POST", "ferrite/sightings/{mac}/enrol") => json!({
            "driver": "fake-hardware", "driver_info": {"a": 1}, "name": "enrolled",
            "resource_class": "metal", "conductor_group": "",
        }),
        ("PUT", "ferrite/flavours/{flavour}") => json!({
            "description": "much memory", "priority": 1, "resource_class": "large",
            "conditions": [{"op": "gt", "args": {"values": ["{inventory[memory][physical_mb]}", 1]}}],
            "traits": ["CUSTOM_A"], "properties": {"a": 1}, "capabilities": {"b": "c"},
            "overwrite": false,
        }),
        ("POST", "ferrite/deployments") => json!({
            "name": "web-1", "resource_class": "metal", "traits": ["CUSTOM_A"], "nodes": [NODE],
            "image": "http://images/a", "checksum": "a", "ssh_keys": ["ssh-ed25519 A"],
            "user_data": "#cloud-config", "network_data": {"links": []}, "instance_info": {"a": 1},
            "lease": {"duration": 3600, "warn_before": 60, "at_end": "undeploy"},
        }),
        ("POST", "ferrite/projects") => {
            json!({"name": "network", "description": "switches", "enabled": true})
        }
        ("POST", "ferrite/tokens") => json!({
            "user": "alice", "description": "backup", "expires_in": 60, "role": "reader",
            "scope": "system",
        }),
        ("POST", "ferrite/users") => json!({
            "name": "bob", "kind": "human", "password": "correct horse", "description": "operator",
            "enabled": true, "roles": ["reader@system"],
        }),
        ("PUT", "ferrite/users/{user}/password") => {
            json!({"password": "correct horse", "current_password": "battery staple"})
        }
        ("PUT", "ferrite/quotas/{project}") => json!({"machines": 5, "resource_class:big": 2}),
        ("POST", "nodes") => json!({"driver": "fake-hardware", "resource_class": "metal"}),
        ("POST", "ports") => json!({"node_uuid": NODE, "address": "52:54:00:00:00:01"}),
        ("POST", "portgroups") => json!({"node_uuid": NODE}),
        ("POST", "chassis") => json!({}),
        ("POST", "allocations") => json!({"resource_class": "metal"}),
        ("POST", "deploy_templates") => json!({"name": "CUSTOM_T", "steps": [step]}),
        ("POST", "runbooks") => json!({"name": "CUSTOM_R", "steps": [ordered]}),
        ("POST", "inspection_rules") => {
            json!({"actions": [{"op": "set-attribute", "args": {"path": "/extra/a", "value": 1}}]})
        }
        ("POST", "volume/connectors") => {
            json!({"node_uuid": NODE, "type": "iqn", "connector_id": "iqn.2017-07.org"})
        }
        ("POST", "volume/targets") => json!({
            "node_uuid": NODE, "volume_type": "iscsi", "boot_index": 0, "volume_id": "v",
        }),
        ("POST", "continue_inspection") => json!({
            "inventory": {"interfaces": [{"name": "eth0", "mac_address": "52:54:00:00:00:01"}]},
            "root_disk": {"name": "/dev/sda"},
        }),
        ("POST", "heartbeat/{node}") => json!({
            "callback_url": "https://192.0.2.7:9999", "agent_version": "12.0.0",
            "agent_token": "token", "agent_verify_ca": "pem", "agent_status": "start",
            "agent_status_message": "words",
        }),
        ("POST", "ferrite/agents/{node}/log") => json!({
            "agent_token": "token", "run": "1", "first": 0, "lines": ["a line"],
        }),
        ("POST", "events") => json!({"events": [{
            "event": "network.bind_port", "port_id": NODE, "mac_address": "52:54:00:00:00:01",
            "status": "ACTIVE",
        }]}),
        ("PUT", "nodes/{node}/maintenance") => json!({"reason": "because"}),
        ("PUT", "nodes/{node}/management/boot_device") => {
            json!({"boot_device": "pxe", "persistent": false})
        }
        ("PUT", "nodes/{node}/management/indicators/{indicator}") => json!({"state": "on"}),
        ("PUT", "nodes/{node}/states/boot_mode") => json!({"target": "uefi"}),
        ("PUT", "nodes/{node}/states/secure_boot") => json!({"target": true}),
        ("PUT", "nodes/{node}/states/console") => json!({"enabled": true}),
        ("PUT", "nodes/{node}/states/power") => json!({"target": "power on", "timeout": 60}),
        ("PUT", "nodes/{node}/states/provision") => json!({
            "target": "clean", "clean_steps": [{"interface": "deploy", "step": "erase_devices"}],
            "disable_ramdisk": false,
        }),
        ("PUT", "nodes/{node}/states/raid") => {
            json!({"logical_disks": [{"raid_level": "1", "size_gb": 100}]})
        }
        ("PUT", "nodes/{node}/traits" | "runbooks/{runbook}/traits") => {
            json!({"traits": ["CUSTOM_A"]})
        }
        ("POST", "nodes/{node}/vifs") => json!({"id": "vif-1"}),
        ("POST", "nodes/{node}/vmedia") => {
            json!({"device_type": "cdrom", "image_url": "http://images/cd.iso"})
        }
        _ => panic!("hostile_input/examples.rs has no example body for {method} {template}"),
    };
    Some(example)
}
