// SPDX-License-Identifier: Apache-2.0
//! Booting from a virtual CD: the boot interface `redfish-virtual-media`.
//!
//! The boot services make the CD, from a kernel and a ramdisk or from an ISO image that somebody
//! built, and say where it is; the BMC fetches it from there. Needs nothing of the network the
//! machine itself is on: how that is set up is on the CD, if the node says it in `network_data`.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::{BootPurpose, BootWay, InterfaceKind};

use super::access;
use super::bmc::Bmc;
use super::connections::Connections;
use super::image_url::ImageUrl;
use super::media;
use crate::boot_desk::{BootDesk, OneWay, Published};
use crate::interfaces::{Boot, Interface, Property};
use crate::next_boot::{
    BOOT_PROPERTIES, boot_from, boot_from_disk, instance_runs, is_persistent, lives_in_memory,
};
use crate::{BootDevice, Error, MediaDevice, NodeChanges, RamdiskMode, Target};

/// What nodes call it.
pub(super) const NAME: &str = "redfish-virtual-media";

/// The boot interface that inserts CDs.
pub(super) struct VirtualMediaBoot {
    connections: Arc<Connections>,
    desk: Arc<dyn BootDesk>,
    properties: Vec<Property>,
}

const OWN_PROPERTIES: &[Property] = &[
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
        "Where this machine's BMC reaches the boot services, if not where others do. Optional.",
    ),
];

impl VirtualMediaBoot {
    pub(super) fn new(connections: Arc<Connections>, desk: Arc<dyn BootDesk>) -> Self {
        let properties = [access::PROPERTIES, OWN_PROPERTIES, &BOOT_PROPERTIES].concat();
        Self { connections, desk, properties }
    }

    /// Has the BMC take out what it presents, after which nobody needs it any more.
    async fn eject(&self, target: &Target<'_>) -> Result<(), Error> {
        self.change_media(target, "eject the CD", None).await?;
        self.desk.withdraw(target).await
    }

    /// Empties the drives that are ours to use, and fills them if there is something to put in.
    async fn change_media(
        &self,
        target: &Target<'_>,
        what: &str,
        published: Option<&Published>,
    ) -> Result<(), Error> {
        let bmc: Bmc = self.connections.bmc(target, what)?;
        let system = bmc.system().await?;
        let quirks = self.connections.quirks.of(target.node, &system);
        // An image of the same name may be another one by now: it is taken out in any case. When
        // nothing is to be put in, the second medium goes too, whoever remembers it: what is on it is
        // not for the next to have the machine.
        let drives = match published {
            Some(Published { config_drive: None, .. }) => &[MediaDevice::Cdrom][..],
            Some(Published { config_drive: Some(_), .. }) | None => {
                &[MediaDevice::Cdrom, MediaDevice::Disk]
            }
        };
        media::eject(&bmc, &system, &quirks, drives).await?;
        let Some(published) = published else { return Ok(()) };
        let cd = ImageUrl::parse("the URL of the CD", &published.cd)?;
        media::insert(&bmc, &system, &quirks, MediaDevice::Cdrom, &cd).await?;
        if let Some(url) = &published.config_drive {
            let drive = ImageUrl::parse("the URL of the config drive", url)?;
            media::insert(&bmc, &system, &quirks, MediaDevice::Disk, &drive).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Interface for VirtualMediaBoot {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Boot
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn properties(&self) -> &[Property] {
        &self.properties
    }

    async fn validate(&self, target: &Target<'_>) -> Result<(), Error> {
        self.connections.validate(target)?;
        is_persistent(target.driver_info, true)?;
        let purpose = if lives_in_memory(target)? {
            BootPurpose::Instance
        } else {
            BootPurpose::DeployRamdisk
        };
        self.desk.check(target, BootWay::VirtualMedia, purpose)
    }
}

#[async_trait]
impl Boot for VirtualMediaBoot {
    fn capabilities(&self) -> &'static [&'static str] {
        &["ramdisk_boot"]
    }

    async fn validate_ramdisk(&self, target: &Target<'_>, mode: RamdiskMode) -> Result<(), Error> {
        self.connections.validate(target)?;
        is_persistent(target.driver_info, true)?;
        self.desk.check(target, BootWay::VirtualMedia, mode.purpose())
    }

    async fn prepare_ramdisk(
        &self,
        target: &Target<'_>,
        mode: RamdiskMode,
    ) -> Result<NodeChanges, Error> {
        let published = self.desk.publish(target, self.way(), mode.purpose()).await?;
        self.present(target, &published, mode.purpose(), false).await
    }

    async fn clean_up_ramdisk(
        &self,
        target: &Target<'_>,
        _mode: RamdiskMode,
    ) -> Result<NodeChanges, Error> {
        self.eject(target).await?;
        Ok(NodeChanges::none())
    }

    async fn prepare_instance(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        if instance_runs(target) {
            return Ok(NodeChanges::none());
        }
        if lives_in_memory(target)? {
            let published = self.desk.publish(target, self.way(), BootPurpose::Instance).await?;
            return self.present(target, &published, BootPurpose::Instance, true).await;
        }
        self.eject(target).await?;
        boot_from_disk(target).await
    }

    async fn clean_up_instance(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.eject(target).await?;
        Ok(NodeChanges::none())
    }
}

#[async_trait]
impl OneWay for VirtualMediaBoot {
    fn way(&self) -> BootWay {
        BootWay::VirtualMedia
    }

    async fn present(
        &self,
        target: &Target<'_>,
        published: &Published,
        purpose: BootPurpose,
        always: bool,
    ) -> Result<NodeChanges, Error> {
        let what = format!("insert the CD of the {purpose}");
        self.change_media(target, &what, Some(published)).await?;
        boot_from(target, BootDevice::Cdrom, always).await
    }
}
