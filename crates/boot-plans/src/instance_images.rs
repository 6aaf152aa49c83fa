// SPDX-License-Identifier: Apache-2.0
//! The image of an instance and its config drive, for the agent that writes them.
//!
//! An image that the agent cannot fetch by itself, or that is to be checked first, is fetched into
//! the cache, unpacked, and served under a name that says, sealed, what it is: so every one of our
//! processes can serve it, and nothing has to be written down or cleared away.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bmc_drivers::{Error, ImageDownloadSource, ImageOrder, OfferedImage, Target};
use boot_media::config_drive::{self, ConfigDrive, Owner};
use boot_server::http::{Page, Reason, Refusal};
use images::{Entry, Expected, Format, Kind, Request, Source, Wanted};
use node_model::{NodeId, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::discovery::chain;
use crate::hex::hex;
use crate::layouts::{Laid, LayoutError, Piece};
use crate::services::BootServices;

/// How long an image is served after it was offered: longer than any agent takes to fetch it.
const SERVED_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// An image that is served, as its name says it.
#[derive(Serialize, Deserialize)]
struct Offer {
    source: String,
    checksum: Option<String>,
    declared: Option<String>,
    pull_secret: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authorization: Option<String>,
    architecture: Option<String>,
    sha256: String,
    until: Timestamp,
}

impl BootServices {
    pub(crate) async fn offer(
        &self,
        target: &Target<'_>,
        usual: ImageDownloadSource,
    ) -> Result<OfferedImage, Error> {
        let order = ImageOrder::of(target)?;
        if order.is_on_the_web() && download_source(&order, usual)? == ImageDownloadSource::Http {
            return Ok(order.straight());
        }
        let mut offer = Offer {
            source: order.source.to_owned(),
            checksum: order.checksum.as_ref().map(|(_, value)| value.clone()),
            declared: order.format.map(str::to_owned),
            pull_secret: order.pull_secret.map(str::to_owned),
            authorization: order.authorization.map(str::to_owned),
            architecture: target.node.properties.get_str("cpu_arch"),
            sha256: String::new(),
            until: self.0.now().plus(SERVED_FOR),
        };
        let what = "get the image of the instance";
        let failed =
            |error: &LayoutError| Error::Failed { what: what.to_owned(), why: chain(error) };
        let entry = self.fetch_image(&offer).await.map_err(|error| failed(&error))?;
        offer.sha256 = hex(&entry.sha256);
        let (id, plain) = (target.node.id, serde_json::to_vec(&offer).expect("texts and a number"));
        let sealed = self.0.store.read(move |reader| Ok(reader.seal(id.0, &plain))).await;
        let sealed = sealed.map_err(|error: store::Error| Error::Failed {
            what: what.to_owned(),
            why: error.to_string(),
        })?;
        let name = URL_SAFE_NO_PAD.encode(sealed);
        Ok(OfferedImage {
            url: format!("{}/image/{id}/{name}", self.0.places().files),
            checksum: Some(("sha256".to_owned(), offer.sha256)),
            format: Some("raw".to_owned()),
        })
    }

    /// The image called `name`, which is a node and what is sealed for it.
    pub(crate) async fn image_page(&self, name: &str) -> Result<Page, Refusal> {
        let not_found = || Refusal::new(Reason::NotFound);
        let (node, sealed) = name.split_once('/').ok_or_else(not_found)?;
        let node: Uuid = node.parse().map_err(|_| not_found())?;
        let place = (name.to_owned(), Piece::InstanceImage);
        let offer = self.open_offer(NodeId(node), sealed).await.ok_or_else(not_found)?;
        let title: Arc<str> = "image of the instance".into();
        let subject: Arc<str> = node.to_string().into();
        let refuse =
            |reason| Refusal::new(reason).titled(Arc::clone(&title)).about(Arc::clone(&subject));
        if offer.until < self.0.now() {
            return Err(refuse(Reason::Gone));
        }
        let laid = match self.0.layouts.kept(&place) {
            Some(laid) => laid,
            None => {
                let laid = self.lay_out_image(&offer).await.map_err(|error| {
                    let why = chain(&error);
                    tracing::warn!(%node, why, "cannot serve the image of an instance");
                    let refusal = refuse(crate::pages::busy("the image cannot be had"));
                    refusal.titled(format!("{title} cannot be had ({why})"))
                })?;
                self.0.layouts.keep(place, &laid);
                laid
            }
        };
        Ok(Page {
            content: laid.content,
            media_type: Piece::InstanceImage.media_type(),
            etag: Some(laid.etag),
            title,
            subject: Some(subject),
        })
    }

    async fn open_offer(&self, node: NodeId, sealed: &str) -> Option<Offer> {
        let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let open = move |reader: &mut store::Reader<'_>| reader.unseal(node.0, &sealed);
        let plain = self.0.store.read(open).await.ok()?;
        serde_json::from_slice(&plain).ok()
    }

    async fn lay_out_image(&self, offer: &Offer) -> Result<Laid, LayoutError> {
        let entry = self.fetch_image(offer).await?;
        if hex(&entry.sha256) != offer.sha256 {
            return Err(LayoutError::Address(
                "the image has changed since it was offered; deploy again".to_owned(),
            ));
        }
        Laid::of(entry)
    }

    async fn fetch_image(&self, offer: &Offer) -> Result<Entry, LayoutError> {
        let wrong = |error: &dyn std::fmt::Display| LayoutError::Address(error.to_string());
        let source = Source::parse(&offer.source).map_err(|error| wrong(&error))?;
        let is_on_the_web = matches!(source, Source::Http(_));
        let mut request = Request::new(source, Kind::DiskImage);
        if let Some(checksum) = &offer.checksum {
            request.checksum = Some(Expected::parse(checksum).map_err(|error| wrong(&error))?);
        }
        if let Some(declared) = &offer.declared {
            request.declared = Some(Format::named(declared).map_err(|error| wrong(&error))?);
        }
        request.wanted = Wanted::Raw;
        // A registry is logged in to; only a web server is shown a header.
        let header = offer.authorization.clone().filter(|_| is_on_the_web);
        let secret = offer.pull_secret.as_deref().map(images::Credentials::pull_secret);
        request.credentials = header.map(images::Credentials::Header).or(secret);
        request.architecture.clone_from(&offer.architecture);
        self.0.layouts.fetch_request(request).await
    }
}

/// The config drive of the instance of `target`, as agents take it.
pub(crate) fn packed_config_drive(target: &Target<'_>) -> Result<Option<String>, Error> {
    let invalid =
        |why: String| Error::InvalidParameter { name: "instance_info/configdrive".to_owned(), why };
    let Some(value) = target.instance_info.get("configdrive") else { return Ok(None) };
    match ConfigDrive::parse(value).map_err(|error| invalid(error.to_string()))? {
        None => Ok(None),
        Some(ConfigDrive::Url(url)) => Ok(Some(url.to_owned())),
        Some(ConfigDrive::Packed(packed)) => Ok(Some(packed.to_owned())),
        Some(ConfigDrive::Parts(parts)) => {
            let uuid = target.node.id.to_string();
            let owner = Owner { uuid: &uuid, name: target.node.name.as_deref() };
            let image = parts.build(owner).map_err(|error| invalid(error.to_string()))?;
            let packed = config_drive::pack(&image).map_err(|error| invalid(error.to_string()))?;
            Ok(Some(packed))
        }
    }
}

fn download_source(
    order: &ImageOrder<'_>,
    usual: ImageDownloadSource,
) -> Result<ImageDownloadSource, Error> {
    match order.download_source {
        None => Ok(usual),
        Some("http") => Ok(ImageDownloadSource::Http),
        Some("local") => Ok(ImageDownloadSource::Local),
        Some(other) => Err(Error::InvalidParameter {
            name: "instance_info/image_download_source".to_owned(),
            why: format!("it is '{other}', and must be http or local"),
        }),
    }
}
