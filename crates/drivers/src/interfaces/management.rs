// SPDX-License-Identifier: Apache-2.0
//! The management interface: boot settings, indicators, sensors, virtual media.

use async_trait::async_trait;
use node_model::{Health, Mac};
use serde_json::{Map, Value};

use super::BaseInterface;
use crate::{
    BootDevice, BootMode, DriverError, DriverTarget, Indicator, IndicatorComponent, IndicatorState,
    MediaDevice, MediaSlot, NodeChanges, Sensor, SystemIdentity,
};

/// The boot device setting of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BootDeviceSetting {
    /// The device; `None` if the BMC does not report it.
    pub device: Option<BootDevice>,
    /// Whether the setting is persistent; `None` if the BMC does not report it.
    pub persistent: Option<bool>,
}

/// Functions of a BMC other than power control.
#[async_trait]
pub trait ManagementInterface: BaseInterface {
    /// The supported boot devices.
    fn supported_boot_devices(&self) -> &'static [BootDevice];

    /// The current boot device setting.
    async fn boot_device(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<BootDeviceSetting, DriverError>;

    /// Sets the boot device for the next boot or persistently.
    async fn set_boot_device(
        &self,
        target: &DriverTarget<'_>,
        device: BootDevice,
        persistent: bool,
    ) -> Result<NodeChanges, DriverError>;

    /// Whether the firmware puts a newly installed system first in its boot order, so that the boot
    /// device must not be set to disk.
    async fn sets_disk_boot_itself(&self, _target: &DriverTarget<'_>) -> Result<bool, DriverError> {
        Ok(false)
    }

    /// The boot modes that can be set; empty if none.
    fn supported_boot_modes(&self) -> &'static [BootMode] {
        &[]
    }

    /// Whether each change of the boot device also sets the boot mode of the instance or the node, instead
    /// of [`ManagementInterface::set_boot_mode`].
    fn sets_boot_mode_with_device(&self) -> bool {
        false
    }

    /// The firmware's boot mode.
    async fn boot_mode(&self, _target: &DriverTarget<'_>) -> Result<BootMode, DriverError> {
        Err(self.unsupported("read the boot mode"))
    }

    /// Sets the firmware's boot mode.
    async fn set_boot_mode(
        &self,
        _target: &DriverTarget<'_>,
        _mode: BootMode,
    ) -> Result<NodeChanges, DriverError> {
        Err(self.unsupported("set the boot mode"))
    }

    /// Whether secure boot is enabled.
    async fn secure_boot(&self, _target: &DriverTarget<'_>) -> Result<bool, DriverError> {
        Err(self.unsupported("read secure boot"))
    }

    /// Enables or disables secure boot.
    async fn set_secure_boot(
        &self,
        _target: &DriverTarget<'_>,
        _on: bool,
    ) -> Result<NodeChanges, DriverError> {
        Err(self.unsupported("set secure boot"))
    }

    /// Sends a non-maskable interrupt. A repeated call sends another one.
    async fn inject_nmi(&self, _target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        Err(self.unsupported("inject an NMI"))
    }

    /// Lists the indicator LEDs.
    async fn indicators(&self, _target: &DriverTarget<'_>) -> Result<Vec<Indicator>, DriverError> {
        Err(self.unsupported("list indicators"))
    }

    /// Returns the state of an indicator.
    async fn indicator(
        &self,
        _target: &DriverTarget<'_>,
        _component: IndicatorComponent,
        _name: &str,
    ) -> Result<IndicatorState, DriverError> {
        Err(self.unsupported("read indicators"))
    }

    /// Sets the state of an indicator.
    async fn set_indicator(
        &self,
        _target: &DriverTarget<'_>,
        _component: IndicatorComponent,
        _name: &str,
        _state: IndicatorState,
    ) -> Result<NodeChanges, DriverError> {
        Err(self.unsupported("set indicators"))
    }

    /// Reads the sensors.
    async fn sensors(&self, _target: &DriverTarget<'_>) -> Result<Vec<Sensor>, DriverError> {
        Err(self.unsupported("read sensors"))
    }

    /// The machine's health; `None` if the BMC does not report it.
    async fn health(&self, _target: &DriverTarget<'_>) -> Result<Option<Health>, DriverError> {
        Err(self.unsupported("read the health"))
    }

    /// The vendor, for `properties.vendor`.
    async fn detect_vendor(
        &self,
        _target: &DriverTarget<'_>,
    ) -> Result<Option<String>, DriverError> {
        Err(self.unsupported("detect the vendor"))
    }

    /// Queries model and features of the BMC. `None` if there is nothing to query.
    async fn probe(
        &self,
        _target: &DriverTarget<'_>,
    ) -> Result<Option<Map<String, Value>>, DriverError> {
        Ok(None)
    }

    /// What identifies the machine behind the BMC.
    async fn identity(&self, _target: &DriverTarget<'_>) -> Result<SystemIdentity, DriverError> {
        Err(self.unsupported("identify the machine"))
    }

    /// The MAC addresses of the NICs that have a link.
    async fn mac_addresses(&self, _target: &DriverTarget<'_>) -> Result<Vec<Mac>, DriverError> {
        Err(self.unsupported("list MAC addresses"))
    }

    /// Whether the interface has virtual media. Checked before an image is fetched for them.
    fn has_virtual_media(&self) -> bool {
        false
    }

    /// Lists the virtual media slots.
    async fn virtual_media(
        &self,
        _target: &DriverTarget<'_>,
    ) -> Result<Vec<MediaSlot>, DriverError> {
        Err(self.unsupported("list virtual media"))
    }

    /// Inserts an image into a slot, replacing an inserted one.
    async fn attach_virtual_media(
        &self,
        _target: &DriverTarget<'_>,
        _device: MediaDevice,
        _image_url: &str,
    ) -> Result<NodeChanges, DriverError> {
        Err(self.unsupported("attach virtual media"))
    }

    /// Ejects the images of `devices`, or all if the list is empty. Empty slots are ignored.
    async fn detach_virtual_media(
        &self,
        _target: &DriverTarget<'_>,
        _devices: &[MediaDevice],
    ) -> Result<NodeChanges, DriverError> {
        Err(self.unsupported("detach virtual media"))
    }
}
