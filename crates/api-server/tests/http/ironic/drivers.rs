// SPDX-License-Identifier: Apache-2.0
//! Drivers enabled on conductors.

use expect_test::expect;
use serde_json::json;

use crate::support::fixture::Fixture;
use crate::support::test_lab::version_header;

#[tokio::test]
async fn lists_and_shows_drivers() {
    let fixture = Fixture::start().await;
    let get = async |path: &str, minor: u16| fixture.get(path, &version_header(minor)).await;
    let list = get("/v1/drivers", 115).await.json();
    expect![[r#"
        {
          "drivers": [
            {
              "hosts": [
                "conductor-1"
              ],
              "links": [
                {
                  "href": "http://api.example:6385/v1/drivers/fake-hardware",
                  "rel": "self"
                },
                {
                  "href": "http://api.example:6385/drivers/fake-hardware",
                  "rel": "bookmark"
                }
              ],
              "name": "fake-hardware",
              "properties": [
                {
                  "href": "http://api.example:6385/v1/drivers/fake-hardware/properties",
                  "rel": "self"
                },
                {
                  "href": "http://api.example:6385/drivers/fake-hardware/properties",
                  "rel": "bookmark"
                }
              ],
              "type": "dynamic"
            }
          ]
        }"#]]
    .assert_eq(&format!("{list:#}"));
    let shown = get("/v1/drivers/fake-hardware", 115).await.json();
    expect![[r#"
        {
          "default_bios_interface": "fake",
          "default_boot_interface": "fake",
          "default_console_interface": "fake",
          "default_deploy_interface": "fake",
          "default_firmware_interface": "fake",
          "default_inspect_interface": "fake",
          "default_management_interface": "fake",
          "default_network_interface": "noop",
          "default_power_interface": "fake",
          "default_raid_interface": "fake",
          "default_rescue_interface": "fake",
          "default_storage_interface": "noop",
          "default_vendor_interface": "fake",
          "enabled_bios_interfaces": [
            "fake",
            "no-bios"
          ],
          "enabled_boot_interfaces": [
            "fake"
          ],
          "enabled_console_interfaces": [
            "fake",
            "no-console"
          ],
          "enabled_deploy_interfaces": [
            "fake",
            "direct"
          ],
          "enabled_firmware_interfaces": [
            "fake",
            "no-firmware"
          ],
          "enabled_inspect_interfaces": [
            "fake",
            "agent",
            "no-inspect"
          ],
          "enabled_management_interfaces": [
            "fake"
          ],
          "enabled_network_interfaces": [
            "noop"
          ],
          "enabled_power_interfaces": [
            "fake"
          ],
          "enabled_raid_interfaces": [
            "fake",
            "no-raid"
          ],
          "enabled_rescue_interfaces": [
            "fake",
            "no-rescue"
          ],
          "enabled_storage_interfaces": [
            "noop",
            "fake"
          ],
          "enabled_vendor_interfaces": [
            "fake",
            "no-vendor"
          ],
          "hosts": [
            "conductor-1"
          ],
          "links": [
            {
              "href": "http://api.example:6385/v1/drivers/fake-hardware",
              "rel": "self"
            },
            {
              "href": "http://api.example:6385/drivers/fake-hardware",
              "rel": "bookmark"
            }
          ],
          "name": "fake-hardware",
          "properties": [
            {
              "href": "http://api.example:6385/v1/drivers/fake-hardware/properties",
              "rel": "self"
            },
            {
              "href": "http://api.example:6385/drivers/fake-hardware/properties",
              "rel": "bookmark"
            }
          ],
          "type": "dynamic"
        }"#]]
    .assert_eq(&format!("{shown:#}"));
    for (path, minor, status) in [
        ("/v1/drivers", 1, 200),
        ("/v1/drivers?type=dynamic", 30, 200),
        ("/v1/drivers?type=dynamic", 29, 406),
        ("/v1/drivers?type=nonsense", 115, 400),
        ("/v1/drivers?detail=true", 115, 200),
        ("/v1/drivers?detail=true&fields=name", 115, 400),
        ("/v1/drivers?fields=name", 76, 406),
        ("/v1/drivers?fields=nope", 115, 400),
        ("/v1/drivers/fake-hardware?fields=name", 76, 406),
        ("/v1/drivers/fake-hardware?fields=name", 77, 200),
        ("/v1/drivers/nope", 115, 404),
        ("/v1/drivers/nope/properties", 115, 404),
        ("/v1/drivers/fake-hardware/properties", 1, 200),
        ("/v1/drivers/nope/raid/logical_disk_properties", 115, 404),
        ("/v1/drivers/fake-hardware/raid/logical_disk_properties", 11, 406),
        ("/v1/drivers/fake-hardware/raid/logical_disk_properties", 12, 200),
    ] {
        let response = get(path, minor).await;
        assert_eq!(response.status, status, "{path} 1.{minor}: {}", response.body);
    }
    let classic = get("/v1/drivers?type=classic", 115).await.json();
    assert_eq!(classic, json!({"drivers": []}));
    let detail = get("/v1/drivers?detail=true", 115).await.json();
    assert_eq!(detail["drivers"][0], shown);
    let disks = get("/v1/drivers/fake-hardware/raid/logical_disk_properties", 115).await.json();
    assert_eq!(disks.as_object().map(serde_json::Map::len), Some(10));
}
