// SPDX-License-Identifier: Apache-2.0
//! Booting from a virtual CD: the boot interface `redfish-virtual-media`.
//!
//! This version boots ISO images that somebody built: the ramdisk's are in `driver_info`, an
//! instance's may be in `instance_info`. Images made for one machine come later, and with them
//! parameters for the ramdisk's kernel; a prebuilt image has its own.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::InterfaceKind;
use serde_json::{Map, Value};

use super::access;
use super::bmc::Bmc;
use super::connections::Connections;
use super::image_url::ImageUrl;
use super::media;
use crate::interfaces::{Boot, Interface, Property};
use crate::next_boot::{FORCE_PERSISTENT, boot_from, boot_from_disk, instance_runs, is_persistent};
use crate::{BootDevice, Error, MediaDevice, NodeChanges, RamdiskMode, Target};

/// What nodes call it.
pub(super) const NAME: &str = "redfish-virtual-media";

/// The boot interface that inserts ISO images.
pub(super) struct VirtualMediaBoot {
    connections: Arc<Connections>,
    properties: Vec<Property>,
}

const OWN_PROPERTIES: &[Property] = &[
    (
        "deploy_iso",
        "The URL of the ISO image with the ramdisk for deployment, cleaning, service and \
         inspection; instance_info may override it. Required.",
    ),
    (
        "rescue_iso",
        "The URL of the ISO image with the ramdisk for rescue; instance_info may override it. \
         Required for rescue.",
    ),
    FORCE_PERSISTENT,
];

/// The `instance_info` key of an instance that runs from an ISO image.
const BOOT_ISO: &str = "boot_iso";

impl VirtualMediaBoot {
    pub(super) fn new(connections: Arc<Connections>) -> Self {
        let properties = [access::PROPERTIES, OWN_PROPERTIES].concat();
        Self { connections, properties }
    }

    /// Empties the CD drives, and fills one if there is an image to put in.
    async fn change_cd(
        &self,
        target: &Target<'_>,
        what: &str,
        image: Option<&ImageUrl>,
    ) -> Result<(), Error> {
        let bmc: Bmc = self.connections.bmc(target, what)?;
        let system = bmc.system().await?;
        let quirks = self.connections.quirks.of(target.node, &system);
        // An image of the same name may be another one by now: it is taken out in any case.
        media::eject(&bmc, &system, &quirks, &[MediaDevice::Cdrom]).await?;
        match image {
            Some(image) => media::insert(&bmc, &system, &quirks, MediaDevice::Cdrom, image).await,
            None => Ok(()),
        }
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
        match instance_image(target)? {
            // An instance that runs from an image needs no ramdisk to be written.
            Some(_) => Ok(()),
            None => ramdisk_image(target, RamdiskMode::Deploy).map(drop),
        }
    }
}

#[async_trait]
impl Boot for VirtualMediaBoot {
    fn capabilities(&self) -> &'static [&'static str] {
        &["ramdisk_boot"]
    }

    async fn prepare_ramdisk(
        &self,
        target: &Target<'_>,
        mode: RamdiskMode,
        _parameters: &Map<String, Value>,
    ) -> Result<NodeChanges, Error> {
        let image = ramdisk_image(target, mode)?;
        self.change_cd(target, "insert the ramdisk's image", Some(&image)).await?;
        boot_from(target, BootDevice::Cdrom, false).await
    }

    async fn clean_up_ramdisk(
        &self,
        target: &Target<'_>,
        _mode: RamdiskMode,
    ) -> Result<NodeChanges, Error> {
        self.change_cd(target, "eject the ramdisk's image", None).await?;
        Ok(NodeChanges::none())
    }

    async fn prepare_instance(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        if instance_runs(target) {
            return Ok(NodeChanges::none());
        }
        match instance_image(target)? {
            Some(image) => {
                self.change_cd(target, "insert the instance's image", Some(&image)).await?;
                boot_from(target, BootDevice::Cdrom, true).await
            }
            None => {
                self.change_cd(target, "eject the ramdisk's image", None).await?;
                boot_from_disk(target).await
            }
        }
    }

    async fn clean_up_instance(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.change_cd(target, "eject the instance's image", None).await?;
        Ok(NodeChanges::none())
    }
}

/// The image of the ramdisk for `mode`.
fn ramdisk_image(target: &Target<'_>, mode: RamdiskMode) -> Result<ImageUrl, Error> {
    let key = match mode {
        RamdiskMode::Deploy => "deploy_iso",
        RamdiskMode::Rescue => "rescue_iso",
    };
    for (object, name) in
        [(target.instance_info, "instance_info"), (target.driver_info, "driver_info")]
    {
        if let Some(image) = image(object, name, key)? {
            return Ok(image);
        }
    }
    Err(Error::missing(
        format!("driver_info/{key}"),
        format!(
            "this version boots prebuilt ISO images and builds none from a kernel and a ramdisk; \
             give the URL of one that starts the {mode} ramdisk"
        ),
    ))
}

/// The image that the instance runs from, if it does.
fn instance_image(target: &Target<'_>) -> Result<Option<ImageUrl>, Error> {
    let image = image(target.instance_info, "instance_info", BOOT_ISO)?;
    if image.is_some() && is_given(target.instance_info.get("image_source")) {
        return Err(Error::invalid(
            format!("instance_info/{BOOT_ISO}"),
            "there is an image_source too; an instance is either written to the disk or runs from \
             an ISO image, so remove one of them",
        ));
    }
    Ok(image)
}

fn image(
    object: &Map<String, Value>,
    object_name: &str,
    key: &str,
) -> Result<Option<ImageUrl>, Error> {
    let name = format!("{object_name}/{key}");
    match object.get(key) {
        value if !is_given(value) => Ok(None),
        Some(Value::String(url)) => ImageUrl::parse(&name, url).map(Some),
        Some(_) | None => Err(Error::invalid(name, "it must be the URL of an ISO image")),
    }
}

fn is_given(value: Option<&Value>) -> bool {
    value.is_some_and(|value| !value.is_null() && value != "")
}
