// SPDX-License-Identifier: Apache-2.0
//! BIOS settings, firmware and logical disks of fake hardware.

use fake_driver::FakeMachine;
use node_model::{ActionProgress, InterfaceKind, StepFlow, Timestamp};
use serde_json::{Value, json};

use crate::machine::{self, object};

const CLEAN: StepFlow = StepFlow::Clean;

async fn bios_value(machine: &FakeMachine, name: &str) -> String {
    let settings = machine.driver.bios().settings(&machine.target()).await.expect("readable");
    let settings = settings.expect("fake hardware has settings");
    let setting = settings.into_iter().find(|setting| setting.name == name).expect("a setting");
    setting.value.expect("a value")
}

#[tokio::test]
async fn bios_settings_are_applied_and_reset() {
    let mut machine = machine::fake(json!({}));
    let bios = InterfaceKind::Bios;
    assert_eq!(bios_value(&machine, "SysProfile").await, "Balanced");
    let settings = json!({"settings": [
        {"name": "SysProfile", "value": "Performance"}, {"name": "PostDelaySeconds", "value": 30},
    ]});
    let outcome = machine.step(bios, CLEAN, "apply_configuration", settings).await.unwrap();
    assert!(outcome.is_done());
    let reported = outcome.changes.bios_settings.expect("the settings are reported");
    assert!(reported.iter().any(|setting| setting.value.as_deref() == Some("Performance")));
    machine.restart();
    assert_eq!(bios_value(&machine, "SysProfile").await, "Performance");
    assert_eq!(bios_value(&machine, "PostDelaySeconds").await, "30");
    // Other settings stay unchanged.
    let settings = json!({"settings": [{"name": "NumLock", "value": "Off"}]});
    machine.finish_step(bios, StepFlow::Service, "apply_configuration", settings).await;
    assert_eq!(bios_value(&machine, "SysProfile").await, "Performance");

    machine.finish_step(bios, CLEAN, "factory_reset", json!({})).await;
    assert_eq!(bios_value(&machine, "SysProfile").await, "Balanced");
    assert_eq!(bios_value(&machine, "NumLock").await, "On");
    assert!(machine.node.driver_internal_info.is_empty());
}

#[tokio::test]
async fn invalid_bios_settings_are_rejected_and_named() {
    let mut machine = machine::fake(json!({}));
    for (arguments, named) in [
        (json!({}), "settings"),
        (json!({"settings": [{"name": "SysProfile"}]}), "value"),
        (json!({"settings": [{"name": "Colour", "value": "red"}]}), "Colour"),
        (json!({"settings": [{"name": "SysProfile", "value": "Fast"}]}), "Balanced, Performance"),
        (json!({"settings": [{"name": "PostDelaySeconds", "value": "61"}]}), "from 0 to 60"),
        (json!({"settings": [{"name": "SystemBiosVersion", "value": "2"}]}), "cannot be changed"),
        (json!({"settings": [{"name": "AssetTag", "value": "x".repeat(64)}]}), "63"),
    ] {
        let step =
            machine.step(InterfaceKind::Bios, CLEAN, "apply_configuration", arguments.clone());
        let error = step.await.unwrap_err();
        assert!(error.to_string().contains(named), "{arguments}: {error}");
        assert!(error.is_caller_error());
    }
    assert!(machine.node.driver_internal_info.is_empty());
}

#[tokio::test]
async fn every_bios_setting_has_registry_entry() {
    let machine = machine::fake(json!({}));
    for setting in machine.driver.bios().settings(&machine.target()).await.unwrap().unwrap() {
        assert!(setting.registry.get("attribute_type").is_some(), "{setting:?}");
        assert!(setting.registry.get("read_only").is_some(), "{setting:?}");
    }
}

#[tokio::test]
async fn firmware_update_changes_version() {
    let mut machine = machine::fake(json!({}));
    let update = json!({"settings": [{"component": "bmc", "url": "https://h/bmc-2.5.1.bin"}]});
    machine.finish_step(InterfaceKind::Firmware, CLEAN, "update", update).await;
    machine.restart();
    let components =
        machine.driver.firmware().components(&machine.target()).await.unwrap().unwrap();
    let versions: Vec<_> = components
        .iter()
        .map(|part| {
            (
                part.component.as_str(),
                part.current_version.as_deref(),
                part.last_version_flashed.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        versions,
        [
            ("bios", Some("1.0.0"), None),
            ("bmc", Some("2.5.1"), Some("2.5.1")),
            ("nic:NIC1", Some("1.0.0"), None),
        ]
    );
    for arguments in [
        json!({}),
        json!({"settings": [{"component": "bmc"}]}),
        json!({"settings": [{"component": "gpu", "url": "http://h/1"}]}),
        json!({"settings": [{"component": "bmc", "url": "http://h/1", "wait": "long"}]}),
    ] {
        let step = machine.step(InterfaceKind::Firmware, CLEAN, "update", arguments);
        assert!(step.await.unwrap_err().is_caller_error());
    }
}

#[tokio::test]
async fn firmware_update_ends_after_wait() {
    let mut machine = machine::fake(json!({}));
    let update =
        json!({"settings": [{"component": "bios", "url": "http://h/bios-3.bin", "wait": 90}]});
    let ends_at = Timestamp(machine.now.0 + 90 * 1_000_000);
    for seconds in [0, 89] {
        let outcome =
            machine.step(InterfaceKind::Firmware, CLEAN, "update", update.clone()).await.unwrap();
        assert!(
            outcome.progress == ActionProgress::PollAt(ends_at),
            "after {seconds} seconds: {outcome:?}"
        );
        machine.now = Timestamp(ends_at.0 - 1_000_000);
    }
    machine.now = ends_at;
    let done = machine.step(InterfaceKind::Firmware, CLEAN, "update", update).await.unwrap();
    assert!(done.is_done());
}

#[tokio::test]
async fn logical_disks_are_created_and_deleted() {
    let mut machine = machine::fake(json!({}));
    machine.node.properties.set("capabilities", "boot_mode:uefi,raid_level:0");
    let raid = InterfaceKind::Raid;
    let missing = machine.step(raid, CLEAN, "create_configuration", json!({})).await.unwrap_err();
    assert!(missing.to_string().contains("target_raid_config"), "{missing}");

    let config = json!({"logical_disks": [
        {"raid_level": "1", "size_gb": 100, "is_root_volume": true, "volume_name": "root"},
        {"raid_level": "5", "size_gb": "MAX"},
    ]});
    machine.node.target_raid_config = object(config).into();
    // Twice, because a restart of the process may repeat the step.
    for _ in 0..2 {
        machine.finish_step(raid, CLEAN, "create_configuration", json!({})).await;
        let created = machine.node.raid_config.parse();
        let disks = created["logical_disks"].as_array().expect("a list");
        let sizes: Vec<_> = disks.iter().map(|disk| disk["size_gb"].clone()).collect();
        assert_eq!(sizes, [json!(100), json!(960)]);
        assert_eq!(created["last_updated"], machine.now.to_string());
        let properties = machine.node.properties.parse();
        assert_eq!(properties["local_gb"], 100);
        assert_eq!(properties["capabilities"], "boot_mode:uefi,raid_level:1");
        assert_eq!(properties["root_device"], disks[0]["root_device_hint"]);
    }

    machine.finish_step(raid, StepFlow::Service, "delete_configuration", json!({})).await;
    assert!(machine.node.raid_config.is_empty());
    assert_eq!(machine.node.properties.get("root_device"), None);
}

#[tokio::test]
async fn arguments_select_disks_to_create() {
    let config = json!({"logical_disks": [
        {"raid_level": "1", "size_gb": 100, "is_root_volume": true},
        {"raid_level": "5", "size_gb": 50},
    ]});
    for (flags, sizes) in [
        (json!({"create_root_volume": false}), vec![50]),
        (json!({"create_nonroot_volumes": false}), vec![100]),
        (json!({}), vec![100, 50]),
    ] {
        let mut machine = machine::fake(json!({}));
        let mut arguments = object(flags);
        arguments.insert("raid_config".to_owned(), config.clone());
        let (raid, deploy) = (InterfaceKind::Raid, StepFlow::Deploy);
        machine.finish_step(raid, deploy, "apply_configuration", arguments.into()).await;
        let created = machine.node.raid_config.parse();
        let created = created["logical_disks"].as_array().expect("a list");
        let created: Vec<_> = created.iter().filter_map(|disk| disk["size_gb"].as_u64()).collect();
        assert_eq!(created, sizes);
    }
}

#[tokio::test]
async fn no_interfaces_read_nothing_and_reject_calls() {
    let mut machine = machine::with_interfaces(
        json!({}),
        &[
            (InterfaceKind::Bios, "no-bios"),
            (InterfaceKind::Firmware, "no-firmware"),
            (InterfaceKind::Raid, "no-raid"),
        ],
    );
    assert_eq!(machine.driver.bios().settings(&machine.target()).await.unwrap(), None);
    assert_eq!(machine.driver.firmware().components(&machine.target()).await.unwrap(), None);
    assert_eq!(machine.driver.raid().logical_disk_properties(), None);
    let config = object(json!({"logical_disks": [{"raid_level": "1", "size_gb": 1}]}));
    assert!(machine.driver.raid().validate_config(&machine.target(), &config).await.is_err());
    for (kind, step) in [
        (InterfaceKind::Bios, "factory_reset"),
        (InterfaceKind::Firmware, "update"),
        (InterfaceKind::Raid, "create_configuration"),
    ] {
        assert!(machine.driver.interface(kind).validate(&machine.target()).await.is_err());
        assert!(machine.driver.interface(kind).steps(CLEAN).is_empty());
        let error =
            machine.step(kind, CLEAN, step, Value::Object(Default::default())).await.unwrap_err();
        assert!(error.to_string().contains(step), "{error}");
    }
}
