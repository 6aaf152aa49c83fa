// SPDX-License-Identifier: Apache-2.0
//! One pass over a host: decide, call the provisioner, write, until there is nothing to do.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube_resources::hosts::annotations::PAUSED;
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::data_image::DataImage;
use kube_resources::hosts::hardware_data::HardwareData;
use kube_resources::hosts::host_firmware_components::HostFirmwareComponents;
use kube_resources::hosts::host_firmware_settings::HostFirmwareSettings;
use kube_resources::hosts::host_status::BareMetalHostStatus;
use kube_resources::hosts::host_update_policy::HostUpdatePolicy;
use kube_resources::hosts::names::{HARDWARE_DATA_FINALIZER, HOST_PREPROVISIONING_IMAGE_FINALIZER};
use kube_resources::hosts::preprovisioning_image::PreprovisioningImage;

use super::super::decide::{
    HostAction, HostCompanions, HostEvent, HostLimits, HostUpdate, HostVerb, HostView, NextPass,
    VerbValue, apply, decide,
};
use super::super::execute::{HostContents, execute};
use super::super::provisioner::HostProvisioner;
use super::bmc_addresses::BmcAddressIndex;
use super::host_log;
use super::host_metrics::HostMetrics;
use super::host_slots::{HostSlot, HostSlots, is_newer};
use super::host_writer::HostWriter;
use super::secrets::HostSecrets;
use super::watching::ObjectCache;
use crate::object_key::ObjectKey;

/// Actions in one pass. More would be an endless loop, which is interrupted for other hosts.
const MAX_ACTIONS: usize = 50;
/// When a pass with too many actions continues.
const LOOP_WAIT: Duration = Duration::from_secs(10);

/// Companions that are cached.
#[derive(Clone)]
pub(super) struct CompanionCaches {
    pub(super) firmware_settings: ObjectCache<HostFirmwareSettings>,
    pub(super) firmware_components: ObjectCache<HostFirmwareComponents>,
    pub(super) update_policies: ObjectCache<HostUpdatePolicy>,
    pub(super) data_images: ObjectCache<DataImage>,
    /// `None` if ramdisks are not built per host.
    pub(super) ramdisk_images: Option<ObjectCache<PreprovisioningImage>>,
}

/// What all passes share.
pub(super) struct HostPasses {
    pub(super) provisioner: Arc<dyn HostProvisioner>,
    pub(super) limits: HostLimits,
    pub(super) slots: HostSlots,
    pub(super) addresses: BmcAddressIndex,
    pub(super) caches: CompanionCaches,
    pub(super) hosts: ObjectCache<BareMetalHost>,
    pub(super) secrets: HostSecrets,
    pub(super) writer: HostWriter,
    pub(super) metrics: HostMetrics,
}

/// Why a pass ended early. The Kubernetes API failed; nothing is known about the host.
#[derive(Debug, thiserror::Error)]
pub(super) enum HostPassError {
    /// Another client changed the object. The pass starts again with the new version.
    #[error("the host was changed meanwhile")]
    Conflict,
    /// Another failure.
    #[error("the Kubernetes API failed")]
    Api(#[source] kube::Error),
}

impl From<kube::Error> for HostPassError {
    fn from(error: kube::Error) -> Self {
        let is_conflict = matches!(&error, kube::Error::Api(status) if status.is_conflict());
        if is_conflict { Self::Conflict } else { Self::Api(error) }
    }
}

/// The state of a pass.
pub(super) struct HostPass<'a> {
    pub(super) shared: &'a HostPasses,
    pub(super) host: BareMetalHost,
    pub(super) slot: HostSlot,
    pub(super) companions: HostCompanions,
    pub(super) contents: HostContents,
    /// The status in the API, if that of `host` is newer.
    unwritten: Option<Option<BareMetalHostStatus>>,
    events: Vec<HostEvent>,
    is_released: bool,
}

impl HostPasses {
    /// Runs a pass. Returns when to look again; `None` means after a change.
    pub(super) async fn pass(
        &self,
        cached: &BareMetalHost,
    ) -> Result<Option<Duration>, HostPassError> {
        let key = ObjectKey::of(cached);
        let mut slot = self.slots.take(&key, cached);
        let host = match slot.written.take() {
            Some(written) if is_newer(&written, cached) => *written,
            Some(_) | None => cached.clone(),
        };
        let mut pass = HostPass {
            shared: self,
            host,
            slot,
            companions: HostCompanions::default(),
            contents: HostContents::default(),
            unwritten: None,
            events: Vec::new(),
            is_released: false,
        };
        let outcome = pass.run().await;
        let HostPass { host, mut slot, is_released, .. } = pass;
        match &outcome {
            Ok(after) => {
                if after.is_none() {
                    // The credentials are not needed until something changes.
                    slot.bmc.iter_mut().for_each(|bmc| bmc.access = None);
                }
                if is_newer(&host, cached) {
                    slot.written = Some(Box::new(host));
                }
            }
            Err(_) => {
                if let Ok(mut newest) = self.writer.full_host(cached).await {
                    super::narrow::narrow_host(&mut newest);
                    slot.written = Some(Box::new(newest));
                }
            }
        }
        self.metrics.passed(outcome.is_err());
        if !is_released {
            self.slots.put(key, slot, |key| self.hosts.get(key));
        }
        outcome
    }
}

impl HostPass<'_> {
    async fn run(&mut self) -> Result<Option<Duration>, HostPassError> {
        // No other object is changed, not even a Secret.
        if self.host.annotation(PAUSED).is_some() {
            if let HostAction::Update(update) = decide(&self.view(), Timestamp::now()) {
                self.apply(*update).await?;
                self.flush().await?;
            }
            return Ok(None);
        }
        self.slot.memory.begin_pass();
        self.collect().await?;
        for _ in 0..MAX_ACTIONS {
            self.refresh();
            let now = Timestamp::now();
            let update = match decide(&self.view(), now) {
                HostAction::Wait { after } => return self.finish(after).await,
                HostAction::Update(update) => *update,
                HostAction::Call(verb) => self.call(&verb).await?,
            };
            if let NextPass::After(after) = self.apply(update).await? {
                return self.finish(after).await;
            }
        }
        tracing::warn!(
            namespace = self.host.metadata.namespace.as_deref(),
            name = self.host.metadata.name.as_deref(),
            "too many actions in one pass"
        );
        self.finish(Some(LOOP_WAIT)).await
    }

    fn view(&self) -> HostView<'_> {
        HostView::new(&self.host, &self.companions, &self.slot.memory, &self.shared.limits)
    }

    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey::of(&self.host)
    }

    /// Calls the provisioner. What was decided before is written first, so that a restart finds it.
    async fn call(&mut self, verb: &HostVerb) -> Result<HostUpdate, HostPassError> {
        if !matches!(verb, HostVerb::Observe | HostVerb::CheckCapacity) {
            self.flush().await?;
        }
        let outcome = match self.load_contents(verb).await? {
            Ok(()) => {
                let provisioner = &*self.shared.provisioner;
                execute(provisioner, &self.view(), &self.contents, verb).await
            }
            Err(stop) => Err(stop),
        };
        let stop = match &outcome {
            Ok(VerbValue::Registration(attempt)) => attempt.node_id.as_ref().err(),
            Ok(_) => None,
            Err(stop) => Some(stop),
        };
        tracing::debug!(
            namespace = self.host.metadata.namespace.as_deref(),
            name = self.host.metadata.name.as_deref(),
            ?verb,
            ?stop,
            "provisioner called"
        );
        Ok(apply(&self.view(), verb, outcome, Timestamp::now()))
    }

    /// Applies an update to the objects. A status without other changes is written later, together
    /// with those that follow.
    async fn apply(&mut self, update: HostUpdate) -> Result<NextPass, HostPassError> {
        let HostUpdate {
            hardware,
            records_component_updates,
            applied_settings,
            data_image,
            status,
            patch,
            events,
            memory,
            next,
        } = update;
        if let Some(hardware) = &hardware {
            self.shared.writer.write_hardware(&self.host, hardware).await?;
            self.slot.has_no_hardware_data = false;
            // The cached status has no hardware details to compare with.
            if self.unwritten.is_none() {
                let full = self.shared.writer.full_host(&self.host).await?;
                self.unwritten = Some(full.status);
            }
        }
        if records_component_updates
            && let Some(components) = &mut self.companions.firmware_components
        {
            self.shared.writer.write_started_updates(components).await?;
            let status = components.status.get_or_insert_default();
            status.updates.clone_from(&components.spec.updates);
        }
        if let Some(version) = applied_settings {
            self.shared.writer.write_applied_settings(&self.host, &version).await?;
        }
        if let (Some(status), Some(image)) = (data_image, &mut self.companions.data_image) {
            self.shared.writer.write_data_image(image, &status).await?;
            image.status = Some(status);
        }
        let before = self.host.status.clone().unwrap_or_default();
        self.shared.metrics.changed(&before, &status, &events);
        if self.unwritten.is_none() {
            self.unwritten = Some(self.host.status.clone());
        }
        self.host.status = Some(*status);
        self.events.extend(events);
        self.slot.memory = memory;
        if let Some(hardware) = hardware {
            self.companions.hardware_data = Some(*hardware);
        }
        if patch != super::super::decide::HostPatch::default() {
            self.flush().await?;
            if let Some(stored) = self.shared.writer.write_metadata(&self.host, &patch).await? {
                self.shared.slots.wrote(self.key(), &stored);
                self.host = stored;
            }
        }
        if patch.removes_finalizer {
            self.release().await?;
            return Ok(NextPass::After(None));
        }
        Ok(next)
    }

    /// Writes the status and the events that were not written yet.
    async fn flush(&mut self) -> Result<(), HostPassError> {
        if let Some(before) = self.unwritten.take() {
            let stored = self.shared.writer.write_status(&self.host, before.as_ref()).await?;
            host_log::status_changed(&self.host, before.as_ref());
            if let Some(stored) = stored {
                self.host = stored;
            }
        }
        let events = std::mem::take(&mut self.events);
        host_log::published(&self.host, &events);
        self.shared.writer.publish(&self.host, events).await;
        Ok(())
    }

    async fn finish(&mut self, after: Option<Duration>) -> Result<Option<Duration>, HostPassError> {
        self.flush().await?;
        if !self.is_released {
            self.ensure_firmware_objects().await?;
        }
        Ok(after)
    }

    /// Removes all finalizers, that of the host last.
    async fn release(&mut self) -> Result<(), HostPassError> {
        let spec = &self.host.spec;
        let bmc = spec.bmc.as_ref().map(|bmc| bmc.credentials_name.clone());
        let names = bmc.into_iter().chain(spec.preprovisioning_network_data_name.clone());
        let exists = |owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| {
            let key = ObjectKey::new(self.key().namespace(), &owner.name);
            let host = self.shared.hosts.get(&key);
            host.is_some_and(|host| {
                host.metadata.uid.as_ref() == Some(&owner.uid)
                    && host.metadata.deletion_timestamp.is_none()
            })
        };
        for name in names.filter(|name| !name.is_empty()) {
            self.shared.secrets.release(&self.host, &name, exists).await?;
        }
        let writer = &self.shared.writer;
        if self.shared.caches.ramdisk_images.is_some() {
            writer
                .release_companion::<PreprovisioningImage>(
                    &self.host,
                    HOST_PREPROVISIONING_IMAGE_FINALIZER,
                )
                .await?;
        }
        writer.release_companion::<HardwareData>(&self.host, HARDWARE_DATA_FINALIZER).await?;
        writer.remove_finalizer(&self.host).await?;
        host_log::released(&self.host);
        self.is_released = true;
        Ok(())
    }

    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        self.shared.writer.api(&self.host)
    }
}

impl CompanionCaches {
    /// Waits until all companions were listed once.
    pub(super) async fn ready(&self) {
        self.firmware_settings.ready().await;
        self.firmware_components.ready().await;
        self.update_policies.ready().await;
        self.data_images.ready().await;
        if let Some(images) = &self.ramdisk_images {
            images.ready().await;
        }
    }
}
