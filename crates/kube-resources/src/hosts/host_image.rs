// SPDX-License-Identifier: Apache-2.0
//! Images and custom deployments, as `BareMetalHost` and `HostClaim` request them.

use serde::{Deserialize, Serialize};

use crate::optional::non_empty;
use crate::text_enum::text_enum;

/// An image to deploy or to boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HostImage {
    /// Where the image is downloaded from. Empty in a status that Metal3 wrote without an image.
    pub url: String,
    /// Checksum, or the URL of a file with checksums.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub checksum: Option<String>,
    /// Algorithm of the checksum.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub checksum_type: Option<ImageChecksumType>,
    /// Format of the image.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub format: Option<HostImageFormat>,
    /// Secret with the credentials for an OCI registry.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub oci_auth_secret_name: Option<String>,
}

text_enum! {
    /// Algorithm of a checksum.
    pub enum ImageChecksumType {
        /// MD5.
        Md5 = "md5",
        /// SHA-256.
        Sha256 = "sha256",
        /// SHA-512.
        Sha512 = "sha512",
        /// Detected from the length.
        Auto = "auto",
    }
}

text_enum! {
    /// Format of an image.
    pub enum HostImageFormat {
        /// Raw disk image.
        Raw = "raw",
        /// QEMU disk image.
        Qcow2 = "qcow2",
        /// VirtualBox disk image.
        Vdi = "vdi",
        /// VMware disk image.
        Vmdk = "vmdk",
        /// ISO image that is booted and not written to a disk.
        LiveIso = "live-iso",
    }
}

/// Deployment by a step of a site-specific ramdisk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CustomDeploy {
    /// Name of the deploy step.
    pub method: String,
}

impl HostImage {
    /// Whether the image is booted instead of written.
    #[must_use]
    pub fn is_live_iso(&self) -> bool {
        self.format == Some(HostImageFormat::LiveIso)
    }

    /// Whether the image comes from an OCI registry.
    #[must_use]
    pub fn is_oci(&self) -> bool {
        self.url.starts_with("oci://")
    }
}
