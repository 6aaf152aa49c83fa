// SPDX-License-Identifier: Apache-2.0
//! The deploy interface `autodetect`: selection by the instance, and restoring afterwards.

use fake_driver::FakeMachine;
use node_model::InterfaceKind;
use serde_json::{Value, json};

use crate::machine::{self, object};

fn autodetect(instance_info: Value) -> FakeMachine {
    let mut machine = machine::with_interfaces(json!({}), &[(InterfaceKind::Deploy, "autodetect")]);
    machine.instance_info = object(instance_info);
    machine
}

#[tokio::test]
async fn instance_selects_deploy_interface() {
    let image = json!({"image_source": "http://h/i", "image_checksum": "0".repeat(64)});
    for (instance_info, chosen) in [
        (image, "direct"),
        (json!({"boot_iso": "http://h/i.iso"}), "ramdisk"),
        (json!({"kernel": "http://h/k", "ramdisk": "http://h/r"}), "ramdisk"),
        (json!({"ironic_ramdisk_deploy": true}), "ramdisk"),
        (json!({"image_source": "oci://h/i", "image_type": "bootc"}), "bootc"),
    ] {
        let machine = autodetect(instance_info.clone());
        let changes = machine.driver.deploy().prepare(&machine.target()).await.unwrap();
        assert_eq!(changes.deploy_interface.as_deref(), Some(chosen), "{instance_info}");
        assert_eq!(changes.driver_internal_info["original_deploy_interface"], "autodetect");
    }
}

#[tokio::test]
async fn cleaning_restores_autodetect() {
    let image = json!({"image_source": "http://h/i", "image_checksum": "0".repeat(64)});
    let mut machine = autodetect(image);
    let changes = machine.driver.deploy().prepare(&machine.target()).await.unwrap();
    machine.record(&changes);
    assert_eq!(machine.node.interfaces.get(InterfaceKind::Deploy), Some("direct"));
    let changes = machine.driver.deploy().tear_down_cleaning(&machine.target()).await.unwrap();
    machine.record(&changes);
    assert_eq!(machine.node.interfaces.get(InterfaceKind::Deploy), Some("autodetect"));
    assert_eq!(machine.node.driver_internal_info.get("original_deploy_interface"), None);
}

/// Without cleaning too: the next instance may require another deploy interface.
#[tokio::test]
async fn tear_down_restores_autodetect() {
    let image = json!({"image_source": "http://h/i", "image_checksum": "0".repeat(64)});
    for (instance_info, chosen) in [
        (image, "direct"),
        (json!({"boot_iso": "http://h/i.iso"}), "ramdisk"),
        (json!({"image_source": "oci://h/i", "image_type": "bootc"}), "bootc"),
    ] {
        let mut machine = autodetect(instance_info);
        let changes = machine.driver.deploy().prepare(&machine.target()).await.unwrap();
        machine.record(&changes);
        machine.restart();
        assert_eq!(machine.driver.deploy().name(), chosen);
        let changes = machine.driver.deploy().tear_down(&machine.target()).await.unwrap();
        machine.record(&changes);
        let interface = machine.node.interfaces.get(InterfaceKind::Deploy);
        assert_eq!(interface, Some("autodetect"), "{chosen}");
        assert_eq!(machine.node.driver_internal_info.get("original_deploy_interface"), None);
    }
}
