// SPDX-License-Identifier: Apache-2.0
//! Boot device, identification light, sensors and interrupts by IPMI.

use std::sync::Arc;

use async_trait::async_trait;
use ipmi::{ChassisControl, GetChassisStatus, GetDeviceId, IdentifyChassis};
use serde_json::{Map, Value, json};

use super::boot_device;
use super::connections::Connections;
use super::{makers, sensors};
use crate::connected::connected_interface;
use crate::{
    BootDevice, BootDeviceSetting, Error, Indicator, IndicatorComponent, IndicatorState,
    Management, NodeChanges, Sensor, Target,
};

/// The IPMI management interface.
pub(super) struct IpmiManagement(pub(super) Arc<Connections>);

connected_interface!(IpmiManagement, Management);

/// The bit of a device's support that says that it has sensors.
const SENSOR_DEVICE: u8 = 0x01;

/// The one light that IPMI has.
const LIGHT: &str = "identify";

#[async_trait]
impl Management for IpmiManagement {
    fn supported_boot_devices(&self) -> &'static [BootDevice] {
        boot_device::SUPPORTED
    }

    async fn boot_device(&self, target: &Target<'_>) -> Result<BootDeviceSetting, Error> {
        let bmc = self.0.bmc(target, "read the boot device")?;
        boot_device::get(&bmc, target).await
    }

    async fn set_boot_device(
        &self,
        target: &Target<'_>,
        device: BootDevice,
        persistent: bool,
    ) -> Result<NodeChanges, Error> {
        let bmc = self.0.bmc(target, "set the boot device")?;
        boot_device::set(&self.0, &bmc, target, device, persistent).await
    }

    async fn inject_nmi(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        let bmc = self.0.bmc(target, "inject an NMI")?;
        bmc.ask(&ChassisControl::Diagnostic).await?;
        Ok(NodeChanges::none())
    }

    async fn probe(&self, target: &Target<'_>) -> Result<Option<Map<String, Value>>, Error> {
        let bmc = self.0.bmc(target, "ask the BMC what it is")?;
        let device = bmc.ask(&GetDeviceId).await?;
        let firmware = format!("{}.{:02x}", device.firmware_major & 0x7f, device.firmware_minor);
        let version = format!("{}.{}", device.ipmi_version & 0x0f, device.ipmi_version >> 4);
        let boot: Vec<_> = boot_device::SUPPORTED.iter().map(|device| device.as_str()).collect();
        let found = json!({
            "protocol": "ipmi",
            "ipmi_version": version,
            "vendor": makers::maker(device.manufacturer),
            "manufacturer_id": device.manufacturer,
            "product_id": device.product,
            "bmc": {"firmware": firmware, "revision": device.revision & 0x0f},
            "boot": {"devices": boot},
            "sensors": device.support & SENSOR_DEVICE != 0,
            "probed_at": target.now.to_string(),
        });
        Ok(found.as_object().cloned())
    }

    async fn indicators(&self, _target: &Target<'_>) -> Result<Vec<Indicator>, Error> {
        Ok(vec![Indicator {
            component: IndicatorComponent::Chassis,
            name: LIGHT.to_owned(),
            readonly: false,
            states: &[IndicatorState::Off, IndicatorState::On],
        }])
    }

    async fn indicator(
        &self,
        target: &Target<'_>,
        component: IndicatorComponent,
        name: &str,
    ) -> Result<IndicatorState, Error> {
        check_light(component, name)?;
        let bmc = self.0.bmc(target, "look at the identification light")?;
        Ok(match bmc.ask(&GetChassisStatus).await?.identify {
            Some(true) => IndicatorState::On,
            Some(false) => IndicatorState::Off,
            None => IndicatorState::Unknown,
        })
    }

    async fn set_indicator(
        &self,
        target: &Target<'_>,
        component: IndicatorComponent,
        name: &str,
        state: IndicatorState,
    ) -> Result<NodeChanges, Error> {
        check_light(component, name)?;
        let identify = match state {
            IndicatorState::Off => IdentifyChassis::Seconds(0),
            IndicatorState::On => IdentifyChassis::Always,
            IndicatorState::Blinking | IndicatorState::Unknown => {
                let why = format!("the light cannot be '{state}'; use 'on' or 'off'");
                return Err(Error::invalid("state", why));
            }
        };
        let bmc = self.0.bmc(target, "switch the identification light")?;
        match bmc.try_ask(&identify).await {
            Ok(()) => Ok(NodeChanges::none()),
            // Older BMCs only know it for a while; four minutes are the most.
            Err(ipmi::Error::Completion { .. }) if identify == IdentifyChassis::Always => {
                bmc.ask(&IdentifyChassis::Seconds(u8::MAX)).await?;
                Ok(NodeChanges::none())
            }
            Err(error) => Err(bmc.explain(error)),
        }
    }

    async fn sensors(&self, target: &Target<'_>) -> Result<Vec<Sensor>, Error> {
        sensors::read(&self.0.bmc(target, "read the sensors")?).await
    }

    async fn detect_vendor(&self, target: &Target<'_>) -> Result<Option<String>, Error> {
        let bmc = self.0.bmc(target, "detect the vendor")?;
        let device = bmc.ask(&GetDeviceId).await?;
        Ok(makers::maker(device.manufacturer).map(str::to_owned))
    }
}

fn check_light(component: IndicatorComponent, name: &str) -> Result<(), Error> {
    if component == IndicatorComponent::Chassis && name == LIGHT {
        return Ok(());
    }
    Err(Error::NotFound {
        what: format!("indicator '{name}' of {component}"),
        hint: format!("IPMI has only '{LIGHT}' of {}", IndicatorComponent::Chassis),
    })
}
