// SPDX-License-Identifier: Apache-2.0
//! The boot mode and secure boot that an instance or its node requests.

use drivers::NodeChanges;
use drivers::requested_firmware::{
    prepare_instance_firmware, prepare_ramdisk_firmware, release_secure_boot,
};
use node_model::{InterfaceKind, NodeId, ProvisionState, Verb};
use serde_json::{Value, json};

use super::TestConductor;

async fn insert_node(test: &TestConductor, capabilities: Value) -> NodeId {
    insert_node_with_properties(test, capabilities, json!({})).await
}

async fn insert_node_with_properties(
    test: &TestConductor,
    capabilities: Value,
    of_node: Value,
) -> NodeId {
    test.insert_node_with(ProvisionState::Available, json!({}), |node| {
        node.instance_info.set("capabilities", capabilities);
        node.properties.set("capabilities", of_node);
    })
    .await
}

/// A part of a job that changes the firmware.
#[derive(Clone, Copy, Debug)]
enum FirmwareCall {
    Ramdisk,
    Instance,
    Release,
}

/// Makes the call and stores its changes.
async fn call(test: &TestConductor, id: NodeId, call: FirmwareCall) -> NodeChanges {
    let (snapshot, driver) = test.conductor.snapshot_and_driver(id).await.unwrap();
    let target = snapshot.target(&driver, test.conductor.now());
    let changes = match call {
        FirmwareCall::Ramdisk => prepare_ramdisk_firmware(&target).await.unwrap(),
        FirmwareCall::Instance => prepare_instance_firmware(&target).await.unwrap(),
        FirmwareCall::Release => release_secure_boot(&target).await.unwrap(),
    };
    let stored = changes.clone();
    test.change(id, move |node| stored.apply_to(node)).await;
    changes
}

#[tokio::test]
async fn requested_boot_mode_is_set_before_the_deployment() {
    let test = TestConductor::new();
    for (capabilities, of_node, expected) in [
        (json!({"boot_mode": "bios"}), json!(""), Some("bios")),
        (json!("boot_mode:bios,other:1"), json!(""), Some("bios")),
        (json!("{\"boot_mode\": \"bios\"}"), json!(""), Some("bios")),
        (json!({}), json!("cpu_vt:true,boot_mode:bios"), Some("bios")),
        (json!({}), json!({"boot_mode": "BIOS"}), Some("bios")),
        (json!({"boot_mode": "bios"}), json!("boot_mode:bios"), Some("bios")),
        // The machine has it already.
        (json!({"boot_mode": "uefi"}), json!(""), None),
        (json!({}), json!("boot_mode:uefi"), None),
        (json!({"secure_boot": "true"}), json!(""), None),
        // As in Ironic, secure boot overrides the mode of the node.
        (json!({"secure_boot": "true"}), json!("boot_mode:bios"), None),
        (json!({}), json!(""), None),
    ] {
        let id = insert_node_with_properties(&test, capabilities.clone(), of_node.clone()).await;
        assert_eq!(test.run_verb(id, Verb::Active).await, ProvisionState::Active);
        let node = test.get(id).await;
        assert_eq!(node.boot_mode.as_deref(), expected, "{capabilities} {of_node}");
    }
}

#[tokio::test]
async fn request_that_cannot_be_fulfilled_is_refused() {
    let test = TestConductor::new();
    for (capabilities, of_node, management, expected) in [
        (json!({"boot_mode": "legacy"}), "", "fake", "'legacy', but must be bios or uefi"),
        (json!({"secure_boot": "maybe"}), "", "fake", "'maybe', but must be true or false"),
        (json!("boot_mode:bios,secure_boot:true"), "", "fake", "needs the boot mode uefi"),
        (json!({"boot_mode": "bios"}), "boot_mode:uefi", "fake", "allows only uefi"),
        (json!({}), "boot_mode:legacy", "fake", "'legacy', but must be bios or uefi"),
        (json!({"boot_mode": "bios"}), "", "noop", "cannot set it"),
        (json!({"secure_boot": "true"}), "", "noop", "requests what the machine cannot fulfil"),
    ] {
        let id = insert_node_with_properties(&test, capabilities.clone(), json!(of_node)).await;
        test.change(id, |node| node.interfaces.set(InterfaceKind::Management, Some(management)))
            .await;
        assert_eq!(test.run_verb(id, Verb::Active).await, ProvisionState::DeployFail);
        let node = test.get(id).await;
        let error = node.last_error.unwrap();
        assert!(error.contains(expected), "{error}");
        assert_eq!((node.boot_mode, node.secure_boot), (None, None), "{capabilities}");
    }
}

/// The machine's own secure boot is neither disabled silently nor a late failure.
#[tokio::test]
async fn bios_is_refused_while_secure_boot_is_enabled() {
    let test = TestConductor::new();
    let id = insert_node(&test, json!({"boot_mode": "bios"})).await;
    test.change(id, |node| node.secure_boot = Some(true)).await;
    assert_eq!(test.run_verb(id, Verb::Active).await, ProvisionState::DeployFail);
    let node = test.get(id).await;
    assert!(node.last_error.unwrap().contains("secure boot is enabled on the machine"));
    assert_eq!((node.boot_mode, node.secure_boot), (None, Some(true)));
}

/// A management interface without boot modes is no obstacle for a mode that only the node has.
#[tokio::test]
async fn mode_of_the_node_is_ignored_if_it_can_be_neither_read_nor_set() {
    let test = TestConductor::new();
    let id = insert_node_with_properties(&test, json!({}), json!("boot_mode:uefi")).await;
    test.change(id, |node| node.interfaces.set(InterfaceKind::Management, Some("noop"))).await;
    assert_eq!(test.run_verb(id, Verb::Active).await, ProvisionState::Active);
}

#[tokio::test]
async fn secure_boot_is_enabled_for_the_instance_and_disabled_for_ramdisks_and_afterwards() {
    let test = TestConductor::new();
    let id = insert_node(&test, json!({"secure_boot": "true"})).await;
    assert_eq!(call(&test, id, FirmwareCall::Ramdisk).await.secure_boot, None);
    assert_eq!(call(&test, id, FirmwareCall::Instance).await.secure_boot, Some(true));
    // A rescue, service or rebuild, and the instance again.
    let ramdisk = call(&test, id, FirmwareCall::Ramdisk).await;
    assert_eq!((ramdisk.secure_boot, ramdisk.agent_stopped), (Some(false), true));
    assert_eq!(call(&test, id, FirmwareCall::Instance).await.secure_boot, Some(true));
    assert_eq!(call(&test, id, FirmwareCall::Release).await.secure_boot, Some(false));
    assert_eq!(
        test.get(id).await.driver_internal_info.get("secure_boot_enabled_for_instance"),
        None
    );

    // A user removes the request from the active instance.
    assert_eq!(call(&test, id, FirmwareCall::Instance).await.secure_boot, Some(true));
    test.change(id, |node| node.instance_info.set("capabilities", json!({}))).await;
    assert_eq!(call(&test, id, FirmwareCall::Release).await.secure_boot, Some(false));
    // It was not requested, so it is left as it is.
    test.change(id, |node| node.secure_boot = Some(true)).await;
    for part in [FirmwareCall::Ramdisk, FirmwareCall::Instance, FirmwareCall::Release] {
        assert_eq!(call(&test, id, part).await.secure_boot, None, "{part:?}");
    }
}

#[tokio::test]
async fn signed_ramdisk_boots_with_secure_boot() {
    let test = TestConductor::new();
    let id = insert_node(&test, json!({"secure_boot": "true"})).await;
    test.change(id, |node| node.driver_info.set("signed_ramdisk", true)).await;
    assert_eq!(call(&test, id, FirmwareCall::Ramdisk).await.secure_boot, Some(true));
    // Also if the deployment fails before the instance boots, and the request was removed.
    test.change(id, |node| node.instance_info.set("capabilities", json!({}))).await;
    assert_eq!(call(&test, id, FirmwareCall::Release).await.secure_boot, Some(false));
}

#[tokio::test]
async fn boot_mode_is_set_again_before_the_instance_boots() {
    let test = TestConductor::new();
    let id = insert_node(&test, json!({"boot_mode": "bios"})).await;
    assert!(!call(&test, id, FirmwareCall::Ramdisk).await.is_empty());
    // A deploy step resets the BIOS.
    test.change(id, |node| node.boot_mode = Some("uefi".to_owned())).await;
    assert_eq!(call(&test, id, FirmwareCall::Instance).await.boot_mode.as_deref(), Some("bios"));
}
