// SPDX-License-Identifier: Apache-2.0
//! Fake hardware that is slow, and fake hardware that fails.

use std::time::Duration;

use bmc_drivers::{Boot, DriverSettings, Error, Registry, Target};
use node_model::{InterfaceKind, PowerState, PowerTarget, StepFlow};
use serde_json::{Map, json};
use tokio::time::Instant;

use crate::machine::Machine;

#[tokio::test]
async fn power_is_what_it_was_last_set_to() {
    let mut machine = Machine::fake(json!({}));
    let driver = machine.driver.clone();
    assert_eq!(driver.power().get(&machine.target()).await.unwrap(), None);
    for (wanted, state) in [
        (PowerTarget::On, PowerState::On),
        (PowerTarget::SoftOff, PowerState::Off),
        (PowerTarget::Reboot, PowerState::On),
        (PowerTarget::Off, PowerState::Off),
        (PowerTarget::SoftReboot, PowerState::On),
    ] {
        assert!(driver.power().supported().contains(&wanted));
        let changes = driver.power().set(&machine.target(), wanted, None).await.unwrap();
        machine.record(&changes);
        machine.restart();
        assert_eq!(machine.driver.power().get(&machine.target()).await.unwrap(), Some(state));
    }
}

#[tokio::test(start_paused = true)]
async fn calls_take_as_long_as_the_node_says() {
    for (driver_info, shortest, longest) in [
        (json!({}), 0, 0),
        (json!({"fake_power_delay": "2"}), 2, 2),
        (json!({"fake_power_delay": 3}), 3, 3),
        (json!({"fake_power_delay": "4,9"}), 4, 9),
        (json!({"fake_boot_delay": "5"}), 0, 0),
    ] {
        let machine = Machine::fake(driver_info.clone());
        let start = Instant::now();
        machine.driver.power().get(&machine.target()).await.unwrap();
        let taken = start.elapsed();
        // The timer wheel has a resolution of a millisecond.
        assert!(taken >= Duration::from_secs(shortest), "{driver_info}: {taken:?}");
        assert!(taken <= Duration::from_millis(longest * 1000 + 2), "{driver_info}: {taken:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_settings_say_how_long_where_the_node_does_not() {
    let mut settings = DriverSettings::default();
    settings.fake.boot_delay = "7".to_owned();
    let registry =
        Registry::new(&settings, std::sync::Arc::new(bmc_drivers::NoBootServices)).unwrap();
    for (driver_info, seconds) in [(json!({}), 7), (json!({"fake_boot_delay": "1"}), 1)] {
        let machine = Machine::fake(driver_info);
        let driver = registry.compose(&machine.node).unwrap();
        let target = Target { driver: &driver, ..machine.target() };
        let start = Instant::now();
        let boot: &dyn Boot = driver.boot();
        assert!(boot.prepare_instance(&target).await.unwrap().is_empty());
        assert_eq!(start.elapsed().as_secs(), seconds);
    }
}

#[tokio::test(start_paused = true)]
async fn a_power_change_gives_up_after_its_timeout() {
    let machine = Machine::fake(json!({"fake_power_delay": "60"}));
    let power = machine.driver.power();
    let timeout = Some(Duration::from_secs(10));
    let start = Instant::now();
    let error = power.set(&machine.target(), PowerTarget::On, timeout).await.unwrap_err();
    assert_eq!(start.elapsed().as_secs(), 10);
    assert!(error.to_string().contains("longer than 10 seconds"), "{error}");
    let timeout = Some(Duration::from_secs(61));
    assert!(power.set(&machine.target(), PowerTarget::On, timeout).await.is_ok());
}

#[tokio::test]
async fn calls_fail_as_the_node_says() {
    for (driver_info, get, set) in [
        (json!({"fake_power_failure": "always"}), false, false),
        (json!({"fake_power_failure": "unreachable"}), false, false),
        (json!({"fake_power_failure": "1"}), false, false),
        (json!({"fake_power_failure": 0}), true, true),
        (json!({"fake_power_failure": "set"}), true, false),
        (json!({"fake_boot_failure": "always"}), true, true),
    ] {
        let machine = Machine::fake(driver_info.clone());
        let target = machine.target();
        let power = machine.driver.power();
        assert_eq!(power.get(&target).await.is_ok(), get, "{driver_info}");
        assert_eq!(power.set(&target, PowerTarget::On, None).await.is_ok(), set, "{driver_info}");
    }
}

#[tokio::test]
async fn a_failure_says_what_the_node_wants_it_to_say() {
    let machine = Machine::fake(json!({
        "fake_power_failure": "always", "fake_power_failure_message": "the cable is loose",
    }));
    let error = machine.driver.power().get(&machine.target()).await.unwrap_err();
    assert_eq!(error.to_string(), "failed to call power.get: the cable is loose");
    assert!(!error.is_transient());
    let machine = Machine::fake(json!({"fake_power_failure": "unreachable"}));
    let error = machine.driver.power().get(&machine.target()).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }) && error.is_transient());
}

#[tokio::test]
async fn a_step_fails_by_its_name() {
    let mut machine = Machine::fake(json!({"fake_deploy_failure": "erase_devices"}));
    let clean = StepFlow::Clean;
    let kind = InterfaceKind::Deploy;
    assert!(machine.step(kind, clean, "erase_devices_metadata", json!({})).await.is_ok());
    assert!(machine.step(kind, clean, "erase_devices", json!({})).await.is_err());
}

#[tokio::test]
async fn every_fake_interface_validates_its_own_keys() {
    for kind in InterfaceKind::ALL {
        // There is no fake network; storage is not fake by default.
        if *kind == InterfaceKind::Network {
            continue;
        }
        let chosen = &[(*kind, "fake")];
        let machine = Machine::with_interfaces(json!({}), chosen);
        machine.driver.interface(*kind).validate(&machine.target()).await.unwrap();
        let mut driver_info = Map::new();
        let key = format!("fake_{kind}_delay");
        driver_info.insert(key.clone(), json!("later"));
        let machine = Machine::with_interfaces(driver_info.into(), chosen);
        let error = machine.driver.interface(*kind).validate(&machine.target()).await.unwrap_err();
        assert!(error.to_string().contains(&key), "{error}");
        let described = machine.driver.interface(*kind).properties();
        assert!(described.iter().any(|(name, _)| *name == key), "{key} is not described");
    }
}
