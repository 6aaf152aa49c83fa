// SPDX-License-Identifier: Apache-2.0
//! Delays and failures of fake hardware.

use std::time::Duration;

use drivers::{BootInterface, DriverError, DriverTarget};
use fake_driver::FakeSettings;
use node_model::{InterfaceKind, PowerState, PowerTarget, StepFlow};
use serde_json::{Map, json};
use tokio::time::Instant;

use crate::machine;

#[tokio::test]
async fn power_state_is_last_set_state() {
    let mut machine = machine::fake(json!({}));
    let driver = machine.driver.clone();
    assert_eq!(driver.power().get(&machine.target()).await.unwrap(), None);
    for (power_target, state) in [
        (PowerTarget::On, PowerState::On),
        (PowerTarget::SoftOff, PowerState::Off),
        (PowerTarget::Reboot, PowerState::On),
        (PowerTarget::Off, PowerState::Off),
        (PowerTarget::SoftReboot, PowerState::On),
    ] {
        assert!(driver.power().supported().contains(&power_target));
        let changes = driver.power().set(&machine.target(), power_target, None).await.unwrap();
        machine.record(&changes);
        machine.restart();
        assert_eq!(machine.driver.power().get(&machine.target()).await.unwrap(), Some(state));
    }
}

#[tokio::test(start_paused = true)]
async fn driver_info_sets_delay() {
    for (driver_info, shortest, longest) in [
        (json!({}), 0, 0),
        (json!({"fake_power_delay": "2"}), 2, 2),
        (json!({"fake_power_delay": 3}), 3, 3),
        (json!({"fake_power_delay": "4,9"}), 4, 9),
        (json!({"fake_boot_delay": "5"}), 0, 0),
    ] {
        let machine = machine::fake(driver_info.clone());
        let start = Instant::now();
        machine.driver.power().get(&machine.target()).await.unwrap();
        let elapsed = start.elapsed();
        // The timer wheel has a resolution of a millisecond.
        assert!(elapsed >= Duration::from_secs(shortest), "{driver_info}: {elapsed:?}");
        assert!(elapsed <= Duration::from_millis(longest * 1000 + 2), "{driver_info}: {elapsed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn settings_set_default_delay() {
    let settings = FakeSettings { boot_delay: "7".to_owned(), ..FakeSettings::default() };
    let registry = machine::registry_with(&settings);
    for (driver_info, seconds) in [(json!({}), 7), (json!({"fake_boot_delay": "1"}), 1)] {
        let machine = machine::fake(driver_info);
        let driver = registry.compose(&machine.node).unwrap();
        let target = DriverTarget { driver: &driver, ..machine.target() };
        let start = Instant::now();
        let boot: &dyn BootInterface = driver.boot();
        assert!(boot.prepare_instance(&target).await.unwrap().is_empty());
        assert_eq!(start.elapsed().as_secs(), seconds);
    }
}

#[tokio::test(start_paused = true)]
async fn power_change_fails_after_timeout() {
    let machine = machine::fake(json!({"fake_power_delay": "60"}));
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
async fn driver_info_sets_failures() {
    for (driver_info, get, set) in [
        (json!({"fake_power_failure": "always"}), false, false),
        (json!({"fake_power_failure": "unreachable"}), false, false),
        (json!({"fake_power_failure": "1"}), false, false),
        (json!({"fake_power_failure": 0}), true, true),
        (json!({"fake_power_failure": "set"}), true, false),
        (json!({"fake_boot_failure": "always"}), true, true),
    ] {
        let machine = machine::fake(driver_info.clone());
        let target = machine.target();
        let power = machine.driver.power();
        assert_eq!(power.get(&target).await.is_ok(), get, "{driver_info}");
        assert_eq!(power.set(&target, PowerTarget::On, None).await.is_ok(), set, "{driver_info}");
    }
}

#[tokio::test]
async fn driver_info_sets_failure_message() {
    let machine = machine::fake(json!({
        "fake_power_failure": "always", "fake_power_failure_message": "the cable is loose",
    }));
    let error = machine.driver.power().get(&machine.target()).await.unwrap_err();
    assert_eq!(error.to_string(), "failed to call power.get: the cable is loose");
    assert!(!error.is_transient());
    let machine = machine::fake(json!({"fake_power_failure": "unreachable"}));
    let error = machine.driver.power().get(&machine.target()).await.unwrap_err();
    assert!(matches!(error, DriverError::BmcUnreachable { .. }) && error.is_transient());
}

#[tokio::test]
async fn failure_applies_to_named_step() {
    let mut machine = machine::fake(json!({"fake_deploy_failure": "erase_devices"}));
    let clean = StepFlow::Clean;
    let kind = InterfaceKind::Deploy;
    assert!(machine.step(kind, clean, "erase_devices_metadata", json!({})).await.is_ok());
    assert!(machine.step(kind, clean, "erase_devices", json!({})).await.is_err());
}

#[tokio::test]
async fn interfaces_validate_their_own_keys() {
    for kind in InterfaceKind::ALL {
        // There is no fake network interface, and storage is `noop` by default.
        if *kind == InterfaceKind::Network {
            continue;
        }
        let chosen = &[(*kind, "fake")];
        let machine = machine::with_interfaces(json!({}), chosen);
        machine.driver.interface(*kind).validate(&machine.target()).await.unwrap();
        let mut driver_info = Map::new();
        let key = format!("fake_{kind}_delay");
        driver_info.insert(key.clone(), json!("later"));
        let machine = machine::with_interfaces(driver_info.into(), chosen);
        let error = machine.driver.interface(*kind).validate(&machine.target()).await.unwrap_err();
        assert!(error.to_string().contains(&key), "{error}");
        let described = machine.driver.interface(*kind).properties();
        assert!(described.iter().any(|(name, _)| *name == key), "{key} is not described");
    }
}
