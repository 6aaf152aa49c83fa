// SPDX-License-Identifier: Apache-2.0
//! Where boot interfaces say what a machine is to boot, and learn where it is to be found.

use async_trait::async_trait;
use node_model::{BootExperience, BootPurpose, BootWay, Secret};
use serde_json::Value;

use crate::redfish::ImageUrl;
use crate::{Boot, Error, ImageDownloadSource, NodeChanges, Target};

/// Lays out what machines boot. Implemented by the boot services.
#[async_trait]
pub trait BootDesk: Send + Sync {
    /// Whether the node says what is to be booted. Looks at the node's fields only.
    fn check(&self, target: &Target<'_>, way: BootWay, purpose: BootPurpose) -> Result<(), Error>;

    /// Lays out what the machine boots from now on, in place of what it did before. When this
    /// returns, every piece is at hand, it is written down, and any of our processes serves it.
    async fn publish(
        &self,
        target: &Target<'_>,
        way: BootWay,
        purpose: BootPurpose,
    ) -> Result<Published, Error>;

    /// From now on the machine boots its disk. Its files are no longer served.
    async fn withdraw(&self, target: &Target<'_>) -> Result<(), Error>;

    /// Lays out the image of the instance for the agent to fetch, from `usual` if the instance does
    /// not say from where. When this returns and it comes from us, it was checked.
    async fn offer_image(
        &self,
        target: &Target<'_>,
        usual: ImageDownloadSource,
    ) -> Result<OfferedImage, Error>;

    /// The config drive of the instance as agents take it: packed, or an URL. None if it has none.
    async fn config_drive(&self, target: &Target<'_>) -> Result<Option<String>, Error>;

    /// What is configured for logging in to the container registry that `source` is in, as
    /// `user:password`. None if nothing is.
    fn registry_login(&self, _source: &str) -> Option<Secret<String>> {
        None
    }

    /// What is known about booting machines of `model`. Nothing, if it cannot be found out: ways
    /// are then tried as if it were the first time.
    async fn experience(&self, model: &str) -> Vec<BootExperience>;

    /// Remembers whether a machine of `model` booted by `way`, as far as that can be done.
    async fn note(&self, model: &str, way: BootWay, worked: bool);
}

/// An image as an agent fetches it.
#[derive(Clone, PartialEq, Eq)]
pub struct OfferedImage {
    /// Where it is.
    pub url: String,
    /// Its checksum by an algorithm: `sha256` and hexadecimal digits, or the URL of a file with it.
    pub checksum: Option<(String, String)>,
    /// What it is, if that is known.
    pub format: Option<String>,
}

impl std::fmt::Debug for OfferedImage {
    /// Without the URL, which may open what it names to whoever has it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OfferedImage").field("format", &self.format).finish_non_exhaustive()
    }
}

/// A boot interface that boots by one way, in the two halves that a choice between ways needs:
/// what the boot services cannot lay out is nothing to hold against the machine.
#[async_trait]
pub(crate) trait OneWay: Boot {
    /// The way. What is booted by it is laid out with [`BootDesk::publish`].
    fn way(&self) -> BootWay;

    /// Makes the machine boot what was laid out for `purpose`: at its next boot, or at all of them.
    async fn present(
        &self,
        target: &Target<'_>,
        published: &Published,
        purpose: BootPurpose,
        always: bool,
    ) -> Result<NodeChanges, Error>;
}

/// Where a BMC finds what was laid out for virtual media.
#[derive(Clone, PartialEq, Eq)]
pub struct Published {
    /// The URL of the CD.
    pub cd: String,
    /// The URL of a second medium with the config drive of an instance that has one.
    pub config_drive: Option<String>,
}

impl std::fmt::Debug for Published {
    /// Without the URLs, which open what they name to whoever has them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Published(…)")
    }
}

/// What stands in for the boot services where there are none: machines that boot from the network
/// get what the site's own servers give them, and BMCs get the CDs that nodes name.
#[derive(Debug, Clone, Copy)]
pub struct NoBootServices;

impl NoBootServices {
    /// An installer is nothing without its kickstart, whoever boots it.
    fn no_installer() -> Error {
        Error::invalid(
            "deploy_interface",
            "the boot services are switched off, so nobody serves a kickstart; set boot.enabled, or \
             use another deploy interface",
        )
    }

    fn cd(target: &Target<'_>, purpose: BootPurpose) -> Result<String, Error> {
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
                    ImageUrl::parse(&name, url)?;
                    return Ok(url.clone());
                }
                Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                    return Err(Error::invalid(name, "it must be the URL of an ISO image"));
                }
            }
        }
        Err(Error::missing(
            format!("driver_info/{key}"),
            "the boot services are switched off, so none is built from a kernel and a ramdisk; give \
             the URL of an ISO image",
        ))
    }
}

#[async_trait]
impl BootDesk for NoBootServices {
    fn check(&self, target: &Target<'_>, way: BootWay, purpose: BootPurpose) -> Result<(), Error> {
        match way {
            BootWay::VirtualMedia => Self::cd(target, purpose).map(drop),
            BootWay::Ipxe | BootWay::Pxe | BootWay::HttpIpxe | BootWay::Http
                if purpose == BootPurpose::Installer =>
            {
                Err(Self::no_installer())
            }
            BootWay::Ipxe | BootWay::Pxe | BootWay::HttpIpxe | BootWay::Http => Ok(()),
        }
    }

    async fn publish(
        &self,
        target: &Target<'_>,
        way: BootWay,
        purpose: BootPurpose,
    ) -> Result<Published, Error> {
        self.check(target, way, purpose)?;
        let cd = match way {
            BootWay::VirtualMedia => Self::cd(target, purpose)?,
            BootWay::Ipxe | BootWay::Pxe | BootWay::HttpIpxe | BootWay::Http => String::new(),
        };
        Ok(Published { cd, config_drive: None })
    }

    async fn withdraw(&self, _target: &Target<'_>) -> Result<(), Error> {
        Ok(())
    }

    async fn offer_image(
        &self,
        target: &Target<'_>,
        _usual: ImageDownloadSource,
    ) -> Result<OfferedImage, Error> {
        let image = crate::agent::ImageOrder::of(target)?;
        if !image.is_on_the_web() {
            return Err(Error::invalid(
                "instance_info/image_source",
                "the boot services are switched off, so only the agent can fetch the image; give \
                 an http or https URL",
            ));
        }
        Ok(image.straight())
    }

    async fn config_drive(&self, target: &Target<'_>) -> Result<Option<String>, Error> {
        match target.instance_info.get("configdrive") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(drive)) => Ok(Some(drive.clone()).filter(|drive| !drive.is_empty())),
            Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                Err(Error::invalid(
                    "instance_info/configdrive",
                    "the boot services are switched off, so none is built from its parts; give it \
                     packed, or as an URL",
                ))
            }
        }
    }

    async fn experience(&self, _model: &str) -> Vec<BootExperience> {
        Vec::new()
    }

    async fn note(&self, _model: &str, _way: BootWay, _worked: bool) {}
}
