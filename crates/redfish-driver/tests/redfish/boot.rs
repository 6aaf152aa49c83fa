// SPDX-License-Identifier: Apache-2.0
//! Booting ramdisks and instances: from virtual media and over the network.

use drivers::RamdiskMode::{Deploy, Rescue};
use fleet_sim::Personality;
use fleet_sim::machine::BootTarget;
use node_model::{PowerTarget, ProvisionState};
use serde_json::json;

use crate::rig::RedfishRig;

pub(crate) const DEPLOY_ISO: &str = "http://images.example/deploy.iso";

fn with_iso(kind: &str) -> RedfishRig {
    with_iso_for(Personality::built_in(kind).expect("the personality exists"))
}

/// A machine of this personality whose node is being deployed with an ISO image.
pub(crate) fn with_iso_for(personality: Personality) -> RedfishRig {
    let mut rig = RedfishRig::with_personality(personality);
    rig.driver_info.insert("deploy_iso".to_owned(), DEPLOY_ISO.into());
    rig.node.provision_state = ProvisionState::Deploying;
    rig
}

/// Starts the machine; returns the boot device and the image.
pub(crate) async fn boot(rig: &RedfishRig) -> (BootTarget, Option<String>) {
    let power = rig.driver.power();
    for wanted in [PowerTarget::Off, PowerTarget::On] {
        let _changes =
            power.set(&rig.target(), wanted, None).await.expect("the power state changes");
    }
    booted(rig).await
}

/// Waits until the machine that was started has booted; returns the device and the image.
async fn booted(rig: &RedfishRig) -> (BootTarget, Option<String>) {
    let mut polls = 0;
    loop {
        if let Some(boot) = rig.machine().current_boot() {
            return (boot.from, boot.image.map(Into::into));
        }
        polls += 1;
        assert!(polls < 1000, "the machine never boots");
        tokio::task::yield_now().await;
        rig.driver.power().get(&rig.target()).await.expect("the power state is readable");
    }
}

/// Number of PATCH requests since the last call.
fn changes(rig: &RedfishRig) -> usize {
    rig.writes().iter().filter(|write| write.starts_with("PATCH")).count()
}

#[tokio::test]
async fn boots_ramdisk_then_disk_on_every_personality() {
    for kind in Personality::built_in_names() {
        let mut rig = with_iso(kind);
        let interface = rig.driver.boot();
        interface.validate(&rig.target()).await.unwrap();
        let prepared = interface.prepare_ramdisk(&rig.target(), Deploy).await;
        let changes = prepared.unwrap_or_else(|error| panic!("{kind}: {error}"));
        rig.apply(&changes);
        assert_eq!(boot(&rig).await.1.as_deref(), Some(DEPLOY_ISO), "{kind}");
        let changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
        rig.apply(&changes);
        assert!(rig.machine().virtual_media().iter().all(Option::is_none), "{kind}");
        assert_eq!(boot(&rig).await.0, BootTarget::Hdd, "{kind}");
        assert_eq!(boot(&rig).await.0, BootTarget::Hdd, "{kind}: again");
    }
}

/// On BMCs without a persistent override, the boot device of the instance is stored in the node and
/// set again before each start. That must not replace the device set for the ramdisk.
#[tokio::test]
async fn boots_ramdisk_after_an_instance_on_bmc_without_persistent_override() {
    for name in ["redfish-virtual-media", "ipxe"] {
        for again in [false, true] {
            let mut rig = with_iso("hpe-like");
            rig.set_interface(node_model::InterfaceKind::Boot, name);
            let changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
            rig.apply(&changes);
            let stored = rig.node.driver_internal_info.get_str("redfish_boot_device");
            assert_eq!(stored.as_deref(), Some("disk"));
            assert_eq!(boot(&rig).await.0, BootTarget::Hdd);
            let started = if again {
                drivers::ramdisk_boot::retry_ramdisk_boot(&rig.target(), Deploy).await
            } else {
                drivers::ramdisk_boot::boot_standby_agent(&rig.target()).await
            };
            rig.apply(&started.unwrap());
            let from = booted(&rig).await.0;
            assert_ne!(from, BootTarget::Hdd, "{name}, again: {again}");
        }
    }
}

#[tokio::test]
async fn leaves_disk_boot_to_firmware_with_quirk() {
    let rig = with_iso("lenovo-like");
    let _changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
    assert_eq!(changes(&rig), 0);
    let rig = with_iso("generic");
    let _changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
    assert_eq!(changes(&rig), 1);
}

#[tokio::test]
async fn boots_a_ramdisk_instance_from_iso() {
    let mut rig = RedfishRig::named("generic");
    rig.node.provision_state = ProvisionState::Deploying;
    let iso = "http://images.example/live.iso";
    rig.instance_info.insert("boot_iso".to_owned(), iso.into());
    rig.driver.boot().validate(&rig.target()).await.unwrap();
    let _changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
    for _ in 0..2 {
        assert_eq!(boot(&rig).await, (BootTarget::Cd, Some(iso.to_owned())));
    }
    // A running instance keeps its CD when another conductor takes over.
    rig.node.provision_state = ProvisionState::Active;
    rig.writes();
    let _changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
    assert!(rig.writes().is_empty());
    let _changes = rig.driver.boot().clean_up_instance(&rig.target()).await.unwrap();
    assert!(rig.machine().virtual_media().iter().all(Option::is_none));
}

#[tokio::test]
async fn validation_names_missing_keys() {
    let mut rig = RedfishRig::named("generic");
    for (driver_info, instance_info, text) in [
        (json!({}), json!({}), "driver_info/deploy_iso"),
        (json!({"deploy_kernel": "http://h/k", "deploy_ramdisk": "http://h/r"}), json!({}), "ISO"),
        (json!({"deploy_iso": "boot.iso"}), json!({}), "not a URL"),
        (json!({"deploy_iso": 5}), json!({}), "driver_info/deploy_iso"),
        (json!({}), json!({"deploy_iso": "file:///x"}), "instance_info/deploy_iso"),
        (
            json!({"deploy_iso": DEPLOY_ISO, "force_persistent_boot_device": "Maybe"}),
            json!({}),
            "force_persistent_boot_device",
        ),
        (json!({}), json!({"boot_iso": "http://h/i", "image_source": "http://h/x"}), "boot_iso"),
    ] {
        let known = rig.driver_info.clone();
        rig.driver_info.extend(driver_info.as_object().unwrap().clone());
        rig.instance_info = instance_info.as_object().unwrap().clone();
        let error = rig.driver.boot().validate(&rig.target()).await.unwrap_err();
        assert!(error.is_caller_error() && error.to_string().contains(text), "{error}");
        rig.driver_info = known;
    }
    let prepared = rig.driver.boot().prepare_ramdisk(&rig.target(), Rescue).await;
    let error = prepared.unwrap_err().to_string();
    assert!(error.contains("driver_info/rescue_iso"), "{error}");
}

#[tokio::test]
async fn network_boot_is_one_time_unless_forced() {
    let mut rig = RedfishRig::named("generic");
    rig.node.provision_state = ProvisionState::Deploying;
    for name in ["ipxe", "pxe"] {
        rig.set_interface(node_model::InterfaceKind::Boot, name);
        let interface = rig.driver.boot();
        assert!(interface.capabilities().contains(&"pxe_boot"));
        interface.validate(&rig.target()).await.unwrap();
        let _changes = interface.prepare_ramdisk(&rig.target(), Deploy).await.unwrap();
        assert_eq!(boot(&rig).await.0, BootTarget::Pxe);
        assert_eq!(boot(&rig).await.0, BootTarget::Hdd);
    }
    rig.driver_info.insert("force_persistent_boot_device".to_owned(), "Always".into());
    let _changes = rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await.unwrap();
    for _ in 0..2 {
        assert_eq!(boot(&rig).await.0, BootTarget::Pxe);
    }
    let _changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
    assert_eq!(boot(&rig).await.0, BootTarget::Hdd);
}
