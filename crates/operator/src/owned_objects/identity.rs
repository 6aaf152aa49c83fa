// SPDX-License-Identifier: Apache-2.0
//! Kind and name of an object.

use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

/// Kind and name of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectIdentity {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
}

impl ObjectIdentity {
    /// Creates an identity.
    pub fn new(
        api_version: impl Into<String>,
        kind: impl Into<String>,
        name: impl Into<String>,
    ) -> Self {
        Self { api_version: api_version.into(), kind: kind.into(), name: name.into() }
    }

    /// The identity of an object; `None` if it is incomplete.
    pub(crate) fn of(object: &Value) -> Option<Self> {
        Some(Self::new(
            object["apiVersion"].as_str()?,
            object["kind"].as_str()?,
            object["metadata"]["name"].as_str()?,
        ))
    }

    /// How the API server calls the kind.
    pub(crate) fn resource(&self) -> ApiResource {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &self.kind))
    }
}
