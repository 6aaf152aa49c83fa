// SPDX-License-Identifier: Apache-2.0
//! What a BMC knows and can do besides power: boot settings, indicators, sensors, virtual media.

use async_trait::async_trait;
use node_model::{Health, Mac};
use serde_json::{Map, Value};

use super::Interface;
use crate::{
    BootDevice, BootMode, Error, IndicatorComponent, IndicatorState, MediaDevice, NodeChanges,
    SensorKind, Target,
};

/// Where a machine boots from next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BootDeviceSetting {
    /// The device; none if the BMC does not say.
    pub device: Option<BootDevice>,
    /// Whether it stays so after the next boot; none if the BMC does not say.
    pub persistent: Option<bool>,
}

/// A light on a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Indicator {
    /// What it belongs to.
    pub component: IndicatorComponent,
    /// Its name within the component.
    pub name: String,
    /// Whether it can only be looked at.
    pub readonly: bool,
    /// What it can show.
    pub states: &'static [IndicatorState],
}

/// A measurement.
#[derive(Clone, PartialEq, Debug)]
pub struct Sensor {
    /// Its name, unique within its kind.
    pub name: String,
    /// What it measures.
    pub kind: SensorKind,
    /// The value; none if the sensor has none right now.
    pub reading: Option<f64>,
    /// The unit of the value: `Celsius`, `RPM`, `Watts`, `Volts`, `Percent`.
    pub unit: &'static str,
    /// Whether the value is as it should be.
    pub status: SensorStatus,
}

/// Whether a sensor's value is as it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SensorStatus {
    /// In use; this is how the part feels.
    Enabled(Health),
    /// There is nothing to measure: an empty slot, a machine that is off.
    Absent,
}

/// A drive for virtual media.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MediaSlot {
    /// What it can hold.
    pub device: MediaDevice,
    /// The image in it.
    pub image_url: Option<String>,
}

/// Boot device, boot mode, indicators, sensors and the rest.
#[async_trait]
pub trait Management: Interface {
    /// The devices it can boot from.
    fn supported_boot_devices(&self) -> &'static [BootDevice];

    /// Where the machine boots from next.
    async fn boot_device(&self, target: &Target<'_>) -> Result<BootDeviceSetting, Error>;

    /// Makes it boot from `device`, once or from now on.
    async fn set_boot_device(
        &self,
        target: &Target<'_>,
        device: BootDevice,
        persistent: bool,
    ) -> Result<NodeChanges, Error>;

    /// Whether its firmware puts a newly installed system first by itself, so that being told to boot
    /// from the disk would only confuse it.
    async fn boots_disk_by_itself(&self, _target: &Target<'_>) -> Result<bool, Error> {
        Ok(false)
    }

    /// The modes its firmware can boot in; none where they cannot be chosen.
    fn supported_boot_modes(&self) -> &'static [BootMode] {
        &[]
    }

    /// The mode its firmware boots in.
    async fn boot_mode(&self, _target: &Target<'_>) -> Result<BootMode, Error> {
        Err(self.cannot("read the boot mode"))
    }

    /// Makes its firmware boot in `mode`.
    async fn set_boot_mode(
        &self,
        _target: &Target<'_>,
        _mode: BootMode,
    ) -> Result<NodeChanges, Error> {
        Err(self.cannot("set the boot mode"))
    }

    /// Whether secure boot is on.
    async fn secure_boot(&self, _target: &Target<'_>) -> Result<bool, Error> {
        Err(self.cannot("read secure boot"))
    }

    /// Switches secure boot.
    async fn set_secure_boot(&self, _target: &Target<'_>, _on: bool) -> Result<NodeChanges, Error> {
        Err(self.cannot("set secure boot"))
    }

    /// Sends a non-maskable interrupt. Repeating it interrupts again.
    async fn inject_nmi(&self, _target: &Target<'_>) -> Result<NodeChanges, Error> {
        Err(self.cannot("inject an NMI"))
    }

    /// Its lights.
    async fn indicators(&self, _target: &Target<'_>) -> Result<Vec<Indicator>, Error> {
        Err(self.cannot("list indicators"))
    }

    /// What a light shows.
    async fn indicator(
        &self,
        _target: &Target<'_>,
        _component: IndicatorComponent,
        _name: &str,
    ) -> Result<IndicatorState, Error> {
        Err(self.cannot("read indicators"))
    }

    /// Makes a light show `state`.
    async fn set_indicator(
        &self,
        _target: &Target<'_>,
        _component: IndicatorComponent,
        _name: &str,
        _state: IndicatorState,
    ) -> Result<NodeChanges, Error> {
        Err(self.cannot("set indicators"))
    }

    /// Its measurements.
    async fn sensors(&self, _target: &Target<'_>) -> Result<Vec<Sensor>, Error> {
        Err(self.cannot("read sensors"))
    }

    /// Its condition; none if the BMC does not say.
    async fn health(&self, _target: &Target<'_>) -> Result<Option<Health>, Error> {
        Err(self.cannot("read the health"))
    }

    /// Who made it, as `properties.vendor` shall say.
    async fn detect_vendor(&self, _target: &Target<'_>) -> Result<Option<String>, Error> {
        Err(self.cannot("detect the vendor"))
    }

    /// What its BMC is and can do, found by asking it; none if there is nothing to find out.
    async fn probe(&self, _target: &Target<'_>) -> Result<Option<Map<String, Value>>, Error> {
        Ok(None)
    }

    /// The addresses of its network cards that have a link.
    async fn mac_addresses(&self, _target: &Target<'_>) -> Result<Vec<Mac>, Error> {
        Err(self.cannot("list MAC addresses"))
    }

    /// Its drives for virtual media.
    async fn virtual_media(&self, _target: &Target<'_>) -> Result<Vec<MediaSlot>, Error> {
        Err(self.cannot("list virtual media"))
    }

    /// Puts an image into a drive, in place of what is in it.
    async fn attach_virtual_media(
        &self,
        _target: &Target<'_>,
        _device: MediaDevice,
        _image_url: &str,
    ) -> Result<NodeChanges, Error> {
        Err(self.cannot("attach virtual media"))
    }

    /// Empties the drives for `devices`, or all if the list is empty. An empty drive stays so.
    async fn detach_virtual_media(
        &self,
        _target: &Target<'_>,
        _devices: &[MediaDevice],
    ) -> Result<NodeChanges, Error> {
        Err(self.cannot("detach virtual media"))
    }
}
