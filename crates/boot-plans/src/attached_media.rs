// SPDX-License-Identifier: Apache-2.0
//! Images that a user attaches to virtual media: fetched, verified, and served to the BMC.
//!
//! The URL has a random key, which is stored in the node, so every process can serve the image until it is
//! detached.

use std::sync::Arc;

use boot_server::http::{HttpFile, HttpFileRefusal, HttpRefusalReason};
use drivers::{DriverError, DriverTarget, MediaDevice};
use error_chain::error_chain;
use images::signature::SignaturePolicy;
use images::{CacheRequest, CachedImage, ExpectedChecksum, ImageKind, ImageSource};
use node_model::{BootMethod, NodeId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::boot_service::random_secret;
use crate::boot_system::is_bmc_only_url;
use crate::plan_files::{PlanFile, PlanFileError, ServedFile};
use crate::services::BootServices;

/// The `driver_internal_info` key with the attached images by device.
const ATTACHED_MEDIA: &str = "ferrite_attached_media";

/// An attached image, as stored in the node.
#[derive(Serialize, Deserialize)]
struct AttachedMedium {
    /// The random part of its URL. The name makes the store seal it.
    access_token: String,
    source: String,
    sha256: String,
}

impl BootServices {
    /// Fetches and verifies an image for virtual media, and returns the URL for the BMC. `is_direct` is
    /// whether the BMC shall fetch it from its source, which is possible only if it need not be signed.
    pub(crate) async fn publish_attached_medium(
        &self,
        target: &DriverTarget<'_>,
        device: MediaDevice,
        image_url: &str,
        is_direct: bool,
    ) -> Result<String, DriverError> {
        let policy = match image_kind(device) {
            ImageKind::Iso => self.0.iso_signature_policy,
            ImageKind::DiskImage | ImageKind::Kernel | ImageKind::Ramdisk => {
                self.0.disk_image_signature_policy
            }
        };
        if is_bmc_only_url(image_url) {
            if policy == SignaturePolicy::Required {
                return Err(DriverError::invalid(
                    "image_url",
                    "only the BMC can fetch it from there, so its signature cannot be verified; use an \
                     http or https URL",
                ));
            }
            return Ok(image_url.to_owned());
        }
        // A BMC can fetch neither files of this host nor images of registries.
        let is_http = matches!(ImageSource::parse(image_url), Ok(ImageSource::Http(_)));
        if is_direct && is_http && policy == SignaturePolicy::Off {
            return Ok(image_url.to_owned());
        }
        let entry = self.fetch_medium(device, image_url, None).await.map_err(|error| {
            DriverError::failed("fetch the image for virtual media", error_chain(&error))
        })?;
        let medium = AttachedMedium {
            access_token: random_secret()?,
            source: image_url.to_owned(),
            sha256: hex::encode(entry.sha256),
        };
        let token = medium.access_token.clone();
        let stored = serde_json::to_value(&medium).expect("three texts");
        self.change_attached_media(target.node.id, move |media| {
            media.insert(device.as_str().to_owned(), stored.clone());
        })
        .await?;
        let files = self.files_url(target, BootMethod::VirtualMedia);
        Ok(format!("{files}/vmedia/{}/{token}/{}", target.node.id, file_name(device)))
    }

    /// Stops serving the images of these devices.
    pub(crate) async fn withdraw_attached_media(
        &self,
        target: &DriverTarget<'_>,
        devices: &[MediaDevice],
    ) -> Result<(), DriverError> {
        if target.node.driver_internal_info.get(ATTACHED_MEDIA).is_none() {
            return Ok(());
        }
        let devices = devices.to_vec();
        self.change_attached_media(target.node.id, move |media| {
            media.retain(|name, _| !devices.iter().any(|device| device.as_str() == name));
        })
        .await
    }

    /// Returns the image at `<node>/<token>/<file>`.
    pub(crate) async fn attached_medium_file(
        &self,
        name: &str,
    ) -> Result<HttpFile, HttpFileRefusal> {
        let not_found = || HttpFileRefusal::new(HttpRefusalReason::NotFound);
        let mut parts = name.split('/');
        let (Some(node), Some(token), Some(file), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(not_found());
        };
        let node: Uuid = node.parse().map_err(|_| not_found())?;
        let device = MediaDevice::ALL.iter().copied().find(|device| file == file_name(*device));
        let device = device.ok_or_else(not_found)?;
        let medium = self.attached_medium(NodeId(node), device).await;
        let medium = medium.filter(|medium| medium.access_token == token).ok_or_else(not_found)?;
        let (title, machine): (Arc<str>, Arc<str>) =
            (format!("image for the {device} device").into(), node.to_string().into());
        let key = (name.to_owned(), PlanFile::BootIso);
        let served = match self.0.plan_files.cached(&key) {
            Some(served) => served,
            None => {
                let fetched = self.fetch_medium(device, &medium.source, Some(&medium.sha256)).await;
                let served = fetched.and_then(ServedFile::from_image).map_err(|error| {
                    let error = error_chain(&error);
                    tracing::warn!(%node, error, "image for virtual media could not be served");
                    HttpFileRefusal::new(crate::http_files::unavailable(
                        "the image is not available",
                    ))
                    .with_title(Arc::clone(&title))
                    .for_machine(Arc::clone(&machine))
                })?;
                self.0.plan_files.insert(key, &served);
                served
            }
        };
        Ok(HttpFile {
            content: served.content,
            media_type: PlanFile::BootIso.media_type(),
            etag: Some(served.etag),
            title,
            machine: Some(machine),
        })
    }

    async fn attached_medium(&self, node: NodeId, device: MediaDevice) -> Option<AttachedMedium> {
        let read = move |reader: &mut store::StoreReader<'_>| {
            let Some(node) = reader.get(node)? else { return Ok(None) };
            let mut info = reader.reveal(&node)?.driver_internal_info;
            Ok::<_, store::StoreError>(info.remove(ATTACHED_MEDIA))
        };
        let media = self.0.store.read(read).await.ok()??;
        serde_json::from_value(media.get(device.as_str())?.clone()).ok()
    }

    async fn change_attached_media(
        &self,
        node: NodeId,
        change: impl Fn(&mut serde_json::Map<String, serde_json::Value>) + Send + 'static,
    ) -> Result<(), DriverError> {
        let write = move |tx: &mut store::StoreWriter<'_>| {
            let Some(mut node) = tx.get(node)? else { return Err(store::StoreError::Missing) };
            let mut secrets = tx.reveal(&node)?;
            let info = &mut secrets.driver_internal_info;
            let mut media = match info.remove(ATTACHED_MEDIA) {
                Some(serde_json::Value::Object(media)) => media,
                Some(_) | None => serde_json::Map::new(),
            };
            change(&mut media);
            if !media.is_empty() {
                info.insert(ATTACHED_MEDIA.to_owned(), media.into());
            }
            tx.seal_node(&mut node, secrets)?;
            tx.save(&mut node)
        };
        self.0.store.write(write).await.map_err(|error| {
            DriverError::failed("store the image for virtual media", error.to_string())
        })
    }

    async fn fetch_medium(
        &self,
        device: MediaDevice,
        source: &str,
        sha256: Option<&str>,
    ) -> Result<CachedImage, PlanFileError> {
        let invalid =
            |error: &dyn std::fmt::Display| PlanFileError::InvalidImage(error.to_string());
        let source = ImageSource::parse(source).map_err(|error| invalid(&error))?;
        let mut request = CacheRequest::new(source, image_kind(device));
        if let Some(sha256) = sha256 {
            request.checksum =
                Some(ExpectedChecksum::parse(sha256).map_err(|error| invalid(&error))?);
        }
        self.0.plan_files.fetch_request(request).await
    }
}

/// Which signature policy holds for the image of a device.
const fn image_kind(device: MediaDevice) -> ImageKind {
    match device {
        MediaDevice::Cdrom => ImageKind::Iso,
        MediaDevice::Disk | MediaDevice::Floppy => ImageKind::DiskImage,
    }
}

/// BMCs derive the kind of an image from the end of its name.
const fn file_name(device: MediaDevice) -> &'static str {
    match device {
        MediaDevice::Cdrom => "cdrom.iso",
        MediaDevice::Disk => "disk.img",
        MediaDevice::Floppy => "floppy.img",
    }
}
