// SPDX-License-Identifier: Apache-2.0
//! Annotations and the finalizer, which come before everything else.

use k8s_openapi::jiff::Timestamp;
use kube_resources::hosts::annotations::{
    HARDWARE_DETAILS, RETRY_NOW, STATUS, given_hardware_details, restored_status,
};
use kube_resources::hosts::host_status::HostProvisioningState;

use super::action::HostAction;
use super::inputs::HostView;
use super::transition::StatusChange;
use super::{back_off, deployment_failures};

/// The first change that the annotations, `HardwareData` or a missing finalizer need.
pub(super) fn action(view: &HostView<'_>, now: Timestamp) -> Option<HostAction> {
    status_annotation(view, now)
        .or_else(|| finalizer(view, now))
        .or_else(|| hardware_annotation(view, now))
        .or_else(|| hardware_data(view, now))
        .or_else(|| retry_annotation(view, now))
}

/// Restores a status, once. Afterwards the annotation would be outdated and is removed.
fn status_annotation(view: &HostView<'_>, now: Timestamp) -> Option<HostAction> {
    if !view.annotations().contains_key(STATUS) {
        return None;
    }
    let mut change = StatusChange::new(view, now);
    if view.status.last_updated.is_none() {
        match restored_status(view.annotations()) {
            Ok(Some(status)) => {
                change.status = status;
                change.status.last_updated = None;
                // The result of an inspection is newer.
                if let Some(hardware) = &view.companions.hardware_data {
                    change.status.hardware = Some(hardware.clone());
                }
            }
            Ok(None) => {}
            Err(error) => {
                change.event("InvalidAnnotationValue", format!("annotation {STATUS} {error}"));
            }
        }
    }
    change.remove_annotation(STATUS);
    Some(change.proceed())
}

fn finalizer(view: &HostView<'_>, now: Timestamp) -> Option<HostAction> {
    if view.has_finalizer() || view.is_deleting() {
        return None;
    }
    let mut change = StatusChange::new(view, now);
    change.update.patch.adds_finalizer = true;
    Some(change.proceed())
}

/// Uses hardware details from the annotation, unless an inspection found some.
fn hardware_annotation(view: &HostView<'_>, now: Timestamp) -> Option<HostAction> {
    if !view.annotations().contains_key(HARDWARE_DETAILS) || view.is_deleting() {
        return None;
    }
    let mut change = StatusChange::new(view, now);
    let is_used = view.companions.hardware_data.is_none()
        && (view.status.hardware.is_none() || view.host.is_inspection_disabled());
    match given_hardware_details(view.annotations()) {
        Ok(Some(details)) if is_used => {
            change.event("UpdateHardwareDetails", "Set hardware details from annotation");
            change.update.hardware = Some(Box::new(details.clone()));
            change.status.hardware = Some(details);
        }
        Ok(_) => {}
        Err(error) => {
            change
                .event("InvalidAnnotationValue", format!("annotation {HARDWARE_DETAILS} {error}"));
        }
    }
    change.event("RemoveAnnotation", format!("Removed annotation {HARDWARE_DETAILS}"));
    change.remove_annotation(HARDWARE_DETAILS);
    Some(change.proceed())
}

/// `HardwareData` survives the loss of a status. It also sets the architecture.
fn hardware_data(view: &HostView<'_>, now: Timestamp) -> Option<HostAction> {
    let hardware = view.companions.hardware_data.as_ref().filter(|_| !view.is_deleting())?;
    let architecture = hardware.cpu.arch.as_ref().filter(|_| view.host.spec.architecture.is_none());
    if view.status.hardware.is_some() && architecture.is_none() {
        return None;
    }
    let mut change = StatusChange::new(view, now);
    change.status.hardware.get_or_insert_with(|| hardware.clone());
    change.update.patch.architecture = architecture.cloned();
    Some(change.proceed())
}

/// Notes the request in the status before the annotation is removed, so that a restart does not lose
/// it.
fn retry_annotation(view: &HostView<'_>, now: Timestamp) -> Option<HostAction> {
    if !view.annotations().contains_key(RETRY_NOW) {
        return None;
    }
    let is_inspected = *view.state() == HostProvisioningState::Inspecting
        && view.status.error_message.is_empty()
        && !view.is_deleting();
    // It is removed once the inspection has started again.
    if is_inspected {
        return None;
    }
    let mut change = StatusChange::new(view, now);
    deployment_failures::clear(&mut change.status, view.generation(), now);
    // It may have the number of failed deployments.
    change.status.error_count = 0;
    if !change.status.error_message.is_empty() {
        back_off::request_now(&mut change.status, view.generation(), now);
    }
    change.remove_annotation(RETRY_NOW);
    Some(change.proceed())
}
