// SPDX-License-Identifier: Apache-2.0
//! Services, and documents that are no resources.

use expect_test::expect;
use ironic_wire::{
    ApiVersion, ConductorView, DriverInterface, DriverView, LookupConfig, Selection, Validation,
    lookup_body, root_body, v1_body, validate_body, volume_body,
};
use node_model::{ConductorInfo, InterfaceKind, JsonObject};

use crate::{NOW, check, context, node, pretty};

#[test]
fn services() {
    let conductor = ConductorView {
        info: ConductorInfo {
            hostname: "c1".to_owned(),
            conductor_group: String::new(),
            drivers: vec!["redfish".to_owned()],
            created_at: NOW,
            updated_at: NOW,
            online: true,
        },
        alive: true,
    };
    check(
        &conductor,
        115,
        &expect![[r#"
        {
          "alive": true,
          "conductor_group": "",
          "created_at": "2026-11-18T11:24:09.123456+00:00",
          "drivers": [
            "redfish"
          ],
          "hostname": "c1",
          "updated_at": "2026-11-18T11:24:09.123456+00:00"
        }"#]],
    );
    let driver = DriverView {
        name: "redfish".to_owned(),
        hosts: vec!["c1".to_owned()],
        interfaces: vec![DriverInterface {
            kind: InterfaceKind::Boot,
            default: Some("ipxe".to_owned()),
            enabled: vec!["ipxe".to_owned(), "pxe".to_owned()],
        }],
    };
    check(
        &driver,
        20,
        &expect![[r#"
        {
          "hosts": [
            "c1"
          ],
          "name": "redfish"
        }"#]],
    );
    let body = Selection::<DriverView>::named(
        &["default_boot_interface", "enabled_boot_interfaces", "default_bios_interface"],
        ApiVersion::MAX,
    )
    .unwrap()
    .body(&driver, &context(115));
    expect![[r#"
        {
          "default_bios_interface": null,
          "default_boot_interface": "ipxe",
          "enabled_boot_interfaces": [
            "ipxe",
            "pxe"
          ],
          "links": [
            {
              "href": "http://h:6385/v1/drivers/redfish",
              "rel": "self"
            },
            {
              "href": "http://h:6385/drivers/redfish",
              "rel": "bookmark"
            }
          ]
        }"#]]
    .assert_eq(&pretty(&body));
}

#[test]
fn documents() {
    expect![[r#"
        {
          "default_version": {
            "id": "v1",
            "links": [
              {
                "href": "http://h:6385/v1/",
                "rel": "self"
              }
            ],
            "min_version": "1.1",
            "status": "CURRENT",
            "version": "1.115"
          },
          "description": "Ferrite: bare metal provisioning that speaks the OpenStack Ironic API.",
          "name": "OpenStack Ironic API",
          "versions": [
            {
              "id": "v1",
              "links": [
                {
                  "href": "http://h:6385/v1/",
                  "rel": "self"
                }
              ],
              "min_version": "1.1",
              "status": "CURRENT",
              "version": "1.115"
            }
          ]
        }"#]]
    .assert_eq(&pretty(&root_body(&context(1))));
    expect![[r#"
        {
          "chassis": [
            {
              "href": "http://h:6385/v1/chassis/",
              "rel": "self"
            },
            {
              "href": "http://h:6385/chassis/",
              "rel": "bookmark"
            }
          ],
          "drivers": [
            {
              "href": "http://h:6385/v1/drivers/",
              "rel": "self"
            },
            {
              "href": "http://h:6385/drivers/",
              "rel": "bookmark"
            }
          ],
          "id": "v1",
          "links": [
            {
              "href": "http://h:6385/v1/",
              "rel": "self"
            },
            {
              "href": "https://docs.openstack.org/ironic/latest/contributor/webapi.html",
              "rel": "describedby",
              "type": "text/html"
            }
          ],
          "media_types": {
            "base": "application/json",
            "type": "application/vnd.openstack.ironic.v1+json"
          },
          "nodes": [
            {
              "href": "http://h:6385/v1/nodes/",
              "rel": "self"
            },
            {
              "href": "http://h:6385/nodes/",
              "rel": "bookmark"
            }
          ],
          "ports": [
            {
              "href": "http://h:6385/v1/ports/",
              "rel": "self"
            },
            {
              "href": "http://h:6385/ports/",
              "rel": "bookmark"
            }
          ],
          "version": {
            "id": "v1",
            "links": [
              {
                "href": "http://h:6385/v1/",
                "rel": "self"
              }
            ],
            "min_version": "1.1",
            "status": "CURRENT",
            "version": "1.115"
          }
        }"#]]
    .assert_eq(&pretty(&v1_body(&context(1))));
    expect![[r#"
        {
          "connectors": [
            {
              "href": "http://h:6385/v1/nodes/n1/volume/connectors",
              "rel": "self"
            },
            {
              "href": "http://h:6385/nodes/n1/volume/connectors",
              "rel": "bookmark"
            }
          ],
          "links": [
            {
              "href": "http://h:6385/v1/nodes/n1/volume/",
              "rel": "self"
            },
            {
              "href": "http://h:6385/nodes/n1/volume/",
              "rel": "bookmark"
            }
          ],
          "targets": [
            {
              "href": "http://h:6385/v1/nodes/n1/volume/targets",
              "rel": "self"
            },
            {
              "href": "http://h:6385/nodes/n1/volume/targets",
              "rel": "bookmark"
            }
          ]
        }"#]]
    .assert_eq(&pretty(&volume_body(&context(115), Some("n1"))));
    let validations = validate_body(|kind| {
        if kind == InterfaceKind::Boot {
            Validation::Invalid("no kernel".to_owned())
        } else if kind == InterfaceKind::Rescue {
            Validation::Unsupported("not supported".to_owned())
        } else {
            Validation::Valid
        }
    });
    expect![[r#"
        {
          "bios": {
            "result": true
          },
          "boot": {
            "reason": "no kernel",
            "result": false
          },
          "console": {
            "result": true
          },
          "deploy": {
            "result": true
          },
          "firmware": {
            "result": true
          },
          "inspect": {
            "result": true
          },
          "management": {
            "result": true
          },
          "network": {
            "result": true
          },
          "power": {
            "result": true
          },
          "raid": {
            "result": true
          },
          "rescue": {
            "reason": "not supported",
            "result": null
          },
          "storage": {
            "result": true
          }
        }"#]]
    .assert_eq(&pretty(&validations));
    let config = LookupConfig {
        heartbeat_timeout: 300,
        agent_token: "token".to_owned(),
        more: JsonObject::from_stored(r#"{"metrics":{"backend":"noop"}}"#),
    };
    expect![[r#"
        {
          "config": {
            "agent_token": "token",
            "agent_token_required": true,
            "heartbeat_timeout": 300,
            "metrics": {
              "backend": "noop"
            }
          },
          "node": {
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
            "instance_info": {},
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
            "properties": {
              "cpus": 4
            },
            "uuid": "00000000-0000-0000-0000-000000000001"
          }
        }"#]]
    .assert_eq(&pretty(&lookup_body(&context(62), &node(), &config)));
}
