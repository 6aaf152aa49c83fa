// SPDX-License-Identifier: Apache-2.0
//! Nodes at the oldest and the newest version, and version-dependent values.

use expect_test::expect;
use ironic_wire::{ApiVersion, FieldSelection, node_states_body};
use node_model::{Chassis, ChassisId, JsonObject, Node, ProvisionState};

use crate::{NOW, check, context, id, node, pretty};

#[test]
fn node_at_the_oldest_version() {
    check(
        &node(),
        1,
        &expect![[r#"
        {
          "chassis_uuid": "00000000-0000-0000-0000-000000000003",
          "console_enabled": false,
          "created_at": "2026-11-18T11:24:09.123456+00:00",
          "driver": "redfish",
          "driver_info": {
            "redfish_password": "******"
          },
          "extra": {},
          "instance_info": {},
          "instance_uuid": "00000000-0000-0000-0000-000000000002",
          "last_error": null,
          "maintenance": false,
          "maintenance_reason": null,
          "power_state": "power on",
          "properties": {
            "cpus": 4
          },
          "provision_state": "clean wait",
          "provision_updated_at": null,
          "reservation": null,
          "target_power_state": null,
          "target_provision_state": "available",
          "updated_at": "2026-11-18T11:24:10+00:00",
          "uuid": "00000000-0000-0000-0000-000000000001"
        }"#]],
    );
}

#[test]
fn node_at_the_newest_version() {
    check(
        &node(),
        115,
        &expect![[r#"
        {
          "allocation_uuid": null,
          "automated_clean": null,
          "bios_interface": "redfish",
          "boot_interface": "redfish",
          "boot_mode": null,
          "chassis_uuid": "00000000-0000-0000-0000-000000000003",
          "clean_step": {
            "abortable": true,
            "args": {},
            "interface": "deploy",
            "priority": 10,
            "requires_ramdisk": false,
            "step": "erase_devices"
          },
          "conductor": null,
          "conductor_group": "",
          "console_enabled": false,
          "console_interface": "redfish",
          "created_at": "2026-11-18T11:24:09.123456+00:00",
          "deploy_interface": "redfish",
          "deploy_step": {},
          "description": null,
          "disable_power_off": false,
          "driver": "redfish",
          "driver_info": {
            "redfish_password": "******"
          },
          "driver_internal_info": {
            "agent_last_heartbeat": "2026-11-18T11:24:09.123456+00:00",
            "agent_secret_token": "******",
            "agent_url": "https://10.0.0.9:9999",
            "agent_version": "12.0",
            "clean_step_index": 0,
            "clean_steps": [
              {
                "abortable": true,
                "args": {},
                "interface": "deploy",
                "priority": 10,
                "requires_ramdisk": false,
                "step": "erase_devices"
              }
            ],
            "last_power_state_change": "x"
          },
          "extra": {},
          "fault": null,
          "firmware_interface": "redfish",
          "health": null,
          "inspect_interface": "redfish",
          "inspection_finished_at": null,
          "inspection_started_at": null,
          "instance_info": {},
          "instance_name": null,
          "instance_uuid": "00000000-0000-0000-0000-000000000002",
          "last_error": null,
          "lessee": null,
          "maintenance": false,
          "maintenance_reason": null,
          "management_interface": "redfish",
          "name": "n\"1",
          "network_data": {},
          "network_interface": "redfish",
          "owner": null,
          "parent_node": null,
          "power_interface": "redfish",
          "power_state": "power on",
          "properties": {
            "cpus": 4
          },
          "protected": false,
          "protected_reason": null,
          "provision_state": "clean wait",
          "provision_updated_at": null,
          "raid_config": {},
          "raid_interface": "redfish",
          "rescue_interface": "redfish",
          "reservation": null,
          "resource_class": null,
          "retired": false,
          "retired_reason": null,
          "secure_boot": null,
          "service_step": {},
          "shard": null,
          "storage_interface": "redfish",
          "target_power_state": null,
          "target_provision_state": "available",
          "target_raid_config": {},
          "traits": [
            "CUSTOM_A"
          ],
          "updated_at": "2026-11-18T11:24:10+00:00",
          "uuid": "00000000-0000-0000-0000-000000000001",
          "vendor_interface": "redfish"
        }"#]],
    );
}

#[test]
fn new_states_are_hidden_from_old_versions() {
    for (state, version, shown) in [
        (ProvisionState::Available, 1, "null"),
        (ProvisionState::Available, 2, "\"available\""),
        (ProvisionState::InspectWait, 38, "\"inspecting\""),
        (ProvisionState::InspectWait, 39, "\"inspect wait\""),
    ] {
        let mut node = node();
        node.provision_state = state;
        for body in [
            FieldSelection::<Node>::detail(ApiVersion(version)).body(&node, &context(version)),
            FieldSelection::<Node>::default_list(ApiVersion(version))
                .body(&node, &context(version)),
            node_states_body(&node, &context(version)),
        ] {
            let text = String::from_utf8(body).unwrap();
            assert!(text.contains(&format!("\"provision_state\":{shown}")), "1.{version}: {text}");
        }
    }
}

#[test]
fn links_of_nodes_and_chassis() {
    let conductor_of = |_: &Node| Some("c1");
    let context = context(115).with_conductors(&conductor_of);
    let selection =
        FieldSelection::<Node>::named(&["ports", "conductor"], ApiVersion::MAX).unwrap();
    expect![[r#"
        {
          "conductor": "c1",
          "links": [
            {
              "href": "http://h:6385/v1/nodes/00000000-0000-0000-0000-000000000001",
              "rel": "self"
            },
            {
              "href": "http://h:6385/nodes/00000000-0000-0000-0000-000000000001",
              "rel": "bookmark"
            }
          ],
          "ports": [
            {
              "href": "http://h:6385/v1/nodes/00000000-0000-0000-0000-000000000001/ports",
              "rel": "self"
            },
            {
              "href": "http://h:6385/nodes/00000000-0000-0000-0000-000000000001/ports",
              "rel": "bookmark"
            }
          ]
        }"#]]
    .assert_eq(&pretty(&selection.body(&node(), &context)));
    let chassis = Chassis {
        id: ChassisId(id(3)),
        created_at: NOW,
        updated_at: None,
        description: None,
        extra: JsonObject::empty(),
    };
    let selection = FieldSelection::<Chassis>::named(&["nodes"], ApiVersion::MAX).unwrap();
    expect![[r#"
        {
          "links": [
            {
              "href": "http://h:6385/v1/chassis/00000000-0000-0000-0000-000000000003",
              "rel": "self"
            },
            {
              "href": "http://h:6385/chassis/00000000-0000-0000-0000-000000000003",
              "rel": "bookmark"
            }
          ],
          "nodes": [
            [
              {
                "href": "http://h:6385/v1/chassis/00000000-0000-0000-0000-000000000003/nodes",
                "rel": "self"
              },
              {
                "href": "http://h:6385/chassis/00000000-0000-0000-0000-000000000003/nodes",
                "rel": "bookmark"
              }
            ]
          ]
        }"#]]
    .assert_eq(&pretty(&selection.body(&chassis, &context)));
}

#[test]
fn node_states() {
    expect![[r#"
        {
          "boot_mode": null,
          "console_enabled": false,
          "last_error": null,
          "power_state": "power on",
          "provision_state": "clean wait",
          "provision_updated_at": null,
          "raid_config": {},
          "secure_boot": null,
          "target_power_state": null,
          "target_provision_state": "available",
          "target_raid_config": {}
        }"#]]
    .assert_eq(&pretty(&node_states_body(&node(), &context(115))));
}
