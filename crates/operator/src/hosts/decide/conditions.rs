// SPDX-License-Identifier: Apache-2.0
//! Conditions of a host, computed from its status and what is running.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube_resources::hosts::conditions::{
    ConditionStatus, ConditionUpdate, host, host_reason, set_condition,
};
use kube_resources::hosts::host_status::{
    BareMetalHostStatus, HostErrorType, HostProvisioningState, OperationalStatus,
};

use super::super::provisioner::HostHealth;
use super::deletion::{DELETION_PAUSED, PAUSE_TEXT};
use super::inputs::{HostMemory, HostView};

type Value = (ConditionStatus, &'static str, String);

/// Sets all conditions.
pub(super) fn refresh(
    status: &mut BareMetalHostStatus,
    view: &HostView<'_>,
    memory: &HostMemory,
    now: Timestamp,
) {
    let mut values = vec![
        (host::MANAGEABLE, manageable(status, memory, view.is_deleting())),
        (host::AVAILABLE_FOR_PROVISIONING, available(status)),
        (host::PROVISIONED, provisioned(status)),
        (host::READY, ready(status)),
        (
            host::PROGRESSING,
            match view.is_paused() && view.is_deleting() {
                true => fails(DELETION_PAUSED, PAUSE_TEXT),
                false => progressing(status, memory, now),
            },
        ),
    ];
    values.extend(health(status, memory).map(|value| (host::HEALTHY, value)));
    for (type_, value) in values {
        set(status, type_, value, view.generation(), now);
    }
}

/// Sets one condition.
pub(super) fn set(
    status: &mut BareMetalHostStatus,
    type_: &'static str,
    (condition, reason, message): Value,
    observed_generation: Option<i64>,
    now: Timestamp,
) {
    let update = ConditionUpdate { type_, status: condition, reason, message, observed_generation };
    set_condition(&mut status.conditions, update, &Time(now));
}

fn holds(reason: &'static str) -> Value {
    (ConditionStatus::True, reason, String::new())
}

fn fails(reason: &'static str, message: &str) -> Value {
    (ConditionStatus::False, reason, message.to_owned())
}

fn manageable(status: &BareMetalHostStatus, memory: &HostMemory, is_deleting: bool) -> Value {
    use HostProvisioningState as State;
    let is_registration_error = matches!(
        status.error_type,
        Some(HostErrorType::Registration | HostErrorType::ProvisionedRegistration)
    );
    match &status.provisioning.state {
        State::Unset | State::Unmanaged => fails(host_reason::NOT_MANAGED, ""),
        _ if status.operational_status == OperationalStatus::Detached => {
            fails(host_reason::DETACHED, "")
        }
        _ if is_registration_error => {
            fails(host_reason::REGISTRATION_FAILED, &status.error_message)
        }
        State::Registering => fails(host_reason::REGISTERING, ""),
        _ if status.provisioning.id.is_empty() => match is_deleting {
            true => fails(host_reason::NOT_MANAGED, "the host is not registered"),
            false => fails(host_reason::REGISTERING, ""),
        },
        _ if memory.observation.is_some_and(|seen| seen.has_power_failure) => {
            fails(host_reason::POWER_FAILURE, "the service cannot reach the BMC")
        }
        State::MatchProfile
        | State::Inspecting
        | State::Preparing
        | State::Ready
        | State::Available
        | State::Provisioning
        | State::Provisioned
        | State::ExternallyProvisioned
        | State::Deprovisioning
        | State::PoweringOffBeforeDelete
        | State::Deleting
        | State::Other(_) => holds(host_reason::MANAGEABLE),
    }
}

fn available(status: &BareMetalHostStatus) -> Value {
    use HostProvisioningState as State;
    let is_available = matches!(status.provisioning.state, State::Available | State::Ready);
    match (is_available, status.operational_status == OperationalStatus::Detached) {
        (true, false) if status.error_message.is_empty() => holds(host_reason::AVAILABLE),
        _ => fails(host_reason::NOT_AVAILABLE, &status.error_message),
    }
}

fn provisioned(status: &BareMetalHostStatus) -> Value {
    use HostProvisioningState as State;
    match &status.provisioning.state {
        State::Provisioned | State::ExternallyProvisioned => holds(host_reason::PROVISIONED),
        State::Provisioning => fails(host_reason::PROVISIONING, ""),
        State::Deprovisioning => fails(host_reason::DEPROVISIONING, ""),
        State::Unset
        | State::Unmanaged
        | State::Registering
        | State::MatchProfile
        | State::Inspecting
        | State::Preparing
        | State::Ready
        | State::Available
        | State::PoweringOffBeforeDelete
        | State::Deleting
        | State::Other(_) => fails(host_reason::NOT_PROVISIONED, ""),
    }
}

fn ready(status: &BareMetalHostStatus) -> Value {
    match &status.operational_status {
        OperationalStatus::Error => fails(host_reason::ERROR, &status.error_message),
        OperationalStatus::Detached => fails(host_reason::DETACHED, ""),
        OperationalStatus::Servicing => fails(host_reason::SERVICING, ""),
        OperationalStatus::Unset
        | OperationalStatus::Ok
        | OperationalStatus::Discovered
        | OperationalStatus::Delayed
        | OperationalStatus::Other(_) => provisioned(status),
    }
}

fn progressing(status: &BareMetalHostStatus, memory: &HostMemory, now: Timestamp) -> Value {
    use HostProvisioningState as State;
    let reason = match &status.provisioning.state {
        _ if status.operational_status == OperationalStatus::Detached => {
            return fails(host_reason::DETACHED, "");
        }
        State::Registering => host_reason::REGISTERING,
        State::Inspecting => host_reason::INSPECTING,
        State::Preparing | State::MatchProfile => host_reason::PREPARING,
        State::Provisioning => host_reason::PROVISIONING,
        State::Deprovisioning => host_reason::DEPROVISIONING,
        State::PoweringOffBeforeDelete => host_reason::POWERING_OFF_BEFORE_DELETE,
        State::Deleting => host_reason::DELETING,
        _ if status.operational_status == OperationalStatus::Servicing => host_reason::SERVICING,
        State::Unset
        | State::Unmanaged
        | State::Ready
        | State::Available
        | State::Provisioned
        | State::ExternallyProvisioned
        | State::Other(_) => {
            // A change of the power state, or a registration after a change of the settings.
            let message = match memory.wait.is_some() || memory.blocked.is_some() {
                true => progress_message(status, memory, now),
                false => String::new(),
            };
            return fails(host_reason::NOT_PROGRESSING, &message);
        }
    };
    (ConditionStatus::True, reason, progress_message(status, memory, now))
}

/// What is waited for, the step, the last failure, and for how many minutes. Seconds would cause a
/// write in every pass.
fn progress_message(status: &BareMetalHostStatus, memory: &HostMemory, now: Timestamp) -> String {
    let mut parts = Vec::new();
    if status.operational_status == OperationalStatus::Delayed {
        parts.push("waiting for free provisioning capacity".to_owned());
    }
    if let Some(reason) = &memory.blocked {
        parts.push(reason.clone());
    } else if let Some(wait) = &memory.wait {
        parts.push(wait.reason.as_str().to_owned());
        parts.extend(wait.step.as_ref().map(|step| format!("step {step}")));
        // Once the attempt has begun, its time has no meaning any more.
        let next = wait.next_attempt.filter(|at| *at > now);
        let next = next.map(|at| format!(" (next attempt at {at:.0})")).unwrap_or_default();
        parts.extend(wait.failure.as_ref().map(|failure| format!("last failure: {failure}{next}")));
    }
    let minutes = memory.wait_since.map(|since| now.duration_since(since).as_mins());
    if let Some(minutes) = minutes.filter(|minutes| *minutes > 0) {
        parts.push(format!("for {minutes} min"));
    }
    parts.join(", ")
}

/// Unchanged if the health was not read in this pass.
fn health(status: &BareMetalHostStatus, memory: &HostMemory) -> Option<Value> {
    let known = status.conditions.iter().any(|condition| condition.type_ == host::HEALTHY);
    let unknown = (ConditionStatus::Unknown, host_reason::HEALTH_UNKNOWN, String::new());
    let Some(observation) = &memory.observation else { return (!known).then_some(unknown) };
    Some(match observation.health {
        Some(HostHealth::Ok) => holds(host_reason::HEALTHY),
        Some(HostHealth::Warning) => {
            fails(host_reason::HEALTH_WARNING, "the BMC reports a warning")
        }
        Some(HostHealth::Critical) => {
            fails(host_reason::HEALTH_CRITICAL, "the BMC reports a critical fault")
        }
        None => unknown,
    })
}
