// SPDX-License-Identifier: Apache-2.0
//! The boot interface `redfish-https`: the firmware downloads an ISO image by UEFI HTTP boot.
//!
//! The BMC gets the URL of the image, so neither DHCP options nor a boot loader are needed; the firmware
//! gets only its address by DHCP. The image is the one that `redfish-virtual-media` inserts, and the
//! same keys define it. The firmware keeps the image in memory.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::next_boot::{
    BOOT_PROPERTIES, is_instance_running, is_persistent, is_ramdisk_instance, set_disk_boot,
};
use drivers::{
    BaseInterface, BootInterface, BootService, DriverError, DriverProperty, DriverTarget,
    NodeChanges, RamdiskMode,
};
use node_model::{BootMethod, BootPurpose, InterfaceKind};
use serde_json::Value;

use super::connections::RedfishConnections;
use super::virtual_media_boot::ISO_PROPERTIES;
use super::{access, boot_settings};

/// The boot interface `redfish-https`.
pub(super) struct HttpsBootInterface {
    connections: Arc<RedfishConnections>,
    boot_service: Arc<dyn BootService>,
    properties: Vec<DriverProperty>,
}

/// The image is published as for virtual media: for a reader without a port of the node.
const METHOD: BootMethod = BootMethod::VirtualMedia;

impl HttpsBootInterface {
    pub(super) fn new(
        connections: Arc<RedfishConnections>,
        boot_service: Arc<dyn BootService>,
    ) -> Self {
        let properties = [access::PROPERTIES, ISO_PROPERTIES, &BOOT_PROPERTIES].concat();
        Self { connections, boot_service, properties }
    }

    fn check(&self, target: &DriverTarget<'_>, purpose: BootPurpose) -> Result<(), DriverError> {
        self.connections.validate(target)?;
        is_persistent(target.driver_info, true)?;
        if purpose == BootPurpose::Instance && has_config_drive(target) {
            return Err(DriverError::invalid(
                "instance_info/configdrive",
                "an instance that runs from an ISO image loaded by UEFI HTTP boot cannot have one; \
                 use redfish-virtual-media, or remove it",
            ));
        }
        self.boot_service.check(target, METHOD, purpose)
    }

    /// Publishes the image for `purpose` and makes the machine boot from its URL.
    async fn boot(
        &self,
        target: &DriverTarget<'_>,
        purpose: BootPurpose,
        always: bool,
    ) -> Result<NodeChanges, DriverError> {
        self.check(target, purpose)?;
        let published = self.boot_service.publish(target, METHOD, purpose).await?;
        let url = published.boot_url.as_str();
        if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(DriverError::invalid(
                "the URL of the ISO image",
                "the firmware loads images only from http and https URLs",
            ));
        }
        let persistent = is_persistent(target.driver_info, always)?;
        let what = format!("set UEFI HTTP boot for the {purpose}");
        let bmc = self.connections.bmc(target, what)?;
        boot_settings::set_http_boot(&self.connections, &bmc, target, url, persistent).await
    }
}

/// Whether the instance has a config drive. An empty object is none, as in Ironic.
fn has_config_drive(target: &DriverTarget<'_>) -> bool {
    match target.instance_info.get("configdrive") {
        None | Some(Value::Null) => false,
        Some(Value::String(drive)) => !drive.is_empty(),
        Some(Value::Object(parts)) => !parts.is_empty(),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_)) => true,
    }
}

#[async_trait]
impl BaseInterface for HttpsBootInterface {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Boot
    }

    fn name(&self) -> &'static str {
        "redfish-https"
    }

    fn properties(&self) -> &[DriverProperty] {
        &self.properties
    }

    async fn validate(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        let purpose = if is_ramdisk_instance(target)? {
            BootPurpose::Instance
        } else {
            BootPurpose::DeployRamdisk
        };
        self.check(target, purpose)
    }
}

#[async_trait]
impl BootInterface for HttpsBootInterface {
    fn capabilities(&self) -> &'static [&'static str] {
        &["ramdisk_boot"]
    }

    async fn validate_ramdisk(
        &self,
        target: &DriverTarget<'_>,
        mode: RamdiskMode,
    ) -> Result<(), DriverError> {
        self.check(target, mode.purpose())
    }

    async fn prepare_ramdisk(
        &self,
        target: &DriverTarget<'_>,
        mode: RamdiskMode,
    ) -> Result<NodeChanges, DriverError> {
        self.boot(target, mode.purpose(), false).await
    }

    async fn clean_up_ramdisk(
        &self,
        target: &DriverTarget<'_>,
        _mode: RamdiskMode,
    ) -> Result<NodeChanges, DriverError> {
        self.boot_service.withdraw(target).await?;
        Ok(NodeChanges::none())
    }

    async fn prepare_instance(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<NodeChanges, DriverError> {
        if is_instance_running(target) {
            return Ok(NodeChanges::none());
        }
        if is_ramdisk_instance(target)? {
            return self.boot(target, BootPurpose::Instance, true).await;
        }
        self.boot_service.withdraw(target).await?;
        set_disk_boot(target).await
    }

    async fn clean_up_instance(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<NodeChanges, DriverError> {
        self.boot_service.withdraw(target).await?;
        Ok(NodeChanges::none())
    }
}
