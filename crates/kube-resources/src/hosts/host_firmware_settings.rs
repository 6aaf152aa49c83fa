// SPDX-License-Identifier: Apache-2.0
//! `HostFirmwareSettings`: BIOS settings of a host.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};

use crate::kind::namespaced_kind;
use crate::optional::null_is_default;

namespaced_kind! {
    /// BIOS settings of the host with the same name.
    pub struct HostFirmwareSettings in "metal3.io" / "v1alpha1", plural "hostfirmwaresettings" {
        spec: HostFirmwareSettingsSpec,
        status: HostFirmwareSettingsStatus,
    }
}

/// Requested settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostFirmwareSettingsSpec {
    /// Values by name. Other settings stay unchanged.
    #[serde(deserialize_with = "null_is_default")]
    pub settings: BTreeMap<String, IntOrString>,
}

/// Current settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HostFirmwareSettingsStatus {
    /// The schema of the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<FirmwareSchemaReference>,
    /// Values by name.
    #[serde(deserialize_with = "null_is_default")]
    pub settings: BTreeMap<String, String>,
    /// When the settings were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// `ChangeDetected` and `Valid`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
}

/// Reference to a `FirmwareSchema`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FirmwareSchemaReference {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
}
