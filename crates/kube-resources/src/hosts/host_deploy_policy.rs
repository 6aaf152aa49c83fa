// SPDX-License-Identifier: Apache-2.0
//! `HostDeployPolicy`: namespaces whose claims may use the hosts of a namespace.

use serde::{Deserialize, Serialize};

use crate::kind::namespaced_kind;
use crate::optional::{non_empty, null_is_default};

namespaced_kind! {
    /// Namespaces whose claims may use the hosts of this namespace.
    pub struct HostDeployPolicy in "metal3.io" / "v1alpha1", plural "hostdeploypolicies" {
        spec: HostDeployPolicySpec,
    }
}

/// The constraints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HostDeployPolicySpec {
    /// Constraints on the namespace of a claim. A policy without them allows nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_claim_namespaces: Option<ClaimNamespaces>,
}

/// Constraints on a namespace. All that are given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimNamespaces {
    /// Allowed names.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub names: Vec<String>,
    /// Regular expression for the name.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub name_matches: Option<String>,
    /// Labels of the namespace.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub has_labels: Vec<NamespaceLabel>,
}

/// A label that a namespace must have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespaceLabel {
    /// Key.
    pub name: String,
    /// Value; any if missing.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub value: Option<String>,
}
