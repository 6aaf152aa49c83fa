// SPDX-License-Identifier: Apache-2.0
//! The boot service as boot interfaces use it: publishing what a machine boots.

use std::net::IpAddr;

use async_trait::async_trait;
use node_model::{BootMethod, BootMethodStats, BootPurpose, Mac, Secret};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::instance_image::InstanceImage;
use crate::{BmcImageUrl, BootInterface, DriverError, DriverTarget, MediaDevice, NodeChanges};

/// Publishes what machines boot. Implemented in `boot-plans`.
#[async_trait]
pub trait BootService: Send + Sync {
    /// Fails if the node does not define what to boot. Reads only the node's fields.
    fn check(
        &self,
        target: &DriverTarget<'_>,
        method: BootMethod,
        purpose: BootPurpose,
    ) -> Result<(), DriverError>;

    /// Replaces what the machine boots. On return all files are available, the boot plan is stored, and
    /// every process serves it.
    async fn publish(
        &self,
        target: &DriverTarget<'_>,
        method: BootMethod,
        purpose: BootPurpose,
    ) -> Result<PublishedBootMedia, DriverError>;

    /// Makes the machine boot its disk and stops serving its files.
    async fn withdraw(&self, target: &DriverTarget<'_>) -> Result<(), DriverError>;

    /// Publishes the instance's image for the agent to download, from `default_source` if the instance
    /// has no `image_download_source`. An image that Ferrite serves is verified on return.
    async fn publish_image(
        &self,
        target: &DriverTarget<'_>,
        default_source: ImageDownloadSource,
    ) -> Result<PublishedImage, DriverError>;

    /// Fails if the instance's image may not be used. Does not download it.
    fn check_image(&self, _target: &DriverTarget<'_>) -> Result<(), DriverError> {
        Ok(())
    }

    /// Verifies the signature of a container according to the configured policy, and returns the reference
    /// with which an agent pulls only the verified container.
    async fn verified_container(
        &self,
        _target: &DriverTarget<'_>,
        source: &str,
    ) -> Result<String, DriverError> {
        Ok(source.to_owned())
    }

    /// Whether disk images and containers must have a signature, or an existing one must be valid.
    fn verifies_disk_images(&self) -> bool {
        false
    }

    /// Publishes an image for a virtual media device and returns its URL for the BMC. An image that Ferrite
    /// serves is verified on return.
    async fn publish_medium(
        &self,
        _target: &DriverTarget<'_>,
        _device: MediaDevice,
        image_url: &str,
        _source: ImageDownloadSource,
    ) -> Result<String, DriverError> {
        Ok(image_url.to_owned())
    }

    /// Stops serving the images of virtual media devices.
    async fn withdraw_media(
        &self,
        _target: &DriverTarget<'_>,
        _devices: &[MediaDevice],
    ) -> Result<(), DriverError> {
        Ok(())
    }

    /// The instance's config drive as agents take it: packed, or a URL. `None` without a config drive.
    async fn config_drive(&self, target: &DriverTarget<'_>) -> Result<Option<String>, DriverError>;

    /// The configured credentials for the container registry of `source`, as `user:password`. `None`
    /// if none are configured.
    fn registry_login(&self, _source: &str) -> Option<Secret<String>> {
        None
    }

    /// Whether a DHCP server leased `address` to one of `macs`. False if this process serves no DHCP.
    /// `stored_client` is the client with an unexpired lease of the address in the database, for leases that
    /// several processes share.
    fn is_leased_to(&self, _address: IpAddr, _stored_client: Option<&[u8]>, _macs: &[Mac]) -> bool {
        false
    }

    /// The boot statistics of `model`. Empty if they cannot be read; methods are then tried in the
    /// default order.
    async fn boot_method_stats(&self, model: &str) -> Vec<BootMethodStats>;

    /// Records whether a machine of `model` booted with `method`. Failures to store it are ignored.
    async fn record_boot_result(&self, model: &str, method: BootMethod, worked: bool);
}

/// Where agents download images from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageDownloadSource {
    /// The URL in `instance_info`.
    Http,
    /// Ferrite's image server.
    Local,
}

/// An image as an agent downloads it.
#[derive(Clone, PartialEq, Eq)]
pub struct PublishedImage {
    /// The download URL.
    pub url: String,
    /// Algorithm and checksum: `sha256` and hexadecimal digits, or the URL of a checksum file.
    pub checksum: Option<(String, String)>,
    /// The disk format, if known.
    pub format: Option<String>,
}

impl std::fmt::Debug for PublishedImage {
    /// Omits the URL, which may contain a key that permits the download.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PublishedImage").field("format", &self.format).finish_non_exhaustive()
    }
}

/// A boot interface with one boot method. Publishing and booting are separate calls, because a failure
/// to publish is no reason for `automatic` to count the method as failed on this machine.
#[async_trait]
pub trait FixedMethodBootInterface: BootInterface {
    /// The boot method, for [`BootService::publish`].
    fn boot_method(&self) -> BootMethod;

    /// Makes the machine boot what was published for `purpose`: at its next boot, or at every boot.
    async fn boot_published(
        &self,
        target: &DriverTarget<'_>,
        published: &PublishedBootMedia,
        purpose: BootPurpose,
        persistent: bool,
    ) -> Result<NodeChanges, DriverError>;
}

/// The URLs of published virtual media.
#[derive(Clone, PartialEq, Eq)]
pub struct PublishedBootMedia {
    /// The URL of the CD; empty for network boot methods.
    pub boot_url: String,
    /// The URL of a second image with the instance's config drive, if it has one.
    pub config_drive: Option<String>,
}

impl std::fmt::Debug for PublishedBootMedia {
    /// Omits the URLs, which contain keys that permit the download.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PublishedBootMedia(…)")
    }
}

/// Replaces the boot service where it is disabled: machines boot over the network from the site's own
/// servers, and BMCs get the ISO images that nodes name.
#[derive(Debug, Clone, Copy)]
pub struct ExternalBootService;

impl ExternalBootService {
    /// Installers need a kickstart, which only the boot service provides.
    fn no_installer() -> DriverError {
        DriverError::invalid(
            "deploy_interface",
            "the boot services are disabled, so no kickstart can be served; set boot.enabled, or use \
             another deploy interface",
        )
    }

    fn iso_url(target: &DriverTarget<'_>, purpose: BootPurpose) -> Result<String, DriverError> {
        let key = match purpose {
            BootPurpose::Installer => return Err(Self::no_installer()),
            BootPurpose::DeployRamdisk | BootPurpose::InspectionRamdisk => "deploy_iso",
            BootPurpose::RescueRamdisk => "rescue_iso",
            BootPurpose::Instance => "boot_iso",
        };
        for (object, name) in
            [(target.instance_info, "instance_info"), (target.driver_info, "driver_info")]
        {
            let name = format!("{name}/{key}");
            match object.get(key) {
                None | Some(Value::Null) => {}
                Some(Value::String(url)) if url.is_empty() => {}
                Some(Value::String(url)) => {
                    BmcImageUrl::parse(&name, url)?;
                    return Ok(url.clone());
                }
                Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                    return Err(DriverError::invalid(name, "it must be the URL of an ISO image"));
                }
            }
        }
        Err(DriverError::missing(
            format!("driver_info/{key}"),
            "the boot services are disabled, so no ISO image is built from a kernel and a ramdisk; \
             give the URL of an ISO image",
        ))
    }
}

#[async_trait]
impl BootService for ExternalBootService {
    fn check(
        &self,
        target: &DriverTarget<'_>,
        method: BootMethod,
        purpose: BootPurpose,
    ) -> Result<(), DriverError> {
        match method {
            BootMethod::VirtualMedia => Self::iso_url(target, purpose).map(drop),
            BootMethod::Ipxe | BootMethod::Pxe | BootMethod::HttpIpxe | BootMethod::Http
                if purpose == BootPurpose::Installer =>
            {
                Err(Self::no_installer())
            }
            BootMethod::Ipxe | BootMethod::Pxe | BootMethod::HttpIpxe | BootMethod::Http => Ok(()),
        }
    }

    async fn publish(
        &self,
        target: &DriverTarget<'_>,
        method: BootMethod,
        purpose: BootPurpose,
    ) -> Result<PublishedBootMedia, DriverError> {
        self.check(target, method, purpose)?;
        let boot_url = match method {
            BootMethod::VirtualMedia => Self::iso_url(target, purpose)?,
            BootMethod::Ipxe | BootMethod::Pxe | BootMethod::HttpIpxe | BootMethod::Http => {
                String::new()
            }
        };
        Ok(PublishedBootMedia { boot_url, config_drive: None })
    }

    async fn withdraw(&self, _target: &DriverTarget<'_>) -> Result<(), DriverError> {
        Ok(())
    }

    async fn publish_image(
        &self,
        target: &DriverTarget<'_>,
        _default_source: ImageDownloadSource,
    ) -> Result<PublishedImage, DriverError> {
        let image = InstanceImage::from_target(target)?;
        if !image.is_http() {
            return Err(DriverError::invalid(
                "instance_info/image_source",
                "the boot services are disabled, so only the agent can download the image; give an \
                 http or https URL",
            ));
        }
        Ok(image.at_source_url())
    }

    async fn config_drive(&self, target: &DriverTarget<'_>) -> Result<Option<String>, DriverError> {
        match target.instance_info.get("configdrive") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(parts)) if parts.is_empty() => Ok(None),
            Some(Value::String(drive)) => Ok(Some(drive.clone()).filter(|drive| !drive.is_empty())),
            Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                Err(DriverError::invalid(
                    "instance_info/configdrive",
                    "the boot services are disabled, so it cannot be built from its parts; give it \
                     packed, or as a URL",
                ))
            }
        }
    }

    async fn boot_method_stats(&self, _model: &str) -> Vec<BootMethodStats> {
        Vec::new()
    }

    async fn record_boot_result(&self, _model: &str, _way: BootMethod, _worked: bool) {}
}
