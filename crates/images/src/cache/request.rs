// SPDX-License-Identifier: Apache-2.0
//! Requests to the cache, and the keys that identify equal requests.

use ring::hmac;
use serde::{Deserialize, Serialize};

use super::{CacheSettings, ImageLimits};
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
        target_format: TargetFormat,
        checksums: &[Checksum],
    ) -> RequestKey {
        let checksums: Vec<String> = checksums.iter().map(ToString::to_string).collect();
        self.make_key(salt, settings, target_format, &checksums.join(" "))
    }

    /// The key of the request with these checksums, as stored in the names of records.
    fn make_key(
        &self,
        salt: &[u8; 32],
        settings: &CacheSettings,
        target_format: TargetFormat,
        checksums: &str,
    ) -> RequestKey {
        let parts = self.key_parts(settings, target_format, checksums);
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, salt));
        for (name, value) in &parts {
            for text in [name.as_bytes(), value] {
                // Length prefixes make the encoding unambiguous.
                context.update(&(text.len() as u64).to_le_bytes());
                context.update(text);
            }
        }
        RequestKey(hex::encode(context.sign().as_ref()))
    }

    /// Everything that determines the result or who may read it: requests with different credentials
    /// differ, so that a client without a password does not get a protected image. Images that were
    /// accepted under other limits or policies are checked again.
    ///
    /// Part of the stored format: if a name or a value changes, all images are downloaded again.
    fn key_parts(
        &self,
        settings: &CacheSettings,
        target_format: TargetFormat,
        checksums: &str,
    ) -> Vec<(&'static str, Vec<u8>)> {
        let mut parts: Vec<(&'static str, Vec<u8>)> = Vec::new();
        let mut add = |name, value: &[u8]| parts.push((name, value.to_vec()));
        let policy = settings.signatures.policy(self.kind);
        add("source", &source_with_secrets(&self.source));
        add("kind", self.kind.key_name().as_bytes());
        add("target_format", target_format.key_name().as_bytes());
        if !checksums.is_empty() {
            add("checksums", checksums.as_bytes());
        }
        if let Some(format) = self.declared_format {
            add("declared_format", format.name().as_bytes());
        }
        if let Some(architecture) = &self.architecture {
            add("architecture", architecture.as_bytes());
        }
        match &self.credentials {
            Some(ImageCredentials::Basic { user, password }) => {
                add("user", user.as_bytes());
                add("password", password.as_bytes());
            }
            Some(ImageCredentials::Header(header)) => add("authorization", header.as_bytes()),
            None => {}
        }
        let ImageLimits { download, unpacked, expansion } = settings.limits;
        add("max_download_bytes", download.to_string().as_bytes());
        add("max_unpacked_bytes", unpacked.to_string().as_bytes());
        add("max_expansion", expansion.to_string().as_bytes());
        match self.kind {
            ImageKind::DiskImage => {
                for format in &settings.permitted_formats {
                    add("permitted_format", format.name().as_bytes());
                }
            }
            ImageKind::Kernel | ImageKind::Ramdisk | ImageKind::Iso => {}
        }
        match &self.source {
            ImageSource::File(_) => {
                for folder in &settings.files.allowed {
                    add("allowed_folder", folder.as_os_str().as_encoded_bytes());
                }
            }
            ImageSource::Http(_) | ImageSource::Oci(_) => {}
        }
        add("signature_policy", signature_policy_name(policy).as_bytes());
        if policy != SignaturePolicy::Off {
            if let Some(signature) = &self.signature {
                add("signature", &source_with_secrets(signature));
            }
            for key in &settings.signatures.keys {
                add("public_key", key.bytes());
            }
        }
        parts
    }
}

impl ImageKind {
    /// Returns the name in cache keys.
    const fn key_name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Ramdisk => "ramdisk",
            Self::DiskImage => "disk_image",
            Self::Iso => "iso",
        }
    }
}

impl TargetFormat {
    /// Returns the name in cache keys.
    const fn key_name(self) -> &'static str {
        match self {
            Self::AsIs => "as_is",
            Self::Raw => "raw",
        }
    }
}

const fn signature_policy_name(policy: SignaturePolicy) -> &'static str {
    match policy {
        SignaturePolicy::Off => "off",
        SignaturePolicy::WhenPresent => "when_present",
        SignaturePolicy::Required => "required",
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
fn source_with_secrets(source: &ImageSource) -> Vec<u8> {
    match source {
        ImageSource::Http(url) => url.to_string().into_bytes(),
        ImageSource::File(path) => {
            [b"file:".as_slice(), path.as_os_str().as_encoded_bytes()].concat()
        }
        ImageSource::Oci(reference) => format!("oci:{reference}").into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::PathBuf;

    use expect_test::{Expect, expect};

    use super::*;

    fn settings() -> CacheSettings {
        let mut settings = CacheSettings::new(PathBuf::from("/cache"));
        settings.limits = ImageLimits { download: 1000, unpacked: 2000, expansion: 30 };
        settings.permitted_formats = vec![ImageFormat::Raw, ImageFormat::Qcow2];
        settings.files.allowed = vec![PathBuf::from("/srv/images")];
        settings
    }

    /// Compares the parts and the key with those that earlier builds stored.
    fn check(request: &CacheRequest, settings: &CacheSettings, expected: &Expect) {
        let mut text = String::new();
        for (name, value) in request.key_parts(settings, request.target_format, "") {
            let _ = writeln!(text, "{name} = {}", value.escape_ascii());
        }
        let _ = writeln!(text, "{}", request.key(&[7; 32], settings).0);
        expected.assert_eq(&text);
    }

    #[test]
    fn keys_have_a_stable_format() {
        let source = ImageSource::parse("https://images.example/a.qcow2?token=1").unwrap();
        let disk = CacheRequest {
            declared_format: Some(ImageFormat::Qcow2),
            target_format: TargetFormat::Raw,
            credentials: Some(ImageCredentials::Basic {
                user: "ann".to_owned(),
                password: "secret".to_owned(),
            }),
            architecture: Some("x86_64".to_owned()),
            ..CacheRequest::new(source, ImageKind::DiskImage)
        };
        check(
            &disk,
            &settings(),
            &expect![[r#"
                source = https://images.example/a.qcow2?token=1
                kind = disk_image
                target_format = raw
                declared_format = qcow2
                architecture = x86_64
                user = ann
                password = secret
                max_download_bytes = 1000
                max_unpacked_bytes = 2000
                max_expansion = 30
                permitted_format = raw
                permitted_format = qcow2
                signature_policy = off
                f6a45f7d6a5133cfbd346760d0a09a5bf8c9d0d01b59fd590bd7d55abc8cbd3a
            "#]],
        );
        let source = ImageSource::parse("file:///srv/images/kernel").unwrap();
        let kernel = CacheRequest::new(source, ImageKind::Kernel);
        let mut required = settings();
        required.signatures.kernel = SignaturePolicy::Required;
        check(
            &kernel,
            &required,
            &expect![[r#"
                source = file:/srv/images/kernel
                kind = kernel
                target_format = as_is
                max_download_bytes = 1000
                max_unpacked_bytes = 2000
                max_expansion = 30
                allowed_folder = /srv/images
                signature_policy = required
                22d3585896a4c27ef336123859c5743d97365ef6d470ebc49fdcd2adfbbb58d4
            "#]],
        );
    }

    #[test]
    fn every_part_changes_the_key() {
        let source = ImageSource::parse("https://images.example/a").unwrap();
        let request = CacheRequest::new(source, ImageKind::Kernel);
        let key =
            |request: &CacheRequest, settings: &CacheSettings| request.key(&[7; 32], settings);
        let mut keys = vec![key(&request, &settings())];
        let header = Some(ImageCredentials::Header("Bearer x".to_owned()));
        keys.push(key(&CacheRequest { credentials: header, ..request.clone() }, &settings()));
        keys.push(key(&CacheRequest { kind: ImageKind::Ramdisk, ..request.clone() }, &settings()));
        let raw = CacheRequest { target_format: TargetFormat::Raw, ..request.clone() };
        keys.push(key(&raw, &settings()));
        let mut limited = settings();
        limited.limits.download = 1;
        keys.push(key(&request, &limited));
        let mut signed = settings();
        signed.signatures.kernel = SignaturePolicy::WhenPresent;
        keys.push(key(&request, &signed));
        let count = keys.len();
        keys.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        keys.dedup();
        assert_eq!(keys.len(), count);
    }
}
