// SPDX-License-Identifier: Apache-2.0
//! The boot interfaces `redfish-virtual-media` and `idrac-redfish-virtual-media`: boot from a virtual CD.
//!
//! The boot service builds the CD from a kernel and a ramdisk or uses the operator's ISO image; the
//! BMC downloads it. The machine's own network is not used for booting. Its network configuration is
//! on the CD if the node has `network_data`. The two differ in how the boot device is set: older iDRACs
//! boot from a virtual CD only if it is selected with a Dell extension.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::next_boot::{
    BOOT_PROPERTIES, is_instance_running, is_persistent, is_ramdisk_instance, set_boot_device,
    set_disk_boot,
};
use drivers::{
    BaseInterface, BmcImageUrl, BootDevice, BootInterface, BootService, DriverError,
    DriverProperty, DriverTarget, FixedMethodBootInterface, MediaDevice, NodeChanges,
    PublishedBootMedia, RamdiskMode,
};
use node_model::{BootMethod, BootPurpose, InterfaceKind};

use super::bmc::RedfishBmc;
use super::connections::RedfishConnections;
use super::variant::RedfishVariant;
use super::{access, idrac, virtual_media};

/// A boot interface that boots from a virtual CD.
pub(super) struct VirtualMediaBootInterface {
    variant: RedfishVariant,
    connections: Arc<RedfishConnections>,
    boot_service: Arc<dyn BootService>,
    properties: Vec<DriverProperty>,
}

/// The `driver_info` keys of boot interfaces whose machines load an ISO image.
pub(super) const ISO_PROPERTIES: &[DriverProperty] = &[
    (
        "deploy_iso",
        "The URL of an ISO image with the ramdisk for deployment, cleaning, service and \
         inspection; instance_info may override it. Optional: by default one is built from \
         deploy_kernel and deploy_ramdisk.",
    ),
    (
        "rescue_iso",
        "The URL of an ISO image with the ramdisk for rescue; instance_info may override it. \
         Optional: by default one is built from rescue_kernel and rescue_ramdisk.",
    ),
    (
        "external_http_url",
        "URL at which this machine's BMC reaches the boot service, if it differs from the default. Optional.",
    ),
];

impl VirtualMediaBootInterface {
    pub(super) fn new(
        connections: Arc<RedfishConnections>,
        boot_service: Arc<dyn BootService>,
        variant: RedfishVariant,
    ) -> Self {
        let properties = [access::PROPERTIES, ISO_PROPERTIES, &BOOT_PROPERTIES].concat();
        Self { variant, connections, boot_service, properties }
    }

    /// Ejects the media, then withdraws the published files.
    async fn eject(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        self.change_media(target, "eject the CD", None).await?;
        self.boot_service.withdraw(target).await
    }

    /// Makes a machine with an iDRAC boot from the virtual CD, for the next boot or always.
    async fn boot_idrac_cd(
        &self,
        target: &DriverTarget<'_>,
        always: bool,
    ) -> Result<NodeChanges, DriverError> {
        let persistent = is_persistent(target.driver_info, always)?;
        let bmc = self.connections.bmc(target, "set the boot device to the virtual CD")?;
        match idrac::set_virtual_cd(&bmc, target, persistent).await? {
            Some(changes) => Ok(changes),
            None => set_boot_device(target, BootDevice::Cdrom, always).await,
        }
    }

    /// Ejects the media of the drives the driver uses, and inserts `published` if given.
    async fn change_media(
        &self,
        target: &DriverTarget<'_>,
        what: &str,
        published: Option<&PublishedBootMedia>,
    ) -> Result<(), DriverError> {
        let bmc: RedfishBmc = self.connections.bmc(target, what)?;
        let system = bmc.system().await?;
        let quirks = self.connections.quirks.for_node(target.node, &system);
        // An image with the same name may have new content: always eject it. If nothing is inserted, the
        // config drive is ejected too, even if the node does not record one: the next user of the machine
        // must not read it.
        let drives = match published {
            Some(PublishedBootMedia { config_drive: None, .. }) => &[MediaDevice::Cdrom][..],
            Some(PublishedBootMedia { config_drive: Some(_), .. }) | None => {
                &[MediaDevice::Cdrom, MediaDevice::Disk]
            }
        };
        virtual_media::eject(&bmc, &system, &quirks, drives).await?;
        let Some(published) = published else { return Ok(()) };
        let cd = BmcImageUrl::parse("the URL of the CD", &published.boot_url)?;
        virtual_media::insert(&bmc, &system, &quirks, MediaDevice::Cdrom, &cd).await?;
        if let Some(url) = &published.config_drive {
            let drive = BmcImageUrl::parse("the URL of the config drive", url)?;
            virtual_media::insert(&bmc, &system, &quirks, MediaDevice::Disk, &drive).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl BaseInterface for VirtualMediaBootInterface {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Boot
    }

    fn name(&self) -> &'static str {
        match self.variant {
            RedfishVariant::Standard => "redfish-virtual-media",
            RedfishVariant::Idrac => "idrac-redfish-virtual-media",
        }
    }

    fn properties(&self) -> &[DriverProperty] {
        &self.properties
    }

    async fn validate(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        self.connections.validate(target)?;
        is_persistent(target.driver_info, true)?;
        let purpose = if is_ramdisk_instance(target)? {
            BootPurpose::Instance
        } else {
            BootPurpose::DeployRamdisk
        };
        self.boot_service.check(target, BootMethod::VirtualMedia, purpose)
    }
}

#[async_trait]
impl BootInterface for VirtualMediaBootInterface {
    fn capabilities(&self) -> &'static [&'static str] {
        &["ramdisk_boot"]
    }

    async fn validate_ramdisk(
        &self,
        target: &DriverTarget<'_>,
        mode: RamdiskMode,
    ) -> Result<(), DriverError> {
        self.connections.validate(target)?;
        is_persistent(target.driver_info, true)?;
        self.boot_service.check(target, BootMethod::VirtualMedia, mode.purpose())
    }

    async fn prepare_ramdisk(
        &self,
        target: &DriverTarget<'_>,
        mode: RamdiskMode,
    ) -> Result<NodeChanges, DriverError> {
        let published =
            self.boot_service.publish(target, self.boot_method(), mode.purpose()).await?;
        self.boot_published(target, &published, mode.purpose(), false).await
    }

    async fn clean_up_ramdisk(
        &self,
        target: &DriverTarget<'_>,
        _mode: RamdiskMode,
    ) -> Result<NodeChanges, DriverError> {
        self.eject(target).await?;
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
            let published = self
                .boot_service
                .publish(target, self.boot_method(), BootPurpose::Instance)
                .await?;
            return self.boot_published(target, &published, BootPurpose::Instance, true).await;
        }
        self.eject(target).await?;
        set_disk_boot(target).await
    }

    async fn clean_up_instance(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<NodeChanges, DriverError> {
        self.eject(target).await?;
        Ok(NodeChanges::none())
    }
}

#[async_trait]
impl FixedMethodBootInterface for VirtualMediaBootInterface {
    fn boot_method(&self) -> BootMethod {
        BootMethod::VirtualMedia
    }

    async fn boot_published(
        &self,
        target: &DriverTarget<'_>,
        published: &PublishedBootMedia,
        purpose: BootPurpose,
        always: bool,
    ) -> Result<NodeChanges, DriverError> {
        let what = format!("insert the CD for the {purpose}");
        self.change_media(target, &what, Some(published)).await?;
        match self.variant {
            RedfishVariant::Standard => set_boot_device(target, BootDevice::Cdrom, always).await,
            RedfishVariant::Idrac => self.boot_idrac_cd(target, always).await,
        }
    }
}
