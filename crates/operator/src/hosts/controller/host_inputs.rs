// SPDX-License-Identifier: Apache-2.0
//! Companions and contents of a host for one pass: from caches, or read when an action needs them.

use k8s_openapi::api::core::v1::SecretReference;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::DeserializeGuard;
use kube::{Api, Resource, ResourceExt};
use kube_resources::hosts::annotations::HARDWARE_DETAILS;
use kube_resources::hosts::conditions::{firmware, is_true, preprovisioning_image};
use kube_resources::hosts::hardware_data::HardwareData;
use kube_resources::hosts::host_firmware_components::{
    HostFirmwareComponents, HostFirmwareComponentsSpec,
};
use kube_resources::hosts::host_firmware_settings::{
    HostFirmwareSettings, HostFirmwareSettingsSpec,
};
use kube_resources::hosts::host_status::OperationalStatus;
use kube_resources::hosts::ironic_payloads::config_drive::ConfigSecret;
use kube_resources::hosts::names::HOST_PREPROVISIONING_IMAGE_FINALIZER;
use kube_resources::hosts::preprovisioning_image::{
    PreprovisioningImage, PreprovisioningImageSpec, PreprovisioningImageStatus,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tracing::warn;

use super::super::decide::{BmcAccessState, HostVerb, HostView};
use super::super::execute::{SecretContent, bmc_access, managed_host, registration_digest};
use super::super::provisioner::{ProvisionerFailureKind, VerbStop};
use super::bmc_addresses::is_registered;
use super::host_pass::{HostPass, HostPassError};
use super::host_slots::CheckedBmc;
use super::host_writer::FIELD_MANAGER;
use super::image_auth::pull_secret;
use super::secrets::{AcquiredSecret, SecretUse};
use crate::object_key::ObjectKey;

impl HostPass<'_> {
    /// Collects what decisions depend on.
    pub(super) async fn collect(&mut self) -> Result<(), HostPassError> {
        let (key, caches) = (self.key(), &self.shared.caches);
        self.companions.firmware_settings = caches.firmware_settings.get(&key).as_deref().cloned();
        self.companions.firmware_components =
            caches.firmware_components.get(&key).as_deref().cloned();
        self.companions.update_policy =
            caches.update_policies.get(&key).map(|policy| policy.spec.clone());
        self.companions.data_image = caches.data_images.get(&key).as_deref().cloned();
        self.contents.ramdisk = caches
            .ramdisk_images
            .as_ref()
            .and_then(|images| images.get(&key))
            .and_then(|image| usable_ramdisk(&image).cloned());
        self.read_current_settings().await?;
        self.read_hardware().await?;
        self.check_bmc().await?;
        self.check_other_hosts();
        self.check_ramdisk_network().await
    }

    /// Values that depend on the host and change with it.
    pub(super) fn refresh(&mut self) {
        self.companions.registration_digest =
            registration_digest(&self.host, &self.companions.bmc_access, &self.contents);
    }

    /// The cache has no values of settings; only changes of valid requests need them.
    async fn read_current_settings(&mut self) -> Result<(), HostPassError> {
        let Some(settings) = &self.companions.firmware_settings else { return Ok(()) };
        let conditions = settings.status.as_ref().map(|status| status.conditions.as_slice());
        if !is_true(conditions.unwrap_or_default(), firmware::CHANGE_DETECTED) {
            return Ok(());
        }
        let api: Api<HostFirmwareSettings> = self.api();
        self.companions.firmware_settings = api.get_opt(&self.host.name_any()).await?;
        Ok(())
    }

    /// `HardwareData` is read if the host lacks something that it may have.
    async fn read_hardware(&mut self) -> Result<(), HostPassError> {
        let has_hardware =
            self.host.status.as_ref().is_some_and(|status| status.hardware.is_some());
        let is_complete = has_hardware
            && self.host.spec.architecture.is_some()
            && self.host.annotation(HARDWARE_DETAILS).is_none();
        let is_deleted = self.host.metadata.deletion_timestamp.is_some();
        if is_complete || is_deleted || self.slot.has_no_hardware_data {
            return Ok(());
        }
        let api: Api<DeserializeGuard<HardwareData>> = self.api();
        let found = match api.get_opt(&self.host.name_any()).await? {
            None => None,
            Some(DeserializeGuard(Ok(data))) => Some(data),
            Some(DeserializeGuard(Err(invalid))) => {
                warn!(
                    namespace = invalid.metadata.namespace.as_deref(),
                    name = invalid.metadata.name.as_deref(),
                    error = invalid.error,
                    "HardwareData cannot be read and is ignored"
                );
                None
            }
        };
        self.slot.has_no_hardware_data = found.is_none();
        self.companions.hardware_data = found.and_then(|data| data.spec.hardware);
        Ok(())
    }

    /// Checks the BMC details, unless they and the Secret are the same as last time.
    async fn check_bmc(&mut self) -> Result<(), HostPassError> {
        let details = self.host.spec.bmc.clone().filter(|_| self.host.has_bmc_details());
        let Some(details) = details else {
            self.companions.bmc_access = BmcAccessState::Absent;
            self.slot.bmc = None;
            return Ok(());
        };
        let key = ObjectKey::new(self.key().namespace(), &details.credentials_name);
        let version = self.shared.secrets.versions().get(&key);
        let is_current = |checked: &&CheckedBmc| {
            checked.details == details && version.as_ref() == Some(&checked.version)
        };
        if let Some(checked) = self.slot.bmc.as_ref().filter(is_current) {
            self.companions.bmc_access = checked.state.clone();
            self.contents.bmc = checked.access.clone();
            return Ok(());
        }
        self.read_bmc_secret().await
    }

    /// Rejects the address of a host that is not registered yet, if it leads to the machine of another one.
    fn check_other_hosts(&mut self) {
        if is_registered(&self.host) {
            return;
        }
        let Some(owner) = self.shared.addresses.owner(&self.key()) else { return };
        let (namespace, name) = (owner.namespace(), owner.name());
        let message = format!(
            "spec.bmc.address leads to the machine of the host {name} in the namespace {namespace}; correct the \
             address, or delete or detach that host"
        );
        self.companions.bmc_access = BmcAccessState::Unusable { message, is_missing: false };
        self.contents.bmc = None;
    }

    /// Reads the Secret with the credentials.
    async fn read_bmc_secret(&mut self) -> Result<(), HostPassError> {
        let Some(details) = self.host.spec.bmc.clone() else { return Ok(()) };
        let name = &details.credentials_name;
        let secret = match name.is_empty() {
            true => None,
            false => self.shared.secrets.acquire(&self.host, name, SecretUse::Owned).await?,
        };
        let content = secret
            .as_ref()
            .map(|secret| SecretContent { data: &secret.data, version: &secret.version });
        let (state, access) = bmc_access(&self.host, content);
        self.companions.bmc_access = state.clone();
        self.contents.bmc = access.clone();
        self.slot.bmc = secret.map(|secret| {
            let version = secret.version;
            CheckedBmc { details, version, state, access }
        });
        Ok(())
    }

    /// The version of the Secret with the network data of the ramdisk.
    async fn check_ramdisk_network(&mut self) -> Result<(), HostPassError> {
        let Some(name) = self.host.spec.preprovisioning_network_data_name.clone() else {
            return Ok(());
        };
        let key = ObjectKey::new(self.key().namespace(), &name);
        self.contents.ramdisk_network_version = self.shared.secrets.versions().get(&key);
        if self.contents.ramdisk_network_version.is_none() {
            let secrets = &self.shared.secrets;
            let secret = secrets.acquire(&self.host, &name, SecretUse::Owned).await?;
            self.contents.ramdisk_network_version = secret.map(|secret| secret.version);
        }
        Ok(())
    }

    /// Reads the contents that a verb needs. The inner error is the outcome of the verb.
    pub(super) async fn load_contents(
        &mut self,
        verb: &HostVerb,
    ) -> Result<Result<(), VerbStop>, HostPassError> {
        let needs_access = match verb {
            HostVerb::Register
            | HostVerb::CheckCapacity
            | HostVerb::Inspect { .. }
            | HostVerb::Prepare
            | HostVerb::Provision { .. } => true,
            HostVerb::Deprovision
            | HostVerb::Adopt
            | HostVerb::Observe
            | HostVerb::PowerOn
            | HostVerb::PowerOff { .. }
            | HostVerb::PowerOffBeforeDelete
            | HostVerb::Service
            | HostVerb::AttachDataImage { .. }
            | HostVerb::DetachDataImage
            | HostVerb::Detach { .. }
            | HostVerb::Delete => false,
        };
        let is_usable = matches!(self.companions.bmc_access, BmcAccessState::Usable { .. });
        if needs_access && is_usable && self.contents.bmc.is_none() {
            self.read_bmc_secret().await?;
            self.refresh();
        }
        if *verb == HostVerb::Register {
            self.request_ramdisk().await?;
            return self.load_ramdisk_network(ProvisionerFailureKind::Registration).await;
        }
        if matches!(verb, HostVerb::Provision { .. }) {
            return self.load_deployment().await;
        }
        Ok(Ok(()))
    }

    async fn load_ramdisk_network(
        &mut self,
        kind: ProvisionerFailureKind,
    ) -> Result<Result<(), VerbStop>, HostPassError> {
        let Some(name) = self.host.spec.preprovisioning_network_data_name.clone() else {
            return Ok(Ok(()));
        };
        let field = "spec.preprovisioningNetworkDataName";
        let secret = self.shared.secrets.acquire(&self.host, &name, SecretUse::Owned).await?;
        self.contents.ramdisk_network_version =
            secret.as_ref().map(|secret| secret.version.clone());
        self.refresh();
        let text = read_text(secret, &name, field, ConfigSecret::NetworkData, kind);
        Ok(text.map(|text| self.contents.ramdisk_network_data = Some(text)))
    }

    /// User data, network data, metadata and credentials for a registry.
    async fn load_deployment(&mut self) -> Result<Result<(), VerbStop>, HostPassError> {
        let kind = ProvisionerFailureKind::Provisioning;
        if let Err(stop) = self.load_ramdisk_network(kind).await? {
            return Ok(Err(stop));
        }
        let spec = self.host.spec.clone();
        for (reference, field, content) in [
            (&spec.user_data, "spec.userData", ConfigSecret::UserData),
            (&spec.network_data, "spec.networkData", ConfigSecret::NetworkData),
            (&spec.meta_data, "spec.metaData", ConfigSecret::MetaData),
        ] {
            let text = match reference {
                Some(reference) => self.read_reference(reference, field, content).await?,
                None => Ok(None),
            };
            let text = match text {
                Ok(text) => text,
                Err(stop) => return Ok(Err(stop)),
            };
            match content {
                ConfigSecret::UserData => self.contents.user_data = text,
                ConfigSecret::NetworkData => self.contents.network_data = text,
                ConfigSecret::MetaData => self.contents.meta_data = text,
            }
        }
        self.load_pull_secret().await
    }

    async fn read_reference(
        &self,
        reference: &SecretReference,
        field: &str,
        content: ConfigSecret,
    ) -> Result<Result<Option<String>, VerbStop>, HostPassError> {
        let kind = ProvisionerFailureKind::Provisioning;
        let Some(name) = reference.name.as_deref().filter(|name| !name.is_empty()) else {
            return Ok(Ok(None));
        };
        let namespace = reference.namespace.as_deref().filter(|name| !name.is_empty());
        // A host must not read Secrets of other namespaces.
        if namespace.is_some_and(|namespace| namespace != self.key().namespace()) {
            let message =
                format!("{field} names a Secret of another namespace; move it to the host's");
            return Ok(Err(VerbStop::failed(kind, message)));
        }
        let secret = self.shared.secrets.acquire(&self.host, name, SecretUse::Read).await?;
        Ok(read_text(secret, name, field, content, kind).map(Some))
    }

    async fn load_pull_secret(&mut self) -> Result<Result<(), VerbStop>, HostPassError> {
        let Some(image) = self.host.spec.image.clone() else { return Ok(Ok(())) };
        let Some(name) = image.oci_auth_secret_name.as_deref().filter(|_| image.is_oci()) else {
            return Ok(Ok(()));
        };
        let secret = self.shared.secrets.acquire(&self.host, name, SecretUse::Read).await?;
        let Some(secret) = secret else {
            let message = missing_secret(name, "spec.image.ociAuthSecretName");
            return Ok(Err(VerbStop::MissingInput { message }));
        };
        Ok(match pull_secret(&secret.data, &image.url) {
            Ok(found) => {
                self.contents.pull_secret = Some(found);
                Ok(())
            }
            Err(error) => {
                let message = format!("the Secret {name} of spec.image.ociAuthSecretName {error}");
                Err(VerbStop::failed(ProvisionerFailureKind::Provisioning, message))
            }
        })
    }

    /// Requests a ramdisk for the host, if ramdisks are built per host.
    async fn request_ramdisk(&mut self) -> Result<(), HostPassError> {
        let shared = self.shared;
        let Some(images) = &shared.caches.ramdisk_images else { return Ok(()) };
        let view = HostView::new(&self.host, &self.companions, &self.slot.memory, &shared.limits);
        let formats = shared.provisioner.ramdisk_formats(&managed_host(&view, &self.contents));
        if formats.is_empty() || self.host.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let spec = PreprovisioningImageSpec {
            network_data_name: self.host.spec.preprovisioning_network_data_name.clone(),
            architecture: self.host.spec.architecture.clone(),
            accept_formats: formats,
        };
        let existing = images.get(&self.key());
        if existing.as_ref().is_some_and(|image| image.spec == spec) {
            return Ok(());
        }
        let object = json!({
            "apiVersion": PreprovisioningImage::api_version(&()),
            "kind": PreprovisioningImage::kind(&()),
            "metadata": {
                "name": self.host.name_any(),
                "namespace": self.host.namespace(),
                "labels": self.host.labels(),
                "finalizers": [HOST_PREPROVISIONING_IMAGE_FINALIZER],
                "ownerReferences": Vec::from_iter(self.host.controller_owner_ref(&())),
            },
            "spec": spec,
        });
        let api: Api<PreprovisioningImage> = self.api();
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let applied = api.patch(&self.host.name_any(), &parameters, &Patch::Apply(object)).await?;
        // An image for other settings must not be used.
        self.contents.ramdisk = usable_ramdisk(&applied).cloned();
        self.refresh();
        Ok(())
    }

    /// Creates the objects for BIOS settings and firmware of a registered host.
    pub(super) async fn ensure_firmware_objects(&mut self) -> Result<(), HostPassError> {
        let status = self.host.status.as_ref();
        let is_registered = status.is_some_and(|status| {
            !status.provisioning.id.is_empty()
                && status.operational_status != OperationalStatus::Detached
        });
        let is_deleted = self.host.metadata.deletion_timestamp.is_some();
        if !is_registered || is_deleted || self.slot.has_firmware_objects {
            return Ok(());
        }
        let key = self.key();
        if self.shared.caches.firmware_settings.get(&key).is_none() {
            let spec = HostFirmwareSettingsSpec::default();
            let mut object = HostFirmwareSettings { spec, ..HostFirmwareSettings::default() };
            self.name_companion(&mut object.metadata);
            self.create::<HostFirmwareSettings>(&object).await?;
        }
        let address = self.host.spec.bmc.as_ref().map(|bmc| bmc.address.as_str());
        let has_components = address
            .and_then(|address| kube_resources::hosts::bmc_address::BmcAddress::parse(address).ok())
            .is_some_and(|address| address.bmc_type.firmware_interface.is_some());
        if has_components && self.shared.caches.firmware_components.get(&key).is_none() {
            let spec = HostFirmwareComponentsSpec::default();
            let mut object = HostFirmwareComponents { spec, ..HostFirmwareComponents::default() };
            self.name_companion(&mut object.metadata);
            self.create::<HostFirmwareComponents>(&object).await?;
        }
        self.slot.has_firmware_objects = true;
        Ok(())
    }

    /// The object has the name of the host and is deleted with it.
    fn name_companion(
        &self,
        metadata: &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    ) {
        metadata.name = self.host.metadata.name.clone();
        metadata.namespace = self.host.metadata.namespace.clone();
        metadata.owner_references = self.host.controller_owner_ref(&()).map(|owner| vec![owner]);
    }

    async fn create<K>(&self, object: &K) -> Result<(), HostPassError>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Serialize
            + std::fmt::Debug,
    {
        let api: Api<K> = self.api();
        match api.create(&PostParams::default(), object).await {
            Ok(_) => Ok(()),
            // The user created it, or the cache is behind.
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The ramdisk, if it was built for the current request.
fn usable_ramdisk(image: &PreprovisioningImage) -> Option<&PreprovisioningImageStatus> {
    let status = image.status.as_ref()?;
    let ready = status.conditions.iter().find(|condition| {
        condition.type_ == preprovisioning_image::READY && condition.status == "True"
    })?;
    let is_current = ready.observed_generation == image.metadata.generation;
    is_current.then_some(status)
}

fn missing_secret(name: &str, field: &str) -> String {
    format!("the Secret {name} of {field} does not exist")
}

fn read_text(
    secret: Option<AcquiredSecret>,
    name: &str,
    field: &str,
    content: ConfigSecret,
    kind: ProvisionerFailureKind,
) -> Result<String, VerbStop> {
    let Some(secret) = secret else {
        return Err(VerbStop::MissingInput { message: missing_secret(name, field) });
    };
    content
        .read(&secret.data)
        .map_err(|error| VerbStop::failed(kind, format!("{field}, Secret {name}: {error}")))
}
