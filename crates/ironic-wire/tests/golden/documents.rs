// SPDX-License-Identifier: Apache-2.0
//! Conductors, drivers, and documents that are not resources.

use expect_test::expect;
use ironic_wire::{
    ApiVersion, ConductorView, DriverInterface, DriverView, FieldSelection, root_body, v1_body,
    validate_body, volume_body,
};
use node_model::{ConductorInfo, InterfaceKind};

use crate::{NOW, check, context, pretty};

#[test]
fn conductors_and_drivers() {
    let conductor = ConductorView {
        info: ConductorInfo {
            hostname: "c1".to_owned(),
            run: None,
            version: None,
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
              "updated_at": "2026-11-18T11:24:09.123456+00:00",
              "version": null
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
    let body = FieldSelection::<DriverView>::named(
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
fn root_documents() {
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
          "description": "Ferrite: bare metal provisioning with the OpenStack Ironic API.",
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
    let validations = validate_body(&[
        (InterfaceKind::Bios, Ok(())),
        (InterfaceKind::Boot, Err("no kernel".to_owned())),
    ]);
    expect![[r#"
        {
          "bios": {
            "result": true
          },
          "boot": {
            "reason": "no kernel",
            "result": false
          }
        }"#]]
    .assert_eq(&pretty(&validations));
}
