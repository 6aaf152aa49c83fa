// SPDX-License-Identifier: Apache-2.0
//! The network boot interfaces `ipxe`, `pxe`, `http-ipxe` and `http`.
//!
//! Each publishes what the machine boots at the boot service, and sets the boot device to network. They
//! differ in how the first file is loaded: see [`BootMethod`].

use std::sync::Arc;

use async_trait::async_trait;
use drivers::next_boot::{
    BOOT_PROPERTIES, is_instance_running, is_persistent, is_ramdisk_instance, set_boot_device,
    set_disk_boot,
};
use drivers::{
    BaseInterface, BootDevice, BootInterface, BootService, DriverError, DriverProperty,
    DriverTarget, FixedMethodBootInterface, NodeChanges, PublishedBootMedia, RamdiskMode,
    RegistryBuilder,
};
use node_model::{BootMethod, BootPurpose, InterfaceKind};

/// Registers these implementations.
pub(crate) fn register(registry: &mut RegistryBuilder) {
    for (name, method, device) in NETWORK_BOOT_METHODS {
        let boot_service = registry.boot_service();
        let boot = NetworkBoot { name, method: *method, device: *device, boot_service };
        registry.add_boot_method(Arc::new(boot));
    }
}

const NETWORK_BOOT_METHODS: &[(&str, BootMethod, BootDevice)] = &[
    ("ipxe", BootMethod::Ipxe, BootDevice::Pxe),
    ("pxe", BootMethod::Pxe, BootDevice::Pxe),
    ("http-ipxe", BootMethod::HttpIpxe, BootDevice::UefiHttp),
    ("http", BootMethod::Http, BootDevice::UefiHttp),
];

/// A boot interface with one network boot method.
struct NetworkBoot {
    name: &'static str,
    method: BootMethod,
    device: BootDevice,
    boot_service: Arc<dyn BootService>,
}

#[async_trait]
impl BaseInterface for NetworkBoot {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Boot
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn properties(&self) -> &[DriverProperty] {
        &BOOT_PROPERTIES
    }

    async fn validate(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        is_persistent(target.driver_info, true)?;
        let purpose = if is_ramdisk_instance(target)? {
            BootPurpose::Instance
        } else {
            BootPurpose::DeployRamdisk
        };
        self.boot_service.check(target, self.method, purpose)
    }
}

#[async_trait]
impl BootInterface for NetworkBoot {
    fn capabilities(&self) -> &'static [&'static str] {
        match self.method {
            BootMethod::Ipxe | BootMethod::HttpIpxe => &["ipxe_boot", "pxe_boot", "ramdisk_boot"],
            BootMethod::Pxe | BootMethod::Http | BootMethod::VirtualMedia => {
                &["pxe_boot", "ramdisk_boot"]
            }
        }
    }

    async fn validate_ramdisk(
        &self,
        target: &DriverTarget<'_>,
        mode: RamdiskMode,
    ) -> Result<(), DriverError> {
        is_persistent(target.driver_info, true)?;
        self.boot_service.check(target, self.method, mode.purpose())
    }

    fn boots_over_network(&self) -> bool {
        true
    }

    async fn prepare_ramdisk(
        &self,
        target: &DriverTarget<'_>,
        mode: RamdiskMode,
    ) -> Result<NodeChanges, DriverError> {
        let published = self.boot_service.publish(target, self.method, mode.purpose()).await?;
        self.boot_published(target, &published, mode.purpose(), false).await
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
            let published =
                self.boot_service.publish(target, self.method, BootPurpose::Instance).await?;
            return self.boot_published(target, &published, BootPurpose::Instance, true).await;
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

#[async_trait]
impl FixedMethodBootInterface for NetworkBoot {
    fn boot_method(&self) -> BootMethod {
        self.method
    }

    /// Sets the boot device to network. Uses PXE if the BMC does not support UEFI HTTP as a boot device:
    /// the firmware then tries both.
    async fn boot_published(
        &self,
        target: &DriverTarget<'_>,
        _published: &PublishedBootMedia,
        _purpose: BootPurpose,
        persistent: bool,
    ) -> Result<NodeChanges, DriverError> {
        let supported = target.driver.management().supported_boot_devices();
        let device = if supported.contains(&self.device) { self.device } else { BootDevice::Pxe };
        match set_boot_device(target, device, persistent).await {
            Err(error) if device != BootDevice::Pxe && error.is_caller_error() => {
                set_boot_device(target, BootDevice::Pxe, persistent).await
            }
            result => result,
        }
    }
}
