// SPDX-License-Identifier: Apache-2.0
//! Types and reasons of conditions, and how a condition is updated.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Condition types of a `BareMetalHost`.
pub mod host {
    /// The BMC can be used.
    pub const MANAGEABLE: &str = "Manageable";
    /// An image can be deployed.
    pub const AVAILABLE_FOR_PROVISIONING: &str = "AvailableForProvisioning";
    /// An image is deployed.
    pub const PROVISIONED: &str = "Provisioned";
    /// The host runs as requested.
    pub const READY: &str = "Ready";
    /// An operation is running.
    pub const PROGRESSING: &str = "Progressing";
    /// The BMC reports no hardware fault.
    pub const HEALTHY: &str = "Healthy";
}

/// Reasons in the conditions of a `BareMetalHost`.
pub mod host_reason {
    /// The BMC can be used.
    pub const MANAGEABLE: &str = "Manageable";
    /// There are no BMC details.
    pub const NOT_MANAGED: &str = "NotManaged";
    /// BMC details are verified.
    pub const REGISTERING: &str = "Registering";
    /// BMC details do not work.
    pub const REGISTRATION_FAILED: &str = "RegistrationFailed";
    /// The power state cannot be read or changed.
    pub const POWER_FAILURE: &str = "PowerFailure";
    /// An image can be deployed.
    pub const AVAILABLE: &str = "Available";
    /// No image can be deployed now.
    pub const NOT_AVAILABLE: &str = "NotAvailable";
    /// An image is deployed.
    pub const PROVISIONED: &str = "Provisioned";
    /// No image is deployed.
    pub const NOT_PROVISIONED: &str = "NotProvisioned";
    /// An image is being deployed.
    pub const PROVISIONING: &str = "Provisioning";
    /// An operation failed.
    pub const ERROR: &str = "Error";
    /// The host is detached.
    pub const DETACHED: &str = "Detached";
    /// Firmware is changed while the host is provisioned.
    pub const SERVICING: &str = "Servicing";
    /// Hardware is inspected.
    pub const INSPECTING: &str = "Inspecting";
    /// RAID, BIOS settings and firmware are applied.
    pub const PREPARING: &str = "Preparing";
    /// The image is being removed.
    pub const DEPROVISIONING: &str = "Deprovisioning";
    /// The host is powered off before it is deleted.
    pub const POWERING_OFF_BEFORE_DELETE: &str = "PoweringOffBeforeDelete";
    /// The node is being deleted.
    pub const DELETING: &str = "Deleting";
    /// No operation is running.
    pub const NOT_PROGRESSING: &str = "NotProgressing";
    /// No fault is reported.
    pub const HEALTHY: &str = "Healthy";
    /// The BMC has not reported its health.
    pub const HEALTH_UNKNOWN: &str = "Unknown";
    /// The BMC reports a warning.
    pub const HEALTH_WARNING: &str = "Warning";
    /// The BMC reports a critical fault.
    pub const HEALTH_CRITICAL: &str = "CriticalError";
}

/// Condition types and reasons of `HostFirmwareSettings` and `HostFirmwareComponents`.
pub mod firmware {
    /// The spec differs from the current values.
    pub const CHANGE_DETECTED: &str = "ChangeDetected";
    /// The spec is valid.
    pub const VALID: &str = "Valid";
    /// The values of a generation were applied. Not part of Metal3.
    pub const SETTINGS_APPLIED: &str = "Applied";
    /// Reason for settings: the spec was read.
    pub const SETTINGS_SUCCESS: &str = "Success";
    /// Reason for settings: the spec is invalid.
    pub const SETTINGS_CONFIGURATION_ERROR: &str = "ConfigurationError";
    /// Reason for components: the spec is valid.
    pub const COMPONENTS_OK: &str = "OK";
    /// Reason for components: the spec names an unsupported component.
    pub const COMPONENTS_INVALID: &str = "InvalidComponent";
}

/// Condition types and reasons of a `PreprovisioningImage`.
pub mod preprovisioning_image {
    /// The image can be used.
    pub const READY: &str = "Ready";
    /// The image cannot be built.
    pub const ERROR: &str = "Error";
    /// Reason: the image was built.
    pub const SUCCESS: &str = "ImageSuccess";
    /// Reason: the request is invalid.
    pub const CONFIGURATION_ERROR: &str = "ConfigurationError";
    /// Reason: the Secret with the network configuration is missing.
    pub const MISSING_NETWORK_DATA: &str = "MissingNetworkData";
    /// Reason: the image cannot be built with these inputs.
    pub const BUILD_INVALID: &str = "ImageBuildInvalid";
}

/// Condition types of a `HostClaim`.
pub mod host_claim {
    /// A host was chosen.
    pub const ASSOCIATED: &str = "Associated";
    /// The host has the settings of the claim.
    pub const SYNCHRONIZED: &str = "Synchronized";
    /// The image is deployed.
    pub const PROVISIONED: &str = "Provisioned";
    /// An image can be deployed.
    pub const AVAILABLE_FOR_PROVISIONING: &str = "AvailableForProvisioning";
    /// Summary.
    pub const READY: &str = "Ready";
}

/// Reasons in the conditions of a `HostClaim`.
pub mod host_claim_reason {
    /// A host was chosen.
    pub const BARE_METAL_HOST_ASSOCIATED: &str = "BareMetalHostAssociated";
    /// No host can be chosen.
    pub const NO_BARE_METAL_HOST: &str = "NoBareMetalHost";
    /// The chosen host does not exist any more, or is used by something else.
    pub const MISSING_BARE_METAL_HOST: &str = "MissingBareMetalHost";
    /// The claim is being deleted.
    pub const HOST_CLAIM_DELETING: &str = "HostClaimDeleting";
    /// The host and the copies of Secrets are as the claim requests.
    pub const CONFIGURATION_SYNCED: &str = "ConfigurationSynced";
    /// The Secret with user data cannot be copied.
    pub const USER_DATA_SECRET_SYNC_FAILURE: &str = "UserDataSecretSyncFailure";
    /// The Secret with metadata cannot be copied.
    pub const META_DATA_SECRET_SYNC_FAILURE: &str = "MetaDataSecretSyncFailure";
    /// The Secret with the network configuration cannot be copied.
    pub const NETWORK_DATA_SECRET_SYNC_FAILURE: &str = "NetworkDataSecretSyncFailure";
    /// The Secret with the credentials for the image cannot be copied. Not part of Metal3.
    pub const IMAGE_AUTH_SECRET_SYNC_FAILURE: &str = "ImageAuthSecretSyncFailure";
    /// The host cannot be changed.
    pub const BARE_METAL_HOST_NOT_SYNCHRONIZED: &str = "BareMetalHostNotSynchronized";
    /// The host does not have the condition.
    pub const UNKNOWN: &str = "Unknown";
    /// The summary: all conditions hold.
    pub const READY: &str = "Ready";
    /// The summary: a condition does not hold.
    pub const NOT_READY: &str = "NotReady";
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It is not known.
    Unknown,
}

impl ConditionStatus {
    /// The text in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// Longest message of a condition.
const MAX_MESSAGE_BYTES: usize = 4096;

/// The values of a condition, without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionUpdate {
    /// Type.
    pub type_: &'static str,
    /// Status.
    pub status: ConditionStatus,
    /// Short identifier of the cause.
    pub reason: &'static str,
    /// Details for a person.
    pub message: String,
    /// Generation of the object for which it was determined.
    pub observed_generation: Option<i64>,
}

/// Sets a condition and returns whether the list changed.
///
/// The transition time changes only with the status. Metal3 also writes a condition only then, so
/// that its observed generation becomes stale; ours is always current.
pub fn set_condition(conditions: &mut Vec<Condition>, update: ConditionUpdate, now: &Time) -> bool {
    let existing = conditions.iter_mut().find(|condition| condition.type_ == update.type_);
    let status = update.status.as_str();
    let last_transition_time = match &existing {
        Some(condition) if condition.status == status => condition.last_transition_time.clone(),
        _ => now.clone(),
    };
    let changed = Condition {
        type_: update.type_.to_owned(),
        status: status.to_owned(),
        reason: update.reason.to_owned(),
        message: shortened(update.message),
        observed_generation: update.observed_generation,
        last_transition_time,
    };
    match existing {
        Some(condition) if *condition == changed => false,
        Some(condition) => {
            *condition = changed;
            true
        }
        None => {
            conditions.push(changed);
            true
        }
    }
}

/// Cuts a message at the limit: the API server rejects conditions with more than 32 KiB.
fn shortened(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_BYTES {
        let mut starts = message.char_indices().map(|(start, _)| start);
        let end = starts.rfind(|start| *start <= MAX_MESSAGE_BYTES).unwrap_or_default();
        message.truncate(end);
        message.push('…');
    }
    message
}

/// Whether a condition exists and holds.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    conditions.iter().any(|condition| condition.type_ == type_ && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn update(status: ConditionStatus, generation: i64) -> ConditionUpdate {
        ConditionUpdate {
            type_: host::READY,
            status,
            reason: host_reason::PROVISIONED,
            message: String::new(),
            observed_generation: Some(generation),
        }
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let cut = shortened("é".repeat(3000));
        assert_eq!(cut.chars().filter(|char| *char == 'é').count(), MAX_MESSAGE_BYTES / 2);
        assert!(cut.ends_with('…'));
        assert_eq!(shortened("short".to_owned()), "short");
    }

    #[test]
    fn only_a_changed_status_changes_the_transition_time() {
        let mut conditions = Vec::new();
        let mut set = |status, generation, second| {
            let changed = set_condition(&mut conditions, update(status, generation), &at(second));
            (changed, conditions[0].last_transition_time.clone(), conditions.len())
        };
        assert_eq!(set(ConditionStatus::True, 1, 1), (true, at(1), 1));
        assert_eq!(set(ConditionStatus::True, 1, 2), (false, at(1), 1));
        assert_eq!(set(ConditionStatus::True, 2, 3), (true, at(1), 1), "generation");
        assert_eq!(set(ConditionStatus::False, 2, 4), (true, at(4), 1));
        assert!(!is_true(&conditions, host::READY));
        assert!(!is_true(&conditions, host::HEALTHY));
    }
}
