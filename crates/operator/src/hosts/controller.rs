// SPDX-License-Identifier: Apache-2.0
//! The controllers of group `metal3.io`: hosts and the objects that belong to them.
//!
//! Hosts are looked at when an object or their node changes. Changes of nodes are reported for all
//! hosts together, so that idle hosts cause no requests.

mod bare_metal_host;
mod bmc_addresses;
mod claim_copies;
mod claim_metrics;
mod claim_watches;
mod compact_store;
mod data_image;
mod event_subscription;
mod firmware_components;
mod firmware_schemas;
mod firmware_settings;
mod firmware_status;
mod host_claim;
mod host_inputs;
mod host_log;
mod host_metrics;
mod host_pass;
mod host_release;
mod host_slots;
mod host_writer;
mod image_auth;
mod merge_patch;
mod narrow;
mod preprovisioning_image;
mod registered_host;
mod secrets;
mod subscription_ids;
#[cfg(test)]
mod tests;
mod watching;

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, join_all, select};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::Resource;
use kube_resources::hosts::annotations::{DETACHED, PAUSED};
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::bmc_event_subscription::BMCEventSubscription;
use kube_resources::hosts::data_image::DataImage;
use kube_resources::hosts::host_firmware_components::HostFirmwareComponents;
use kube_resources::hosts::host_firmware_settings::HostFirmwareSettings;
use kube_resources::hosts::host_status::{HostProvisioningState, OperationalStatus};
use kube_resources::hosts::host_update_policy::HostUpdatePolicy;
use kube_resources::hosts::ironic_payloads::deploy_ramdisk::DefaultRamdisk;
use kube_resources::hosts::names::EVENT_CONTROLLER;
use kube_resources::hosts::preprovisioning_image::PreprovisioningImage;

use self::bare_metal_host::host_changes;
use self::bmc_addresses::BmcAddressIndex;
use self::claim_copies::ClaimCopies;
use self::claim_watches::ClaimWatches;
use self::data_image::DataImageReconciler;
use self::event_subscription::EventSubscriptionReconciler;
use self::firmware_components::FirmwareComponentsReconciler;
use self::firmware_schemas::FirmwareSchemas;
use self::firmware_settings::FirmwareSettingsReconciler;
use self::host_claim::HostClaimReconciler;
use self::host_metrics::HostMetrics;
use self::host_pass::{CompanionCaches, HostPasses};
use self::host_release::{HostRelease, MissingClaimReconciler};
use self::host_slots::HostSlots;
use self::host_writer::HostWriter;
use self::narrow::{narrow_components, narrow_host, narrow_settings};
use self::preprovisioning_image::RamdiskImageReconciler;
use self::secrets::{HostSecrets, SecretVersions};
use self::subscription_ids::SubscriptionIds;
use self::watching::{
    ObjectWakers, ObserverFactory, WakeStream, WatchDriver, object_cache, on_change,
    reconcile_cached,
};
use super::decide::HostLimits;
use super::provisioner::HostProvisioner;
use crate::context::ControllerContext;
use crate::events::ObjectEventRecorder;
use crate::object_key::ObjectKey;

/// Name of the gate that opens when the caches are complete.
const READINESS_GATE: &str = "baremetalhost";
/// Passes at the same time, unless configured. They mostly wait for responses.
const DEFAULT_CONCURRENCY: u16 = 32;
/// Objects of each other kind that are reconciled at once.
const COMPANION_CONCURRENCY: usize = 8;

/// Configuration of the controllers.
#[derive(Clone, Debug)]
pub struct HostControllerSettings {
    /// How many hosts are looked at at once.
    pub concurrency: u16,
    /// Limits of the state machine.
    pub limits: HostLimits,
    /// Who provides the ramdisk of a host.
    pub ramdisk_images: RamdiskImages,
    /// Whether hosts are given to claims.
    pub host_claims: bool,
}

/// Who provides the ramdisk of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RamdiskImages {
    /// The provisioner has one for all hosts.
    #[default]
    Shared,
    /// Every host requests one with a `PreprovisioningImage`, which the controller of another
    /// project builds.
    Requested,
    /// Every host requests one, and gets the configured ramdisk.
    Configured(DefaultRamdisk),
}

impl Default for HostControllerSettings {
    fn default() -> Self {
        Self {
            concurrency: DEFAULT_CONCURRENCY,
            limits: HostLimits::default(),
            ramdisk_images: RamdiskImages::default(),
            host_claims: false,
        }
    }
}

/// Runs the controllers until the shutdown. Failures of the API are repeated.
pub async fn run(
    context: ControllerContext,
    provisioner: Arc<dyn HostProvisioner>,
    settings: HostControllerSettings,
) {
    let client = context.client.clone();
    let wakers = KindWakers::new(&context);
    let mut drivers: Vec<WatchDriver> = Vec::new();
    let requests_ramdisks = settings.ramdisk_images != RamdiskImages::Shared;
    let caches = companion_caches(&context, &wakers, requests_ramdisks, &mut drivers);
    let versions = SecretVersions::default();
    drivers.push(versions.follow(&context, wakers.hosts.waker()));
    let slots = HostSlots::default();
    let mut observers = host_observers(&wakers);
    let addresses = BmcAddressIndex::default();
    // First, so that a host that is woken finds the others.
    observers.insert(0, addresses.observer(wakers.hosts.waker()));
    observers.push(host_changes(&slots, wakers.hosts.waker()));
    let claims = settings.host_claims.then(|| {
        ClaimWatches::new(&context, &wakers.claims, wakers.releases.waker(), &mut drivers)
    });
    observers.extend(claims.as_ref().map(ClaimWatches::host_observer));
    let (hosts, driver) = object_cache(&context, narrow_host, &observers);
    drivers.push(driver);
    let subscription_ids = SubscriptionIds::default();
    let (subscriptions, driver) = object_cache::<BMCEventSubscription>(
        &context,
        |_| {},
        // First, so that the controller finds the identifiers of other objects.
        &[
            subscription_ids.observer(),
            on_change(|object| Some(lifecycle_of(object)), wakers.subscriptions.waker()),
        ],
    );
    drivers.push(driver);
    let events = ObjectEventRecorder::new(client.clone(), EVENT_CONTROLLER);
    let passes = Arc::new(HostPasses {
        provisioner: Arc::clone(&provisioner),
        limits: HostLimits {
            are_changes_reported: provisioner.reports_changes(),
            ..settings.limits
        },
        slots,
        addresses,
        caches: caches.clone(),
        hosts: hosts.clone(),
        secrets: HostSecrets::new(client.clone(), versions),
        writer: HostWriter::new(client.clone(), events.clone()),
        metrics: HostMetrics::new(&context.metrics),
    });
    drivers.push(report_changes(Arc::clone(&provisioner), wakers.hosts.waker()));
    let mut controllers = vec![
        reconcile_cached(
            &context,
            &hosts,
            wakers.hosts.streams,
            settings.concurrency.into(),
            passes,
        ),
        reconcile_cached(
            &context,
            &caches.firmware_settings,
            wakers.firmware_settings.streams,
            COMPANION_CONCURRENCY,
            Arc::new(FirmwareSettingsReconciler {
                client: client.clone(),
                hosts: hosts.clone(),
                provisioner: Arc::clone(&provisioner),
                schemas: FirmwareSchemas::new(client.clone()),
                events: events.clone(),
            }),
        ),
        reconcile_cached(
            &context,
            &caches.firmware_components,
            wakers.firmware_components.streams,
            COMPANION_CONCURRENCY,
            Arc::new(FirmwareComponentsReconciler {
                client: client.clone(),
                hosts: hosts.clone(),
                provisioner: Arc::clone(&provisioner),
                events: events.clone(),
            }),
        ),
        reconcile_cached(
            &context,
            &caches.data_images,
            wakers.data_images.streams,
            COMPANION_CONCURRENCY,
            Arc::new(DataImageReconciler { client: client.clone(), hosts: hosts.clone() }),
        ),
        reconcile_cached(
            &context,
            &subscriptions,
            wakers.subscriptions.streams,
            COMPANION_CONCURRENCY,
            Arc::new(EventSubscriptionReconciler {
                client: client.clone(),
                hosts: hosts.clone(),
                ids: subscription_ids,
                provisioner,
            }),
        ),
    ];
    if let (RamdiskImages::Configured(ramdisk), Some(images)) =
        (settings.ramdisk_images, &caches.ramdisk_images)
    {
        controllers.push(reconcile_cached(
            &context,
            images,
            wakers.ramdisk_images.streams,
            COMPANION_CONCURRENCY,
            Arc::new(RamdiskImageReconciler { client: client.clone(), ramdisk }),
        ));
    }
    if let Some(claims) = claims {
        let claims = Arc::new(claims);
        let copies = ClaimCopies::new(client.clone(), claims.secrets.clone());
        let release = HostRelease { client, copies, watches: Arc::clone(&claims), events };
        let missing = Arc::new(MissingClaimReconciler { release: release.clone() });
        let claim_controllers = [
            reconcile_cached(
                &context,
                &claims.claims,
                wakers.claims.streams,
                COMPANION_CONCURRENCY,
                Arc::new(HostClaimReconciler::new(hosts.clone(), release)),
            ),
            reconcile_cached(
                &context,
                &hosts,
                wakers.releases.streams,
                COMPANION_CONCURRENCY,
                missing,
            ),
        ];
        // Hosts do not wait for the caches of claims, whose kinds may not be installed.
        let context = context.clone();
        controllers.push(Box::pin(async move {
            if is_reached(claims.ready(), &context).await {
                join_all(claim_controllers).await;
            }
        }));
    }
    let gate = context.readiness.gate(READINESS_GATE);
    let controllers = async move {
        // Without its companions a host would seem to request nothing, and without its host a companion
        // would seem to belong to none.
        let ready = async {
            caches.ready().await;
            hosts.ready().await;
            subscriptions.ready().await;
        };
        if is_reached(ready, &context).await {
            gate.open();
            join_all(controllers).await;
        }
    };
    select(Box::pin(controllers), Box::pin(join_all(drivers))).await;
}

/// Waits for something; false if the controllers have to end before.
async fn is_reached(goal: impl Future<Output = ()>, context: &ControllerContext) -> bool {
    match select(pin!(goal), pin!(context.stopped())).await {
        Either::Left(_) => true,
        Either::Right(_) => false,
    }
}

/// Wakers and streams of the controllers of one kind.
struct KindWaker {
    wakers: ObjectWakers,
    streams: Vec<WakeStream>,
}

impl KindWaker {
    fn new(context: &ControllerContext) -> Self {
        let (wakers, streams) = ObjectWakers::new(context);
        Self { wakers, streams }
    }

    /// A function that requests the reconciliation of an object.
    fn waker(&self) -> impl Fn(&ObjectKey) + Clone + Send + Sync + 'static + use<> {
        let wakers = self.wakers.clone();
        move |key| wakers.wake(key)
    }
}

/// Wakers of all kinds.
struct KindWakers {
    hosts: KindWaker,
    firmware_settings: KindWaker,
    firmware_components: KindWaker,
    data_images: KindWaker,
    subscriptions: KindWaker,
    ramdisk_images: KindWaker,
    claims: KindWaker,
    /// Hosts whose claim may not exist.
    releases: KindWaker,
}

impl KindWakers {
    fn new(context: &ControllerContext) -> Self {
        Self {
            hosts: KindWaker::new(context),
            firmware_settings: KindWaker::new(context),
            firmware_components: KindWaker::new(context),
            data_images: KindWaker::new(context),
            subscriptions: KindWaker::new(context),
            ramdisk_images: KindWaker::new(context),
            claims: KindWaker::new(context),
            releases: KindWaker::new(context),
        }
    }
}

/// Generation, deletion and finalizers of an object.
fn lifecycle_of<K: Resource>(object: &K) -> (Option<i64>, bool, Option<Vec<String>>) {
    let metadata = object.meta();
    let is_deleted = metadata.deletion_timestamp.is_some();
    (metadata.generation, is_deleted, metadata.finalizers.clone())
}

/// A number that differs if a value does. It needs less memory than the value.
fn digest_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Changes of hosts that the controllers of other kinds depend on.
fn host_observers(wakers: &KindWakers) -> Vec<ObserverFactory<BareMetalHost>> {
    let settings = wakers.firmware_settings.waker();
    let components = wakers.firmware_components.waker();
    let wake_firmware = move |key: &ObjectKey| {
        settings(key);
        components(key);
    };
    let firmware = |host: &BareMetalHost| {
        use HostProvisioningState as State;
        let status = host.status.as_ref()?;
        // The service reads firmware at the end of operations.
        let state = &status.provisioning.state;
        let is_available = matches!(state, State::Ready | State::Available);
        let is_deployed = matches!(state, State::Provisioned | State::ExternallyProvisioned);
        let is_servicing = status.operational_status == OperationalStatus::Servicing;
        let is_stopped = host.annotation(DETACHED).is_some() || host.annotation(PAUSED).is_some();
        let id = &status.provisioning.id;
        Some(digest_of(&(id, is_available, is_deployed, is_servicing, is_stopped)))
    };
    let images = |host: &BareMetalHost| {
        let is_deleted = host.metadata.deletion_timestamp.is_some();
        let is_annotated = |key: &str| host.annotation(key).is_some();
        let is_stopped = (is_annotated(DETACHED), is_annotated(PAUSED));
        Some(digest_of(&(&host.metadata.uid, is_deleted, is_stopped)))
    };
    vec![on_change(firmware, wake_firmware), on_change(images, wakers.data_images.waker())]
}

/// Caches of the objects that belong to hosts.
fn companion_caches(
    context: &ControllerContext,
    wakers: &KindWakers,
    requests_ramdisks: bool,
    drivers: &mut Vec<WatchDriver>,
) -> CompanionCaches {
    let wake_host = wakers.hosts.waker();
    let (firmware_settings, driver) = object_cache(
        context,
        narrow_settings,
        &[
            on_change(requested_settings, wake_host.clone()),
            on_change(
                |object: &HostFirmwareSettings| Some(object.metadata.generation),
                wakers.firmware_settings.waker(),
            ),
        ],
    );
    drivers.push(driver);
    let (firmware_components, driver) = object_cache(
        context,
        narrow_components,
        &[
            on_change(requested_components, wake_host.clone()),
            on_change(
                |object: &HostFirmwareComponents| Some(object.metadata.generation),
                wakers.firmware_components.waker(),
            ),
        ],
    );
    drivers.push(driver);
    let (update_policies, driver) = object_cache(
        context,
        |_| {},
        &[on_change(|policy: &HostUpdatePolicy| Some(policy.spec.clone()), wake_host.clone())],
    );
    drivers.push(driver);
    let (data_images, driver) = object_cache(
        context,
        |_| {},
        &[
            on_change(
                |image: &DataImage| {
                    Some((image.spec.clone(), image.metadata.deletion_timestamp.is_some()))
                },
                wake_host.clone(),
            ),
            on_change(
                |image: &DataImage| {
                    let status = image.status.as_ref();
                    let attached = status.and_then(|status| status.attached_image.clone());
                    Some((lifecycle_of(image), attached))
                },
                wakers.data_images.waker(),
            ),
        ],
    );
    drivers.push(driver);
    let ramdisk_images = requests_ramdisks.then(|| {
        let (images, driver) = object_cache(
            context,
            |_| {},
            &[
                on_change(|image: &PreprovisioningImage| image.status.clone(), wake_host),
                on_change(
                    |image: &PreprovisioningImage| Some(lifecycle_of(image)),
                    wakers.ramdisk_images.waker(),
                ),
            ],
        );
        drivers.push(driver);
        images
    });
    CompanionCaches {
        firmware_settings,
        firmware_components,
        update_policies,
        data_images,
        ramdisk_images,
    }
}

/// Generation, conditions and time of the reading of requested firmware changes.
type FirmwareTrigger = (Option<i64>, Vec<Condition>, Option<Time>);

/// What a host depends on: nothing unless settings are requested.
fn requested_settings(settings: &HostFirmwareSettings) -> Option<FirmwareTrigger> {
    let status = settings.status.as_ref();
    let conditions = status.map(|status| status.conditions.clone()).unwrap_or_default();
    let read_at = status.and_then(|status| status.last_updated.clone());
    let is_requested = !settings.spec.settings.is_empty();
    is_requested.then_some((settings.metadata.generation, conditions, read_at))
}

/// What a host depends on: nothing unless updates are requested.
fn requested_components(components: &HostFirmwareComponents) -> Option<FirmwareTrigger> {
    let status = components.status.as_ref();
    let conditions = status.map(|status| status.conditions.clone()).unwrap_or_default();
    let is_requested = !components.spec.updates.is_empty();
    is_requested.then_some((components.metadata.generation, conditions, None))
}

/// Wakes hosts whose node changed.
fn report_changes(
    provisioner: Arc<dyn HostProvisioner>,
    wake: impl Fn(&ObjectKey) + Send + 'static,
) -> WatchDriver {
    Box::pin(async move {
        loop {
            let changed = provisioner.changed_hosts().await;
            changed.iter().for_each(&wake);
        }
    })
}
