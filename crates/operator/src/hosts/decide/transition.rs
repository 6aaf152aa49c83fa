// SPDX-License-Identifier: Apache-2.0
//! Changes of a status: states, errors, history.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube_resources::hosts::host_status::{
    BareMetalHostStatus, HostProvisioningState, OperationalStatus,
};

use super::super::provisioner::ProvisionerFailureKind;
use super::action::{HostAction, HostEvent, HostPatch, HostUpdate, NextPass};
use super::inputs::{HostMemory, HostView, SettingsVersion};
use super::{back_off, conditions, firmware};

/// A status that is being changed, with everything that goes with it.
pub(super) struct StatusChange<'a> {
    pub(super) view: &'a HostView<'a>,
    pub(super) now: Timestamp,
    pub(super) status: BareMetalHostStatus,
    pub(super) memory: HostMemory,
    pub(super) update: ChangeEffects,
}

/// Effects besides the status.
#[derive(Default)]
pub(super) struct ChangeEffects {
    pub(super) hardware: Option<Box<kube_resources::hosts::hardware_data::HardwareDetails>>,
    pub(super) records_component_updates: bool,
    pub(super) applied_settings: Option<SettingsVersion>,
    pub(super) data_image: Option<kube_resources::hosts::data_image::DataImageStatus>,
    pub(super) patch: HostPatch,
    pub(super) events: Vec<HostEvent>,
}

impl<'a> StatusChange<'a> {
    pub(super) fn new(view: &'a HostView<'a>, now: Timestamp) -> Self {
        let (status, memory) = (view.status.clone().into_owned(), view.memory.clone());
        Self { view, now, status, memory, update: ChangeEffects::default() }
    }

    pub(super) fn with_status(mut self, status: OperationalStatus) -> Self {
        self.status.operational_status = status;
        self
    }

    pub(super) fn with_event(mut self, event: HostEvent) -> Self {
        self.update.events.push(event);
        self
    }

    pub(super) fn event(&mut self, reason: &'static str, message: impl Into<String>) {
        self.update.events.push(HostEvent::new(reason, message));
    }

    pub(super) fn remove_annotation(&mut self, key: &str) {
        let removed = &mut self.update.patch.removed_annotations;
        if self.view.annotations().contains_key(key) && !removed.iter().any(|other| other == key) {
            removed.push(key.to_owned());
        }
    }

    /// Records what is deployed.
    pub(super) fn record_deployment(mut self) -> Self {
        let spec = &self.view.host.spec;
        self.status.provisioning.image.clone_from(&spec.image);
        self.status.provisioning.custom_deploy.clone_from(&spec.custom_deploy);
        self
    }

    /// Starts the deployment of the requested image.
    pub(super) fn start_provisioning(mut self) -> HostAction {
        self.status.provisioning.boot_mode = Some(self.view.host.boot_mode());
        self.status.provisioning.root_device_hints =
            firmware::effective_root_device_hints(self.view.host);
        self.event("ProvisioningStarted", "Image provisioning started");
        self.record_deployment().enter(HostProvisioningState::Provisioning)
    }

    /// Changes the state and decides again.
    pub(super) fn enter(mut self, state: HostProvisioningState) -> HostAction {
        self.set_state(state);
        self.proceed()
    }

    /// Changes the state: ends one operation, starts the next, and resets errors.
    pub(super) fn set_state(&mut self, state: HostProvisioningState) {
        let now = Time(self.now);
        let history = &mut self.status.operation_history;
        if let Some(times) = history.for_state(&self.status.provisioning.state) {
            times.end_at(now.clone());
        }
        if let Some(times) = history.for_state(&state) {
            times.start_at(now);
        }
        self.status.provisioning.state = state;
        self.status.error_count = 0;
        self.clear_error();
        self.memory.wait = None;
        self.memory.wait_since = None;
        self.memory.blocked = None;
        self.memory.deletion_stage_since = None;
        self.memory.is_change_started = false;
        self.memory.is_cleaned_before_deployment = false;
        self.memory.has_capacity = false;
    }

    /// Removes the error. The count of failures stays until the operation succeeds.
    pub(super) fn clear_error(&mut self) {
        self.status.error_type = None;
        self.status.error_message.clear();
        if self.status.operational_status == OperationalStatus::Error {
            self.status.operational_status = OperationalStatus::Ok;
        }
        back_off::clear(&mut self.status, self.view.generation(), self.now);
    }

    /// Records a failure and schedules the next attempt. Returns the time until then.
    pub(super) fn fail(&mut self, kind: ProvisionerFailureKind, message: &str) -> Duration {
        self.status.error_count += 1;
        self.report(kind, message);
        let uid = self.view.host.metadata.uid.as_deref().unwrap_or_default();
        let delay = back_off::delay(self.status.error_count, uid);
        let at = self.now + delay;
        let generation = self.view.generation();
        back_off::schedule(&mut self.status, kind.condition_reason(), at, generation, self.now);
        delay
    }

    /// Shows an error without another attempt.
    pub(super) fn report(&mut self, kind: ProvisionerFailureKind, message: &str) {
        let message = match message {
            "" => "the operation failed without a message; see the log of the service",
            other => other,
        };
        self.status.operational_status = OperationalStatus::Error;
        self.status.error_type = Some(kind.error_type());
        self.status.error_message = message.to_owned();
        self.event(kind.event_reason(), message);
    }

    /// Writes and decides again.
    pub(super) fn proceed(self) -> HostAction {
        HostAction::Update(Box::new(self.finish(NextPass::Now)))
    }

    /// Writes and ends the pass.
    pub(super) fn pause(self, after: Option<Duration>) -> HostAction {
        HostAction::Update(Box::new(self.finish(NextPass::After(after))))
    }

    /// Ends the life of the object.
    pub(super) fn release(mut self, event: Option<HostEvent>) -> HostAction {
        self.update.events.extend(event);
        self.update.patch.removes_finalizer = true;
        self.pause(None)
    }

    /// The update, with current conditions.
    pub(super) fn finish(mut self, next: NextPass) -> HostUpdate {
        conditions::refresh(&mut self.status, self.view, &self.memory, self.now);
        if self.status != *self.view.status || self.status.last_updated.is_none() {
            self.status.last_updated = Some(Time(self.now));
        }
        let effects = self.update;
        HostUpdate {
            hardware: effects.hardware,
            records_component_updates: effects.records_component_updates,
            applied_settings: effects.applied_settings,
            data_image: effects.data_image,
            status: Box::new(self.status),
            patch: effects.patch,
            events: effects.events,
            memory: self.memory,
            next,
        }
    }
}
