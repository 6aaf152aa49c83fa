// SPDX-License-Identifier: Apache-2.0
//! Outcomes of provisioner verbs.

use std::fmt;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube_resources::hosts::host_status::HostErrorType;

/// Time until the next call while something short is running.
pub(super) const SHORT_WAIT: Duration = Duration::from_secs(3);
/// Time until the next call while something long is running.
pub(super) const LONG_WAIT: Duration = Duration::from_secs(10);

/// Reason of conditions: a changed BMC address leads to another machine.
pub(in super::super) const DIFFERENT_MACHINE: &str = "DifferentMachine";

/// The value of a verb that is done, or why it is not.
pub type VerbOutcome<T> = Result<T, VerbStop>;

/// Why a verb is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerbStop {
    /// The operation continues; call again later.
    InProgress(ProvisionerWait),
    /// The operation failed. The user sees the message.
    Failed(ProvisionerFailure),
    /// The service does not know the host (any more).
    NeedsRegistration,
    /// The service cannot be used now.
    NotReady {
        /// Why.
        message: String,
    },
    /// An object that the operation needs does not exist (yet).
    MissingInput {
        /// Which one.
        message: String,
    },
    /// The service is busy with another operation on the node.
    Busy {
        /// What it does.
        reason: String,
    },
}

/// A running operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvisionerWait {
    /// What is waited for.
    pub reason: ProvisionerWaitReason,
    /// The step, as the service names it.
    pub step: Option<String>,
    /// The last failure, if the service repeats what failed.
    pub failure: Option<String>,
    /// When the service repeats it. In the past while it does.
    pub next_attempt: Option<Timestamp>,
    /// When to call again, unless an event arrives.
    pub retry_after: Duration,
    /// Whether this call started or changed something.
    pub is_changed: bool,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProvisionerWaitReason {
    /// The BMC is verified.
    Verifying,
    /// Hardware is inspected.
    Inspecting,
    /// The host is adopted.
    Adopting,
    /// RAID, BIOS settings and firmware are applied, or disks are cleaned.
    Cleaning,
    /// Firmware of a provisioned host is changed.
    Servicing,
    /// An image is deployed.
    Deploying,
    /// The image is removed.
    Undeploying,
    /// The power state changes.
    Power,
    /// An operation is aborted.
    Aborting,
    /// The node is removed.
    Deleting,
    /// The node changes to the state that the operation starts from.
    StateChange,
    /// A ramdisk is built for the host.
    RamdiskImage,
    /// Virtual media are attached or detached.
    VirtualMedia,
}

impl ProvisionerWaitReason {
    /// Whether the end shows in the state of the node or of an object, so that it is reported.
    #[must_use]
    pub const fn is_reported(self) -> bool {
        !matches!(self, Self::VirtualMedia)
    }

    /// The text in conditions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Verifying => "verifying the BMC",
            Self::Inspecting => "inspecting",
            Self::Adopting => "adopting",
            Self::Cleaning => "cleaning",
            Self::Servicing => "servicing",
            Self::Deploying => "deploying",
            Self::Undeploying => "removing the image",
            Self::Power => "changing the power state",
            Self::Aborting => "aborting",
            Self::Deleting => "removing the node",
            Self::StateChange => "changing the node's state",
            Self::RamdiskImage => "waiting for the ramdisk image",
            Self::VirtualMedia => "changing virtual media",
        }
    }
}

/// A failed operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvisionerFailure {
    /// The operation.
    pub kind: ProvisionerFailureKind,
    /// What failed, for the user.
    pub message: String,
}

/// The operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProvisionerFailureKind {
    /// Registration.
    Registration,
    /// Verification of the machine behind a changed BMC address.
    Identity,
    /// Adoption of a provisioned host.
    Adoption,
    /// Inspection.
    Inspection,
    /// Preparation.
    Preparation,
    /// Deployment or its removal.
    Provisioning,
    /// Change of the power state.
    Power,
    /// Servicing.
    Servicing,
    /// Removal from the service.
    Removal,
    /// Virtual media or event subscriptions.
    Attachment,
}

impl ProvisionerFailureKind {
    /// The value of `errorType`. The schema has no value for removal, which reverses registration.
    #[must_use]
    pub const fn error_type(self) -> HostErrorType {
        match self {
            Self::Registration | Self::Identity | Self::Removal => HostErrorType::Registration,
            Self::Adoption => HostErrorType::ProvisionedRegistration,
            Self::Inspection => HostErrorType::Inspection,
            Self::Preparation => HostErrorType::Preparation,
            Self::Provisioning => HostErrorType::Provisioning,
            Self::Power | Self::Attachment => HostErrorType::PowerManagement,
            Self::Servicing => HostErrorType::Servicing,
        }
    }

    /// Reason in the condition with the next attempt.
    #[must_use]
    pub const fn condition_reason(self) -> &'static str {
        match self {
            Self::Registration => "RegistrationFailed",
            Self::Identity => DIFFERENT_MACHINE,
            Self::Adoption => "AdoptionFailed",
            Self::Inspection => "InspectionFailed",
            Self::Preparation => "PreparationFailed",
            Self::Provisioning => "ProvisioningFailed",
            Self::Power => "PowerChangeFailed",
            Self::Servicing => "ServicingFailed",
            Self::Removal => "RemovalFailed",
            Self::Attachment => "AttachmentFailed",
        }
    }

    /// Reason of the event.
    #[must_use]
    pub const fn event_reason(self) -> &'static str {
        match self {
            Self::Registration | Self::Identity => "RegistrationError",
            Self::Adoption => "ProvisionedRegistrationError",
            Self::Inspection => "InspectionError",
            Self::Preparation => "PreparationError",
            Self::Provisioning => "ProvisioningError",
            Self::Power | Self::Attachment => "PowerManagementError",
            Self::Servicing => "ServicingError",
            Self::Removal => "DetachError",
        }
    }
}

impl fmt::Display for VerbStop {
    /// What stopped a verb, for the user.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InProgress(wait) => formatter.write_str(wait.reason.as_str()),
            Self::Failed(failure) => formatter.write_str(&failure.message),
            Self::NeedsRegistration => formatter.write_str("the host is not registered"),
            Self::NotReady { message } => {
                write!(formatter, "the provisioning service is not ready: {message}")
            }
            Self::MissingInput { message } => formatter.write_str(message),
            Self::Busy { reason } => write!(formatter, "the node is busy: {reason}"),
        }
    }
}

impl VerbStop {
    /// A running operation that this call started.
    #[must_use]
    pub fn started(reason: ProvisionerWaitReason) -> Self {
        Self::wait(reason, None, true)
    }

    /// A running operation that this call did not change.
    #[must_use]
    pub fn running(reason: ProvisionerWaitReason, step: Option<String>) -> Self {
        Self::wait(reason, step, false)
    }

    fn wait(reason: ProvisionerWaitReason, step: Option<String>, is_changed: bool) -> Self {
        use ProvisionerWaitReason as Reason;
        let retry_after = match reason {
            Reason::Verifying
            | Reason::Adopting
            | Reason::Power
            | Reason::Aborting
            | Reason::Deleting
            | Reason::StateChange
            | Reason::VirtualMedia => SHORT_WAIT,
            Reason::Inspecting
            | Reason::Cleaning
            | Reason::Servicing
            | Reason::Deploying
            | Reason::Undeploying
            | Reason::RamdiskImage => LONG_WAIT,
        };
        Self::InProgress(ProvisionerWait {
            reason,
            step,
            failure: None,
            next_attempt: None,
            retry_after,
            is_changed,
        })
    }

    /// Adds the last failure of a running operation. Ferrite appends the time of the next attempt to it.
    #[must_use]
    pub fn with_failure(mut self, failure: Option<String>) -> Self {
        if let Self::InProgress(wait) = &mut self {
            let (failure, next_attempt) = match failure {
                Some(text) => without_next_attempt(text),
                None => (None, None),
            };
            wait.failure = failure;
            wait.next_attempt = next_attempt;
        }
        self
    }

    /// The request only leads to the state from which the operation starts later.
    #[must_use]
    pub fn not_started(mut self) -> Self {
        if let Self::InProgress(wait) = &mut self {
            wait.is_changed = false;
        }
        self
    }

    /// A failed operation.
    #[must_use]
    pub fn failed(kind: ProvisionerFailureKind, message: impl Into<String>) -> Self {
        Self::Failed(ProvisionerFailure { kind, message: message.into() })
    }
}

/// Splits the text of a failure into the failure and the time of the next attempt.
fn without_next_attempt(text: String) -> (Option<String>, Option<Timestamp>) {
    let split = text.strip_suffix(')').and_then(|text| text.rsplit_once(" (next attempt at "));
    match split.and_then(|(failure, time)| Some((failure.to_owned(), time.parse().ok()?))) {
        Some((failure, time)) => (Some(failure), Some(time)),
        None => (Some(text), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_next_attempt_is_no_part_of_a_failure() {
        for (text, failure, time) in [
            ("no reply", "no reply", None),
            (
                "no reply (next attempt at 2026-11-18T10:00:09.123456+00:00)",
                "no reply",
                Some("2026-11-18T10:00:09.123456Z"),
            ),
            ("no reply (next attempt at noon)", "no reply (next attempt at noon)", None),
        ] {
            let time: Option<Timestamp> = time.map(|time| time.parse().unwrap());
            let (found, next) = without_next_attempt(text.to_owned());
            assert_eq!((found.as_deref(), next), (Some(failure), time));
        }
    }
}
