// SPDX-License-Identifier: Apache-2.0
//! Deletion: remove the image, power off, remove the node. Every stage is bounded.
//!
//! Removal of the image and power off are skipped after their fourth failure, as in Metal3. Any stage is
//! skipped if calls fail for [`HostLimits::deletion_failure_limit`] without interruption, or if it takes
//! longer than [`HostLimits::deletion_limit`]. The annotation
//! [`FORCE_DELETE`](kube_resources::hosts::annotations::FORCE_DELETE) skips all stages but the removal of
//! the node: it aborts all operations, and is tried until a request fails or two minutes have passed.
//!
//! Automated cleaning after an image was removed ends first, because it erases the data of the user. Cleaning
//! before the first deployment is aborted.
//!
//! [`HostLimits::deletion_failure_limit`]: super::HostLimits::deletion_failure_limit
//! [`HostLimits::deletion_limit`]: super::HostLimits::deletion_limit

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube_resources::hosts::annotations::{
    DetachedDeleteAction, FORCE_DELETE, STATUS, detach_request,
};
use kube_resources::hosts::conditions::is_true;
use kube_resources::hosts::host_status::{HostProvisioningState, OperationalStatus};

use super::action::{HostAction, HostEvent};
use super::deployment_failures::{self, DEPLOYMENT_FAILED};
use super::inputs::{BmcAccessState, HostView};
use super::transition::StatusChange;

/// How long the removal of the node may take with the annotation that forces the deletion.
const FORCED_LIMIT: Duration = Duration::from_secs(120);
/// Reason of the event and of the condition `Progressing` of a deleted host that is paused.
pub(super) const DELETION_PAUSED: &str = "DeletionPaused";
pub(super) const PAUSE_TEXT: &str = "the host is paused and therefore not deleted; remove the annotation \
     baremetalhost.metal3.io/paused (force-delete has no effect before)";
/// Failures after which a stage is skipped.
const MAX_STAGE_FAILURES: i64 = 3;

/// Changes the state of a host that is deleted; `None` if its state is right.
pub(super) fn action(view: &HostView<'_>, now: Timestamp) -> Option<HostAction> {
    use HostProvisioningState as State;
    if !view.is_deleting() {
        return None;
    }
    let enter = |state| Some(StatusChange::new(view, now).enter(state));
    let is_detached = view.status.operational_status == OperationalStatus::Detached;
    if let Some(detach) = detach_request(view.annotations()) {
        if detach.delete_action == Some(DetachedDeleteAction::Delay) {
            return Some(HostAction::Wait { after: None });
        }
        if is_detached {
            return Some(StatusChange::new(view, now).release(None));
        }
        if *view.state() != State::Deleting {
            return enter(State::Deleting);
        }
    } else if is_detached {
        // It is attached again first.
        return None;
    }
    let is_forced = view.annotations().contains_key(FORCE_DELETE);
    if is_forced && *view.state() != State::Deleting {
        let mut change = StatusChange::new(view, now);
        if matches!(view.state(), State::Provisioning | State::Provisioned | State::Deprovisioning)
        {
            change.event(
                "DisksNotErased",
                "The deletion is forced: the disks may keep data of the user",
            );
        }
        return Some(change.enter(State::Deleting));
    }
    // Failed deployments before the deletion are no failures of its stages.
    if is_true(&view.status.conditions, DEPLOYMENT_FAILED) {
        let mut change = StatusChange::new(view, now);
        deployment_failures::clear(&mut change.status, view.generation(), now);
        change.status.error_count = 0;
        return Some(change.proceed());
    }
    let gives_up = is_stage_over(view, now);
    let has_failed_often = view.status.error_count > MAX_STAGE_FAILURES;
    match view.state() {
        State::Unset | State::Unmanaged | State::Registering => enter(State::Deleting),
        State::Provisioning if view.memory.is_cleaned_before_deployment => {
            let mut change = StatusChange::new(view, now);
            change.memory.aborts_cleaning = true;
            Some(change.enter(State::PoweringOffBeforeDelete))
        }
        State::Provisioning | State::Provisioned => enter(State::Deprovisioning),
        State::Deprovisioning if is_unreachable(view) => {
            let cause = "the service has no node of the host, and the BMC details cannot be used";
            let change = StatusChange::new(view, now).with_event(not_erased(cause));
            Some(change.enter(State::Deleting))
        }
        State::Deprovisioning if gives_up || has_failed_often => {
            let change = StatusChange::new(view, now).with_event(not_erased(&cause(view)));
            Some(change.enter(State::PoweringOffBeforeDelete))
        }
        State::PoweringOffBeforeDelete
            if gives_up
                || has_failed_often
                || is_unreachable(view)
                || view.host.spec.disable_power_off =>
        {
            enter(State::Deleting)
        }
        State::Deleting if gives_up || (is_blocked(view) && is_forced_by_call(view)) => {
            Some(StatusChange::new(view, now).release(Some(abandoned(view))))
        }
        State::Deleting if is_unknown_to_service(view) => {
            // A response to the registration may have been lost.
            let event = view.host.spec.bmc.is_some().then(|| abandoned(view));
            Some(StatusChange::new(view, now).release(event))
        }
        State::Deprovisioning | State::PoweringOffBeforeDelete | State::Deleting => None,
        State::MatchProfile
        | State::Inspecting
        | State::Preparing
        | State::Ready
        | State::Available
        | State::ExternallyProvisioned
        | State::Other(_) => enter(State::PoweringOffBeforeDelete),
    }
}

/// Shows once that a deleted host stays because it is paused. Nothing else is changed. A host that has no status
/// yet gets none, because one is restored from an annotation only if there is none.
pub(super) fn show_pause(view: &HostView<'_>, now: Timestamp) -> Option<HostAction> {
    if view.annotations().contains_key(STATUS) || view.status.last_updated.is_none() {
        return None;
    }
    let mut conditions = view.status.conditions.iter();
    let is_shown = conditions.any(|condition| condition.reason == DELETION_PAUSED);
    if !view.is_deleting() || is_shown {
        return None;
    }
    let mut change = StatusChange::new(view, now);
    change.event(DELETION_PAUSED, PAUSE_TEXT);
    Some(change.pause(None))
}

/// Whether there is neither a node nor a way to register one.
fn is_unreachable(view: &HostView<'_>) -> bool {
    view.node_id().is_empty()
        && !matches!(view.companions.bmc_access, BmcAccessState::Usable { .. })
}

/// Whether a host that was never registered cannot be looked up, because the removal of its node found the
/// service not ready.
fn is_unknown_to_service(view: &HostView<'_>) -> bool {
    view.was_never_registered()
        && view.memory.is_service_down
        && view.memory.deletion_stage_since.is_some()
}

/// Whether the removal by force was tried. An earlier failure does not count.
fn is_forced_by_call(view: &HostView<'_>) -> bool {
    view.annotations().contains_key(FORCE_DELETE) && view.memory.forced_since.is_some()
}

/// Whether the removal by force starts with the next call, at once.
pub(super) fn is_forced_now(view: &HostView<'_>) -> bool {
    view.annotations().contains_key(FORCE_DELETE) && view.memory.forced_since.is_none()
}

fn is_blocked(view: &HostView<'_>) -> bool {
    !view.status.error_message.is_empty() || view.memory.blocked.is_some()
}

/// Whether the limits of the current stage are reached. Every stage makes at least one call.
fn is_stage_over(view: &HostView<'_>, now: Timestamp) -> bool {
    let memory = view.memory;
    let is_longer_ago = |since: Option<Timestamp>, limit: Duration| {
        since.is_some_and(|since| {
            Duration::try_from(now.duration_since(since)).unwrap_or_default() > limit
        })
    };
    if view.annotations().contains_key(FORCE_DELETE) {
        return is_longer_ago(memory.forced_since, FORCED_LIMIT);
    }
    is_longer_ago(memory.deletion_stage_since, view.policy.deletion_limit)
        || (is_blocked(view)
            && is_longer_ago(memory.deletion_failing_since, view.policy.deletion_failure_limit))
}

/// The host goes although its image could not be removed.
fn not_erased(cause: &str) -> HostEvent {
    let text =
        format!("The image was not removed, so the disks may keep data of the user: {cause}");
    HostEvent::new("DisksNotErased", text)
}

/// Why a stage is skipped.
fn cause(view: &HostView<'_>) -> String {
    match (&view.memory.blocked, view.status.error_message.as_str()) {
        (Some(reason), _) => reason.clone(),
        (None, "") => match &view.memory.wait {
            Some(wait) => match &wait.failure {
                Some(failure) => format!("the time limit was reached; last failure: {failure}"),
                None => format!("the time limit was reached while {}", wait.reason.as_str()),
            },
            None => "the time limit was reached".to_owned(),
        },
        (None, error) => error.to_owned(),
    }
}

/// The host goes although its node could not be removed.
fn abandoned(view: &HostView<'_>) -> HostEvent {
    let cause = cause(view);
    let metadata = &view.host.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    // Nodes of hosts have this name at the service.
    let name = format!("{namespace}~{}", metadata.name.as_deref().unwrap_or_default());
    let node = match view.node_id() {
        "" => format!("a node named {name}"),
        id => format!("node {id} ({name})"),
    };
    HostEvent::new(
        "DeletionForced",
        format!("The host was deleted, but {node} may remain in the service: {cause}"),
    )
}
