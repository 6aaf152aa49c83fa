// SPDX-License-Identifier: Apache-2.0
//! What decisions depend on.

use std::borrow::Cow;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube_resources::hosts::annotations::{Annotations, is_paused};
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::data_image::DataImage;
use kube_resources::hosts::hardware_data::HardwareDetails;
use kube_resources::hosts::host_firmware_components::HostFirmwareComponents;
use kube_resources::hosts::host_firmware_settings::HostFirmwareSettings;
use kube_resources::hosts::host_status::{
    BareMetalHostStatus, HostCredentialsStatus, HostProvisioningState,
};
use kube_resources::hosts::host_update_policy::HostUpdatePolicySpec;
use kube_resources::hosts::names::HOST_FINALIZER;

use super::super::provisioner::{HostObservation, ProvisionerWait};

/// Limits of the state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLimits {
    /// How often the same image is deployed.
    pub max_provisioning_retries: i64,
    /// How long a deletion may fail before its stage is skipped.
    pub deletion_failure_limit: Duration,
    /// How long a deletion may take before its stage is skipped, even if it makes progress.
    pub deletion_limit: Duration,
    /// Whether changes of nodes are reported, so that hosts are looked at only after a change.
    pub are_changes_reported: bool,
}

impl Default for HostLimits {
    fn default() -> Self {
        Self {
            max_provisioning_retries: 5,
            deletion_failure_limit: Duration::from_secs(3600),
            deletion_limit: Duration::from_secs(24 * 3600),
            are_changes_reported: false,
        }
    }
}

/// Objects that belong to a host, and the state of its BMC details.
#[derive(Clone, Debug, Default)]
pub struct HostCompanions {
    /// Whether the BMC details can be used.
    pub bmc_access: BmcAccessState,
    /// The hardware in `HardwareData`.
    pub hardware_data: Option<HardwareDetails>,
    /// BIOS settings.
    pub firmware_settings: Option<HostFirmwareSettings>,
    /// Firmware components.
    pub firmware_components: Option<HostFirmwareComponents>,
    /// When firmware is changed.
    pub update_policy: Option<HostUpdatePolicySpec>,
    /// Virtual media.
    pub data_image: Option<DataImage>,
    /// Hash of all that registration sends. The host is registered again only if it changes.
    pub registration_digest: u64,
}

/// Whether the BMC details can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BmcAccessState {
    /// There are none.
    #[default]
    Absent,
    /// They are complete.
    Usable {
        /// Name of the Secret.
        secret: String,
        /// Resource version of the Secret.
        version: String,
    },
    /// They are wrong or incomplete.
    Unusable {
        /// What is wrong, for the user.
        message: String,
        /// Whether the Secret does not exist (yet).
        is_missing: bool,
    },
}

/// A version of a `HostFirmwareSettings`. Generations start again if the object is recreated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsVersion {
    /// UID of the object.
    pub uid: Option<String>,
    /// Its generation.
    pub generation: i64,
}

impl SettingsVersion {
    /// The version of an object; `None` before the API server stored it.
    pub(super) fn of(settings: &HostFirmwareSettings) -> Option<Self> {
        let generation = settings.metadata.generation?;
        Some(Self { uid: settings.metadata.uid.clone(), generation })
    }
}

/// What is known about a host beyond its object. It may be lost at any time.
#[derive(Clone, Debug, Default)]
pub struct HostMemory {
    /// Digest of the last successful registration.
    pub registered_digest: Option<u64>,
    /// Whether the node was adopted since.
    pub is_adopted: bool,
    /// Whether the preparation or servicing in progress was started.
    pub is_change_started: bool,
    /// The BIOS settings that the running change applies.
    pub started_settings: Option<SettingsVersion>,
    /// The BIOS settings that were applied last, until their status has them.
    pub applied_settings: Option<SettingsVersion>,
    /// Whether the running cleaning was requested by this process before the deployment, so that the disks have
    /// no data of the user.
    pub is_cleaned_before_deployment: bool,
    /// Whether the deletion aborts automated cleaning, because there are no data of a user to erase.
    pub aborts_cleaning: bool,
    /// The operation in progress.
    pub wait: Option<ProvisionerWait>,
    /// Since when the operation in progress is waited for.
    pub wait_since: Option<Timestamp>,
    /// Why the service or the node cannot be used now.
    pub blocked: Option<String>,
    /// Whether the service could not be used at the last call.
    pub is_service_down: bool,
    /// First call of the current stage of a deletion.
    pub deletion_stage_since: Option<Timestamp>,
    /// First call that removes the node by force.
    pub forced_since: Option<Timestamp>,
    /// Since when the calls of a deletion fail without interruption, also over several stages.
    pub deletion_failing_since: Option<Timestamp>,
    /// Power state and health, read in this pass.
    pub observation: Option<HostObservation>,
    /// Whether an operation may run in this pass.
    pub has_capacity: bool,
    /// Whether the host was registered in this pass.
    pub is_registered_in_pass: bool,
}

impl HostMemory {
    /// Forgets what holds only within a pass.
    pub fn begin_pass(&mut self) {
        self.observation = None;
        self.has_capacity = false;
        self.is_registered_in_pass = false;
    }

    /// The service does not know the host any more.
    pub(super) fn forget_registration(&mut self) {
        self.registered_digest = None;
        self.is_adopted = false;
    }
}

/// A host and all that its decisions depend on.
#[derive(Clone, Debug)]
pub struct HostView<'a> {
    /// The object.
    pub host: &'a BareMetalHost,
    /// Its status.
    pub status: Cow<'a, BareMetalHostStatus>,
    /// Objects that belong to it.
    pub companions: &'a HostCompanions,
    /// What is known beyond the objects.
    pub memory: &'a HostMemory,
    /// Limits.
    pub policy: &'a HostLimits,
}

impl<'a> HostView<'a> {
    /// Combines the inputs.
    #[must_use]
    pub fn new(
        host: &'a BareMetalHost,
        companions: &'a HostCompanions,
        memory: &'a HostMemory,
        policy: &'a HostLimits,
    ) -> Self {
        let status = match &host.status {
            Some(status) => Cow::Borrowed(status),
            None => Cow::Owned(BareMetalHostStatus::default()),
        };
        Self { host, status, companions, memory, policy }
    }

    pub(super) fn state(&self) -> &HostProvisioningState {
        &self.status.provisioning.state
    }

    pub(super) fn node_id(&self) -> &str {
        &self.status.provisioning.id
    }

    pub(super) fn annotations(&self) -> &'a Annotations {
        static NONE: Annotations = Annotations::new();
        self.host.metadata.annotations.as_ref().unwrap_or(&NONE)
    }

    pub(super) fn generation(&self) -> Option<i64> {
        self.host.metadata.generation
    }

    /// Whether the service never had a verified node of the host.
    pub(super) fn was_never_registered(&self) -> bool {
        self.node_id().is_empty()
            && self.status.good_credentials == HostCredentialsStatus::default()
    }

    pub(super) fn is_paused(&self) -> bool {
        is_paused(self.annotations())
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.host.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn has_finalizer(&self) -> bool {
        let finalizers = self.host.metadata.finalizers.as_deref().unwrap_or_default();
        finalizers.iter().any(|finalizer| finalizer == HOST_FINALIZER)
    }

    fn requested_image(&self) -> Option<&str> {
        let image = self.host.spec.image.as_ref()?;
        Some(image.url.as_str()).filter(|url| !url.is_empty())
    }

    fn requested_method(&self) -> Option<&str> {
        let deploy = self.host.spec.custom_deploy.as_ref()?;
        Some(deploy.method.as_str()).filter(|method| !method.is_empty())
    }

    /// Whether an image or a custom deployment is requested.
    pub(super) fn requests_deployment(&self) -> bool {
        self.requested_image().is_some() || self.requested_method().is_some()
    }

    /// Whether the request differs from what is (being) deployed. Only the URL of the image counts, as
    /// for Metal3: another checksum must not erase a running host.
    pub(super) fn is_deployment_changed(&self) -> bool {
        let deployed = &self.status.provisioning;
        let image = deployed.deployed_image().map(|image| image.url.as_str());
        let method = deployed.custom_deploy.as_ref().map(|deploy| deploy.method.as_str());
        self.requested_image() != image
            || self.requested_method() != method.filter(|method| !method.is_empty())
    }
}
