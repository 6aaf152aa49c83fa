// SPDX-License-Identifier: Apache-2.0
//! `HostFirmwareComponents`: firmware versions of a host and requested updates.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::{Deserialize, Serialize};

use crate::kind::namespaced_kind;
use crate::optional::{non_empty, null_is_default};

namespaced_kind! {
    /// Firmware of the host with the same name.
    pub struct HostFirmwareComponents in "metal3.io" / "v1alpha1", plural "hostfirmwarecomponents" {
        spec: HostFirmwareComponentsSpec,
        status: HostFirmwareComponentsStatus,
    }
}

/// Names of components that can be updated, apart from those with [`NIC_COMPONENT_PREFIX`].
pub const FIXED_COMPONENTS: &[&str] = &["bmc", "bios"];
/// Start of the names of NICs.
pub const NIC_COMPONENT_PREFIX: &str = "nic:";

/// Whether a component can be updated. Ironic reports others too.
#[must_use]
pub fn is_supported_component(name: &str) -> bool {
    FIXED_COMPONENTS.contains(&name) || name.starts_with(NIC_COMPONENT_PREFIX)
}

/// Requested updates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostFirmwareComponentsSpec {
    /// Updates to apply.
    #[serde(deserialize_with = "null_is_default")]
    pub updates: Vec<FirmwareComponentUpdate>,
}

/// Installed versions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HostFirmwareComponentsStatus {
    /// Updates that were applied last.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub updates: Vec<FirmwareComponentUpdate>,
    /// Components and versions.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub components: Vec<FirmwareComponentVersion>,
    /// When the versions were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// `ChangeDetected` and `Valid`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
}

/// An update of one component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FirmwareComponentUpdate {
    /// `bmc`, `bios` or `nic:…`.
    pub component: String,
    /// Where the BMC reads the firmware image from.
    pub url: String,
}

/// Versions of one component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FirmwareComponentVersion {
    /// Name.
    pub component: String,
    /// Version when the host was registered.
    pub initial_version: String,
    /// Installed version.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub current_version: Option<String>,
    /// Version of the last update.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub last_version_flashed: Option<String>,
    /// When the version was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Time>,
}
