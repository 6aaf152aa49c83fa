// SPDX-License-Identifier: Apache-2.0
//! The fake management interface. Its settings are stored in `driver_internal_info`.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::{
    BaseInterface, BootDevice, BootDeviceSetting, BootMode, DriverError, DriverProperty,
    DriverTarget, Indicator, IndicatorComponent, IndicatorState, ManagementInterface, MediaDevice,
    MediaSlot, NodeChanges, Sensor,
};
use node_model::{Health, InterfaceKind, Mac};
use serde_json::{Map, Value, json};

use super::behaviour::driver_info_key;
use super::{FakeBehaviour, NAME, behaviour};

/// The fake management interface.
pub(crate) struct FakeManagement(pub(super) Arc<FakeBehaviour>);

/// The `driver_info` key with the reported health.
pub(super) const HEALTH: DriverProperty = (
    "fake_health",
    "The health the machine reports: 'OK', 'WARNING' or 'CRITICAL'. Optional; none is reported if \
     it is not given.",
);

/// The `driver_info` key with the reported vendor.
pub(super) const VENDOR: DriverProperty =
    ("fake_vendor", "The vendor the machine reports. Optional; none is reported if not given.");

const BOOT_DEVICE_KEY: &str = "fake_boot_device";
const INDICATORS_KEY: &str = "fake_indicators";
const LAST_NMI_KEY: &str = "fake_last_nmi";
const VIRTUAL_MEDIA_KEY: &str = "fake_virtual_media";

const BOOT_DEVICES: &[BootDevice] =
    &[BootDevice::Pxe, BootDevice::Disk, BootDevice::Cdrom, BootDevice::Bios, BootDevice::UefiHttp];

/// Component, name, whether it is read-only, and its valid states.
type FakeIndicator = (IndicatorComponent, &'static str, bool, &'static [IndicatorState]);

const FAKE_INDICATORS: &[FakeIndicator] = &[
    (IndicatorComponent::Chassis, "led-0", true, &[IndicatorState::Off, IndicatorState::On]),
    (
        IndicatorComponent::System,
        "led",
        false,
        &[IndicatorState::Blinking, IndicatorState::Off, IndicatorState::On],
    ),
];

#[async_trait]
impl BaseInterface for FakeManagement {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Management
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn properties(&self) -> &[DriverProperty] {
        behaviour::MANAGEMENT
    }

    async fn validate(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        health(target)?;
        vendor(target)?;
        self.0.validate(self.kind(), target.driver_info)
    }
}

impl FakeManagement {
    async fn begin_call(
        &self,
        target: &DriverTarget<'_>,
        operation: &str,
    ) -> Result<(), DriverError> {
        self.0.begin_call(InterfaceKind::Management, target, operation).await
    }
}

#[async_trait]
impl ManagementInterface for FakeManagement {
    fn supported_boot_devices(&self) -> &'static [BootDevice] {
        BOOT_DEVICES
    }

    async fn boot_device(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<BootDeviceSetting, DriverError> {
        self.begin_call(target, "boot_device").await?;
        let stored_object = stored_object(target, BOOT_DEVICE_KEY);
        let device = stored_object.get("device").and_then(Value::as_str);
        Ok(BootDeviceSetting {
            device: Some(device.and_then(|name| name.parse().ok()).unwrap_or(BootDevice::Pxe)),
            persistent: Some(
                stored_object.get("persistent").and_then(Value::as_bool).unwrap_or(false),
            ),
        })
    }

    async fn set_boot_device(
        &self,
        target: &DriverTarget<'_>,
        device: BootDevice,
        persistent: bool,
    ) -> Result<NodeChanges, DriverError> {
        if !BOOT_DEVICES.contains(&device) {
            let supported: Vec<_> = BOOT_DEVICES.iter().map(|device| device.as_str()).collect();
            let why = format!("'{device}' is not supported; use one of {}", supported.join(", "));
            return Err(DriverError::invalid("boot_device", why));
        }
        self.begin_call(target, "set_boot_device").await?;
        let setting = json!({"device": device.as_str(), "persistent": persistent});
        Ok(NodeChanges::internal_info(BOOT_DEVICE_KEY, setting))
    }

    fn supported_boot_modes(&self) -> &'static [BootMode] {
        BootMode::ALL
    }

    async fn boot_mode(&self, target: &DriverTarget<'_>) -> Result<BootMode, DriverError> {
        self.begin_call(target, "boot_mode").await?;
        Ok(boot_mode(target))
    }

    async fn set_boot_mode(
        &self,
        target: &DriverTarget<'_>,
        mode: BootMode,
    ) -> Result<NodeChanges, DriverError> {
        self.begin_call(target, "set_boot_mode").await?;
        if mode == BootMode::Bios && secure_boot(target) {
            return Err(DriverError::Failed {
                what: "set the boot mode to bios".to_owned(),
                why: "secure boot is enabled and requires uefi; disable it first".to_owned(),
            });
        }
        Ok(NodeChanges { boot_mode: Some(mode.as_str().to_owned()), ..NodeChanges::none() })
    }

    async fn secure_boot(&self, target: &DriverTarget<'_>) -> Result<bool, DriverError> {
        self.begin_call(target, "secure_boot").await?;
        Ok(secure_boot(target))
    }

    async fn set_secure_boot(
        &self,
        target: &DriverTarget<'_>,
        on: bool,
    ) -> Result<NodeChanges, DriverError> {
        self.begin_call(target, "set_secure_boot").await?;
        if on && boot_mode(target) == BootMode::Bios {
            return Err(DriverError::Failed {
                what: "enable secure boot".to_owned(),
                why: "the boot mode is bios; set it to uefi first".to_owned(),
            });
        }
        Ok(NodeChanges { secure_boot: Some(on), ..NodeChanges::none() })
    }

    async fn inject_nmi(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        self.begin_call(target, "inject_nmi").await?;
        Ok(NodeChanges::internal_info(LAST_NMI_KEY, target.now.to_string()))
    }

    async fn indicators(&self, target: &DriverTarget<'_>) -> Result<Vec<Indicator>, DriverError> {
        self.begin_call(target, "indicators").await?;
        let indicator = |(component, name, readonly, states): &FakeIndicator| Indicator {
            component: *component,
            name: (*name).to_owned(),
            readonly: *readonly,
            states,
        };
        Ok(FAKE_INDICATORS.iter().map(indicator).collect())
    }

    async fn indicator(
        &self,
        target: &DriverTarget<'_>,
        component: IndicatorComponent,
        name: &str,
    ) -> Result<IndicatorState, DriverError> {
        find_indicator(component, name)?;
        self.begin_call(target, "indicator").await?;
        let states = stored_object(target, INDICATORS_KEY);
        let states = states.get(&indicator_key(component, name)).and_then(Value::as_str);
        Ok(states.and_then(|state| state.parse().ok()).unwrap_or(IndicatorState::On))
    }

    async fn set_indicator(
        &self,
        target: &DriverTarget<'_>,
        component: IndicatorComponent,
        name: &str,
        state: IndicatorState,
    ) -> Result<NodeChanges, DriverError> {
        let (_, _, readonly, states) = find_indicator(component, name)?;
        if *readonly {
            return Err(DriverError::invalid(
                indicator_key(component, name),
                "this indicator cannot be set",
            ));
        }
        if !states.contains(&state) {
            let states: Vec<_> = states.iter().map(|state| state.as_str()).collect();
            let why = format!("'{state}' is not supported; use one of {}", states.join(", "));
            return Err(DriverError::invalid("state", why));
        }
        self.begin_call(target, "set_indicator").await?;
        let mut states = stored_object(target, INDICATORS_KEY);
        states.insert(indicator_key(component, name), Value::from(state.as_str()));
        Ok(NodeChanges::internal_info(INDICATORS_KEY, states))
    }

    async fn sensors(&self, target: &DriverTarget<'_>) -> Result<Vec<Sensor>, DriverError> {
        self.begin_call(target, "sensors").await?;
        Ok(super::sensors::read_sensors(target, health(target)?.unwrap_or(Health::Ok)))
    }

    async fn health(&self, target: &DriverTarget<'_>) -> Result<Option<Health>, DriverError> {
        self.begin_call(target, "health").await?;
        health(target)
    }

    async fn detect_vendor(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<Option<String>, DriverError> {
        self.begin_call(target, "detect_vendor").await?;
        Ok(vendor(target)?.map(str::to_owned))
    }

    async fn mac_addresses(&self, target: &DriverTarget<'_>) -> Result<Vec<Mac>, DriverError> {
        self.begin_call(target, "mac_addresses").await?;
        Ok(target.ports.iter().map(|port| port.address.clone()).collect())
    }

    fn has_virtual_media(&self) -> bool {
        true
    }

    async fn virtual_media(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<Vec<MediaSlot>, DriverError> {
        self.begin_call(target, "virtual_media").await?;
        let inserted = stored_object(target, VIRTUAL_MEDIA_KEY);
        let slot = |device: &MediaDevice| MediaSlot {
            device: *device,
            image_url: inserted.get(device.as_str()).and_then(Value::as_str).map(str::to_owned),
        };
        Ok(MediaDevice::ALL.iter().map(slot).collect())
    }

    async fn attach_virtual_media(
        &self,
        target: &DriverTarget<'_>,
        device: MediaDevice,
        image_url: &str,
    ) -> Result<NodeChanges, DriverError> {
        self.begin_call(target, "attach_virtual_media").await?;
        let mut inserted = stored_object(target, VIRTUAL_MEDIA_KEY);
        inserted.insert(device.as_str().to_owned(), Value::from(image_url));
        Ok(NodeChanges::internal_info(VIRTUAL_MEDIA_KEY, inserted))
    }

    async fn detach_virtual_media(
        &self,
        target: &DriverTarget<'_>,
        devices: &[MediaDevice],
    ) -> Result<NodeChanges, DriverError> {
        self.begin_call(target, "detach_virtual_media").await?;
        let mut inserted = stored_object(target, VIRTUAL_MEDIA_KEY);
        if devices.is_empty() {
            inserted.clear();
        }
        for device in devices {
            inserted.remove(device.as_str());
        }
        let inserted = if inserted.is_empty() { Value::Null } else { Value::Object(inserted) };
        Ok(NodeChanges::internal_info(VIRTUAL_MEDIA_KEY, inserted))
    }
}

fn stored_object(target: &DriverTarget<'_>, key: &str) -> Map<String, Value> {
    match target.node.driver_internal_info.get(key) {
        Some(Value::Object(map)) => map,
        Some(_) | None => Map::new(),
    }
}

/// Simulated machines start with UEFI and without secure boot.
fn boot_mode(target: &DriverTarget<'_>) -> BootMode {
    let mode = target.node.boot_mode.as_deref();
    mode.and_then(|mode| mode.parse().ok()).unwrap_or(BootMode::Uefi)
}

fn secure_boot(target: &DriverTarget<'_>) -> bool {
    target.node.secure_boot.unwrap_or(false)
}

fn find_indicator(
    component: IndicatorComponent,
    name: &str,
) -> Result<&'static FakeIndicator, DriverError> {
    let indicator =
        FAKE_INDICATORS.iter().find(|(of, known, ..)| *of == component && *known == name);
    indicator.ok_or_else(|| {
        let known: Vec<_> =
            FAKE_INDICATORS.iter().map(|(of, known, ..)| indicator_key(*of, known)).collect();
        let why = format!("there is no such indicator; valid ones are {}", known.join(", "));
        DriverError::invalid(indicator_key(component, name), why)
    })
}

fn indicator_key(component: IndicatorComponent, name: &str) -> String {
    format!("{name}@{component}")
}

fn health(target: &DriverTarget<'_>) -> Result<Option<Health>, DriverError> {
    let Some(value) = target.driver_info.get(HEALTH.0) else { return Ok(None) };
    let health = value.as_str().and_then(|text| text.parse().ok());
    health.map(Some).ok_or_else(|| {
        DriverError::invalid(driver_info_key(HEALTH.0), "use 'OK', 'WARNING' or 'CRITICAL'")
    })
}

fn vendor<'a>(target: &DriverTarget<'a>) -> Result<Option<&'a str>, DriverError> {
    match target.driver_info.get(VENDOR.0) {
        None => Ok(None),
        Some(Value::String(vendor)) => Ok(Some(vendor)),
        Some(_) => Err(DriverError::invalid(driver_info_key(VENDOR.0), "use a string")),
    }
}
