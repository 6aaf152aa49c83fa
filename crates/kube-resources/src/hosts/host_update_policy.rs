// SPDX-License-Identifier: Apache-2.0
//! `HostUpdatePolicy`: when firmware changes of a host are applied.

use serde::{Deserialize, Serialize};

use crate::kind::namespaced_kind;
use crate::optional::non_empty;
use crate::text_enum::text_enum;

namespaced_kind! {
    /// The policy for the host with the same name.
    pub struct HostUpdatePolicy in "metal3.io" / "v1alpha1", plural "hostupdatepolicies" {
        spec: HostUpdatePolicySpec,
    }
}

/// The policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HostUpdatePolicySpec {
    /// When BIOS settings are changed; while preparing if missing.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub firmware_settings: Option<FirmwareChangeTime>,
    /// When firmware is updated; while preparing if missing.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub firmware_updates: Option<FirmwareChangeTime>,
}

text_enum! {
    /// When firmware is changed.
    pub enum FirmwareChangeTime {
        /// While the host is prepared.
        OnPreparing = "onPreparing",
        /// Also at a reboot of a provisioned host.
        OnReboot = "onReboot",
    }
}
