// SPDX-License-Identifier: Apache-2.0
//! Boot settings, indicators, sensors and other management calls, on different BMCs.

use std::collections::BTreeSet;

use drivers::{
    BootDevice, BootDeviceSetting, BootMode, DriverError, IndicatorComponent, IndicatorState,
    SensorKind,
};
use fleet_sim::Personality;
use fleet_sim::machine::{Health as SimulatedHealth, PowerState};
use node_model::{Health, PowerTarget, Step, StepFlow};
use serde_json::json;

use crate::rig::RedfishRig;

#[tokio::test]
async fn sets_boot_devices_on_every_personality() {
    for kind in Personality::built_in_names() {
        let mut rig = RedfishRig::named(kind);
        for (device, persistent) in [
            (BootDevice::Pxe, false),
            (BootDevice::Disk, true),
            (BootDevice::Cdrom, false),
            (BootDevice::Pxe, true),
        ] {
            let management = rig.driver.management();
            let set = management.set_boot_device(&rig.target(), device, persistent).await;
            let changes = set.unwrap_or_else(|error| panic!("{kind}: {device}: {error}"));
            let current = management.boot_device(&rig.target()).await.unwrap();
            rig.apply(&changes);
            let again = rig.node.driver_internal_info.get_str("redfish_boot_device");
            let is_persistent = persistent && again.is_none();
            let wanted =
                BootDeviceSetting { device: Some(device), persistent: Some(is_persistent) };
            assert_eq!(current, wanted, "{kind}");
            let needs_again = (persistent && !is_persistent).then(|| device.to_string());
            assert_eq!(again, needs_again, "{kind}");
        }
    }
}

#[tokio::test]
async fn rejects_unsupported_boot_device() {
    let mut few = Personality::built_in("generic").unwrap();
    few.boot.targets.retain(|target| ["Pxe", "Hdd"].contains(&target.name()));
    let rig = RedfishRig::with_personality(few);
    let target = rig.target();
    let set = rig.driver.management().set_boot_device(&target, BootDevice::Cdrom, false);
    let error = set.await.unwrap_err();
    assert!(error.is_caller_error(), "{error}");
    assert!(error.to_string().contains("supported: pxe, disk"), "{error}");
}

#[tokio::test]
async fn boot_mode_and_secure_boot_are_in_effect_on_return() {
    for kind in ["generic", "hpe-like"] {
        let rig = RedfishRig::named(kind);
        let management = rig.driver.management();
        let target = rig.target();
        assert_eq!(management.boot_mode(&target).await.unwrap(), BootMode::Uefi);
        let changes = management.set_boot_mode(&target, BootMode::Bios).await.unwrap();
        assert_eq!(changes.boot_mode.as_deref(), Some("bios"));
        assert_eq!(management.boot_mode(&target).await.unwrap(), BootMode::Bios);

        let error = management.set_secure_boot(&target, true).await.unwrap_err().to_string();
        assert!(error.contains("uefi first"), "{error}");
        let _ = management.set_boot_mode(&target, BootMode::Uefi).await.unwrap();
        let changes = management.set_secure_boot(&target, true).await.unwrap();
        assert_eq!(changes.secure_boot, Some(true), "{kind}");
        assert!(management.secure_boot(&target).await.unwrap(), "{kind}");
        // A machine that was rebooted for the change is off again.
        assert_eq!(rig.machine().power_state(), PowerState::Off, "{kind}");
        let _ = management.set_secure_boot(&target, false).await.unwrap();
        assert!(!management.secure_boot(&target).await.unwrap(), "{kind}");
    }
}

#[tokio::test]
async fn missing_secure_boot_is_unsupported() {
    let mut without = Personality::built_in("generic").unwrap();
    without.missing.push(fleet_sim::ResourceKind::SecureBoot);
    let rig = RedfishRig::with_personality(without);
    let management = rig.driver.management();
    let error = management.secure_boot(&rig.target()).await.unwrap_err();
    assert!(matches!(error, DriverError::Unsupported { .. }), "{error}");
    let error = management.set_secure_boot(&rig.target(), true).await.unwrap_err();
    assert!(matches!(error, DriverError::Unsupported { .. }), "{error}");
}

#[tokio::test]
async fn sets_indicators() {
    for kind in Personality::built_in_names() {
        let rig = RedfishRig::named(kind);
        let management = rig.driver.management();
        let indicators = management.indicators(&rig.target()).await.unwrap();
        assert!(
            indicators.iter().any(|indicator| indicator.component == IndicatorComponent::System),
            "{kind}: {indicators:?}"
        );
        for indicator in &indicators {
            for state in [IndicatorState::On, IndicatorState::Off] {
                let (component, name) = (indicator.component, indicator.name.as_str());
                let set = management.set_indicator(&rig.target(), component, name, state).await;
                let _ = set.unwrap_or_else(|error| panic!("{kind}: {component} {name}: {error}"));
                let state_after =
                    management.indicator(&rig.target(), component, name).await.unwrap();
                assert_eq!(state_after, state, "{kind}: {component} {name}");
            }
        }
        let unknown = management.indicator(&rig.target(), IndicatorComponent::System, "x").await;
        assert!(unknown.unwrap_err().is_caller_error());
    }
}

#[tokio::test]
async fn reads_sensors_on_every_personality() {
    for kind in Personality::built_in_names() {
        let rig = RedfishRig::named(kind);
        rig.power(PowerTarget::On).await;
        let sensors = rig.driver.management().sensors(&rig.target()).await.unwrap();
        let kinds: BTreeSet<_> = sensors.iter().map(|sensor| sensor.kind).collect();
        assert_eq!(kinds.len(), SensorKind::ALL.len(), "{kind}: {sensors:?}");
        let readings = sensors.iter().filter(|sensor| sensor.reading.is_some()).count();
        assert!(readings > 3, "{kind}: {sensors:?}");
    }
}

#[tokio::test]
async fn reads_macs_vendor_health_and_probe() {
    let rig = RedfishRig::named("dell-like");
    let management = rig.driver.management();
    let target = rig.target();
    assert_eq!(management.mac_addresses(&target).await.unwrap(), rig.machine().macs());
    let vendor = management.detect_vendor(&target).await.unwrap();
    assert!(vendor.as_deref().is_some_and(|vendor| vendor.contains("Dell")), "{vendor:?}");
    assert_eq!(management.health(&target).await.unwrap(), Some(Health::Ok));
    rig.machine().with_model(|machine, _| machine.set_health(SimulatedHealth::Critical));
    assert_eq!(management.health(&target).await.unwrap(), Some(Health::Critical));
    let capabilities = management.probe(&target).await.unwrap().unwrap();
    assert!(!capabilities.is_empty());
}

#[tokio::test]
async fn injects_nmi() {
    let rig = RedfishRig::named("hpe-like");
    rig.power(PowerTarget::On).await;
    let _ = rig.driver.management().inject_nmi(&rig.target()).await.unwrap();
    assert_eq!(rig.machine().with_model(|machine, _| machine.nmi_count()), 1);
}

#[tokio::test]
async fn runs_management_steps() {
    let rig = RedfishRig::named("generic");
    let management = rig.driver.management();
    let mut later = Step::new("management", "set_bmc_clock", 0);
    later.args.set("target_datetime", json!("2030-01-01T00:00:00+00:00"));
    let mut wrong = Step::new("management", "set_bmc_clock", 0);
    wrong.args.set("target_datetime", json!("tomorrow"));
    for (flow, step) in [
        (StepFlow::Clean, Step::new("management", "clear_secure_boot_keys", 0)),
        (StepFlow::Deploy, Step::new("management", "reset_secure_boot_keys_to_default", 0)),
        (StepFlow::Clean, Step::new("management", "set_bmc_clock", 0)),
        (StepFlow::Verify, Step::new("management", "verify_bmc_clock", 0)),
    ] {
        let done = management.execute_step(&rig.target(), flow, &step).await;
        let done = done.unwrap_or_else(|error| panic!("{}: {error}", step.step));
        assert!(done.is_done(), "{}", step.step);
    }
    for (step, text) in [
        (wrong, "'tomorrow' is not a timestamp"),
        // Simulated BMCs accept the time and keep their own, as BMCs with an NTP server do.
        (later, "check the NTP"),
        (Step::new("management", "dance", 0), "cannot carry out"),
    ] {
        let refused = management.execute_step(&rig.target(), StepFlow::Clean, &step).await;
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}
