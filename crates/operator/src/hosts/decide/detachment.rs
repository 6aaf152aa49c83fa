// SPDX-License-Identifier: Apache-2.0
//! Detached hosts, which the service does not know.

use k8s_openapi::jiff::Timestamp;
use kube_resources::hosts::annotations::detach_request;
use kube_resources::hosts::host_status::{HostProvisioningState, OperationalStatus};

use super::action::{HostAction, HostVerb};
use super::back_off;
use super::inputs::HostView;
use super::transition::StatusChange;

pub(super) fn action(view: &HostView<'_>, now: Timestamp) -> Option<HostAction> {
    let is_detached = view.status.operational_status == OperationalStatus::Detached;
    let Some(request) = detach_request(view.annotations()).filter(|_| !view.is_deleting()) else {
        return is_detached.then(|| attach(view, now));
    };
    if is_detached {
        return Some(HostAction::Wait { after: None });
    }
    if !can_detach(view.state(), request.force) {
        return None;
    }
    let detach = HostAction::Call(HostVerb::Detach { is_forced: request.force });
    Some(back_off::wait(view, now).unwrap_or(detach))
}

/// The host is registered again, and adopted if it runs a system.
fn attach(view: &HostView<'_>, now: Timestamp) -> HostAction {
    let mut change = StatusChange::new(view, now).with_status(OperationalStatus::Ok);
    change.memory.forget_registration();
    change.proceed()
}

/// Other states wait until their operation ends, unless it may be aborted.
fn can_detach(state: &HostProvisioningState, is_forced: bool) -> bool {
    use HostProvisioningState as State;
    match state {
        State::Provisioned | State::ExternallyProvisioned | State::Ready | State::Available => true,
        State::Registering
        | State::MatchProfile
        | State::Inspecting
        | State::Preparing
        | State::Provisioning
        | State::Deprovisioning => is_forced,
        State::Unset
        | State::Unmanaged
        | State::PoweringOffBeforeDelete
        | State::Deleting
        | State::Other(_) => false,
    }
}
