// SPDX-License-Identifier: Apache-2.0
//! Booting ramdisks and instances: from virtual media and over the network.

use fleet_sim::Personality;
use fleet_sim::machine::BootTarget;
use node_model::{PowerTarget, ProvisionState};
use serde_json::json;

use crate::rig::Rig;
use bmc_drivers::RamdiskMode::{Deploy, Rescue};

pub(crate) const DEPLOY_ISO: &str = "http://images.example/deploy.iso";

fn with_iso(kind: &str) -> Rig {
    let mut rig = Rig::named(kind);
    rig.driver_info.insert("deploy_iso".to_owned(), DEPLOY_ISO.into());
    rig.node.provision_state = ProvisionState::Deploying;
    rig
}

/// Starts the machine and tells what it booted: the device and the image.
pub(crate) async fn boot(rig: &Rig) -> (BootTarget, Option<String>) {
    let power = rig.driver.power();
    for wanted in [PowerTarget::Off, PowerTarget::On] {
        let _changes = power.set(&rig.target(), wanted, None).await.expect("it is switched");
    }
    let mut looks = 0;
    loop {
        if let Some(boot) = rig.machine().booted() {
            return (boot.from, boot.image.map(Into::into));
        }
        looks += 1;
        assert!(looks < 1000, "the machine never boots");
        tokio::task::yield_now().await;
        rig.driver.power().get(&rig.target()).await.expect("it tells its power");
    }
}

/// How many resources were changed since the last time.
fn changes(rig: &Rig) -> usize {
    rig.deeds().iter().filter(|deed| deed.starts_with("PATCH")).count()
}

#[tokio::test]
async fn every_kind_of_machine_boots_the_ramdisk_and_then_its_disk() {
    for kind in Personality::names() {
        let mut rig = with_iso(kind);
        let interface = rig.driver.boot();
        interface.validate(&rig.target()).await.unwrap();
        let prepared = interface.prepare_ramdisk(&rig.target(), Deploy).await;
        let changes = prepared.unwrap_or_else(|error| panic!("{kind}: {error}"));
        rig.keep(&changes);
        assert_eq!(boot(&rig).await.1.as_deref(), Some(DEPLOY_ISO), "{kind}");
        let changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
        rig.keep(&changes);
        assert!(rig.machine().virtual_media().iter().all(Option::is_none), "{kind}");
        assert_eq!(boot(&rig).await.0, BootTarget::Hdd, "{kind}");
        assert_eq!(boot(&rig).await.0, BootTarget::Hdd, "{kind}: again");
    }
}

#[tokio::test]
async fn firmware_that_boots_the_disk_by_itself_is_not_told_to() {
    let rig = with_iso("lenovo-like");
    let _changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
    assert_eq!(changes(&rig), 0);
    let rig = with_iso("generic");
    let _changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
    assert_eq!(changes(&rig), 1);
}

#[tokio::test]
async fn an_instance_may_run_from_an_image() {
    let mut rig = Rig::named("generic");
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
    rig.deeds();
    let _changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
    assert!(rig.deeds().is_empty());
    let _changes = rig.driver.boot().clean_up_instance(&rig.target()).await.unwrap();
    assert!(rig.machine().virtual_media().iter().all(Option::is_none));
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let mut rig = Rig::named("generic");
    for (driver_info, instance_info, words) in [
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
        assert!(error.is_callers_fault() && error.to_string().contains(words), "{error}");
        rig.driver_info = known;
    }
    let prepared = rig.driver.boot().prepare_ramdisk(&rig.target(), Rescue).await;
    let error = prepared.unwrap_err().to_string();
    assert!(error.contains("driver_info/rescue_iso"), "{error}");
}

#[tokio::test]
async fn network_boot_is_for_once_unless_it_is_forced() {
    let mut rig = Rig::named("generic");
    rig.node.provision_state = ProvisionState::Deploying;
    for name in ["ipxe", "pxe"] {
        rig.choose(node_model::InterfaceKind::Boot, name);
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
