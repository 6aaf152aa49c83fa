// SPDX-License-Identifier: Apache-2.0
//! Firmware: versions, and updates that take effect at once, with a reboot, or with a BMC that goes
//! away for a while.

use fleet_sim::{ComponentKind, Personality};
use node_model::{InterfaceKind, PowerTarget};
use serde_json::{Value, json};

use crate::rig::Rig;
use crate::steps::Conductor;

fn update(component: &str, file: &str) -> Value {
    json!({"component": component, "url": format!("http://images.example/{file}")})
}

fn version(rig: &Rig, kind: ComponentKind) -> String {
    rig.machine().with(|machine, _| {
        let version = machine.version_of(kind).expect("there is such a component");
        version.to_owned()
    })
}

#[tokio::test]
async fn every_kind_of_machine_tells_its_versions() {
    for kind in Personality::names() {
        let rig = Rig::named(kind);
        let found = rig.driver.firmware().components(&rig.target()).await.unwrap().expect("some");
        for (name, component) in [("bios", ComponentKind::Bios), ("bmc", ComponentKind::Bmc)] {
            let found = found.iter().find(|found| found.component == name);
            let found = found.unwrap_or_else(|| panic!("{kind}: {name}"));
            assert_eq!(found.current_version, Some(version(&rig, component)), "{kind}");
        }
    }
}

#[tokio::test]
async fn a_bios_is_new_after_the_reboot() {
    for kind in Personality::names() {
        let mut rig = Rig::named(kind);
        rig.power(PowerTarget::On).await;
        let asked = json!({"settings": [update("bios", "bios-9.9.1.bin")]});
        let changes = rig.run_step(InterfaceKind::Firmware, "update", asked).await;
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
async fn a_bmc_may_go_away_while_it_updates_itself() {
    for kind in Personality::names() {
        let mut personality = Personality::named(kind).unwrap();
        // Long enough to be missed, and short enough for a test.
        personality.pace.bmc_restart = 5.0;
        let mut rig = Rig::of(personality);
        let asked = json!({"settings": [
            update("bmc", "bmc-9.8.0.bin"),
            update("bios", "bios-9.9.1.bin"),
        ]});
        let changes = rig.run_step(InterfaceKind::Firmware, "update", asked).await;
        changes.unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(version(&rig, ComponentKind::Bmc), "9.8.0", "{kind}");
        assert_eq!(version(&rig, ComponentKind::Bios), "9.9.1", "{kind}");
    }
}

#[tokio::test]
async fn a_network_card_is_named_as_it_is_listed() {
    let mut rig = Rig::named("generic");
    let found = rig.driver.firmware().components(&rig.target()).await.unwrap().expect("some");
    let card = found.iter().find(|found| found.component.starts_with("nic:"));
    let card = card.expect("a network card").component.clone();
    let asked = json!({"settings": [update(&card, "nic-7.7.bin")]});
    rig.run_step(InterfaceKind::Firmware, "update", asked).await.unwrap();
    assert_eq!(version(&rig, ComponentKind::Nic), "7.7");
    let asked = json!({"settings": [update("nic:none", "nic-7.8.bin")]});
    let error = rig.run_step(InterfaceKind::Firmware, "update", asked).await.unwrap_err();
    assert!(error.to_string().contains(&card), "{error}");
}

#[tokio::test]
async fn a_conductor_that_dies_after_every_call_comes_to_the_same_end() {
    for kind in Personality::names() {
        let mut personality = Personality::named(kind).unwrap();
        personality.pace.bmc_restart = 5.0;
        let mut rig = Rig::of(personality);
        let asked = json!({"settings": [
            update("bios", "bios-9.9.1.bin"),
            update("bmc", "bmc-9.8.0.bin"),
        ]});
        let ran = rig.run_step_by(Conductor::Dying, InterfaceKind::Firmware, "update", asked).await;
        ran.unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(version(&rig, ComponentKind::Bios), "9.9.1", "{kind}");
        assert_eq!(version(&rig, ComponentKind::Bmc), "9.8.0", "{kind}");
    }
}

#[tokio::test]
async fn reboots_are_written_down_before_and_progress_can_be_read() {
    for kind in Personality::names() {
        let mut personality = Personality::named(kind).unwrap();
        personality.pace.bmc_restart = 5.0;
        let mut rig = Rig::of(personality);
        let asked = json!({"settings": [
            update("bmc", "bmc-9.8.0.bin"),
            update("bios", "bios-9.9.1.bin"),
        ]});
        let calls = rig.watch_step(InterfaceKind::Firmware, "update", asked).await;
        let reboots: Vec<_> = calls.iter().filter(|call| call.switched()).collect();
        let were_due = reboots.iter().all(|call| call.was_due());
        assert!(!reboots.is_empty() && were_due, "{kind}: {reboots:?}");
        let told: Vec<_> = calls.iter().filter_map(|call| call.after.get_str("progress")).collect();
        assert_eq!(told.first().map(String::as_str), Some("update 1 of 2 (bmc) begins"), "{kind}");
        for words in ["update 2 of 2 (bios): the machine is rebooted", "(bmc): its task goes on"] {
            assert!(told.iter().any(|told| told.contains(words)), "{kind}: {words}: {told:?}");
        }
    }
}

#[tokio::test]
async fn an_image_may_know_by_itself_what_it_is_for() {
    for kind in Personality::names() {
        let mut rig = Rig::named(kind);
        rig.power(PowerTarget::On).await;
        let image = json!({"url": "http://images.example/bios-9.9.1.bin", "checksum": "abc"});
        let asked = json!({"firmware_images": [image]});
        let ran = rig.run_step(InterfaceKind::Management, "update_firmware", asked).await;
        ran.unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(version(&rig, ComponentKind::Bios), "9.9.1", "{kind}");
    }
}

#[tokio::test]
async fn a_bmc_gets_the_time_its_node_says_it_needs() {
    let mut personality = Personality::named("generic").unwrap();
    personality.pace.bmc_restart = 5.0;
    let mut rig = Rig::of(personality);
    let before = version(&rig, ComponentKind::Bmc);
    let mut looks = Vec::new();
    for wait in [json!(3600), json!("60")] {
        rig.driver_info.insert("firmware_update_unresponsive_bmc_wait".to_owned(), wait);
        // The version it has already: that it is there shows nothing.
        let asked = json!({"settings": [update("bmc", &format!("bmc-{before}.bin"))]});
        looks.push(rig.watch_step(InterfaceKind::Firmware, "update", asked).await.len());
    }
    assert!(looks[0] >= 3600 / 15 && looks[1] < 3600 / 15, "{looks:?}");
    rig.driver_info.insert("firmware_update_unresponsive_bmc_wait".to_owned(), json!("soon"));
    let asked = json!({"settings": [update("bmc", "bmc-9.8.0.bin")]});
    let error = rig.run_step(InterfaceKind::Firmware, "update", asked).await.unwrap_err();
    assert!(error.is_callers_fault() && error.to_string().contains("unresponsive"), "{error}");
}

#[tokio::test]
async fn a_bad_image_is_told_without_its_password() {
    let mut rig = Rig::named("generic");
    let before = version(&rig, ComponentKind::Bios);
    let url = "https://user:secret@images.example/bios-bad-9.9.1.bin?token=secret";
    let asked = json!({"settings": [{"component": "bios", "url": url}]});
    let error = rig.run_step(InterfaceKind::Firmware, "update", asked).await.unwrap_err();
    let message = error.to_string();
    assert!(message.contains("update bios from https://images.example/bios-bad"), "{message}");
    assert!(message.contains("damaged"), "{message}");
    assert!(!message.contains("secret"), "{message}");
    assert_eq!(version(&rig, ComponentKind::Bios), before);
}

#[tokio::test]
async fn an_update_whose_end_is_never_seen_is_given_up() {
    let mut rig = Rig::named("generic");
    rig.fault("drop path=/redfish/v1/TaskService");
    let asked = json!({"settings": [update("bios", "bios-9.9.1.bin")]});
    let error = rig.run_step(InterfaceKind::Firmware, "update", asked).await.unwrap_err();
    let message = error.to_string();
    assert!(message.contains("not done after 7200 seconds"), "{message}");
    assert!(message.contains("no answer from the BMC"), "{message}");
}
