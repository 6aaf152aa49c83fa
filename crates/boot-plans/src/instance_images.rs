// SPDX-License-Identifier: Apache-2.0
//! The image of an instance and its config drive, for the agent that writes them.
//!
//! An image that the agent cannot fetch itself, or that must be verified first, is fetched into the
//! cache, unpacked, and served under a URL that contains the sealed offer. So every process can serve it,
//! and no state has to be stored or removed.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use boot_media::config_drive::{self, ConfigDrive, ConfigDriveOwner};
use boot_server::http::{HttpFile, HttpFileRefusal, HttpRefusalReason};
use drivers::instance_image::InstanceImage;
use drivers::{DriverError, DriverTarget, ImageDownloadSource, PublishedImage};
use error_chain::error_chain;
use images::signature::SignaturePolicy;
use images::{
    CacheRequest, CachedImage, ExpectedChecksum, ImageFormat, ImageKind, ImageSource, TargetFormat,
};
use node_model::{NodeId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::plan_files::{PlanFile, PlanFileError, ServedFile};
use crate::services::BootServices;

/// How long an offered image is served; longer than any agent takes to fetch it.
const OFFER_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// An offered image, as sealed into its URL.
#[derive(Serialize, Deserialize)]
struct ImageOffer {
    source: String,
    checksum: Option<String>,
    #[serde(rename = "declared")]
    declared_format: Option<String>,
    pull_secret: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authorization: Option<String>,
    architecture: Option<String>,
    sha256: String,
    #[serde(rename = "until")]
    expires_at: Timestamp,
}

impl BootServices {
    pub(crate) async fn offer_instance_image(
        &self,
        target: &DriverTarget<'_>,
        default: ImageDownloadSource,
    ) -> Result<PublishedImage, DriverError> {
        let image = InstanceImage::from_target(target)?;
        let is_direct =
            image.is_http() && download_source(&image, default)? == ImageDownloadSource::Http;
        if is_direct && self.0.disk_image_signature_policy == SignaturePolicy::Off {
            return Ok(image.at_source_url());
        }
        let mut offer = ImageOffer {
            source: image.source.to_owned(),
            checksum: image.checksum.as_ref().map(|(_, value)| value.clone()),
            declared_format: image.format.map(str::to_owned),
            pull_secret: image.pull_secret.map(str::to_owned),
            authorization: image.authorization.map(str::to_owned),
            architecture: target.node.properties.get_str("cpu_arch"),
            sha256: String::new(),
            expires_at: self.0.now().plus(OFFER_LIFETIME),
        };
        let what = "fetch the image of the instance";
        let failed = |error: &PlanFileError| DriverError::Failed {
            what: what.to_owned(),
            why: error_chain(error),
        };
        if is_direct {
            // Agents cannot verify signatures. The image is verified here, and the agent accepts only the
            // verified bytes from the source.
            let verified = self.fetch_offered_image(&offer, TargetFormat::AsIs).await;
            let sha256 = hex::encode(verified.map_err(|error| failed(&error))?.sha256);
            let checksum = Some(("sha256".to_owned(), sha256));
            return Ok(PublishedImage { checksum, ..image.at_source_url() });
        }
        let entry = self.fetch_offered_image(&offer, TargetFormat::Raw).await;
        let entry = entry.map_err(|error| failed(&error))?;
        offer.sha256 = hex::encode(entry.sha256);
        let (id, plain) = (target.node.id, serde_json::to_vec(&offer).expect("texts and a number"));
        let sealed = self.0.store.read(move |reader| Ok(reader.seal(id.0, &plain))).await;
        let sealed = sealed.map_err(|error: store::StoreError| DriverError::Failed {
            what: what.to_owned(),
            why: error.to_string(),
        })?;
        let name = URL_SAFE_NO_PAD.encode(sealed);
        // A prebuilt ISO has no CA certificate of ours. The checksum protects the image in any case.
        let has_own_iso = target.driver_info.contains_key("deploy_iso")
            || target.instance_info.contains_key("deploy_iso");
        let files =
            if has_own_iso { self.0.service_urls().files } else { self.0.agent_files_url() };
        Ok(PublishedImage {
            url: format!("{files}/image/{id}/{name}"),
            checksum: Some(("sha256".to_owned(), offer.sha256)),
            format: Some("raw".to_owned()),
        })
    }

    /// Returns the image with this name: a node ID and the sealed offer.
    pub(crate) async fn instance_image_file(
        &self,
        name: &str,
    ) -> Result<HttpFile, HttpFileRefusal> {
        let not_found = || HttpFileRefusal::new(HttpRefusalReason::NotFound);
        let (node, sealed) = name.split_once('/').ok_or_else(not_found)?;
        let node: Uuid = node.parse().map_err(|_| not_found())?;
        let key = (name.to_owned(), PlanFile::InstanceImage);
        let offer = self.unseal_offer(NodeId(node), sealed).await.ok_or_else(not_found)?;
        let title: Arc<str> = "image of the instance".into();
        let machine: Arc<str> = node.to_string().into();
        let refuse = |reason| {
            HttpFileRefusal::new(reason)
                .with_title(Arc::clone(&title))
                .for_machine(Arc::clone(&machine))
        };
        if offer.expires_at < self.0.now() {
            return Err(refuse(HttpRefusalReason::Gone));
        }
        let served = match self.0.plan_files.cached(&key) {
            Some(served) => served,
            None => {
                let served = self.open_offered_image(&offer).await.map_err(|error| {
                    let error = error_chain(&error);
                    tracing::warn!(%node, error, "instance image could not be served");
                    let refusal =
                        refuse(crate::http_files::unavailable("the image is not available"));
                    refusal.with_title(format!("{title} unavailable ({error})"))
                })?;
                self.0.plan_files.insert(key, &served);
                served
            }
        };
        Ok(HttpFile {
            content: served.content,
            media_type: PlanFile::InstanceImage.media_type(),
            etag: Some(served.etag),
            title,
            machine: Some(machine),
        })
    }

    async fn unseal_offer(&self, node: NodeId, sealed: &str) -> Option<ImageOffer> {
        let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let unseal = move |reader: &mut store::StoreReader<'_>| reader.unseal(node.0, &sealed);
        let plain = self.0.store.read(unseal).await.ok()?;
        serde_json::from_slice(&plain).ok()
    }

    async fn open_offered_image(&self, offer: &ImageOffer) -> Result<ServedFile, PlanFileError> {
        let entry = self.fetch_offered_image(offer, TargetFormat::Raw).await?;
        if hex::encode(entry.sha256) != offer.sha256 {
            return Err(PlanFileError::InvalidImage(
                "the image has changed since it was offered; deploy again".to_owned(),
            ));
        }
        ServedFile::from_image(entry)
    }

    async fn fetch_offered_image(
        &self,
        offer: &ImageOffer,
        target_format: TargetFormat,
    ) -> Result<CachedImage, PlanFileError> {
        let invalid =
            |error: &dyn std::fmt::Display| PlanFileError::InvalidImage(error.to_string());
        let source = ImageSource::parse(&offer.source).map_err(|error| invalid(&error))?;
        let is_http = matches!(source, ImageSource::Http(_));
        let mut request = CacheRequest::new(source, ImageKind::DiskImage);
        if let Some(checksum) = &offer.checksum {
            request.checksum =
                Some(ExpectedChecksum::parse(checksum).map_err(|error| invalid(&error))?);
        }
        if let Some(declared) = &offer.declared_format {
            request.declared_format =
                Some(ImageFormat::from_name(declared).map_err(|error| invalid(&error))?);
        }
        request.target_format = target_format;
        // The header is for web servers only; a registry uses its own login.
        let header = offer.authorization.clone().filter(|_| is_http);
        let secret = offer.pull_secret.as_deref().map(images::ImageCredentials::pull_secret);
        request.credentials = header.map(images::ImageCredentials::Header).or(secret);
        request.architecture.clone_from(&offer.architecture);
        self.0.plan_files.fetch_request(request).await
    }
}

/// Returns the config drive of the instance. As in Ironic, null, an empty string and an empty object mean
/// that it has none.
pub(crate) fn given_config_drive<'a>(target: &DriverTarget<'a>) -> Option<&'a Value> {
    let drive = target.instance_info.get("configdrive")?;
    let is_none = match drive {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(parts) => parts.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => false,
    };
    (!is_none).then_some(drive)
}

/// Returns the config drive of the instance in the form that agents accept.
pub(crate) fn packed_config_drive(
    target: &DriverTarget<'_>,
) -> Result<Option<String>, DriverError> {
    let invalid = |why: String| DriverError::InvalidParameter {
        name: "instance_info/configdrive".to_owned(),
        why,
    };
    let Some(value) = target.instance_info.get("configdrive") else { return Ok(None) };
    match ConfigDrive::parse(value).map_err(|error| invalid(error.to_string()))? {
        None => Ok(None),
        Some(ConfigDrive::Url(url)) => Ok(Some(url.to_owned())),
        Some(ConfigDrive::Packed(packed)) => Ok(Some(packed.to_owned())),
        Some(ConfigDrive::Parts(parts)) => {
            let uuid = target.node.id.to_string();
            let owner = ConfigDriveOwner { uuid: &uuid, name: target.node.name.as_deref() };
            let image = parts.build(owner).map_err(|error| invalid(error.to_string()))?;
            let packed = config_drive::pack(&image).map_err(|error| invalid(error.to_string()))?;
            Ok(Some(packed))
        }
    }
}

fn download_source(
    image: &InstanceImage<'_>,
    default: ImageDownloadSource,
) -> Result<ImageDownloadSource, DriverError> {
    match image.download_source {
        None => Ok(default),
        Some("http") => Ok(ImageDownloadSource::Http),
        Some("local") => Ok(ImageDownloadSource::Local),
        Some(other) => Err(DriverError::InvalidParameter {
            name: "instance_info/image_download_source".to_owned(),
            why: format!("it is '{other}', but must be http or local"),
        }),
    }
}
