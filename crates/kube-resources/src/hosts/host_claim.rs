// SPDX-License-Identifier: Apache-2.0
//! `HostClaim`: a request for a host that matches a selector.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ObjectReference, SecretReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::{Deserialize, Serialize};

use super::host_image::{CustomDeploy, HostImage};
use crate::kind::namespaced_kind;
use crate::optional::{is_default, is_false, non_empty, null_is_default};

namespaced_kind! {
    /// A request for a host.
    pub struct HostClaim in "metal3.io" / "v1alpha1", plural "hostclaims" {
        spec: HostClaimSpec,
        status: HostClaimStatus,
    }
}

/// The requested host and what to install on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HostClaimSpec {
    /// Whether the host should be powered on.
    pub powered_on: bool,
    /// The image to deploy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<HostImage>,
    /// Secret with user data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<SecretReference>,
    /// Secret with the network configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data: Option<SecretReference>,
    /// Secret with metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<SecretReference>,
    /// Deployment by a step of a site-specific ramdisk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<CustomDeploy>,
    /// Hosts that can be chosen.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub host_selector: HostClaimSelector,
    /// The object that uses the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer_ref: Option<ObjectReference>,
    /// Failure domain of the host.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub failure_domain: Option<String>,
}

/// Hosts that can be chosen. All constraints must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HostClaimSelector {
    /// Namespace of the host.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub in_namespace: Option<String>,
    /// Labels with exact values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_default")]
    pub match_labels: BTreeMap<String, String>,
    /// Conditions on labels.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub match_expressions: Vec<HostLabelRequirement>,
}

/// A condition on a label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostLabelRequirement {
    /// Key of the label.
    pub key: String,
    /// Operator of a label selector; see [`LABEL_OPERATORS`].
    pub operator: String,
    /// Values to compare with.
    #[serde(deserialize_with = "null_is_default")]
    pub values: Vec<String>,
}

/// Operators that a claim can use, and how many values each takes.
pub const LABEL_OPERATORS: &[(&str, LabelValueCount)] = &[
    ("=", LabelValueCount::One),
    ("==", LabelValueCount::One),
    ("!=", LabelValueCount::One),
    ("in", LabelValueCount::AtLeastOne),
    ("notin", LabelValueCount::AtLeastOne),
    ("exists", LabelValueCount::Zero),
    ("!", LabelValueCount::Zero),
];

/// How many values an operator takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelValueCount {
    /// None.
    Zero,
    /// Exactly one.
    One,
    /// One or more.
    AtLeastOne,
}

/// Observed state of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HostClaimStatus {
    /// The host that was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare_metal_host: Option<ClaimedObject>,
    /// The `HardwareData` of the host, in the namespace of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware_data: Option<ClaimedObject>,
    /// Power state of the host.
    #[serde(skip_serializing_if = "is_false")]
    pub powered_on: bool,
    /// When the status was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
}

/// Namespace and name of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimedObject {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
}
