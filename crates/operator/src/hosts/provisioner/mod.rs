// SPDX-License-Identifier: Apache-2.0
//! What a provisioning service does for hosts, independent of the service.

pub mod fixture;
pub mod ironic;
mod outcome;
mod requests;

use async_trait::async_trait;
use kube_resources::hosts::hardware_data::HardwareDetails;
use kube_resources::hosts::host_firmware_components::FirmwareComponentVersion;
use kube_resources::hosts::preprovisioning_image::RamdiskFormat;

pub(super) use outcome::DIFFERENT_MACHINE;
pub use outcome::{
    ProvisionerFailure, ProvisionerFailureKind, ProvisionerWait, ProvisionerWaitReason,
    VerbOutcome, VerbStop,
};
pub use requests::{
    AbortScope, AdoptionRequest, BmcAccess, BmcAddressChange, BmcAddressCheck, BmcEventRequest,
    DeprovisionRequest, FirmwareChanges, FirmwareSettingsReading, HostDeployRequest, HostHealth,
    HostObservation, InspectionRequest, ManagedHost, PowerOffRequest, PreparationRequest,
    PullSecret, RegistrationAttempt, RegistrationRequest, ServicingRequest,
};

use crate::object_key::ObjectKey;

/// A provisioning service. Every verb can be repeated: it continues where the last call ended.
#[async_trait]
pub trait HostProvisioner: Send + Sync {
    /// Makes the host known to the service and verifies its BMC.
    async fn register(
        &self,
        host: &ManagedHost,
        request: &RegistrationRequest,
    ) -> RegistrationAttempt;

    /// Formats of a ramdisk image that the host can boot, best first; empty if it needs none.
    fn ramdisk_formats(&self, host: &ManagedHost) -> Vec<RamdiskFormat>;

    /// Finds the hardware of the host.
    async fn inspect(
        &self,
        host: &ManagedHost,
        request: &InspectionRequest,
    ) -> VerbOutcome<HardwareDetails>;

    /// Reads power state, power failure and health with one request.
    async fn observe(&self, host: &ManagedHost) -> VerbOutcome<HostObservation>;

    /// Takes over a host that runs a system which this service did not install.
    async fn adopt(&self, host: &ManagedHost, request: &AdoptionRequest) -> VerbOutcome<()>;

    /// Applies RAID, BIOS settings and firmware before provisioning.
    async fn prepare(&self, host: &ManagedHost, request: &PreparationRequest) -> VerbOutcome<()>;

    /// Applies BIOS settings and firmware to a provisioned host.
    async fn service(&self, host: &ManagedHost, request: &ServicingRequest) -> VerbOutcome<()>;

    /// Deploys an image.
    async fn provision(&self, host: &ManagedHost, request: &HostDeployRequest) -> VerbOutcome<()>;

    /// Removes the image and cleans the host.
    async fn deprovision(
        &self,
        host: &ManagedHost,
        request: &DeprovisionRequest,
    ) -> VerbOutcome<()>;

    /// Removes the host from the service. The host keeps running.
    async fn delete(&self, host: &ManagedHost, aborts: AbortScope) -> VerbOutcome<()>;

    /// Like [`HostProvisioner::delete`], for a host that is not deleted. With `is_forced` running
    /// operations are aborted.
    async fn detach(&self, host: &ManagedHost, is_forced: bool) -> VerbOutcome<()>;

    /// Powers the host on. With `is_forced` an earlier power failure is ignored.
    async fn power_on(&self, host: &ManagedHost, is_forced: bool) -> VerbOutcome<()>;

    /// Powers the host off, or reboots it if it must not be powered off.
    async fn power_off(&self, host: &ManagedHost, request: &PowerOffRequest) -> VerbOutcome<()>;

    /// Whether another operation may start on the host now.
    async fn has_capacity(&self, host: &ManagedHost) -> VerbOutcome<bool>;

    /// Reads the BIOS settings, and their types and limits if requested.
    async fn firmware_settings(
        &self,
        host: &ManagedHost,
        includes_schema: bool,
    ) -> VerbOutcome<FirmwareSettingsReading>;

    /// Reads the versions of the firmware components.
    async fn firmware_components(
        &self,
        host: &ManagedHost,
    ) -> VerbOutcome<Vec<FirmwareComponentVersion>>;

    /// Subscribes to events of the BMC and returns the identifier of the subscription. One that exists
    /// with the same destination and context is used again.
    async fn add_event_subscription(
        &self,
        host: &ManagedHost,
        subscription: &BmcEventRequest,
    ) -> VerbOutcome<String>;

    /// Ends a subscription. One that does not exist is no error.
    async fn remove_event_subscription(&self, host: &ManagedHost, id: &str) -> VerbOutcome<()>;

    /// Attaches an image as virtual media; done once the BMC reports it.
    async fn attach_data_image(&self, host: &ManagedHost, url: &str) -> VerbOutcome<()>;

    /// Detaches the image; done once the BMC reports none.
    async fn detach_data_image(&self, host: &ManagedHost) -> VerbOutcome<()>;

    /// Whether [`HostProvisioner::changed_hosts`] reports changes, so that hosts need not be polled.
    fn reports_changes(&self) -> bool {
        false
    }

    /// Waits until the state of hosts at the service changes, and returns them. One caller at a time.
    async fn changed_hosts(&self) -> Vec<ObjectKey> {
        std::future::pending().await
    }
}
