// SPDX-License-Identifier: Apache-2.0
//! Boot settings, lights, sensors and the rest, on BMCs with different habits.

use std::collections::BTreeSet;

use bmc_drivers::{
    BootDevice, BootDeviceSetting, BootMode, Error, IndicatorComponent, IndicatorState, Outcome,
    SensorKind,
};
use fleet_sim::Personality;
use fleet_sim::machine::{Health as Shown, PowerState};
use node_model::{Health, PowerTarget, Step, StepFlow};
use serde_json::json;

use crate::rig::Rig;

#[tokio::test]
async fn every_kind_of_machine_takes_boot_devices() {
    for kind in Personality::names() {
        let mut rig = Rig::named(kind);
        for (device, persistent) in [
            (BootDevice::Pxe, false),
            (BootDevice::Disk, true),
            (BootDevice::Cdrom, false),
            (BootDevice::Pxe, true),
        ] {
            let management = rig.driver.management();
            let set = management.set_boot_device(&rig.target(), device, persistent).await;
            let changes = set.unwrap_or_else(|error| panic!("{kind}: {device}: {error}"));
            let seen = management.boot_device(&rig.target()).await.unwrap();
            rig.keep(&changes);
            let again = rig.node.driver_internal_info.get_str("redfish_boot_device");
            let lasts = persistent && again.is_none();
            let wanted = BootDeviceSetting { device: Some(device), persistent: Some(lasts) };
            assert_eq!(seen, wanted, "{kind}");
            let needs_again = (persistent && !lasts).then(|| device.to_string());
            assert_eq!(again, needs_again, "{kind}");
        }
    }
}

#[tokio::test]
async fn a_device_the_machine_does_not_have_is_named() {
    let mut few = Personality::named("generic").unwrap();
    few.boot.targets.retain(|target| ["Pxe", "Hdd"].contains(&target.name()));
    let rig = Rig::of(few);
    let target = rig.target();
    let set = rig.driver.management().set_boot_device(&target, BootDevice::Cdrom, false);
    let error = set.await.unwrap_err();
    assert!(error.is_callers_fault(), "{error}");
    assert!(error.to_string().contains("it can from: pxe, disk"), "{error}");
}

#[tokio::test]
async fn boot_mode_and_secure_boot_are_there_when_the_call_returns() {
    for kind in ["generic", "hpe-like"] {
        let rig = Rig::named(kind);
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
        // A machine that had to be rebooted for it is off again.
        assert_eq!(rig.machine().power(), PowerState::Off, "{kind}");
        let _ = management.set_secure_boot(&target, false).await.unwrap();
        assert!(!management.secure_boot(&target).await.unwrap(), "{kind}");
    }
}

#[tokio::test]
async fn what_a_machine_does_not_offer_is_said_to_be_missing() {
    let mut without = Personality::named("generic").unwrap();
    without.missing.push(fleet_sim::Kind::SecureBoot);
    let rig = Rig::of(without);
    let management = rig.driver.management();
    let error = management.secure_boot(&rig.target()).await.unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let error = management.set_secure_boot(&rig.target(), true).await.unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

#[tokio::test]
async fn lights_go_on_and_off() {
    for kind in Personality::names() {
        let rig = Rig::named(kind);
        let management = rig.driver.management();
        let lights = management.indicators(&rig.target()).await.unwrap();
        assert!(
            lights.iter().any(|light| light.component == IndicatorComponent::System),
            "{kind}: {lights:?}"
        );
        for light in &lights {
            for state in [IndicatorState::On, IndicatorState::Off] {
                let (component, name) = (light.component, light.name.as_str());
                let set = management.set_indicator(&rig.target(), component, name, state).await;
                let _ = set.unwrap_or_else(|error| panic!("{kind}: {component} {name}: {error}"));
                let shown = management.indicator(&rig.target(), component, name).await.unwrap();
                assert_eq!(shown, state, "{kind}: {component} {name}");
            }
        }
        let unknown = management.indicator(&rig.target(), IndicatorComponent::System, "x").await;
        assert!(unknown.unwrap_err().is_callers_fault());
    }
}

#[tokio::test]
async fn every_kind_of_machine_measures() {
    for kind in Personality::names() {
        let rig = Rig::named(kind);
        rig.power(PowerTarget::On).await;
        let sensors = rig.driver.management().sensors(&rig.target()).await.unwrap();
        let kinds: BTreeSet<_> = sensors.iter().map(|sensor| sensor.kind).collect();
        assert_eq!(kinds.len(), SensorKind::ALL.len(), "{kind}: {sensors:?}");
        let readings = sensors.iter().filter(|sensor| sensor.reading.is_some()).count();
        assert!(readings > 3, "{kind}: {sensors:?}");
    }
}

#[tokio::test]
async fn what_a_machine_is() {
    let rig = Rig::named("dell-like");
    let management = rig.driver.management();
    let target = rig.target();
    assert_eq!(management.mac_addresses(&target).await.unwrap(), rig.machine().macs());
    let vendor = management.detect_vendor(&target).await.unwrap();
    assert!(vendor.as_deref().is_some_and(|vendor| vendor.contains("Dell")), "{vendor:?}");
    assert_eq!(management.health(&target).await.unwrap(), Some(Health::Ok));
    rig.machine().with(|machine, _| machine.set_health(Shown::Critical));
    assert_eq!(management.health(&target).await.unwrap(), Some(Health::Critical));
    let capabilities = management.probe(&target).await.unwrap().unwrap();
    assert!(!capabilities.is_empty());
}

#[tokio::test]
async fn an_interrupt_reaches_the_processors() {
    let rig = Rig::named("hpe-like");
    rig.power(PowerTarget::On).await;
    let _ = rig.driver.management().inject_nmi(&rig.target()).await.unwrap();
    assert_eq!(rig.machine().with(|machine, _| machine.interrupts()), 1);
}

#[tokio::test]
async fn steps() {
    let rig = Rig::named("generic");
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
        assert!(matches!(done, Outcome::Done(_)), "{}", step.step);
    }
    for (step, words) in [
        (wrong, "'tomorrow' is not a moment"),
        // Simulated BMCs take the time and go on with their own, as those with a time server do.
        (later, "look for NTP"),
        (Step::new("management", "dance", 0), "cannot carry out"),
    ] {
        let refused = management.execute_step(&rig.target(), StepFlow::Clean, &step).await;
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
