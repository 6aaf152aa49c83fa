// SPDX-License-Identifier: Apache-2.0
//! BIOS settings: the requested values are in effect after the reboot.

use fleet_sim::{AttributeKind, AttributeRule, Personality};
use node_model::{InterfaceKind, PowerTarget};
use serde_json::{Value, json};

use crate::rig::RedfishRig;
use crate::steps::ConductorBehaviour;

const APPLY: &str = "apply_configuration";

/// A setting of this personality, and a value other than its default.
fn change(personality: &Personality) -> (String, Value) {
    let is_choice =
        |rule: &&AttributeRule| rule.kind == AttributeKind::Enumeration && !rule.read_only;
    let rule = personality.bios.attributes.iter().find(is_choice).expect("there is a choice");
    let other = rule.values.iter().find(|value| rule.default != ***value);
    (rule.name.clone(), json!(other.expect("there is another value")))
}

#[tokio::test]
async fn reads_settings_with_registry_on_every_personality() {
    for kind in Personality::built_in_names() {
        let personality = Personality::built_in(kind).unwrap();
        let rig = RedfishRig::with_personality(personality.clone());
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
async fn applies_settings_with_a_reboot_on_every_personality() {
    for kind in Personality::built_in_names() {
        let personality = Personality::built_in(kind).unwrap();
        let (name, value) = change(&personality);
        let mut rig = RedfishRig::with_personality(personality);
        rig.power(PowerTarget::On).await;
        let arguments = json!({"settings": [{"name": name, "value": value}]});
        let changes = rig.run_step(InterfaceKind::Bios, APPLY, arguments.clone()).await;
        let changes = changes.unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(rig.machine().bios_attribute(&name), Some(value.clone()), "{kind}");
        let setting = changes.0.bios_settings.expect("the settings were read");
        let setting = setting.iter().find(|setting| setting.name == name).expect("the setting");
        assert_eq!(setting.value.as_deref(), value.as_str(), "{kind}");
        assert!(!rig.writes().is_empty());
        rig.run_step(InterfaceKind::Bios, APPLY, arguments).await.unwrap();
        assert_eq!(rig.writes(), [""; 0], "{kind}: expected no write");
    }
}

#[tokio::test]
async fn stores_the_reboot_before_it_happens() {
    for kind in Personality::built_in_names() {
        let personality = Personality::built_in(kind).unwrap();
        let (name, value) = change(&personality);
        let mut rig = RedfishRig::with_personality(personality);
        let arguments = json!({"settings": [{"name": name, "value": value}]});
        let calls = rig.record_step(InterfaceKind::Bios, APPLY, arguments).await;
        let reboots: Vec<_> = calls.iter().filter(|call| call.has_reset()).collect();
        assert_eq!(reboots.len(), 1, "{kind}: {calls:?}");
        assert!(reboots[0].had_stored_reboot(), "{kind}: {calls:?}");
    }
}

#[tokio::test]
async fn converts_values_to_registry_types() {
    let mut rig = RedfishRig::named("generic");
    let arguments = json!({"settings": [
        {"name": "BootDelaySeconds", "value": "30"},
        {"name": "QuietBoot", "value": "False"},
        {"name": "AssetLabel", "value": "rack 7"},
    ]});
    rig.run_step(InterfaceKind::Bios, APPLY, arguments).await.unwrap();
    let machine = rig.machine();
    assert_eq!(machine.bios_attribute("BootDelaySeconds"), Some(json!(30)));
    assert_eq!(machine.bios_attribute("QuietBoot"), Some(json!(false)));
    assert_eq!(machine.bios_attribute("AssetLabel"), Some(json!("rack 7")));
}

#[tokio::test]
async fn rejects_invalid_settings_before_any_write() {
    let mut rig = RedfishRig::named("generic");
    for (name, value, text) in [
        ("BootDelaySeconds", json!(301), "from 0 to 300"),
        ("WorkloadProfile", json!("Fast"), "Balanced, Performance, PowerSaving"),
        ("TpmPresent", json!(false), "read-only"),
        ("quietboot", json!(true), "use 'QuietBoot'"),
        ("Turbo", json!("On"), "no setting 'Turbo'"),
    ] {
        let arguments = json!({"settings": [{"name": name, "value": value}]});
        let error = rig.run_step(InterfaceKind::Bios, APPLY, arguments).await.unwrap_err();
        assert!(error.is_caller_error(), "{error}");
        assert!(error.to_string().contains(text), "{name}: {error}");
    }
    assert_eq!(rig.writes(), [""; 0]);
}

#[tokio::test]
async fn factory_reset_restores_defaults() {
    let mut rig = RedfishRig::named("dell-like");
    let arguments = json!({"settings": [{"name": "NumLock", "value": "Off"}]});
    rig.run_step(InterfaceKind::Bios, APPLY, arguments).await.unwrap();
    assert_eq!(rig.machine().bios_attribute("NumLock"), Some(json!("Off")));
    let changes = rig.run_step(InterfaceKind::Bios, "factory_reset", json!({})).await.unwrap();
    assert_eq!(rig.machine().bios_attribute("NumLock"), Some(json!("On")));
    assert!(changes.0.bios_settings.is_some());
}

#[tokio::test]
async fn succeeds_with_a_conductor_that_loses_outcomes() {
    for kind in Personality::built_in_names() {
        let personality = Personality::built_in(kind).unwrap();
        let (name, value) = change(&personality);
        let mut rig = RedfishRig::with_personality(personality);
        let arguments = json!({"settings": [{"name": name, "value": value}]});
        rig.run_step_by(
            ConductorBehaviour::LosesEveryOtherOutcome,
            InterfaceKind::Bios,
            APPLY,
            arguments,
        )
        .await
        .unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(rig.machine().bios_attribute(&name), Some(value), "{kind}");
    }
}
