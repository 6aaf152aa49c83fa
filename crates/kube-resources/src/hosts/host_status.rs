// SPDX-License-Identifier: Apache-2.0
//! Status of a `BareMetalHost`: state, errors, credentials, history and conditions.

use k8s_openapi::api::core::v1::SecretReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::{Deserialize, Serialize};

use super::bare_metal_host::{HostBootMode, LegacyFirmwareConfig};
use super::hardware_data::HardwareDetails;
use super::host_image::{CustomDeploy, HostImage};
use super::raid::{DiskHints, HostRaid};
use crate::optional::{is_default, non_empty, null_is_default};
use crate::text_enum::text_enum;

/// Observed state of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BareMetalHostStatus {
    /// Whether the host works as requested.
    pub operational_status: OperationalStatus,
    /// The operation that failed.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub error_type: Option<HostErrorType>,
    /// The last error; empty if there is none. Cluster API Provider Metal3 uses only hosts without
    /// a message.
    pub error_message: String,
    /// Failed attempts in a row.
    pub error_count: i64,
    /// When the status was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// Power state reported by the BMC.
    pub powered_on: bool,
    /// Deprecated hardware profile.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub hardware_profile: Option<String>,
    /// The hardware; `HardwareData` has the same content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareDetails>,
    /// State, and the settings that were applied.
    pub provisioning: HostProvisionStatus,
    /// Credentials that worked last.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub good_credentials: HostCredentialsStatus,
    /// Credentials that were tried last.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub tried_credentials: HostCredentialsStatus,
    /// Start and end of the last run of each operation.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub operation_history: HostOperationHistory,
    /// Conditions; see [`super::conditions`].
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
}

text_enum! {
    /// Whether a host works as requested.
    #[derive(Default)]
    pub enum OperationalStatus {
        /// Not determined.
        #[default]
        Unset = "",
        /// It works.
        Ok = "OK",
        /// It has no BMC details.
        Discovered = "discovered",
        /// An operation failed.
        Error = "error",
        /// It waits for free provisioning capacity.
        Delayed = "delayed",
        /// It is not managed, because of an annotation.
        Detached = "detached",
        /// Firmware is changed while it is provisioned.
        Servicing = "servicing",
    }
}

text_enum! {
    /// The operation that failed.
    pub enum HostErrorType {
        /// Registration of a provisioned host.
        ProvisionedRegistration = "provisioned registration error",
        /// Registration.
        Registration = "registration error",
        /// Inspection.
        Inspection = "inspection error",
        /// Preparation: RAID, BIOS settings, firmware.
        Preparation = "preparation error",
        /// Provisioning or deprovisioning.
        Provisioning = "provisioning error",
        /// Change of the power state.
        PowerManagement = "power management error",
        /// Servicing.
        Servicing = "servicing error",
    }
}

text_enum! {
    /// State of a host.
    #[derive(Default)]
    pub enum HostProvisioningState {
        /// New.
        #[default]
        Unset = "",
        /// Without BMC details.
        Unmanaged = "unmanaged",
        /// BMC details are verified.
        Registering = "registering",
        /// State of old versions, left at once.
        MatchProfile = "match profile",
        /// Hardware is inspected.
        Inspecting = "inspecting",
        /// RAID, BIOS settings and firmware are applied.
        Preparing = "preparing",
        /// Old name of available.
        Ready = "ready",
        /// Can be provisioned.
        Available = "available",
        /// The image is deployed.
        Provisioning = "provisioning",
        /// The image runs.
        Provisioned = "provisioned",
        /// A system that was installed by other means runs.
        ExternallyProvisioned = "externally provisioned",
        /// The image is removed.
        Deprovisioning = "deprovisioning",
        /// Powered off, then deleted.
        PoweringOffBeforeDelete = "powering off before delete",
        /// The node is deleted.
        Deleting = "deleting",
    }
}

/// State of a host, and the settings that were applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HostProvisionStatus {
    /// State.
    pub state: HostProvisioningState,
    /// UUID of the node; empty if there is none.
    #[serde(rename = "ID")]
    pub id: String,
    /// The deployed image. Metal3 writes one with an empty URL if there is none; use
    /// [`HostProvisionStatus::deployed_image`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<HostImage>,
    /// Hints of the last deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_device_hints: Option<DiskHints>,
    /// Firmware mode of the deployed system.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub boot_mode: Option<HostBootMode>,
    /// Applied RAID configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raid: Option<HostRaid>,
    /// Always empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<LegacyFirmwareConfig>,
    /// Custom deployment that was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<CustomDeploy>,
}

/// A version of a Secret with BMC credentials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HostCredentialsStatus {
    /// The Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<SecretReference>,
    /// Its resource version.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub credentials_version: Option<String>,
}

/// The last run of each operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostOperationHistory {
    /// Registration.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub register: OperationTimes,
    /// Inspection.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub inspect: OperationTimes,
    /// Provisioning.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub provision: OperationTimes,
    /// Deprovisioning.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_is_default")]
    pub deprovision: OperationTimes,
}

/// Start and end of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OperationTimes {
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Time>,
    /// When it ended; `None` while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<Time>,
}

impl HostOperationHistory {
    /// The times of the operation that runs in a state; `None` for states without one.
    pub fn for_state(&mut self, state: &HostProvisioningState) -> Option<&mut OperationTimes> {
        use HostProvisioningState as State;
        match state {
            State::Registering => Some(&mut self.register),
            State::Inspecting => Some(&mut self.inspect),
            State::Provisioning => Some(&mut self.provision),
            State::Deprovisioning => Some(&mut self.deprovision),
            State::Unset
            | State::Unmanaged
            | State::MatchProfile
            | State::Preparing
            | State::Ready
            | State::Available
            | State::Provisioned
            | State::ExternallyProvisioned
            | State::PoweringOffBeforeDelete
            | State::Deleting
            | State::Other(_) => None,
        }
    }
}

impl OperationTimes {
    /// Records the start of a new run, and that it has not ended.
    pub fn start_at(&mut self, now: Time) {
        *self = Self { start: Some(now), end: None };
    }

    /// Records the end of a run that was started and not yet ended.
    pub fn end_at(&mut self, now: Time) {
        if self.start.is_some() && self.end.is_none() {
            self.end = Some(now);
        }
    }
}

impl HostProvisionStatus {
    /// The deployed image; `None` if there is none.
    #[must_use]
    pub fn deployed_image(&self) -> Option<&HostImage> {
        self.image.as_ref().filter(|image| !image.url.is_empty())
    }
}

impl HostCredentialsStatus {
    /// Whether this is the given version of a Secret.
    #[must_use]
    pub fn matches(&self, namespace: &str, name: &str, resource_version: &str) -> bool {
        let Some(secret) = &self.credentials else { return false };
        secret.name.as_deref() == Some(name)
            && secret.namespace.as_deref() == Some(namespace)
            && self.credentials_version.as_deref() == Some(resource_version)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn a_status_of_metal3_is_read() {
        let status: BareMetalHostStatus = serde_json::from_value(json!({
            "operationalStatus": "OK", "errorMessage": "", "poweredOn": false, "errorCount": 0,
            "provisioning": {"state": "available", "ID": "x", "image": {"url": ""}},
            "operationHistory": {"register": {"start": "2026-11-17T10:00:00Z", "end": null},
                "inspect": {"start": null, "end": null}},
            "hardware": {"nics": null, "cpu": {"arch": "x86_64", "flags": null}},
        }))
        .unwrap();
        assert_eq!(status.provisioning.state, HostProvisioningState::Available);
        assert_eq!(status.provisioning.deployed_image(), None);
        assert_eq!(status.operation_history.inspect, OperationTimes::default());
        assert!(status.operation_history.register.start.is_some());
    }

    #[test]
    fn an_operation_ends_once() {
        let mut times = OperationTimes::default();
        times.end_at(at(1));
        assert_eq!(times, OperationTimes::default(), "it was not started");
        times.start_at(at(2));
        times.end_at(at(3));
        times.end_at(at(4));
        assert_eq!(times, OperationTimes { start: Some(at(2)), end: Some(at(3)) });
        times.start_at(at(5));
        assert_eq!(times, OperationTimes { start: Some(at(5)), end: None });
    }

    #[test]
    fn only_four_states_have_a_history() {
        let mut history = HostOperationHistory::default();
        for (state, field) in [
            ("registering", Some("register")),
            ("inspecting", Some("inspect")),
            ("provisioning", Some("provision")),
            ("deprovisioning", Some("deprovision")),
            ("available", None),
            ("", None),
        ] {
            history = HostOperationHistory::default();
            let times = history.for_state(&HostProvisioningState::from(state.to_owned()));
            assert_eq!(times.is_some(), field.is_some(), "{state}");
            if let Some(times) = times {
                times.start_at(at(1));
            }
            let written = serde_json::to_value(&history).unwrap();
            let keys: Vec<&String> = written.as_object().unwrap().keys().collect();
            assert_eq!(keys, Vec::from_iter(field), "{state}");
        }
        assert_eq!(history, HostOperationHistory::default());
    }

    #[test]
    fn credentials_match_by_name_namespace_and_version() {
        let status: HostCredentialsStatus = serde_json::from_value(
            json!({"credentials": {"name": "bmc", "namespace": "lab"}, "credentialsVersion": "7"}),
        )
        .unwrap();
        assert!(status.matches("lab", "bmc", "7"));
        for (namespace, name, version) in
            [("other", "bmc", "7"), ("lab", "other", "7"), ("lab", "bmc", "8")]
        {
            assert!(!status.matches(namespace, name, version));
        }
        assert!(!HostCredentialsStatus::default().matches("", "", ""));
    }
}
