// SPDX-License-Identifier: Apache-2.0
//! The status of a host after a call of the provisioner.

use std::time::Duration;

use k8s_openapi::api::core::v1::SecretReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube_resources::hosts::annotations::{
    ACCEPT_REPLACED_MACHINE, FORCE_DELETE, INSPECT, REBOOT, RETRY_NOW,
};
use kube_resources::hosts::data_image::{AttachedImage, DataImageError, DataImageStatus};
use kube_resources::hosts::host_status::{
    HostCredentialsStatus, HostErrorType, HostProvisioningState, OperationalStatus,
};

use super::super::provisioner::{
    BmcAddressChange, HostObservation, ProvisionerFailure, ProvisionerFailureKind, ProvisionerWait,
    ProvisionerWaitReason as Reason, VerbOutcome, VerbStop,
};
use super::action::{HostUpdate, HostVerb, NextPass, VerbValue};
use super::firmware::FirmwareRequest;
use super::inputs::{BmcAccessState, HostView};
use super::transition::StatusChange;
use super::{SECRET_POLL, back_off, bmc_address, deployment_failures, firmware};

/// How errors of Ferrite name the credentials of a BMC (`DriverError`). Users of a host set them in a Secret.
const SERVICE_CREDENTIALS: &str = "the user name and password in driver_info";
/// When a service that is not ready is tried again.
const NOT_READY_WAIT: Duration = Duration::from_secs(30);
/// When a busy node is looked at again.
const BUSY_WAIT: Duration = Duration::from_secs(5);
/// When an operation is looked at although no change of its node was reported.
const NOTIFIED_WAIT: Duration = Duration::from_secs(60);
/// How long after the time of the next attempt an operation is looked at.
const ATTEMPT_MARGIN: Duration = Duration::from_secs(1);
/// When capacity is checked again; up to twice that.
const CAPACITY_WAIT: Duration = Duration::from_secs(60);

/// The changes after a call.
#[must_use]
pub fn apply(
    view: &HostView<'_>,
    verb: &HostVerb,
    outcome: VerbOutcome<VerbValue>,
    now: Timestamp,
) -> HostUpdate {
    let mut change = StatusChange::new(view, now);
    change.memory.is_service_down = matches!(outcome, Err(VerbStop::NotReady { .. }));
    if *verb == HostVerb::Delete && is_deletion_forced(view) && view.memory.forced_since.is_none() {
        change.memory.forced_since = Some(now);
        change.clear_error();
    }
    if matches!(verb, HostVerb::Provision { .. }) {
        change.memory.is_cleaned_before_deployment = is_first_cleaning(view, &outcome);
    }
    let next = match outcome {
        Ok(value) => done(&mut change, verb, value),
        Err(stop) => stopped(&mut change, verb, stop),
    };
    if view.is_deleting() {
        record_deletion_call(&mut change);
    }
    // The removal of the node is not tried again.
    let has_failed = change.memory.blocked.is_some() || !change.status.error_message.is_empty();
    let is_last_attempt = *verb == HostVerb::Delete
        && ((has_failed && is_deletion_forced(view))
            || (change.memory.is_service_down && view.was_never_registered()));
    let next = match is_last_attempt {
        true => NextPass::Now,
        false => next,
    };
    change.finish(next)
}

/// Whether the node is cleaned because this process requested it before the deployment. Unless that is certain,
/// the cleaning may erase data of the user.
fn is_first_cleaning(view: &HostView<'_>, outcome: &VerbOutcome<VerbValue>) -> bool {
    match outcome {
        Err(VerbStop::InProgress(wait)) if wait.reason == Reason::Cleaning => {
            wait.is_changed || view.memory.is_cleaned_before_deployment
        }
        _ => false,
    }
}

fn is_deletion_forced(view: &HostView<'_>) -> bool {
    view.is_deleting() && view.annotations().contains_key(FORCE_DELETE)
}

/// Names the Secret where the service names its own fields.
fn in_terms_of_the_host(view: &HostView<'_>, stop: VerbStop) -> VerbStop {
    let Some(bmc) = view.host.spec.bmc.as_ref().filter(|bmc| !bmc.credentials_name.is_empty())
    else {
        return stop;
    };
    let secret = format!(
        "the user name and password in the Secret {} (spec.bmc.credentialsName)",
        bmc.credentials_name
    );
    let replaced = |text: &str| text.replace(SERVICE_CREDENTIALS, &secret);
    match stop {
        VerbStop::Failed(failure) => VerbStop::failed(failure.kind, replaced(&failure.message)),
        VerbStop::InProgress(wait) => {
            let failure = wait.failure.as_deref().map(replaced);
            VerbStop::InProgress(ProvisionerWait { failure, ..wait })
        }
        VerbStop::Busy { reason } => VerbStop::Busy { reason: replaced(&reason) },
        VerbStop::NeedsRegistration | VerbStop::NotReady { .. } | VerbStop::MissingInput { .. } => {
            stop
        }
    }
}

fn stopped(change: &mut StatusChange<'_>, verb: &HostVerb, stop: VerbStop) -> NextPass {
    let stop = in_terms_of_the_host(change.view, stop);
    let is_removal = matches!(verb, HostVerb::Delete | HostVerb::Detach { .. });
    let text = stop.to_string();
    match stop {
        VerbStop::NeedsRegistration if is_removal => done(change, verb, VerbValue::Nothing),
        VerbStop::InProgress(wait) => in_progress(change, verb, wait),
        VerbStop::Failed(failure) => failed(change, verb, &failure),
        VerbStop::NeedsRegistration => needs_registration(change),
        VerbStop::NotReady { .. } => blocked(change, text, NOT_READY_WAIT),
        VerbStop::MissingInput { .. } => blocked(change, text, SECRET_POLL),
        VerbStop::Busy { .. } => blocked(change, text, BUSY_WAIT),
    }
}

/// Records since when a stage of the deletion runs, and since when its calls fail.
fn record_deletion_call(change: &mut StatusChange<'_>) {
    let (now, memory) = (change.now, &mut change.memory);
    memory.deletion_stage_since.get_or_insert(now);
    match memory.blocked.is_some() || !change.status.error_message.is_empty() {
        true => _ = memory.deletion_failing_since.get_or_insert(now),
        false => memory.deletion_failing_since = None,
    }
}

/// Spreads the calls for many hosts.
fn jitter(change: &StatusChange<'_>, wait: Duration) -> NextPass {
    let uid = change.view.host.metadata.uid.as_deref().unwrap_or_default();
    let share = back_off::spread(uid, change.now.as_second()) / 4.0;
    NextPass::After(Some(wait.mul_f64(1.0 + share)))
}

fn start_waiting(change: &mut StatusChange<'_>) {
    let now = change.now;
    change.memory.wait_since.get_or_insert(now);
}

/// Since when the operation runs that an earlier process started, or this one before another registration.
fn continued_since(change: &mut StatusChange<'_>) -> Option<Timestamp> {
    let memory = &change.memory;
    let was_forgotten = memory.registered_digest.is_none() || memory.is_registered_in_pass;
    if memory.wait_since.is_some() || !was_forgotten {
        return None;
    }
    let state = change.status.provisioning.state.clone();
    let times = change.status.operation_history.for_state(&state)?;
    let entered = times.start.as_ref().filter(|_| times.end.is_none()).map(|Time(start)| *start)?;
    // The time between attempts ends when the last one starts.
    let attempt = back_off::changed_at(&change.status.conditions);
    Some(attempt.map_or(entered, |attempt| attempt.max(entered)))
}

fn blocked(change: &mut StatusChange<'_>, reason: String, wait: Duration) -> NextPass {
    start_waiting(change);
    change.memory.blocked = Some(reason);
    jitter(change, wait)
}

fn needs_registration(change: &mut StatusChange<'_>) -> NextPass {
    change.memory.forget_registration();
    change.status.provisioning.id.clear();
    if change.memory.is_registered_in_pass {
        let reason = "the service does not know the node that it registered".to_owned();
        return blocked(change, reason, BUSY_WAIT);
    }
    NextPass::Now
}

fn in_progress(change: &mut StatusChange<'_>, verb: &HostVerb, wait: ProvisionerWait) -> NextPass {
    if !wait.is_changed
        && let Some(since) = continued_since(change)
    {
        change.memory.wait_since = Some(since);
    }
    start_waiting(change);
    change.memory.blocked = None;
    if wait.is_changed {
        change.clear_error();
        started(change, verb);
    } else if is_recovery(verb, &wait) {
        // If the removal fails again, that is a new failure, and the next attempt is later.
        change.clear_error();
    }
    // The end of a lock is not reported.
    let is_reported = wait.reason.is_reported() && !is_deletion_forced(change.view);
    let after = match change.view.policy.are_changes_reported && is_reported {
        true => NOTIFIED_WAIT,
        false => wait.retry_after,
    };
    // The condition has the time of the next attempt until then.
    let left =
        wait.next_attempt.and_then(|at| Duration::try_from(at.duration_since(change.now)).ok());
    let left = left.filter(|left| !left.is_zero()).map(|left| left + ATTEMPT_MARGIN);
    let next = jitter(change, left.map_or(after, |left| left.min(after)));
    change.memory.wait = Some(wait);
    next
}

/// Whether what is left of a failed deployment is removed before the operation can start.
fn is_recovery(verb: &HostVerb, wait: &ProvisionerWait) -> bool {
    matches!(verb, HostVerb::Inspect { .. } | HostVerb::Prepare)
        && wait.reason == Reason::Undeploying
}

/// Effects of an operation that was started.
fn started(change: &mut StatusChange<'_>, verb: &HostVerb) {
    match verb {
        HostVerb::Inspect { .. } => {
            change.event("InspectionStarted", "Hardware inspection started");
            change.remove_annotation(INSPECT);
            change.remove_annotation(REBOOT);
            if change.view.annotations().contains_key(RETRY_NOW) {
                let generation = change.view.generation();
                deployment_failures::clear(&mut change.status, generation, change.now);
                change.status.error_count = 0;
                change.remove_annotation(RETRY_NOW);
            }
        }
        HostVerb::Prepare => {
            save_settings(change);
            firmware_started(change, &firmware::preparing_request(change.view));
        }
        HostVerb::Service => {
            change.status.operational_status = OperationalStatus::Servicing;
            firmware_started(change, &firmware::servicing_request(change.view));
        }
        HostVerb::Provision { is_forced: true } => change.remove_annotation(REBOOT),
        HostVerb::Deprovision => change.event("DeprovisioningStarted", "Image removal started"),
        HostVerb::PowerOn => change.event("PowerOn", "Host powered on"),
        HostVerb::PowerOff { mode } => {
            change.event("PowerOff", format!("Host {mode} powered off"));
            if change.view.host.spec.disable_power_off {
                change.remove_annotation(REBOOT);
            }
        }
        // The next call only observes; it must not start the verification again.
        HostVerb::Register => change.status.tried_credentials = current_credentials(change.view),
        HostVerb::CheckCapacity
        | HostVerb::Provision { is_forced: false }
        | HostVerb::Adopt
        | HostVerb::Observe
        | HostVerb::PowerOffBeforeDelete
        | HostVerb::AttachDataImage { .. }
        | HostVerb::DetachDataImage
        | HostVerb::Detach { .. }
        | HostVerb::Delete => {}
    }
}

/// Requested firmware updates are recorded when they start, so that they are not repeated.
fn record_updates(change: &mut StatusChange<'_>, request: &FirmwareRequest) {
    if let FirmwareRequest::Changed(changes) = request {
        change.update.records_component_updates |= !changes.updates.is_empty();
    }
}

fn firmware_started(change: &mut StatusChange<'_>, request: &FirmwareRequest) {
    record_updates(change, request);
    change.memory.started_settings = firmware::settings_version(change.view, request);
    change.memory.is_change_started = true;
}

/// Records which settings were applied: those at the start, unless nothing had to be started.
fn firmware_applied(change: &mut StatusChange<'_>, request: &FirmwareRequest) {
    record_updates(change, request);
    let applied = match change.memory.is_change_started {
        true => change.memory.started_settings.take(),
        false => firmware::settings_version(change.view, request),
    };
    if applied.is_some() {
        change.memory.applied_settings.clone_from(&applied);
        change.update.applied_settings = applied;
    }
}

/// Records the RAID volumes and hints that are applied.
fn save_settings(change: &mut StatusChange<'_>) {
    let host = change.view.host;
    let applied = &mut change.status.provisioning;
    if host.spec.raid.is_some() {
        applied.raid.clone_from(&host.spec.raid);
    }
    applied.root_device_hints = firmware::effective_root_device_hints(host);
}

fn failed(
    change: &mut StatusChange<'_>,
    verb: &HostVerb,
    failure: &ProvisionerFailure,
) -> NextPass {
    change.memory.blocked = None;
    change.memory.wait = None;
    match verb {
        HostVerb::Provision { .. } => {
            let generation = change.view.generation();
            let (status, now) = (&mut change.status, change.now);
            let count = deployment_failures::record(status, &failure.message, generation, now);
            change.set_state(HostProvisioningState::Deprovisioning);
            if count >= change.view.policy.max_provisioning_retries {
                // There is no next attempt to wait for; the image is removed at once.
                change.status.error_count = count;
                change.report(failure.kind, &failure.message);
                return NextPass::Now;
            }
            // The next attempt follows the removal of the image.
            change.status.error_count = count - 1;
        }
        HostVerb::Prepare => {
            // It is not known which of the volumes exist.
            if change.memory.is_change_started {
                change.status.provisioning.raid = None;
            }
            change.memory.is_change_started = false;
        }
        HostVerb::Service => change.memory.is_change_started = false,
        HostVerb::Register => {
            change.status.tried_credentials = current_credentials(change.view);
            if failure.kind == ProvisionerFailureKind::Identity {
                let (message, generation) = (&failure.message, change.view.generation());
                bmc_address::show_rejection(&mut change.status, message, generation, change.now);
            }
        }
        HostVerb::AttachDataImage { .. } | HostVerb::DetachDataImage => {
            data_image_failed(change, &failure.message);
        }
        HostVerb::CheckCapacity
        | HostVerb::Inspect { .. }
        | HostVerb::Deprovision
        | HostVerb::Adopt
        | HostVerb::Observe
        | HostVerb::PowerOn
        | HostVerb::PowerOff { .. }
        | HostVerb::PowerOffBeforeDelete
        | HostVerb::Detach { .. }
        | HostVerb::Delete => {}
    }
    NextPass::After(Some(change.fail(failure.kind, &failure.message)))
}

fn done(change: &mut StatusChange<'_>, verb: &HostVerb, value: VerbValue) -> NextPass {
    change.memory.blocked = None;
    match (verb, value) {
        (HostVerb::Register, VerbValue::Registration(attempt)) => {
            address_changed(change, attempt.address_change.as_ref());
            match attempt.node_id {
                Ok(id) => registered(change, id),
                Err(stop) => return stopped(change, verb, stop),
            }
        }
        (HostVerb::CheckCapacity, VerbValue::Capacity(is_free)) => {
            return capacity(change, is_free);
        }
        (HostVerb::Observe, VerbValue::Observation(observation)) => {
            return observed(change, observation);
        }
        (HostVerb::Inspect { .. }, VerbValue::Hardware(hardware)) => {
            change.status.hardware = Some((*hardware).clone());
            change.update.hardware = Some(hardware);
            bmc_address::show_inspection(&mut change.status, change.view.generation(), change.now);
            change.event("InspectionComplete", "Hardware inspection completed");
            change.remove_annotation(INSPECT);
            change.set_state(HostProvisioningState::Preparing);
        }
        (HostVerb::Prepare, _) => {
            save_settings(change);
            firmware_applied(change, &firmware::preparing_request(change.view));
            change.set_state(HostProvisioningState::Available);
        }
        (HostVerb::Provision { .. }, _) => {
            deployment_failures::clear(&mut change.status, change.view.generation(), change.now);
            change.memory.is_adopted = true;
            change.event("ProvisioningComplete", "Image provisioning completed");
            change.set_state(HostProvisioningState::Provisioned);
        }
        (HostVerb::Deprovision, _) => deprovisioned(change),
        (HostVerb::Adopt, _) => {
            change.memory.is_adopted = true;
            clear_if(change, &[HostErrorType::ProvisionedRegistration]);
        }
        (HostVerb::PowerOn, _) => power_changed(change, true),
        (HostVerb::PowerOff { .. }, _) => {
            // A host that must not be powered off was rebooted instead.
            if change.view.host.spec.disable_power_off {
                change.remove_annotation(REBOOT);
            }
            power_changed(change, false);
        }
        (HostVerb::PowerOffBeforeDelete, _) => {
            change.status.powered_on = false;
            change.set_state(HostProvisioningState::Deleting);
        }
        (HostVerb::Service, _) => {
            firmware_applied(change, &firmware::servicing_request(change.view));
            change.memory.is_change_started = false;
            change.status.operational_status = OperationalStatus::Ok;
            change.status.error_count = 0;
            change.clear_error();
        }
        (HostVerb::AttachDataImage { url }, _) => {
            data_image_changed(change, Some(AttachedImage { url: url.clone() }));
        }
        (HostVerb::DetachDataImage, _) => data_image_changed(change, None),
        (HostVerb::Detach { .. }, _) => return detached(change),
        (HostVerb::Delete, _) => {
            change.update.patch.removes_finalizer = true;
            return NextPass::After(None);
        }
        // The caller returned a value of another verb; call again later.
        (HostVerb::Register | HostVerb::CheckCapacity | HostVerb::Observe, _)
        | (HostVerb::Inspect { .. }, _) => return NextPass::After(Some(NOT_READY_WAIT)),
    }
    change.memory.wait = None;
    change.memory.wait_since = None;
    NextPass::Now
}

/// Shows a change of the BMC address at once: the registration may end in a later call.
fn address_changed(change: &mut StatusChange<'_>, address: Option<&BmcAddressChange>) {
    let Some(address) = address else { return };
    let was_unread = bmc_address::is_accepted_machine_unread(&change.status);
    let generation = change.view.generation();
    let boot_mac = change.view.host.spec.boot_mac_address.as_deref();
    bmc_address::show_change(&mut change.status, address, boot_mac, generation, change.now);
    if !was_unread {
        change.event("BMCAddressChanged", "Changed the address of the BMC");
    }
    end_acceptance(change);
}

/// Removes the annotation that accepts another machine, and requests the inspection of that machine. A
/// provisioned host is inspected after its image was removed.
fn end_acceptance(change: &mut StatusChange<'_>) {
    let view = change.view;
    if !view.annotations().contains_key(ACCEPT_REPLACED_MACHINE) {
        return;
    }
    change.remove_annotation(ACCEPT_REPLACED_MACHINE);
    change.update.patch.requests_inspection =
        !view.is_deleting() && !view.host.is_inspection_disabled();
}

fn registered(change: &mut StatusChange<'_>, id: String) {
    let credentials = current_credentials(change.view);
    bmc_address::end_rejection(&mut change.status, change.view.generation(), change.now);
    end_acceptance(change);
    if change.status.provisioning.id != id {
        change.memory.is_adopted = false;
        change.event("Registered", "Registered new host");
    }
    if change.status.good_credentials != credentials {
        change.event("BMCAccessValidated", "Verified access to BMC");
    }
    change.status.provisioning.id = id;
    change.status.good_credentials = credentials.clone();
    change.status.tried_credentials = credentials;
    change.memory.registered_digest = Some(change.view.companions.registration_digest);
    change.memory.is_registered_in_pass = true;
    clear_if(change, &[HostErrorType::Registration, HostErrorType::ProvisionedRegistration]);
    if *change.view.state() != HostProvisioningState::Registering {
        return;
    }
    let host = change.view.host;
    let next = if host.spec.externally_provisioned {
        HostProvisioningState::ExternallyProvisioned
    } else if host.is_inspection_disabled() {
        change.event("InspectionSkipped", "Hardware inspection is disabled");
        HostProvisioningState::Preparing
    } else {
        HostProvisioningState::Inspecting
    };
    change.set_state(next);
}

/// Removes an error of the given kinds.
fn clear_if(change: &mut StatusChange<'_>, kinds: &[HostErrorType]) {
    if change.status.error_type.as_ref().is_some_and(|kind| kinds.contains(kind)) {
        change.status.error_count = 0;
        change.clear_error();
    }
}

fn current_credentials(view: &HostView<'_>) -> HostCredentialsStatus {
    let BmcAccessState::Usable { secret, version } = &view.companions.bmc_access else {
        return HostCredentialsStatus::default();
    };
    HostCredentialsStatus {
        credentials: Some(SecretReference {
            name: Some(secret.clone()),
            namespace: view.host.metadata.namespace.clone(),
        }),
        credentials_version: Some(version.clone()),
    }
}

fn capacity(change: &mut StatusChange<'_>, is_free: bool) -> NextPass {
    if is_free {
        change.memory.has_capacity = true;
        if change.status.operational_status == OperationalStatus::Delayed {
            change.status.operational_status = OperationalStatus::Ok;
        }
        return NextPass::Now;
    }
    start_waiting(change);
    change.status.operational_status = OperationalStatus::Delayed;
    let uid = change.view.host.metadata.uid.as_deref().unwrap_or_default();
    let share = back_off::spread(uid, change.now.as_second());
    NextPass::After(Some(CAPACITY_WAIT.mul_f64(1.0 + share)))
}

fn observed(change: &mut StatusChange<'_>, observation: HostObservation) -> NextPass {
    if let Some(powered_on) = observation.powered_on {
        change.status.powered_on = powered_on;
    }
    change.memory.observation = Some(observation);
    NextPass::Now
}

fn power_changed(change: &mut StatusChange<'_>, powered_on: bool) {
    if powered_on || !change.view.host.spec.disable_power_off {
        change.status.powered_on = powered_on;
    }
    change.status.error_count = 0;
    clear_if(change, &[HostErrorType::PowerManagement]);
}

fn deprovisioned(change: &mut StatusChange<'_>) {
    change.event("DeprovisioningComplete", "Image removal completed");
    change.status.provisioning.image = None;
    change.status.provisioning.custom_deploy = None;
    change.status.provisioning.boot_mode = None;
    change.memory.is_adopted = false;
    let next = match change.view.is_deleting() {
        true => HostProvisioningState::PoweringOffBeforeDelete,
        false => HostProvisioningState::Available,
    };
    change.set_state(next);
}

fn detached(change: &mut StatusChange<'_>) -> NextPass {
    change.clear_error();
    change.status.error_count = 0;
    change.status.operational_status = OperationalStatus::Detached;
    change.status.provisioning.id.clear();
    change.memory.forget_registration();
    change.memory.wait = None;
    change.memory.wait_since = None;
    NextPass::After(None)
}

fn data_image_status(change: &StatusChange<'_>) -> DataImageStatus {
    let image = change.view.companions.data_image.as_ref();
    image.and_then(|image| image.status.clone()).unwrap_or_default()
}

fn data_image_changed(change: &mut StatusChange<'_>, attached_image: Option<AttachedImage>) {
    let last_reconciled = Some(Time(change.now));
    change.update.data_image =
        Some(DataImageStatus { last_reconciled, attached_image, error: None });
}

fn data_image_failed(change: &mut StatusChange<'_>, message: &str) {
    let mut status = data_image_status(change);
    let count = status.error.take().map_or(0, |error| error.count) + 1;
    status.error = Some(DataImageError { count, message: message.to_owned() });
    status.last_reconciled = Some(Time(change.now));
    change.update.data_image = Some(status);
}
