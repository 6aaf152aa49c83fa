// SPDX-License-Identifier: Apache-2.0
//! Actions of the state machine and their effects.

use std::time::Duration;

use kube_resources::hosts::annotations::HostRebootMode;
use kube_resources::hosts::data_image::DataImageStatus;
use kube_resources::hosts::hardware_data::HardwareDetails;
use kube_resources::hosts::host_status::BareMetalHostStatus;

use super::super::provisioner::{HostObservation, RegistrationAttempt};
use super::inputs::{HostMemory, SettingsVersion};

/// What to do next with a host.
#[derive(Clone, Debug)]
pub enum HostAction {
    /// Nothing until an object changes or the time has passed. Ends the pass.
    Wait {
        /// When to look again; `None` means only after a change.
        after: Option<Duration>,
    },
    /// Write changes.
    Update(Box<HostUpdate>),
    /// Call the provisioner and pass the outcome to [`super::apply()`].
    Call(HostVerb),
}

/// A verb of the provisioner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostVerb {
    /// Register, or update the registration.
    Register,
    /// Check whether an operation may run.
    CheckCapacity,
    /// Inspect.
    Inspect {
        /// Ignore an earlier result.
        refresh: bool,
        /// Abort a running inspection.
        is_forced: bool,
    },
    /// Apply RAID, BIOS settings and firmware.
    Prepare,
    /// Deploy.
    Provision {
        /// Abort a running deployment.
        is_forced: bool,
    },
    /// Remove the image.
    Deprovision,
    /// Adopt.
    Adopt,
    /// Read power state and health.
    Observe,
    /// Power on.
    PowerOn,
    /// Power off, or reboot a host that must not be powered off.
    PowerOff {
        /// Hard or soft.
        mode: HostRebootMode,
    },
    /// Power off, and abort operations that wait for the ramdisk.
    PowerOffBeforeDelete,
    /// Change firmware of a provisioned host.
    Service,
    /// Attach virtual media.
    AttachDataImage {
        /// URL of the image.
        url: String,
    },
    /// Detach virtual media.
    DetachDataImage,
    /// Remove the node of a host that stays.
    Detach {
        /// Abort running operations.
        is_forced: bool,
    },
    /// Remove the node of a host that is deleted.
    Delete,
}

/// What a verb returns.
#[derive(Clone, Debug, PartialEq)]
pub enum VerbValue {
    /// Nothing.
    Nothing,
    /// The registered host, or how far its registration is.
    Registration(RegistrationAttempt),
    /// The hardware.
    Hardware(Box<HardwareDetails>),
    /// Power state and health.
    Observation(HostObservation),
    /// Whether an operation may run.
    Capacity(bool),
}

/// Changes to write, in the order of the fields. The finalizer is removed last.
#[derive(Clone, Debug)]
pub struct HostUpdate {
    /// Replace the content of `HardwareData`.
    pub hardware: Option<Box<HardwareDetails>>,
    /// The requested firmware updates were started: copy them to the status of
    /// `HostFirmwareComponents`.
    pub records_component_updates: bool,
    /// These BIOS settings were applied: record it in the status of `HostFirmwareSettings`.
    pub applied_settings: Option<SettingsVersion>,
    /// New status of the `DataImage`.
    pub data_image: Option<DataImageStatus>,
    /// New status of the host.
    pub status: Box<BareMetalHostStatus>,
    /// Changes of the host outside its status.
    pub patch: HostPatch,
    /// Events to report.
    pub events: Vec<HostEvent>,
    /// New memory of the host.
    pub memory: HostMemory,
    /// How the pass continues.
    pub next: NextPass,
}

/// How a pass continues after an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextPass {
    /// Decide again at once.
    Now,
    /// End the pass, and look again after this time; `None` means only after a change.
    After(Option<Duration>),
}

/// Changes of a host outside its status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPatch {
    /// Add the finalizer.
    pub adds_finalizer: bool,
    /// Annotations to remove.
    pub removed_annotations: Vec<String>,
    /// Add the annotation that requests an inspection.
    pub requests_inspection: bool,
    /// New `spec.architecture`.
    pub architecture: Option<String>,
    /// Remove the finalizers of Secrets and images, then that of the host.
    pub removes_finalizer: bool,
}

/// A Kubernetes event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEvent {
    /// Reason.
    pub reason: &'static str,
    /// Text.
    pub message: String,
}

impl HostEvent {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// Whether it needs attention.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        self.reason.ends_with("Error")
            || matches!(
                self.reason,
                "DeletionForced" | "DeletionPaused" | "DisksNotErased" | "InvalidAnnotationValue"
            )
    }
}
