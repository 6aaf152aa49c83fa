// SPDX-License-Identifier: Apache-2.0
//! Power changes, on different BMCs.

use std::time::Duration;

use drivers::{BootDevice, DriverError};
use fleet_sim::Personality;
use fleet_sim::machine::{BootTarget, PowerState as SimulatedPower, ResetType};
use node_model::{PowerState, PowerTarget};
use serde_json::json;
use tokio::task::JoinSet;

use crate::rig::RedfishRig;

#[tokio::test]
async fn reaches_every_power_target_on_every_personality() {
    let mut kinds = JoinSet::new();
    for kind in Personality::built_in_names() {
        kinds.spawn(async move { (kind, set_all_power_targets(kind).await) });
    }
    while let Some(done) = kinds.join_next().await {
        let (kind, done) = done.unwrap();
        done.unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
}

async fn set_all_power_targets(kind: &str) -> Result<(), DriverError> {
    let rig = RedfishRig::named(kind);
    let power = rig.driver.power();
    for (wanted, shown) in [
        (PowerTarget::On, SimulatedPower::On),
        (PowerTarget::Reboot, SimulatedPower::On),
        (PowerTarget::SoftReboot, SimulatedPower::On),
        (PowerTarget::SoftOff, SimulatedPower::Off),
        (PowerTarget::SoftReboot, SimulatedPower::On),
        (PowerTarget::Off, SimulatedPower::Off),
        (PowerTarget::Reboot, SimulatedPower::On),
    ] {
        let changes = power.set(&rig.target(), wanted, None).await?;
        assert_eq!(changes.power_state, Some(wanted.state()), "{kind}: {wanted}");
        if wanted != PowerTarget::SoftReboot {
            assert_eq!(rig.machine().power_state(), shown, "{kind}: {wanted}");
        }
        assert_eq!(power.get(&rig.target()).await?, Some(wanted.state()), "{kind}: {wanted}");
    }
    Ok(())
}

#[tokio::test]
async fn sends_no_reset_in_the_target_state() {
    let rig = RedfishRig::named("hpe-like");
    for wanted in [PowerTarget::Off, PowerTarget::SoftOff] {
        rig.power(wanted).await;
    }
    let writes = rig.writes();
    assert!(writes.iter().all(|write| !write.contains("Reset")), "{writes:?}");
}

#[tokio::test]
async fn replaces_unsupported_reset_types() {
    let mut odd = Personality::built_in("generic").unwrap();
    odd.power.reset_types = vec![ResetType::ForceOn, ResetType::PushPowerButton];
    let rig = RedfishRig::with_personality(odd);
    rig.power(PowerTarget::On).await;
    rig.power(PowerTarget::SoftReboot).await;
    assert_eq!(rig.machine().power_state(), SimulatedPower::On);
    rig.power(PowerTarget::Off).await;
    assert_eq!(rig.machine().power_state(), SimulatedPower::Off);
}

#[tokio::test]
async fn reports_a_stuck_power_state() {
    let rig = RedfishRig::named("generic");
    let power = rig.driver.power();
    rig.fault("power-stuck");
    let timeout = Some(Duration::from_millis(300));
    let error = power.set(&rig.target(), PowerTarget::On, timeout).await.unwrap_err().to_string();
    assert!(error.contains("switch the machine on: the machine is off"), "{error}");
    assert!(error.contains("'On'"), "{error}");
}

#[tokio::test]
async fn retries_while_the_bmc_is_busy() {
    let rig = RedfishRig::named("generic");
    rig.fault("status=503 method=POST path=/redfish/v1/Systems times=1");
    rig.power(PowerTarget::On).await;
    assert_eq!(rig.machine().power_state(), SimulatedPower::On);
    let resets = rig.writes().into_iter().filter(|write| write.contains("Reset")).count();
    assert_eq!(resets, 2);
}

#[tokio::test]
async fn finishes_an_interrupted_reboot() {
    let rig = RedfishRig::named("generic");
    rig.power(PowerTarget::On).await;
    // The first reset switches off; the responses to the next ones are lost.
    rig.fault("drop method=POST path=/redfish/v1/Systems skip=1 times=2");
    rig.writes();
    rig.power(PowerTarget::Reboot).await;
    assert_eq!(rig.machine().power_state(), SimulatedPower::On);
    assert_eq!(rig.writes().iter().filter(|write| write.contains("Reset")).count(), 4);

    rig.fleet.faults().clear();
    rig.fault("drop method=POST path=/redfish/v1/Systems skip=1");
    let timeout = Some(Duration::from_millis(500));
    let reboot = rig.driver.power().set(&rig.target(), PowerTarget::Reboot, timeout).await;
    let error = reboot.unwrap_err();
    assert!(matches!(error, DriverError::Failed { .. }), "{error}");
    assert!(error.to_string().contains("the machine was off"), "{error}");
}

#[tokio::test]
async fn restores_persistent_device_before_every_start() {
    let mut rig = RedfishRig::named("hpe-like");
    let management = rig.driver.clone();
    let management = management.management();
    let changes = management.set_boot_device(&rig.target(), BootDevice::Pxe, true).await.unwrap();
    assert_eq!(changes.driver_internal_info.get("redfish_boot_device"), Some(&json!("pxe")));
    rig.apply(&changes);
    for _ in 0..2 {
        rig.power(PowerTarget::Reboot).await;
        rig.machine().with_model(|machine, _| {
            while let Some(time) = machine.next_change() {
                machine.advance(time);
            }
        });
    }
    let from: Vec<_> = rig.machine().boot_history().iter().map(|boot| boot.from).collect();
    assert_eq!(from, [BootTarget::Pxe, BootTarget::Pxe]);
    let changes = management.set_boot_device(&rig.target(), BootDevice::Disk, false).await.unwrap();
    rig.apply(&changes);
    assert_eq!(rig.node.driver_internal_info.get("redfish_boot_device"), None);
}

#[tokio::test]
async fn check_access_contacts_the_bmc() {
    let mut rig = RedfishRig::named("generic");
    rig.driver.power().check_access(&rig.target()).await.unwrap();
    assert_eq!(rig.driver.power().get(&rig.target()).await.unwrap(), Some(PowerState::Off));

    let good = rig.driver_info.clone();
    rig.driver_info.insert("redfish_password".to_owned(), json!("wrong"));
    let error = rig.driver.power().check_access(&rig.target()).await.unwrap_err();
    assert!(matches!(error, DriverError::CredentialsRejected { .. }), "{error}");
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
