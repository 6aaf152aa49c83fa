// SPDX-License-Identifier: Apache-2.0
//! Power state, reboots, servicing and data images of a host in a steady state.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube_resources::hosts::annotations::{HostRebootMode, REBOOT, requested_reboot};
use kube_resources::hosts::host_status::{HostErrorType, HostProvisioningState, OperationalStatus};

use super::action::{HostAction, HostVerb};
use super::firmware::{FirmwareRequest, servicing_request};
use super::inputs::HostView;
use super::transition::StatusChange;

/// How often the power state of a host in a steady state is read if changes are not reported.
const POWER_POLL: Duration = Duration::from_secs(60);

pub(super) fn action(view: &HostView<'_>, now: Timestamp) -> HostAction {
    if view.memory.observation.is_none() {
        return HostAction::Call(HostVerb::Observe);
    }
    let is_provisioned = matches!(
        view.state(),
        HostProvisioningState::Provisioned | HostProvisioningState::ExternallyProvisioned
    );
    let powered_on = view.status.powered_on;
    if !powered_on && view.annotations().contains_key(REBOOT) {
        let mut change = StatusChange::new(view, now);
        change.remove_annotation(REBOOT);
        return change.proceed();
    }
    let reboot = requested_reboot(view.annotations(), !is_provisioned);
    let needs_power =
        (view.host.spec.online || view.host.spec.disable_power_off) && reboot.is_none();
    if let Some(action) = servicing(view, now, needs_power && !powered_on && is_provisioned) {
        return action;
    }
    if powered_on == needs_power {
        return steady(view, now);
    }
    if needs_power {
        return data_image(view)
            .filter(|_| is_provisioned)
            .unwrap_or(HostAction::Call(HostVerb::PowerOn));
    }
    // A soft power off that failed is followed by a hard one.
    let mode = match reboot.map(|reboot| reboot.mode) {
        Some(HostRebootMode::Hard) => HostRebootMode::Hard,
        _ if view.status.error_count > 0 => HostRebootMode::Hard,
        Some(_) | None => HostRebootMode::Soft,
    };
    HostAction::Call(HostVerb::PowerOff { mode })
}

/// Nothing to do. Errors of the power state are over.
fn steady(view: &HostView<'_>, now: Timestamp) -> HostAction {
    let after = (!view.policy.are_changes_reported).then_some(POWER_POLL);
    let is_power_error = view.status.error_type == Some(HostErrorType::PowerManagement);
    let is_provisioning_error = view.status.error_type == Some(HostErrorType::Provisioning);
    if is_power_error || (view.status.error_count > 0 && !is_provisioning_error) {
        let mut change = StatusChange::new(view, now);
        change.clear_error();
        change.status.error_count = 0;
        end_wait(&mut change);
        return change.pause(after);
    }
    if view.memory.wait.is_some() {
        let mut change = StatusChange::new(view, now);
        end_wait(&mut change);
        return change.pause(after);
    }
    HostAction::Wait { after }
}

/// What was waited for has ended without another call.
fn end_wait(change: &mut StatusChange<'_>) {
    change.memory.wait = None;
    change.memory.wait_since = None;
}

/// Changes firmware when the host is about to be powered on, until it is done or withdrawn.
fn servicing(view: &HostView<'_>, now: Timestamp, may_start: bool) -> Option<HostAction> {
    let is_running = view.status.operational_status == OperationalStatus::Servicing
        || view.status.error_type == Some(HostErrorType::Servicing);
    if is_running {
        return Some(HostAction::Call(HostVerb::Service));
    }
    let is_requested = may_start && matches!(servicing_request(view), FirmwareRequest::Changed(_));
    is_requested.then(|| {
        let mut change = StatusChange::new(view, now).with_status(OperationalStatus::Servicing);
        change.memory.is_change_started = false;
        change.proceed()
    })
}

/// Attaches or detaches virtual media before the host is powered on.
fn data_image(view: &HostView<'_>) -> Option<HostAction> {
    let image = view.companions.data_image.as_ref()?;
    let status = image.status.clone().unwrap_or_default();
    let attached = status.attached_image.map(|image| image.url).filter(|url| !url.is_empty());
    let is_deleted = image.metadata.deletion_timestamp.is_some();
    let wanted = Some(image.spec.url.clone()).filter(|url| !url.is_empty() && !is_deleted);
    match (wanted, attached) {
        (wanted, attached) if wanted == attached => None,
        // The device holds one image.
        (_, Some(_)) | (None, None) => Some(HostAction::Call(HostVerb::DetachDataImage)),
        (Some(url), None) => Some(HostAction::Call(HostVerb::AttachDataImage { url })),
    }
}
