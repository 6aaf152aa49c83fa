// SPDX-License-Identifier: Apache-2.0
//! The BMC of a simulated machine. What it is set to is remembered in `driver_internal_info`.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::{Health, InterfaceKind, Mac};
use serde_json::{Map, Value, json};

use super::behaviour::in_driver_info;
use super::{FakeBehaviour, NAME, behaviour};
use crate::{
    BootDevice, BootDeviceSetting, BootMode, Error, Indicator, IndicatorComponent, IndicatorState,
    Interface, Management, MediaDevice, MediaSlot, NodeChanges, Property, Sensor, Target,
};

/// The fake management interface.
pub(crate) struct FakeManagement(pub(super) Arc<FakeBehaviour>);

/// The `driver_info` key that says how the machine feels.
pub(super) const HEALTH: Property = (
    "fake_health",
    "The health the machine reports: 'OK', 'WARNING' or 'CRITICAL'. Optional; none is reported if \
     it is not given.",
);

/// The `driver_info` key that says who made the machine.
pub(super) const VENDOR: Property =
    ("fake_vendor", "The vendor the machine reports. Optional; none is reported if not given.");

const BOOT_DEVICE: &str = "fake_boot_device";
const INDICATORS: &str = "fake_indicators";
const LAST_NMI: &str = "fake_last_nmi";
const VIRTUAL_MEDIA: &str = "fake_virtual_media";

const BOOT_DEVICES: &[BootDevice] =
    &[BootDevice::Pxe, BootDevice::Disk, BootDevice::Cdrom, BootDevice::Bios, BootDevice::UefiHttp];

/// Component, name, whether it can only be looked at, and what it can show.
type Light = (IndicatorComponent, &'static str, bool, &'static [IndicatorState]);

const LIGHTS: &[Light] = &[
    (IndicatorComponent::Chassis, "led-0", true, &[IndicatorState::Off, IndicatorState::On]),
    (
        IndicatorComponent::System,
        "led",
        false,
        &[IndicatorState::Blinking, IndicatorState::Off, IndicatorState::On],
    ),
];

#[async_trait]
impl Interface for FakeManagement {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Management
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn properties(&self) -> &[Property] {
        behaviour::MANAGEMENT
    }

    async fn validate(&self, target: &Target<'_>) -> Result<(), Error> {
        health(target)?;
        vendor(target)?;
        self.0.validate(self.kind(), target.driver_info)
    }
}

impl FakeManagement {
    async fn act(&self, target: &Target<'_>, operation: &str) -> Result<(), Error> {
        self.0.act(InterfaceKind::Management, target, operation).await
    }
}

#[async_trait]
impl Management for FakeManagement {
    fn supported_boot_devices(&self) -> &'static [BootDevice] {
        BOOT_DEVICES
    }

    async fn boot_device(&self, target: &Target<'_>) -> Result<BootDeviceSetting, Error> {
        self.act(target, "boot_device").await?;
        let remembered = remembered(target, BOOT_DEVICE);
        let device = remembered.get("device").and_then(Value::as_str);
        Ok(BootDeviceSetting {
            device: Some(device.and_then(|name| name.parse().ok()).unwrap_or(BootDevice::Pxe)),
            persistent: Some(
                remembered.get("persistent").and_then(Value::as_bool).unwrap_or(false),
            ),
        })
    }

    async fn set_boot_device(
        &self,
        target: &Target<'_>,
        device: BootDevice,
        persistent: bool,
    ) -> Result<NodeChanges, Error> {
        if !BOOT_DEVICES.contains(&device) {
            let supported: Vec<_> = BOOT_DEVICES.iter().map(|device| device.as_str()).collect();
            let why = format!("'{device}' is not supported; use one of {}", supported.join(", "));
            return Err(Error::invalid("boot_device", why));
        }
        self.act(target, "set_boot_device").await?;
        let setting = json!({"device": device.as_str(), "persistent": persistent});
        Ok(NodeChanges::remember(BOOT_DEVICE, setting))
    }

    fn supported_boot_modes(&self) -> &'static [BootMode] {
        BootMode::ALL
    }

    async fn boot_mode(&self, target: &Target<'_>) -> Result<BootMode, Error> {
        self.act(target, "boot_mode").await?;
        Ok(boot_mode(target))
    }

    async fn set_boot_mode(
        &self,
        target: &Target<'_>,
        mode: BootMode,
    ) -> Result<NodeChanges, Error> {
        self.act(target, "set_boot_mode").await?;
        if mode == BootMode::Bios && secure_boot(target) {
            return Err(Error::Failed {
                what: "set the boot mode to bios".to_owned(),
                why: "secure boot is on and needs uefi; switch it off first".to_owned(),
            });
        }
        Ok(NodeChanges { boot_mode: Some(mode.as_str().to_owned()), ..NodeChanges::none() })
    }

    async fn secure_boot(&self, target: &Target<'_>) -> Result<bool, Error> {
        self.act(target, "secure_boot").await?;
        Ok(secure_boot(target))
    }

    async fn set_secure_boot(&self, target: &Target<'_>, on: bool) -> Result<NodeChanges, Error> {
        self.act(target, "set_secure_boot").await?;
        if on && boot_mode(target) == BootMode::Bios {
            return Err(Error::Failed {
                what: "switch secure boot on".to_owned(),
                why: "the boot mode is bios; set it to uefi first".to_owned(),
            });
        }
        Ok(NodeChanges { secure_boot: Some(on), ..NodeChanges::none() })
    }

    async fn inject_nmi(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.act(target, "inject_nmi").await?;
        Ok(NodeChanges::remember(LAST_NMI, target.now.to_string()))
    }

    async fn indicators(&self, target: &Target<'_>) -> Result<Vec<Indicator>, Error> {
        self.act(target, "indicators").await?;
        let indicator = |(component, name, readonly, states): &Light| Indicator {
            component: *component,
            name: (*name).to_owned(),
            readonly: *readonly,
            states,
        };
        Ok(LIGHTS.iter().map(indicator).collect())
    }

    async fn indicator(
        &self,
        target: &Target<'_>,
        component: IndicatorComponent,
        name: &str,
    ) -> Result<IndicatorState, Error> {
        find_light(component, name)?;
        self.act(target, "indicator").await?;
        let shown = remembered(target, INDICATORS);
        let shown = shown.get(&light_key(component, name)).and_then(Value::as_str);
        Ok(shown.and_then(|state| state.parse().ok()).unwrap_or(IndicatorState::On))
    }

    async fn set_indicator(
        &self,
        target: &Target<'_>,
        component: IndicatorComponent,
        name: &str,
        state: IndicatorState,
    ) -> Result<NodeChanges, Error> {
        let (_, _, readonly, states) = find_light(component, name)?;
        if *readonly {
            return Err(Error::invalid(light_key(component, name), "this indicator cannot be set"));
        }
        if !states.contains(&state) {
            let states: Vec<_> = states.iter().map(|state| state.as_str()).collect();
            let why = format!("'{state}' is not supported; use one of {}", states.join(", "));
            return Err(Error::invalid("state", why));
        }
        self.act(target, "set_indicator").await?;
        let mut shown = remembered(target, INDICATORS);
        shown.insert(light_key(component, name), Value::from(state.as_str()));
        Ok(NodeChanges::remember(INDICATORS, shown))
    }

    async fn sensors(&self, target: &Target<'_>) -> Result<Vec<Sensor>, Error> {
        self.act(target, "sensors").await?;
        Ok(super::sensors::read(target, health(target)?.unwrap_or(Health::Ok)))
    }

    async fn health(&self, target: &Target<'_>) -> Result<Option<Health>, Error> {
        self.act(target, "health").await?;
        health(target)
    }

    async fn detect_vendor(&self, target: &Target<'_>) -> Result<Option<String>, Error> {
        self.act(target, "detect_vendor").await?;
        Ok(vendor(target)?.map(str::to_owned))
    }

    async fn mac_addresses(&self, target: &Target<'_>) -> Result<Vec<Mac>, Error> {
        self.act(target, "mac_addresses").await?;
        Ok(target.ports.iter().map(|port| port.address.clone()).collect())
    }

    async fn virtual_media(&self, target: &Target<'_>) -> Result<Vec<MediaSlot>, Error> {
        self.act(target, "virtual_media").await?;
        let inserted = remembered(target, VIRTUAL_MEDIA);
        let slot = |device: &MediaDevice| MediaSlot {
            device: *device,
            image_url: inserted.get(device.as_str()).and_then(Value::as_str).map(str::to_owned),
        };
        Ok(MediaDevice::ALL.iter().map(slot).collect())
    }

    async fn attach_virtual_media(
        &self,
        target: &Target<'_>,
        device: MediaDevice,
        image_url: &str,
    ) -> Result<NodeChanges, Error> {
        self.act(target, "attach_virtual_media").await?;
        let mut inserted = remembered(target, VIRTUAL_MEDIA);
        inserted.insert(device.as_str().to_owned(), Value::from(image_url));
        Ok(NodeChanges::remember(VIRTUAL_MEDIA, inserted))
    }

    async fn detach_virtual_media(
        &self,
        target: &Target<'_>,
        devices: &[MediaDevice],
    ) -> Result<NodeChanges, Error> {
        self.act(target, "detach_virtual_media").await?;
        let mut inserted = remembered(target, VIRTUAL_MEDIA);
        if devices.is_empty() {
            inserted.clear();
        }
        for device in devices {
            inserted.remove(device.as_str());
        }
        let inserted = if inserted.is_empty() { Value::Null } else { Value::Object(inserted) };
        Ok(NodeChanges::remember(VIRTUAL_MEDIA, inserted))
    }
}

fn remembered(target: &Target<'_>, key: &str) -> Map<String, Value> {
    match target.node.driver_internal_info.get(key) {
        Some(Value::Object(map)) => map,
        Some(_) | None => Map::new(),
    }
}

/// Simulated machines leave the factory with UEFI and without secure boot.
fn boot_mode(target: &Target<'_>) -> BootMode {
    let mode = target.node.boot_mode.as_deref();
    mode.and_then(|mode| mode.parse().ok()).unwrap_or(BootMode::Uefi)
}

fn secure_boot(target: &Target<'_>) -> bool {
    target.node.secure_boot.unwrap_or(false)
}

fn find_light(component: IndicatorComponent, name: &str) -> Result<&'static Light, Error> {
    let found = LIGHTS.iter().find(|(of, known, ..)| *of == component && *known == name);
    found.ok_or_else(|| {
        let known: Vec<_> = LIGHTS.iter().map(|(of, known, ..)| light_key(*of, known)).collect();
        let why = format!("there is no such indicator; there are {}", known.join(", "));
        Error::invalid(light_key(component, name), why)
    })
}

fn light_key(component: IndicatorComponent, name: &str) -> String {
    format!("{name}@{component}")
}

fn health(target: &Target<'_>) -> Result<Option<Health>, Error> {
    let Some(value) = target.driver_info.get(HEALTH.0) else { return Ok(None) };
    let health = value.as_str().and_then(|text| text.parse().ok());
    health.map(Some).ok_or_else(|| {
        Error::invalid(in_driver_info(HEALTH.0), "use 'OK', 'WARNING' or 'CRITICAL'")
    })
}

fn vendor<'a>(target: &Target<'a>) -> Result<Option<&'a str>, Error> {
    match target.driver_info.get(VENDOR.0) {
        None => Ok(None),
        Some(Value::String(vendor)) => Ok(Some(vendor)),
        Some(_) => Err(Error::invalid(in_driver_info(VENDOR.0), "use a string")),
    }
}
