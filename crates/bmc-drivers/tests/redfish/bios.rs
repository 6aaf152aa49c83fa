// SPDX-License-Identifier: Apache-2.0
//! BIOS settings: what is asked for is what the machine has after its reboot.

use fleet_sim::{AttributeKind, AttributeRule, Personality};
use node_model::{InterfaceKind, PowerTarget};
use serde_json::{Value, json};

use crate::rig::Rig;
use crate::steps::Conductor;

const APPLY: &str = "apply_configuration";

/// A setting of that kind of machine, and a value it does not have.
fn change(personality: &Personality) -> (String, Value) {
    let is_choice =
        |rule: &&AttributeRule| rule.kind == AttributeKind::Enumeration && !rule.read_only;
    let rule = personality.bios.attributes.iter().find(is_choice).expect("there is a choice");
    let other = rule.values.iter().find(|value| rule.default != ***value);
    (rule.name.clone(), json!(other.expect("there is another value")))
}

#[tokio::test]
async fn every_kind_of_machine_shows_its_settings_with_what_they_may_be() {
    for kind in Personality::names() {
        let personality = Personality::named(kind).unwrap();
        let rig = Rig::of(personality.clone());
        let settings = rig.driver.bios().settings(&rig.target()).await.unwrap().expect("some");
        assert_eq!(settings.len(), personality.bios.attributes.len(), "{kind}");
        for rule in &personality.bios.attributes {
            let setting = settings.iter().find(|setting| setting.name == rule.name);
            let setting = setting.unwrap_or_else(|| panic!("{kind}: {}", rule.name));
            let registry = setting.registry.parse();
            assert_eq!(registry["attribute_type"], format!("{:?}", rule.kind), "{}", rule.name);
            assert_eq!(registry["read_only"], rule.read_only, "{kind}: {}", rule.name);
            if rule.kind == AttributeKind::Enumeration {
                assert_eq!(registry["allowable_values"], json!(rule.values), "{kind}");
            }
        }
    }
}

#[tokio::test]
async fn a_change_takes_effect_with_a_reboot_on_every_kind_of_machine() {
    for kind in Personality::names() {
        let personality = Personality::named(kind).unwrap();
        let (name, value) = change(&personality);
        let mut rig = Rig::of(personality);
        rig.power(PowerTarget::On).await;
        let asked = json!({"settings": [{"name": name, "value": value}]});
        let changes = rig.run_step(InterfaceKind::Bios, APPLY, asked.clone()).await;
        let changes = changes.unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(rig.machine().bios_attribute(&name), Some(value.clone()), "{kind}");
        let shown = changes.0.bios_settings.expect("the settings were read");
        let shown = shown.iter().find(|setting| setting.name == name).expect("the setting");
        assert_eq!(shown.value.as_deref(), value.as_str(), "{kind}");
        assert!(!rig.deeds().is_empty());
        rig.run_step(InterfaceKind::Bios, APPLY, asked).await.unwrap();
        assert_eq!(rig.deeds(), [""; 0], "{kind}: there was nothing left to do");
    }
}

#[tokio::test]
async fn a_reboot_is_written_down_before_it_is_made() {
    for kind in Personality::names() {
        let personality = Personality::named(kind).unwrap();
        let (name, value) = change(&personality);
        let mut rig = Rig::of(personality);
        let asked = json!({"settings": [{"name": name, "value": value}]});
        let calls = rig.watch_step(InterfaceKind::Bios, APPLY, asked).await;
        let reboots: Vec<_> = calls.iter().filter(|call| call.switched()).collect();
        assert_eq!(reboots.len(), 1, "{kind}: {calls:?}");
        assert!(reboots[0].was_due(), "{kind}: {calls:?}");
    }
}

#[tokio::test]
async fn values_get_the_types_the_firmware_wants() {
    let mut rig = Rig::named("generic");
    let asked = json!({"settings": [
        {"name": "BootDelaySeconds", "value": "30"},
        {"name": "QuietBoot", "value": "False"},
        {"name": "AssetLabel", "value": "rack 7"},
    ]});
    rig.run_step(InterfaceKind::Bios, APPLY, asked).await.unwrap();
    let machine = rig.machine();
    assert_eq!(machine.bios_attribute("BootDelaySeconds"), Some(json!(30)));
    assert_eq!(machine.bios_attribute("QuietBoot"), Some(json!(false)));
    assert_eq!(machine.bios_attribute("AssetLabel"), Some(json!("rack 7")));
}

#[tokio::test]
async fn a_mistake_is_told_before_anything_is_done() {
    let mut rig = Rig::named("generic");
    for (name, value, words) in [
        ("BootDelaySeconds", json!(301), "from 0 to 300"),
        ("WorkloadProfile", json!("Fast"), "Balanced, Performance, PowerSaving"),
        ("TpmPresent", json!(false), "cannot be changed"),
        ("quietboot", json!(true), "use 'QuietBoot'"),
        ("Turbo", json!("On"), "no setting 'Turbo'"),
    ] {
        let asked = json!({"settings": [{"name": name, "value": value}]});
        let error = rig.run_step(InterfaceKind::Bios, APPLY, asked).await.unwrap_err();
        assert!(error.is_callers_fault(), "{error}");
        assert!(error.to_string().contains(words), "{name}: {error}");
    }
    assert_eq!(rig.deeds(), [""; 0]);
}

#[tokio::test]
async fn a_reset_brings_the_factory_settings_back() {
    let mut rig = Rig::named("dell-like");
    let asked = json!({"settings": [{"name": "NumLock", "value": "Off"}]});
    rig.run_step(InterfaceKind::Bios, APPLY, asked).await.unwrap();
    assert_eq!(rig.machine().bios_attribute("NumLock"), Some(json!("Off")));
    let changes = rig.run_step(InterfaceKind::Bios, "factory_reset", json!({})).await.unwrap();
    assert_eq!(rig.machine().bios_attribute("NumLock"), Some(json!("On")));
    assert!(changes.0.bios_settings.is_some());
}

#[tokio::test]
async fn a_conductor_that_dies_after_every_call_comes_to_the_same_end() {
    for kind in Personality::names() {
        let personality = Personality::named(kind).unwrap();
        let (name, value) = change(&personality);
        let mut rig = Rig::of(personality);
        let asked = json!({"settings": [{"name": name, "value": value}]});
        rig.run_step_by(Conductor::Dying, InterfaceKind::Bios, APPLY, asked)
            .await
            .unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(rig.machine().bios_attribute(&name), Some(value), "{kind}");
    }
}
