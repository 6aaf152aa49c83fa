// SPDX-License-Identifier: Apache-2.0
//! The management interface over IPMI: boot device, identify LED, sensors, NMI.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::{
    BootDevice, BootDeviceSetting, DriverError, DriverTarget, Indicator, IndicatorComponent,
    IndicatorState, ManagementInterface, NodeChanges, Sensor, SystemIdentity, bmc_interface,
};
use ipmi::message::netfn;
use ipmi::{ChassisControl, GetChassisStatus, GetDeviceId, IdentifyChassis};
use serde_json::{Map, Value, json};

use super::boot_device;
use super::connections::IpmiConnections;
use super::{sensors, vendors};

/// The IPMI management interface.
pub(super) struct IpmiManagement(pub(super) Arc<IpmiConnections>);

bmc_interface!(IpmiManagement, Management);

/// The "sensor device" bit of the device support byte.
const SENSOR_DEVICE: u8 = 0x01;

/// The command that returns the GUID of the system.
const GET_SYSTEM_GUID: u8 = 0x37;

/// The only indicator that IPMI defines.
const IDENTIFY_LED: &str = "identify";

#[async_trait]
impl ManagementInterface for IpmiManagement {
    fn supported_boot_devices(&self) -> &'static [BootDevice] {
        boot_device::SUPPORTED
    }

    fn sets_boot_mode_with_device(&self) -> bool {
        true
    }

    async fn boot_device(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<BootDeviceSetting, DriverError> {
        let bmc = self.0.bmc(target, "read the boot device")?;
        boot_device::read_boot_device(&bmc, target).await
    }

    async fn set_boot_device(
        &self,
        target: &DriverTarget<'_>,
        device: BootDevice,
        persistent: bool,
    ) -> Result<NodeChanges, DriverError> {
        let bmc = self.0.bmc(target, "set the boot device")?;
        boot_device::write_boot_device(&self.0, &bmc, target, device, persistent).await
    }

    async fn inject_nmi(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        let bmc = self.0.bmc(target, "inject an NMI")?;
        bmc.execute(&ChassisControl::Diagnostic).await?;
        Ok(NodeChanges::none())
    }

    async fn probe(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<Option<Map<String, Value>>, DriverError> {
        let bmc = self.0.bmc(target, "query the BMC's device ID")?;
        let device = bmc.execute(&GetDeviceId).await?;
        let firmware = format!("{}.{:02x}", device.firmware_major & 0x7f, device.firmware_minor);
        let version = format!("{}.{}", device.ipmi_version & 0x0f, device.ipmi_version >> 4);
        let boot: Vec<_> = boot_device::SUPPORTED.iter().map(|device| device.as_str()).collect();
        let identity = self.identity(target).await?;
        let probe = json!({
            "protocol": "ipmi",
            "system_uuid": identity.system_uuid,
            "ipmi_version": version,
            "vendor": vendors::vendor_name(device.manufacturer),
            "manufacturer_id": device.manufacturer,
            "product_id": device.product,
            "bmc": {"firmware": firmware, "revision": device.revision & 0x0f},
            "boot": {"devices": boot},
            "sensors": device.support & SENSOR_DEVICE != 0,
            "probed_at": target.now.to_string(),
        });
        Ok(probe.as_object().cloned())
    }

    async fn identity(&self, target: &DriverTarget<'_>) -> Result<SystemIdentity, DriverError> {
        let bmc = self.0.bmc(target, "identify the machine")?;
        let system_uuid = match bmc.request(netfn::APP, GET_SYSTEM_GUID, &[]).await {
            Ok(reply) => system_uuid(&reply),
            // The command is optional.
            Err(ipmi::IpmiError::Completion { .. }) => None,
            Err(error) => return Err(bmc.explain(error)),
        };
        Ok(SystemIdentity { system_uuid, ..SystemIdentity::default() })
    }

    async fn indicators(&self, _target: &DriverTarget<'_>) -> Result<Vec<Indicator>, DriverError> {
        Ok(vec![Indicator {
            component: IndicatorComponent::Chassis,
            name: IDENTIFY_LED.to_owned(),
            readonly: false,
            states: &[IndicatorState::Off, IndicatorState::On],
        }])
    }

    async fn indicator(
        &self,
        target: &DriverTarget<'_>,
        component: IndicatorComponent,
        name: &str,
    ) -> Result<IndicatorState, DriverError> {
        check_indicator(component, name)?;
        let bmc = self.0.bmc(target, "read the identify LED")?;
        Ok(match bmc.execute(&GetChassisStatus).await?.identify {
            Some(true) => IndicatorState::On,
            Some(false) => IndicatorState::Off,
            None => IndicatorState::Unknown,
        })
    }

    async fn set_indicator(
        &self,
        target: &DriverTarget<'_>,
        component: IndicatorComponent,
        name: &str,
        state: IndicatorState,
    ) -> Result<NodeChanges, DriverError> {
        check_indicator(component, name)?;
        let identify = match state {
            IndicatorState::Off => IdentifyChassis::Seconds(0),
            IndicatorState::On => IdentifyChassis::Always,
            IndicatorState::Blinking | IndicatorState::Unknown => {
                let why = format!("the state '{state}' is not supported; use 'on' or 'off'");
                return Err(DriverError::invalid("state", why));
            }
        };
        let bmc = self.0.bmc(target, "set the identify LED")?;
        match bmc.try_execute(&identify).await {
            Ok(()) => Ok(NodeChanges::none()),
            // Older BMCs support only a duration, of at most 255 seconds.
            Err(ipmi::IpmiError::Completion { .. }) if identify == IdentifyChassis::Always => {
                bmc.execute(&IdentifyChassis::Seconds(u8::MAX)).await?;
                Ok(NodeChanges::none())
            }
            Err(error) => Err(bmc.explain(error)),
        }
    }

    async fn sensors(&self, target: &DriverTarget<'_>) -> Result<Vec<Sensor>, DriverError> {
        sensors::read_sensors(&self.0.bmc(target, "read the sensors")?).await
    }

    async fn detect_vendor(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<Option<String>, DriverError> {
        let bmc = self.0.bmc(target, "detect the vendor")?;
        let device = bmc.execute(&GetDeviceId).await?;
        Ok(vendors::vendor_name(device.manufacturer).map(str::to_owned))
    }
}

fn check_indicator(component: IndicatorComponent, name: &str) -> Result<(), DriverError> {
    if component == IndicatorComponent::Chassis && name == IDENTIFY_LED {
        return Ok(());
    }
    Err(DriverError::NotFound {
        what: format!("indicator '{name}' of {component}"),
        hint: format!("IPMI has only '{IDENTIFY_LED}' of {}", IndicatorComponent::Chassis),
    })
}

/// The GUID as text, in the order in which the BMC sends its bytes. BMCs disagree about the order.
fn system_uuid(bytes: &[u8]) -> Option<String> {
    use std::fmt::Write as _;
    let bytes: &[u8; 16] = bytes.try_into().ok()?;
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if let 4 | 6 | 8 | 10 = index {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    Some(text)
}
