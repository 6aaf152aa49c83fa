// SPDX-License-Identifier: Apache-2.0
//! `PreprovisioningImage`: a ramdisk image that is built for one host.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

use crate::kind::namespaced_kind;
use crate::optional::{is_default, non_empty, null_is_default};
use crate::text_enum::text_enum;

namespaced_kind! {
    /// A ramdisk image for the host with the same name.
    pub struct PreprovisioningImage in "metal3.io" / "v1alpha1", plural "preprovisioningimages" {
        spec: PreprovisioningImageSpec,
        status: PreprovisioningImageStatus,
    }
}

/// The requested image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PreprovisioningImageSpec {
    /// Secret with the network configuration to include.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub network_data_name: Option<String>,
    /// CPU architecture.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub architecture: Option<String>,
    /// Formats that the host can boot.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub accept_formats: Vec<RamdiskFormat>,
}

/// The built image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PreprovisioningImageStatus {
    /// Where the image can be downloaded.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub image_url: Option<String>,
    /// Where the kernel of an initrd can be downloaded.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub kernel_url: Option<String>,
    /// Kernel parameters to add.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub extra_kernel_params: Option<String>,
    /// Format of the image.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub format: Option<RamdiskFormat>,
    /// The included network configuration.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub network_data: NetworkDataVersion,
    /// CPU architecture of the image.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub architecture: Option<String>,
    /// `Ready` and `Error`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
}

text_enum! {
    /// Format of a ramdisk image.
    pub enum RamdiskFormat {
        /// Bootable ISO image.
        Iso = "iso",
        /// Initial ramdisk, booted with a separate kernel.
        Initrd = "initrd",
    }
}

/// A version of a Secret with network configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkDataVersion {
    /// Name of the Secret.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub name: Option<String>,
    /// Its resource version.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub version: Option<String>,
}
