// SPDX-License-Identifier: Apache-2.0
//! Firmware: versions, and updates that take effect at once, with a reboot, or with a restart of the
//! BMC.

use fleet_sim::{ComponentKind, Personality};
use node_model::{InterfaceKind, PowerTarget};
use serde_json::{Value, json};

use crate::rig::RedfishRig;
use crate::steps::ConductorBehaviour;

fn update(component: &str, file: &str) -> Value {
    json!({"component": component, "url": format!("http://images.example/{file}")})
}

fn version(rig: &RedfishRig, kind: ComponentKind) -> String {
    rig.machine().with_model(|machine, _| {
        let version = machine.component_version(kind).expect("there is such a component");
        version.to_owned()
    })
}

#[tokio::test]
async fn reads_versions_on_every_personality() {
    for kind in Personality::built_in_names() {
        let rig = RedfishRig::named(kind);
        let found = rig.driver.firmware().components(&rig.target()).await.unwrap().expect("some");
        for (name, component) in [("bios", ComponentKind::Bios), ("bmc", ComponentKind::Bmc)] {
            let found = found.iter().find(|found| found.component == name);
            let found = found.unwrap_or_else(|| panic!("{kind}: {name}"));
            assert_eq!(found.current_version, Some(version(&rig, component)), "{kind}");
        }
    }
}

#[tokio::test]
async fn updates_bios_with_a_reboot() {
    for kind in Personality::built_in_names() {
        let mut rig = RedfishRig::named(kind);
        rig.power(PowerTarget::On).await;
        let arguments = json!({"settings": [update("bios", "bios-9.9.1.bin")]});
        let changes = rig.run_step(InterfaceKind::Firmware, "update", arguments).await;
        let changes = changes.unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(version(&rig, ComponentKind::Bios), "9.9.1", "{kind}");
        let known = changes.0.firmware_components.expect("the versions were read");
        let bios = known.iter().find(|known| known.component == "bios").expect("the BIOS");
        assert_eq!(bios.current_version.as_deref(), Some("9.9.1"), "{kind}");
        assert_eq!(bios.last_version_flashed.as_deref(), Some("9.9.1"), "{kind}");
        let bmc = known.iter().find(|known| known.component == "bmc").expect("the BMC");
        assert_eq!(bmc.last_version_flashed, None, "{kind}");
    }
}

#[tokio::test]
async fn survives_bmc_restart_during_its_update() {
    for kind in Personality::built_in_names() {
        let mut personality = Personality::built_in(kind).unwrap();
        // Long enough to be noticed, and short enough for a test.
        personality.durations.bmc_restart = 5.0;
        let mut rig = RedfishRig::with_personality(personality);
        let arguments = json!({"settings": [
            update("bmc", "bmc-9.8.0.bin"),
            update("bios", "bios-9.9.1.bin"),
        ]});
        let changes = rig.run_step(InterfaceKind::Firmware, "update", arguments).await;
        changes.unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(version(&rig, ComponentKind::Bmc), "9.8.0", "{kind}");
        assert_eq!(version(&rig, ComponentKind::Bios), "9.9.1", "{kind}");
    }
}

#[tokio::test]
async fn updates_a_listed_nic() {
    let mut rig = RedfishRig::named("generic");
    let found = rig.driver.firmware().components(&rig.target()).await.unwrap().expect("some");
    let nic = found.iter().find(|found| found.component.starts_with("nic:"));
    let nic = nic.expect("a NIC").component.clone();
    let arguments = json!({"settings": [update(&nic, "nic-7.7.bin")]});
    rig.run_step(InterfaceKind::Firmware, "update", arguments).await.unwrap();
    assert_eq!(version(&rig, ComponentKind::Nic), "7.7");
    let arguments = json!({"settings": [update("nic:none", "nic-7.8.bin")]});
    let error = rig.run_step(InterfaceKind::Firmware, "update", arguments).await.unwrap_err();
    assert!(error.to_string().contains(&nic), "{error}");
}

#[tokio::test]
async fn succeeds_with_a_conductor_that_loses_outcomes() {
    for kind in Personality::built_in_names() {
        let mut personality = Personality::built_in(kind).unwrap();
        personality.durations.bmc_restart = 5.0;
        let mut rig = RedfishRig::with_personality(personality);
        let arguments = json!({"settings": [
            update("bios", "bios-9.9.1.bin"),
            update("bmc", "bmc-9.8.0.bin"),
        ]});
        let ran = rig
            .run_step_by(
                ConductorBehaviour::LosesEveryOtherOutcome,
                InterfaceKind::Firmware,
                "update",
                arguments,
            )
            .await;
        ran.unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(version(&rig, ComponentKind::Bios), "9.9.1", "{kind}");
        assert_eq!(version(&rig, ComponentKind::Bmc), "9.8.0", "{kind}");
    }
}

#[tokio::test]
async fn stores_reboots_first_and_reports_progress() {
    for kind in Personality::built_in_names() {
        let mut personality = Personality::built_in(kind).unwrap();
        personality.durations.bmc_restart = 5.0;
        let mut rig = RedfishRig::with_personality(personality);
        let arguments = json!({"settings": [
            update("bmc", "bmc-9.8.0.bin"),
            update("bios", "bios-9.9.1.bin"),
        ]});
        let calls = rig.record_step(InterfaceKind::Firmware, "update", arguments).await;
        let reboots: Vec<_> = calls.iter().filter(|call| call.has_reset()).collect();
        let were_due = reboots.iter().all(|call| call.had_stored_reboot());
        assert!(!reboots.is_empty() && were_due, "{kind}: {reboots:?}");
        let progress: Vec<_> =
            calls.iter().filter_map(|call| call.progress_text.as_deref()).collect();
        assert_eq!(progress.first(), Some(&"update 1 of 2 (bmc) started"), "{kind}");
        for text in ["update 2 of 2 (bios): rebooting the machine", "(bmc): its task is running"] {
            assert!(
                progress.iter().any(|progress| progress.contains(text)),
                "{kind}: {text}: {progress:?}"
            );
        }
    }
}

#[tokio::test]
async fn updates_from_an_image_without_component() {
    for kind in Personality::built_in_names() {
        let mut rig = RedfishRig::named(kind);
        rig.power(PowerTarget::On).await;
        let image = json!({"url": "http://images.example/bios-9.9.1.bin", "checksum": "abc"});
        let arguments = json!({"firmware_images": [image]});
        let ran = rig.run_step(InterfaceKind::Management, "update_firmware", arguments).await;
        ran.unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(version(&rig, ComponentKind::Bios), "9.9.1", "{kind}");
    }
}

#[tokio::test]
async fn uses_unresponsive_wait_of_the_node() {
    let mut personality = Personality::built_in("generic").unwrap();
    personality.durations.bmc_restart = 5.0;
    let mut rig = RedfishRig::with_personality(personality);
    let before = version(&rig, ComponentKind::Bmc);
    let mut call_counts = Vec::new();
    for wait in [json!(3600), json!("60")] {
        rig.driver_info.insert("firmware_update_unresponsive_bmc_wait".to_owned(), wait);
        // The version is already installed, so it does not show that the update is complete.
        let arguments = json!({"settings": [update("bmc", &format!("bmc-{before}.bin"))]});
        call_counts.push(rig.record_step(InterfaceKind::Firmware, "update", arguments).await.len());
    }
    assert!(call_counts[0] >= 3600 / 15 && call_counts[1] < 3600 / 15, "{call_counts:?}");
    rig.driver_info.insert("firmware_update_unresponsive_bmc_wait".to_owned(), json!("soon"));
    let arguments = json!({"settings": [update("bmc", "bmc-9.8.0.bin")]});
    let error = rig.run_step(InterfaceKind::Firmware, "update", arguments).await.unwrap_err();
    assert!(error.is_caller_error() && error.to_string().contains("unresponsive"), "{error}");
}

#[tokio::test]
async fn reports_a_bad_image_without_secrets() {
    let mut rig = RedfishRig::named("generic");
    let before = version(&rig, ComponentKind::Bios);
    let url = "https://user:secret@images.example/bios-bad-9.9.1.bin?token=secret";
    let arguments = json!({"settings": [{"component": "bios", "url": url}]});
    let error = rig.run_step(InterfaceKind::Firmware, "update", arguments).await.unwrap_err();
    let message = error.to_string();
    assert!(message.contains("update bios from https://images.example/bios-bad"), "{message}");
    assert!(message.contains("corrupt"), "{message}");
    assert!(!message.contains("secret"), "{message}");
    assert_eq!(version(&rig, ComponentKind::Bios), before);
}

#[tokio::test]
async fn times_out_if_the_task_is_unreadable() {
    let mut rig = RedfishRig::named("generic");
    rig.fault("drop path=/redfish/v1/TaskService");
    let arguments = json!({"settings": [update("bios", "bios-9.9.1.bin")]});
    let error = rig.run_step(InterfaceKind::Firmware, "update", arguments).await.unwrap_err();
    let message = error.to_string();
    assert!(message.contains("did not finish within 7200 seconds"), "{message}");
    assert!(message.contains("no response from the BMC"), "{message}");
}
