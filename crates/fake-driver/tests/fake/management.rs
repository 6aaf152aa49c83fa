// SPDX-License-Identifier: Apache-2.0
//! The fake management interface, and that its state is stored.

use drivers::{
    BootDevice, BootDeviceSetting, BootMode, IndicatorComponent, IndicatorState, MediaDevice,
    SensorKind, SensorStatus,
};
use fake_driver::FakeMachine;
use node_model::{Health, InterfaceKind, PowerState, Timestamp};
use serde_json::json;

use crate::machine;

#[tokio::test]
async fn boot_device_is_stored() {
    let mut machine = machine::fake(json!({}));
    let driver = machine.driver.clone();
    let management = driver.management();
    let read = management.boot_device(&machine.target()).await.unwrap();
    assert_eq!(read, BootDeviceSetting { device: Some(BootDevice::Pxe), persistent: Some(false) });
    for device in management.supported_boot_devices() {
        let changes = management.set_boot_device(&machine.target(), *device, true).await.unwrap();
        machine.record(&changes);
        machine.restart();
        let read = machine.driver.management().boot_device(&machine.target()).await.unwrap();
        assert_eq!(read, BootDeviceSetting { device: Some(*device), persistent: Some(true) });
    }
    let target = machine.target();
    let error = management.set_boot_device(&target, BootDevice::Wanboot, false).await.unwrap_err();
    assert!(error.is_caller_error());
    assert_eq!(
        error.to_string(),
        "'boot_device' is invalid: 'wanboot' is not supported; use one of pxe, disk, cdrom, bios, uefihttp"
    );
}

#[tokio::test]
async fn secure_boot_requires_uefi() {
    let mut machine = machine::fake(json!({}));
    let driver = machine.driver.clone();
    let management = driver.management();
    assert_eq!(management.boot_mode(&machine.target()).await.unwrap(), BootMode::Uefi);
    assert!(!management.secure_boot(&machine.target()).await.unwrap());

    let changes = management.set_secure_boot(&machine.target(), true).await.unwrap();
    machine.record(&changes);
    assert_eq!(machine.node.secure_boot, Some(true));
    assert!(management.secure_boot(&machine.target()).await.unwrap());
    let rejected = management.set_boot_mode(&machine.target(), BootMode::Bios).await;
    assert!(rejected.unwrap_err().to_string().contains("secure boot is enabled"));

    let changes = management.set_secure_boot(&machine.target(), false).await.unwrap();
    machine.record(&changes);
    let changes = management.set_boot_mode(&machine.target(), BootMode::Bios).await.unwrap();
    machine.record(&changes);
    assert_eq!(machine.node.boot_mode.as_deref(), Some("bios"));
    assert_eq!(management.boot_mode(&machine.target()).await.unwrap(), BootMode::Bios);
    let rejected = management.set_secure_boot(&machine.target(), true).await;
    assert!(rejected.unwrap_err().to_string().contains("uefi"));
}

#[tokio::test]
async fn indicators_are_stored_and_validated() {
    let mut machine = machine::fake(json!({}));
    let driver = machine.driver.clone();
    let management = driver.management();
    let listed = management.indicators(&machine.target()).await.unwrap();
    let listed: Vec<_> =
        listed.iter().map(|light| (light.component, light.name.as_str(), light.readonly)).collect();
    let (chassis, system) = (IndicatorComponent::Chassis, IndicatorComponent::System);
    assert_eq!(listed, [(chassis, "led-0", true), (system, "led", false)]);

    let state = IndicatorState::Blinking;
    assert_eq!(
        management.indicator(&machine.target(), system, "led").await.unwrap(),
        IndicatorState::On
    );
    let changes = management.set_indicator(&machine.target(), system, "led", state).await.unwrap();
    machine.record(&changes);
    assert_eq!(management.indicator(&machine.target(), system, "led").await.unwrap(), state);
    assert_eq!(
        management.indicator(&machine.target(), chassis, "led-0").await.unwrap(),
        IndicatorState::On
    );

    let target = machine.target();
    for (component, name, state) in [
        (chassis, "led-0", IndicatorState::Off),
        (system, "led", IndicatorState::Unknown),
        (system, "lamp", IndicatorState::Off),
        (IndicatorComponent::Nic, "led", IndicatorState::Off),
    ] {
        let error = management.set_indicator(&target, component, name, state).await.unwrap_err();
        assert!(error.is_caller_error(), "{error}");
    }
}

#[tokio::test]
async fn nmi_time_is_stored() {
    let mut machine = machine::fake(json!({}));
    let changes = machine.driver.management().inject_nmi(&machine.target()).await.unwrap();
    machine.record(&changes);
    let time = machine.node.driver_internal_info.get_str("fake_last_nmi");
    assert_eq!(time, Some(machine.now.to_string()));
}

#[tokio::test]
async fn virtual_media_is_attached_and_detached() {
    let mut machine = machine::fake(json!({}));
    let driver = machine.driver.clone();
    let management = driver.management();
    for (device, url) in
        [(MediaDevice::Cdrom, "http://h/a.iso"), (MediaDevice::Floppy, "http://h/b.img")]
    {
        let changes =
            management.attach_virtual_media(&machine.target(), device, url).await.unwrap();
        machine.record(&changes);
    }
    let inserted = async |machine: &FakeMachine| {
        let slots = management.virtual_media(&machine.target()).await.unwrap();
        assert_eq!(slots.len(), MediaDevice::ALL.len());
        let full = slots.into_iter().filter_map(|slot| Some((slot.device, slot.image_url?)));
        full.collect::<Vec<_>>()
    };
    let both = vec![
        (MediaDevice::Cdrom, "http://h/a.iso".to_owned()),
        (MediaDevice::Floppy, "http://h/b.img".to_owned()),
    ];
    assert_eq!(inserted(&machine).await, both);

    let changes =
        management.detach_virtual_media(&machine.target(), &[MediaDevice::Cdrom]).await.unwrap();
    machine.record(&changes);
    assert_eq!(inserted(&machine).await, both[1..]);
    for _ in 0..2 {
        let changes = management.detach_virtual_media(&machine.target(), &[]).await.unwrap();
        machine.record(&changes);
        assert_eq!(inserted(&machine).await, []);
    }
    assert!(machine.node.driver_internal_info.is_empty());
}

#[tokio::test]
async fn sensors_are_plausible_and_vary() {
    let mut machine = machine::fake(json!({}));
    let driver = machine.driver.clone();
    let management = driver.management();
    let off = management.sensors(&machine.target()).await.unwrap();
    let measured: Vec<_> = off.iter().filter(|sensor| sensor.reading.is_some()).collect();
    assert_eq!(measured.len(), 1, "only the inlet is measured while off: {measured:?}");
    assert!(off.iter().any(|sensor| sensor.status == SensorStatus::Absent));

    machine.node.power_state = Some(PowerState::On);
    let before = management.sensors(&machine.target()).await.unwrap();
    for sensor in &before {
        let reading = sensor.reading.expect("measured while on");
        let plausible = match sensor.kind {
            SensorKind::Temperature => 15.0..80.0,
            SensorKind::Fan => 4_000.0..8_000.0,
            SensorKind::Power => 100.0..300.0,
            SensorKind::Drive => 90.0..100.0,
        };
        assert!(plausible.contains(&reading), "{sensor:?}");
        assert_eq!(sensor.status, SensorStatus::Enabled(Health::Ok));
    }
    assert_eq!(management.sensors(&machine.target()).await.unwrap(), before);
    machine.now = Timestamp(machine.now.0 + 100 * 1_000_000);
    assert_ne!(management.sensors(&machine.target()).await.unwrap(), before);
}

#[tokio::test]
async fn driver_info_sets_health_and_vendor() {
    for (driver_info, health, vendor) in [
        (json!({}), None, None),
        (json!({"fake_health": "OK"}), Some(Health::Ok), None),
        (
            json!({"fake_health": "CRITICAL", "fake_vendor": "acme"}),
            Some(Health::Critical),
            Some("acme"),
        ),
    ] {
        let machine = machine::fake(driver_info);
        let management = machine.driver.management();
        assert_eq!(management.health(&machine.target()).await.unwrap(), health);
        assert_eq!(management.detect_vendor(&machine.target()).await.unwrap().as_deref(), vendor);
    }
    for driver_info in [json!({"fake_health": "fine"}), json!({"fake_vendor": 3})] {
        let machine = machine::fake(driver_info);
        assert!(
            machine
                .driver
                .interface(InterfaceKind::Management)
                .validate(&machine.target())
                .await
                .is_err()
        );
    }
}

#[tokio::test]
async fn mac_addresses_are_from_ports() {
    let mut machine = machine::fake(json!({}));
    machine.add_port("52:54:00:aa:bb:01");
    let addresses = machine.driver.management().mac_addresses(&machine.target()).await.unwrap();
    assert_eq!(addresses.iter().map(|mac| mac.as_str()).collect::<Vec<_>>(), ["52:54:00:aa:bb:01"]);
}

#[tokio::test]
async fn noop_management_supports_two_boot_devices_only() {
    let machine = machine::with_interfaces(json!({}), &[(InterfaceKind::Management, "noop")]);
    let management = machine.driver.management();
    let target = machine.target();
    assert!(management.set_boot_device(&target, BootDevice::Disk, true).await.unwrap().is_empty());
    assert!(management.set_boot_device(&target, BootDevice::Cdrom, true).await.is_err());
    let error = management.boot_mode(&target).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the management interface 'noop' cannot read the boot mode; set management_interface to one that can"
    );
    assert!(management.virtual_media(&target).await.is_err());
}
