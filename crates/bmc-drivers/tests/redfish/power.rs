// SPDX-License-Identifier: Apache-2.0
//! On and off, on BMCs with different habits.

use std::time::Duration;

use bmc_drivers::{BootDevice, Error};
use fleet_sim::Personality;
use fleet_sim::machine::{BootTarget, PowerState as Shown, Reset};
use node_model::{PowerState, PowerTarget};
use serde_json::json;
use tokio::task::JoinSet;

use crate::rig::Rig;

#[tokio::test]
async fn every_kind_of_machine_goes_wherever_it_is_sent() {
    let mut kinds = JoinSet::new();
    for kind in Personality::names() {
        kinds.spawn(async move { (kind, goes_everywhere(kind).await) });
    }
    while let Some(done) = kinds.join_next().await {
        let (kind, done) = done.unwrap();
        done.unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
}

async fn goes_everywhere(kind: &str) -> Result<(), Error> {
    let rig = Rig::named(kind);
    let power = rig.driver.power();
    for (wanted, shown) in [
        (PowerTarget::On, Shown::On),
        (PowerTarget::Reboot, Shown::On),
        (PowerTarget::SoftReboot, Shown::On),
        (PowerTarget::SoftOff, Shown::Off),
        (PowerTarget::SoftReboot, Shown::On),
        (PowerTarget::Off, Shown::Off),
        (PowerTarget::Reboot, Shown::On),
    ] {
        let changes = power.set(&rig.target(), wanted, None).await?;
        assert_eq!(changes.power_state, Some(wanted.state()), "{kind}: {wanted}");
        if wanted != PowerTarget::SoftReboot {
            assert_eq!(rig.machine().power(), shown, "{kind}: {wanted}");
        }
        assert_eq!(power.get(&rig.target()).await?, Some(wanted.state()), "{kind}: {wanted}");
    }
    Ok(())
}

#[tokio::test]
async fn a_machine_that_is_there_is_left_alone() {
    let rig = Rig::named("hpe-like");
    for wanted in [PowerTarget::Off, PowerTarget::SoftOff] {
        rig.power(wanted).await;
    }
    let deeds = rig.deeds();
    assert!(deeds.iter().all(|deed| !deed.contains("Reset")), "{deeds:?}");
}

#[tokio::test]
async fn a_reset_that_is_missing_is_made_up_for() {
    let mut odd = Personality::named("generic").unwrap();
    odd.power.resets = vec![Reset::ForceOn, Reset::PushPowerButton];
    let rig = Rig::of(odd);
    rig.power(PowerTarget::On).await;
    rig.power(PowerTarget::SoftReboot).await;
    assert_eq!(rig.machine().power(), Shown::On);
    rig.power(PowerTarget::Off).await;
    assert_eq!(rig.machine().power(), Shown::Off);
}

#[tokio::test]
async fn a_machine_that_does_not_follow_is_told_of() {
    let rig = Rig::named("generic");
    let power = rig.driver.power();
    rig.fault("power-stuck");
    let patience = Some(Duration::from_millis(300));
    let error = power.set(&rig.target(), PowerTarget::On, patience).await.unwrap_err().to_string();
    assert!(error.contains("switch the machine on: the machine is off"), "{error}");
    assert!(error.contains("'On'"), "{error}");
}

#[tokio::test]
async fn a_bmc_that_is_busy_is_asked_again() {
    let rig = Rig::named("generic");
    rig.fault("status=503 method=POST path=/redfish/v1/Systems times=1");
    rig.power(PowerTarget::On).await;
    assert_eq!(rig.machine().power(), Shown::On);
    let resets = rig.deeds().into_iter().filter(|deed| deed.contains("Reset")).count();
    assert_eq!(resets, 2);
}

#[tokio::test]
async fn a_reboot_that_has_switched_the_machine_off_is_finished_and_not_repeated() {
    let rig = Rig::named("generic");
    rig.power(PowerTarget::On).await;
    // The first reset switches off; the answers to the next ones are lost.
    rig.fault("drop method=POST path=/redfish/v1/Systems skip=1 times=2");
    rig.deeds();
    rig.power(PowerTarget::Reboot).await;
    assert_eq!(rig.machine().power(), Shown::On);
    assert_eq!(rig.deeds().iter().filter(|deed| deed.contains("Reset")).count(), 4);

    rig.fleet.faults().clear();
    rig.fault("drop method=POST path=/redfish/v1/Systems skip=1");
    let patience = Some(Duration::from_millis(500));
    let reboot = rig.driver.power().set(&rig.target(), PowerTarget::Reboot, patience).await;
    let error = reboot.unwrap_err();
    assert!(matches!(error, Error::Failed { .. }), "{error}");
    assert!(error.to_string().contains("the machine was off"), "{error}");
}

#[tokio::test]
async fn a_device_that_does_not_last_is_set_before_every_start() {
    let mut rig = Rig::named("hpe-like");
    let management = rig.driver.clone();
    let management = management.management();
    let changes = management.set_boot_device(&rig.target(), BootDevice::Pxe, true).await.unwrap();
    assert_eq!(changes.driver_internal_info.get("redfish_boot_device"), Some(&json!("pxe")));
    rig.keep(&changes);
    for _ in 0..2 {
        rig.power(PowerTarget::Reboot).await;
        rig.machine().with(|machine, _| {
            while let Some(moment) = machine.next_change() {
                machine.advance(moment);
            }
        });
    }
    let from: Vec<_> = rig.machine().boots().iter().map(|boot| boot.from).collect();
    assert_eq!(from, [BootTarget::Pxe, BootTarget::Pxe]);
    let changes = management.set_boot_device(&rig.target(), BootDevice::Disk, false).await.unwrap();
    rig.keep(&changes);
    assert_eq!(rig.node.driver_internal_info.get("redfish_boot_device"), None);
}

#[tokio::test]
async fn access_is_checked_by_asking() {
    let mut rig = Rig::named("generic");
    rig.driver.power().check_access(&rig.target()).await.unwrap();
    assert_eq!(rig.driver.power().get(&rig.target()).await.unwrap(), Some(PowerState::Off));

    let good = rig.driver_info.clone();
    rig.driver_info.insert("redfish_password".to_owned(), json!("wrong"));
    let error = rig.driver.power().check_access(&rig.target()).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert!(!error.to_string().contains("wrong"), "{error}");

    rig.driver_info = good.clone();
    rig.driver_info.insert("redfish_system_id".to_owned(), json!("/redfish/v1/Systems/none"));
    let error = rig.driver.power().check_access(&rig.target()).await.unwrap_err().to_string();
    assert!(error.contains("redfish_system_id") && error.contains("none"), "{error}");

    rig.driver_info = good;
    rig.fault("drop");
    let error = rig.driver.power().check_access(&rig.target()).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
}
