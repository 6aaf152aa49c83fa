// SPDX-License-Identifier: Apache-2.0
//! The state machine of a host, without IO.
//!
//! [`decide()`] returns the next action of a host. If it is a call, [`apply()`] computes the status
//! from the outcome. A pass repeats both until the action is to wait; the caller writes every update
//! before it continues. Time is always an argument.

mod action;
mod apply;
mod back_off;
mod bmc_address;
mod conditions;
mod deletion;
mod deployment_failures;
mod detachment;
mod firmware;
mod inputs;
mod metadata;
mod power;
mod transition;

#[cfg(test)]
pub(crate) mod tests;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube_resources::hosts::annotations::{
    InspectRequest, RETRY_NOW, inspect_request, requested_reboot,
};
use kube_resources::hosts::host_status::{HostErrorType, HostProvisioningState, OperationalStatus};

pub use action::{HostAction, HostEvent, HostPatch, HostUpdate, HostVerb, NextPass, VerbValue};
pub use apply::apply;
pub use back_off::{MAX_BACK_OFF, RETRY_SCHEDULED};
pub use bmc_address::{
    BMC_ADDRESS_VERIFIED, HostIdentity, IdentityComparison, address_rejection, compare_identities,
    is_accepted_machine_uninspected, is_accepted_machine_unread,
};
pub use deployment_failures::DEPLOYMENT_FAILED;
pub use firmware::{effective_root_device_hints, preparing_firmware, servicing_firmware};
pub use inputs::{
    BmcAccessState, HostCompanions, HostLimits, HostMemory, HostView, SettingsVersion,
};

use self::firmware::FirmwareRequest;
use self::transition::StatusChange;
use super::provisioner::ProvisionerFailureKind;

/// When the Secret with the BMC credentials is looked for again.
const SECRET_POLL: Duration = Duration::from_secs(10);
/// When firmware settings that are not read yet are looked at again.
const FIRMWARE_POLL: Duration = Duration::from_secs(60);

const NO_BMC_DETAILS: &str =
    "the BMC details were removed; set spec.bmc.address and spec.bmc.credentialsName";

/// The next action of a host.
#[must_use]
pub fn decide(view: &HostView<'_>, now: Timestamp) -> HostAction {
    if view.is_deleting() && !view.has_finalizer() {
        return HostAction::Wait { after: None };
    }
    if view.is_paused() {
        return deletion::show_pause(view, now).unwrap_or(HostAction::Wait { after: None });
    }
    metadata::action(view, now)
        .or_else(|| deletion::action(view, now))
        .or_else(|| detachment::action(view, now))
        .or_else(|| first_states(view, now))
        .or_else(|| back_off::wait(view, now))
        .or_else(|| access(view, now))
        .or_else(|| registration(view))
        .unwrap_or_else(|| managed_states(view, now))
}

/// States in which there is no node yet, or in which it is only removed.
fn first_states(view: &HostView<'_>, now: Timestamp) -> Option<HostAction> {
    use HostProvisioningState as State;
    let change = || StatusChange::new(view, now);
    match view.state() {
        State::Unset | State::Unmanaged if view.host.has_bmc_details() => {
            Some(change().with_status(OperationalStatus::Ok).enter(State::Registering))
        }
        State::Unset => {
            let event = HostEvent::new("Discovered", "The host has no BMC details yet");
            let discovered = change().with_status(OperationalStatus::Discovered).with_event(event);
            Some(discovered.enter(State::Unmanaged))
        }
        State::Unmanaged => Some(HostAction::Wait { after: None }),
        State::MatchProfile => Some(change().enter(State::Preparing)),
        State::Deleting => {
            let was_managed = view.host.has_bmc_details() || !view.node_id().is_empty();
            if !was_managed {
                return Some(change().release(None));
            }
            let wait = back_off::wait(view, now).filter(|_| !deletion::is_forced_now(view));
            Some(wait.unwrap_or(HostAction::Call(HostVerb::Delete)))
        }
        State::Other(_) => Some(HostAction::Wait { after: None }),
        State::Registering
        | State::Inspecting
        | State::Preparing
        | State::Ready
        | State::Available
        | State::Provisioning
        | State::Provisioned
        | State::ExternallyProvisioned
        | State::Deprovisioning
        | State::PoweringOffBeforeDelete => None,
    }
}

/// Reports BMC details that cannot be used. A host that is deleted does not need them while its node
/// is known.
fn access(view: &HostView<'_>, now: Timestamp) -> Option<HostAction> {
    let (message, is_missing) = match &view.companions.bmc_access {
        BmcAccessState::Usable { .. } => return None,
        BmcAccessState::Unusable { message, is_missing } => (message.as_str(), *is_missing),
        BmcAccessState::Absent => (NO_BMC_DETAILS, false),
    };
    if view.is_deleting() && !view.node_id().is_empty() {
        return None;
    }
    let after = is_missing.then_some(SECRET_POLL);
    if view.status.error_message == message
        && view.status.error_type == Some(HostErrorType::Registration)
    {
        return Some(HostAction::Wait { after });
    }
    // Only a change of the objects helps, so no attempt is scheduled.
    let mut change = StatusChange::new(view, now);
    change.status.error_count += 1;
    change.report(ProvisionerFailureKind::Registration, message);
    let event = HostEvent::new("BMCCredentialError", message);
    Some(change.with_event(event).pause(after))
}

/// Registers a host that is not registered with its current settings. If that failed and the host is
/// deleted, its node keeps the earlier settings, with which it can still be erased.
fn registration(view: &HostView<'_>) -> Option<HostAction> {
    let has_failed = view.status.error_type == Some(HostErrorType::Registration);
    if has_failed && view.is_deleting() && !view.node_id().is_empty() {
        return None;
    }
    let is_usable = matches!(view.companions.bmc_access, BmcAccessState::Usable { .. });
    let is_registered = view.memory.registered_digest == Some(view.companions.registration_digest)
        && !view.node_id().is_empty()
        && *view.state() != HostProvisioningState::Registering
        && view.status.error_type != Some(HostErrorType::Registration);
    (is_usable && !is_registered).then_some(HostAction::Call(HostVerb::Register))
}

/// States of a registered host.
fn managed_states(view: &HostView<'_>, now: Timestamp) -> HostAction {
    use HostProvisioningState as State;
    match view.state() {
        State::Inspecting => with_capacity(view, || inspection(view)),
        State::Preparing => preparation(view, now),
        State::Ready | State::Available => available(view, now),
        State::Provisioning => provisioning(view, now),
        State::Provisioned => provisioned(view, now),
        State::ExternallyProvisioned => externally_provisioned(view, now),
        State::Deprovisioning => {
            with_capacity(view, || adopted(view, || HostAction::Call(HostVerb::Deprovision)))
        }
        State::PoweringOffBeforeDelete => HostAction::Call(HostVerb::PowerOffBeforeDelete),
        State::Unset
        | State::Unmanaged
        | State::MatchProfile
        | State::Registering
        | State::Deleting
        | State::Other(_) => HostAction::Wait { after: None },
    }
}

/// Checks once per pass whether an operation may run now.
fn with_capacity(view: &HostView<'_>, action: impl FnOnce() -> HostAction) -> HostAction {
    if view.memory.has_capacity { action() } else { HostAction::Call(HostVerb::CheckCapacity) }
}

/// Adopts the host after every registration: the node may be new.
fn adopted(view: &HostView<'_>, action: impl FnOnce() -> HostAction) -> HostAction {
    if view.memory.is_adopted { action() } else { HostAction::Call(HostVerb::Adopt) }
}

fn inspection(view: &HostView<'_>) -> HostAction {
    HostAction::Call(HostVerb::Inspect {
        refresh: inspect_request(view.annotations()) == Some(InspectRequest::Again),
        is_forced: requested_reboot(view.annotations(), true).is_some()
            || view.annotations().contains_key(RETRY_NOW),
    })
}

fn preparation(view: &HostView<'_>, now: Timestamp) -> HostAction {
    if view.host.spec.externally_provisioned {
        return StatusChange::new(view, now).enter(HostProvisioningState::ExternallyProvisioned);
    }
    match firmware::preparing_request(view) {
        FirmwareRequest::NotRead => HostAction::Wait { after: Some(FIRMWARE_POLL) },
        FirmwareRequest::Unchanged | FirmwareRequest::Changed(_) => {
            HostAction::Call(HostVerb::Prepare)
        }
    }
}

fn available(view: &HostView<'_>, now: Timestamp) -> HostAction {
    use HostProvisioningState as State;
    let change = || StatusChange::new(view, now);
    if view.host.spec.externally_provisioned {
        return change().enter(State::ExternallyProvisioned);
    }
    if inspect_request(view.annotations()) == Some(InspectRequest::Again)
        && !view.host.is_inspection_disabled()
    {
        return change().enter(State::Inspecting);
    }
    let is_firmware_changed =
        matches!(firmware::preparing_request(view), FirmwareRequest::Changed(_));
    if is_firmware_changed || firmware::are_host_settings_changed(view) {
        return change().enter(State::Preparing);
    }
    if !view.requests_deployment() || !view.host.spec.online {
        return power::action(view, now);
    }
    let failures = deployment_failures::count(view);
    if failures < view.policy.max_provisioning_retries {
        return change().start_provisioning();
    }
    let last = deployment_failures::last_failure(view);
    let last = last.map(|failure| format!(", the last time with: {failure}")).unwrap_or_default();
    let message = format!(
        "provisioning failed {failures} times with this image{last}; correct the image, or set the \
         annotation baremetalhost.metal3.io/retry-now to try again"
    );
    if view.status.error_message == message {
        return power::action(view, now);
    }
    let mut change = change();
    change.report(ProvisionerFailureKind::Provisioning, &message);
    change.proceed()
}

fn provisioning(view: &HostView<'_>, now: Timestamp) -> HostAction {
    if view.is_deployment_changed() {
        return StatusChange::new(view, now).enter(HostProvisioningState::Deprovisioning);
    }
    let is_forced = requested_reboot(view.annotations(), true).is_some();
    with_capacity(view, || HostAction::Call(HostVerb::Provision { is_forced }))
}

fn provisioned(view: &HostView<'_>, now: Timestamp) -> HostAction {
    if view.is_deployment_changed() {
        return StatusChange::new(view, now).enter(HostProvisioningState::Deprovisioning);
    }
    adopted(view, || power::action(view, now))
}

fn externally_provisioned(view: &HostView<'_>, now: Timestamp) -> HostAction {
    if view.host.spec.externally_provisioned {
        return adopted(view, || power::action(view, now));
    }
    // The user states that the system was installed from the image.
    StatusChange::new(view, now).record_deployment().enter(HostProvisioningState::Provisioned)
}
