// SPDX-License-Identifier: Apache-2.0
//! Requests to the cache, and the keys that identify equal requests.

use ring::hmac;
use serde::{Deserialize, Serialize};

use super::CacheSettings;
use crate::checksum::{Checksum, ExpectedChecksum};
use crate::credentials::ImageCredentials;
use crate::format::ImageFormat;
use crate::signature::{PublicKey, SignaturePolicy};
use crate::source::ImageSource;

/// A request for an image.
#[derive(Debug, Clone)]
pub struct CacheRequest {
    /// The source.
    pub source: ImageSource,
    /// The purpose.
    pub kind: ImageKind,
    /// The expected checksum of the bytes at the source.
    pub checksum: Option<ExpectedChecksum>,
    /// The declared format.
    pub declared_format: Option<ImageFormat>,
    /// The format to convert to.
    pub target_format: TargetFormat,
    /// Credentials for the server.
    pub credentials: Option<ImageCredentials>,
    /// The source of the signature; by default the image's URL with `.sig` appended.
    pub signature: Option<ImageSource>,
    /// The architecture of the machine, to choose from a registry's index.
    pub architecture: Option<String>,
}

/// The purpose of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ImageKind {
    /// A kernel to boot.
    Kernel,
    /// A ramdisk to boot.
    Ramdisk,
    /// An image that is written to a disk. Only permitted formats.
    DiskImage,
    /// An ISO to boot.
    Iso,
}

/// The format of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TargetFormat {
    /// Unchanged.
    AsIs,
    /// Decompressed and converted to raw.
    Raw,
}

/// Signature policies and keys.
#[derive(Debug, Clone, Default)]
pub struct SignatureSettings {
    /// Public keys.
    pub keys: Vec<PublicKey>,
    /// Whether kernels must be signed.
    pub kernel: SignaturePolicy,
    /// Whether ramdisks must be signed.
    pub ramdisk: SignaturePolicy,
    /// Whether disk images must be signed.
    pub disk_image: SignaturePolicy,
    /// Whether boot CDs must be signed.
    pub iso: SignaturePolicy,
}

/// Identifies requests with the same result.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct RequestKey(pub(super) String);

impl CacheRequest {
    /// Returns a request for an unconverted image without further information.
    pub fn new(source: ImageSource, kind: ImageKind) -> Self {
        Self {
            source,
            kind,
            checksum: None,
            declared_format: None,
            target_format: TargetFormat::AsIs,
            credentials: None,
            signature: None,
            architecture: None,
        }
    }

    /// Returns the key of the request before its checksum is resolved.
    pub(super) fn key(&self, salt: &[u8; 32], settings: &CacheSettings) -> RequestKey {
        let checksum = self.checksum.as_ref().map(|expected| match expected {
            ExpectedChecksum::Value(checksum) => checksum.to_string(),
            ExpectedChecksum::File(url) => url.to_string(),
        });
        self.make_key(salt, settings, self.target_format, &checksum.unwrap_or_default())
    }

    /// Returns the key of the result, with the resolved checksums.
    pub(super) fn record_key(
        &self,
        salt: &[u8; 32],
        settings: &CacheSettings,
        wanted: TargetFormat,
        checksums: &[Checksum],
    ) -> RequestKey {
        let checksums: Vec<String> = checksums.iter().map(ToString::to_string).collect();
        self.make_key(salt, settings, wanted, &checksums.join(" "))
    }

    /// Covers everything that determines the result or who may read it: requests with different
    /// credentials differ, so that a client without a password does not get a protected image.
    fn make_key(
        &self,
        salt: &[u8; 32],
        settings: &CacheSettings,
        wanted: TargetFormat,
        checksums: &str,
    ) -> RequestKey {
        let policy = settings.signatures.policy(self.kind);
        let mut parts = vec![
            source_with_secrets(&self.source),
            format!("{:?} {wanted:?} {policy:?} {:?}", self.kind, self.declared_format),
            checksums.to_owned(),
            self.architecture.clone().unwrap_or_default(),
        ];
        match &self.credentials {
            Some(ImageCredentials::Basic { user, password }) => {
                parts.extend(["basic".to_owned(), user.clone(), password.clone()]);
            }
            Some(ImageCredentials::Header(header)) => {
                parts.extend(["header".to_owned(), header.clone()])
            }
            None => parts.push("anonymous".to_owned()),
        }
        // Images that were accepted under other rules are checked again.
        parts.push(format!("{:?}", settings.limits));
        match self.kind {
            ImageKind::DiskImage => parts.push(format!("{:?}", settings.permitted_formats)),
            ImageKind::Kernel | ImageKind::Ramdisk | ImageKind::Iso => {}
        }
        match &self.source {
            ImageSource::File(_) => parts.push(format!("{:?}", settings.files)),
            ImageSource::Http(_) | ImageSource::Oci(_) => {}
        }
        if policy != SignaturePolicy::Off {
            parts.push(self.signature.as_ref().map(source_with_secrets).unwrap_or_default());
            parts.extend(settings.signatures.keys.iter().map(|key| hex::encode(key.bytes())));
        }
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, salt));
        for part in &parts {
            // Length prefixes make the encoding unambiguous.
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part.as_bytes());
        }
        RequestKey(hex::encode(context.sign().as_ref()))
    }
}

impl SignatureSettings {
    /// Returns the signature policy for images of this kind.
    pub(super) fn policy(&self, kind: ImageKind) -> SignaturePolicy {
        match kind {
            ImageKind::Kernel => self.kernel,
            ImageKind::Ramdisk => self.ramdisk,
            ImageKind::DiskImage => self.disk_image,
            ImageKind::Iso => self.iso,
        }
    }
}

/// Returns the complete source, including secrets that `Display` omits.
fn source_with_secrets(source: &ImageSource) -> String {
    match source {
        ImageSource::Http(url) => url.to_string(),
        // Debug escapes paths that are not UTF-8.
        ImageSource::File(path) => format!("{path:?}"),
        ImageSource::Oci(reference) => reference.to_string(),
    }
}
