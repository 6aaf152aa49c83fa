// SPDX-License-Identifier: Apache-2.0
//! `DataImage`: an ISO image that is attached to a host as virtual media.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::kind::namespaced_kind;

namespaced_kind! {
    /// An ISO image for the host with the same name.
    pub struct DataImage in "metal3.io" / "v1alpha1", plural "dataimages" {
        spec: DataImageSpec,
        status: DataImageStatus,
    }
}

/// The requested image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DataImageSpec {
    /// Where the BMC reads the image from.
    pub url: String,
}

/// The observed virtual media.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataImageStatus {
    /// When the image was attached or detached last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_reconciled: Option<Time>,
    /// The image that is attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached_image: Option<AttachedImage>,
    /// The last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<DataImageError>,
}

/// An attached image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttachedImage {
    /// Its URL.
    pub url: String,
}

/// Failed attempts to attach or detach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DataImageError {
    /// How many in a row.
    pub count: i64,
    /// The last message.
    pub message: String,
}
