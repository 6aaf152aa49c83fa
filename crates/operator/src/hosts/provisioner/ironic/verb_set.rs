// SPDX-License-Identifier: Apache-2.0
//! The verbs of the provisioner, each with the kind of its failures.

use async_trait::async_trait;
use kube_resources::hosts::hardware_data::HardwareDetails;
use kube_resources::hosts::host_firmware_components::FirmwareComponentVersion;
use kube_resources::hosts::preprovisioning_image::RamdiskFormat;

use super::super::HostProvisioner;
use super::super::outcome::{ProvisionerFailureKind as Kind, VerbOutcome, VerbStop};
use super::super::requests::{
    AbortScope, AdoptionRequest, BmcEventRequest, DeprovisionRequest, FirmwareSettingsReading,
    HostDeployRequest, HostObservation, InspectionRequest, ManagedHost, PowerOffRequest,
    PreparationRequest, RegistrationAttempt, RegistrationRequest, ServicingRequest,
};
use super::IronicProvisioner;
use crate::object_key::ObjectKey;

impl IronicProvisioner {
    fn checked<T>(&self, outcome: VerbOutcome<T>) -> VerbOutcome<T> {
        if matches!(outcome, Err(VerbStop::NotReady { .. })) {
            self.forget_version();
        }
        outcome
    }
}

#[async_trait]
impl HostProvisioner for IronicProvisioner {
    fn ramdisk_formats(&self, host: &ManagedHost) -> Vec<RamdiskFormat> {
        if !self.settings.ramdisk.is_built_per_host {
            return Vec::new();
        }
        let boots_iso = host.bmc.as_ref().is_some_and(|bmc| bmc.address.bmc_type.boots_iso);
        let mut formats = Vec::new();
        if boots_iso {
            formats.push(RamdiskFormat::Iso);
        }
        formats.push(RamdiskFormat::Initrd);
        formats
    }

    fn reports_changes(&self) -> bool {
        true
    }

    async fn changed_hosts(&self) -> Vec<ObjectKey> {
        self.changes.next(&*self.transport).await
    }

    async fn delete(&self, host: &ManagedHost, aborts: AbortScope) -> VerbOutcome<()> {
        self.checked(self.calls(Kind::Removal).await?.remove(host, aborts).await)
    }

    async fn detach(&self, host: &ManagedHost, is_forced: bool) -> VerbOutcome<()> {
        let aborts = if is_forced { AbortScope::Everything } else { AbortScope::Nothing };
        self.checked(self.calls(Kind::Removal).await?.remove(host, aborts).await)
    }

    async fn has_capacity(&self, host: &ManagedHost) -> VerbOutcome<bool> {
        let calls = self.calls(Kind::Provisioning).await?;
        self.checked(self.capacity.admits(&calls, host).await)
    }

    async fn register(
        &self,
        host: &ManagedHost,
        request: &RegistrationRequest,
    ) -> RegistrationAttempt {
        let mut attempt = match self.calls(Kind::Registration).await {
            Ok(calls) => calls.register(host, request).await,
            Err(stop) => Err(stop).into(),
        };
        attempt.node_id = self.checked(attempt.node_id);
        attempt
    }

    async fn inspect(
        &self,
        host: &ManagedHost,
        request: &InspectionRequest,
    ) -> VerbOutcome<HardwareDetails> {
        self.checked(self.calls(Kind::Inspection).await?.inspect(host, request).await)
    }

    async fn observe(&self, host: &ManagedHost) -> VerbOutcome<HostObservation> {
        self.checked(self.calls(Kind::Power).await?.observe(host).await)
    }

    async fn adopt(&self, host: &ManagedHost, request: &AdoptionRequest) -> VerbOutcome<()> {
        self.checked(self.calls(Kind::Adoption).await?.adopt(host, request).await)
    }

    async fn prepare(&self, host: &ManagedHost, request: &PreparationRequest) -> VerbOutcome<()> {
        self.checked(self.calls(Kind::Preparation).await?.prepare(host, request).await)
    }

    async fn service(&self, host: &ManagedHost, request: &ServicingRequest) -> VerbOutcome<()> {
        self.checked(self.calls(Kind::Servicing).await?.service(host, request).await)
    }

    async fn provision(&self, host: &ManagedHost, request: &HostDeployRequest) -> VerbOutcome<()> {
        self.checked(self.calls(Kind::Provisioning).await?.provision(host, request).await)
    }

    async fn deprovision(
        &self,
        host: &ManagedHost,
        request: &DeprovisionRequest,
    ) -> VerbOutcome<()> {
        self.checked(self.calls(Kind::Provisioning).await?.deprovision(host, request).await)
    }

    async fn power_on(&self, host: &ManagedHost, is_forced: bool) -> VerbOutcome<()> {
        self.checked(self.calls(Kind::Power).await?.power_on(host, is_forced).await)
    }

    async fn power_off(&self, host: &ManagedHost, request: &PowerOffRequest) -> VerbOutcome<()> {
        self.checked(self.calls(Kind::Power).await?.power_off(host, request).await)
    }

    async fn firmware_settings(
        &self,
        host: &ManagedHost,
        includes_schema: bool,
    ) -> VerbOutcome<FirmwareSettingsReading> {
        self.checked(
            self.calls(Kind::Preparation).await?.firmware_settings(host, includes_schema).await,
        )
    }

    async fn firmware_components(
        &self,
        host: &ManagedHost,
    ) -> VerbOutcome<Vec<FirmwareComponentVersion>> {
        self.checked(self.calls(Kind::Preparation).await?.firmware_components(host).await)
    }

    async fn add_event_subscription(
        &self,
        host: &ManagedHost,
        subscription: &BmcEventRequest,
    ) -> VerbOutcome<String> {
        self.checked(
            self.calls(Kind::Attachment).await?.add_event_subscription(host, subscription).await,
        )
    }

    async fn remove_event_subscription(&self, host: &ManagedHost, id: &str) -> VerbOutcome<()> {
        self.checked(self.calls(Kind::Attachment).await?.remove_event_subscription(host, id).await)
    }

    async fn attach_data_image(&self, host: &ManagedHost, url: &str) -> VerbOutcome<()> {
        let calls = self.calls(Kind::Attachment).await?;
        self.checked(self.media.change(&calls, host, Some(url)).await)
    }

    async fn detach_data_image(&self, host: &ManagedHost) -> VerbOutcome<()> {
        let calls = self.calls(Kind::Attachment).await?;
        self.checked(self.media.change(&calls, host, None).await)
    }
}
