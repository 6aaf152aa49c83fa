// SPDX-License-Identifier: Apache-2.0
//! What the controller of claims watches, and which claims a change concerns.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use kube_resources::hosts::annotations::{Annotations, is_reboot_annotation};
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::host_claim::{ClaimedObject, HostClaim};
use kube_resources::hosts::host_deploy_policy::HostDeployPolicy;
use kube_resources::hosts::names::{CLAIM_COPY_ANNOTATION, CLAIM_SOURCE_ANNOTATION, SECRET_LABEL};
use kube_resources::hosts::validation::validate_host_claim;
use tokio::sync::watch;
use tracing::warn;

use super::super::claims::binding::consumer;
use super::super::claims::host_index::HostIndex;
use super::super::claims::policy::{Admission, PolicySet};
use super::super::claims::secret_sources::SecretSources;
use super::super::claims::selector::{HostRequest, ObjectLabels};
use super::claim_metrics::ClaimMetrics;
use super::watching::{
    ObjectCache, ObserverFactory, RelevantValues, WatchDriver, namespaces, object_cache, on_change,
    warn_about_watch, watched,
};
use super::{KindWaker, lifecycle_of};
use crate::context::ControllerContext;
use crate::object_key::ObjectKey;

/// How long the labels of a namespace are used before they are read again.
const LABEL_AGE: Duration = Duration::from_secs(10);

/// What the controller of claims keeps in memory. It can be lost at any time.
pub(super) struct ClaimState {
    index: Mutex<HostIndex>,
    sources: Mutex<SecretSources>,
    /// `None` after a change.
    policies: Mutex<Option<Arc<PolicySet>>>,
    pub(super) metrics: ClaimMetrics,
}

impl ClaimState {
    /// Uses the index, which is consistent after every call.
    pub(super) fn with_index<T>(&self, use_index: impl FnOnce(&mut HostIndex) -> T) -> T {
        let mut index = lock(&self.index);
        let result = use_index(&mut index);
        self.metrics.indexed(&index);
        result
    }

    /// Records which Secrets a claim copies.
    pub(super) fn set_sources(&self, claim: &ObjectKey, secrets: BTreeSet<ObjectKey>) {
        lock(&self.sources).set(claim, secrets);
    }

    /// Removes everything about a claim. Returns the claims that can get its host.
    pub(super) fn forget(&self, claim: &ObjectKey) -> Vec<ObjectKey> {
        self.set_sources(claim, BTreeSet::new());
        self.with_index(|index| index.forget(claim))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No function panics while it holds the lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Requests the reconciliation of an object.
type WakeObject = Arc<dyn Fn(&ObjectKey) + Send + Sync>;

/// Caches for the controller of claims.
pub(super) struct ClaimWatches {
    pub(super) claims: ObjectCache<HostClaim>,
    pub(super) policies: ObjectCache<HostDeployPolicy>,
    pub(super) secrets: SecretMetadata,
    pub(super) state: Arc<ClaimState>,
    waker: WakeObject,
    releases: WakeObject,
}

impl ClaimWatches {
    /// Starts to watch claims, policies and Secrets. `drivers` run the watches, and `releases` requests the
    /// reconciliation of a host whose claim may not exist.
    pub(super) fn new(
        context: &ControllerContext,
        wakers: &KindWaker,
        releases: impl Fn(&ObjectKey) + Send + Sync + 'static,
        drivers: &mut Vec<WatchDriver>,
    ) -> Self {
        let releases: WakeObject = Arc::new(releases);
        let state = Arc::new(ClaimState {
            index: Mutex::default(),
            sources: Mutex::default(),
            policies: Mutex::default(),
            metrics: ClaimMetrics::new(&context.metrics),
        });
        let waker: WakeObject = Arc::new(wakers.waker());
        let (claims, driver) = object_cache(
            context,
            |_| {},
            // First, so that the controller finds what it is woken for.
            &[claim_observer(&state, &waker, &releases), on_change(claim_trigger, wakers.waker())],
        );
        drivers.push(driver);
        let (changed, wake) = (Arc::clone(&state), Arc::clone(&waker));
        let on_policy = move |_: &ObjectKey| {
            *lock(&changed.policies) = None;
            let waiting = changed.with_index(|index| index.policies_changed());
            waiting.iter().for_each(&*wake);
        };
        let relevant = |policy: &HostDeployPolicy| Some(policy.spec.clone());
        let (policies, driver) = object_cache(context, |_| {}, &[on_change(relevant, on_policy)]);
        drivers.push(driver);
        let (secrets, driver) = SecretMetadata::follow(context, &state, &waker);
        drivers.push(driver);
        Self { claims, policies, secrets, state, waker, releases }
    }

    /// Waits until all objects were listed once. That never happens if the kinds are not installed.
    pub(super) async fn ready(&self) {
        // Without all claims, the oldest is not known.
        self.claims.ready().await;
        self.policies.ready().await;
        // Without them, all copies would seem to be missing.
        self.secrets.ready().await;
        self.state.with_index(|index| index.completed());
    }

    /// Wakes claims.
    pub(super) fn wake(&self, claims: &[ObjectKey]) {
        claims.iter().for_each(&*self.waker);
    }

    /// An observer that keeps the index of hosts up to date, and wakes the claims that a change concerns.
    pub(super) fn host_observer(&self) -> ObserverFactory<BareMetalHost> {
        let (state, waker) = (Arc::clone(&self.state), Arc::clone(&self.waker));
        let releases = Arc::clone(&self.releases);
        Box::new(move || {
            let (state, waker, releases) =
                (Arc::clone(&state), Arc::clone(&waker), Arc::clone(&releases));
            let mut known = RelevantValues::new(|_: &BareMetalHost| true);
            Box::new(move |event| {
                let removed = known.changed_by(event).into_iter();
                let removed = removed.filter(|key| known.get(key).is_none());
                let concerned = state.with_index(|index| {
                    let mut concerned: Vec<ObjectKey> =
                        removed.flat_map(|key| index.remove(&key)).collect();
                    if let Event::Apply(host) | Event::InitApply(host) = event {
                        concerned.extend(index.apply(host));
                    }
                    concerned
                });
                concerned.iter().for_each(&*waker);
                if let Event::Apply(host) | Event::InitApply(host) = event
                    && consumer(host).is_some_and(|claim| concerned.contains(&claim))
                {
                    releases(&ObjectKey::of(host));
                }
            })
        })
    }

    /// The namespaces that admit claims of a namespace. Reads the labels of the namespace only if a policy
    /// compares them.
    pub(super) async fn admission(
        &self,
        namespaces: &NamespaceLabels,
        claim_namespace: &str,
    ) -> Result<Admission, kube::Error> {
        let policies = self.policy_set();
        let by_name = policies.admission(claim_namespace, None);
        if !by_name.depends_on_labels {
            self.admit(&policies, claim_namespace, &by_name);
            return Ok(by_name);
        }
        let labels = namespaces.get(claim_namespace).await.inspect_err(|_| {
            // Claims of other namespaces do not wait for the next attempt.
            self.admit(&policies, claim_namespace, &by_name);
        })?;
        let admission = policies.admission(claim_namespace, Some(&labels));
        self.admit(&policies, claim_namespace, &admission);
        Ok(admission)
    }

    /// Records a result, unless the policies changed meanwhile: then all waiting claims are woken.
    fn admit(&self, policies: &Arc<PolicySet>, claim_namespace: &str, admission: &Admission) {
        if Arc::ptr_eq(policies, &self.policy_set()) {
            let state = &self.state;
            let namespaces = &admission.namespaces;
            self.wake(&state.with_index(|index| index.admit(claim_namespace, namespaces)));
        }
    }

    fn policy_set(&self) -> Arc<PolicySet> {
        let mut compiled = lock(&self.state.policies);
        if let Some(policies) = &*compiled {
            return Arc::clone(policies);
        }
        let policies = self.policies.all();
        let set = Arc::new(PolicySet::compile(policies.iter().map(|policy| &**policy)));
        for (namespace, name, problem) in &set.invalid {
            warn!(namespace, name, problem, "policy has an invalid pattern and admits no claim");
        }
        *compiled = Some(Arc::clone(&set));
        set
    }
}

/// Changes of a claim that are a reason to reconcile it.
type ClaimTrigger =
    (Option<i64>, bool, Option<Vec<String>>, Annotations, Option<ClaimedObject>, Option<String>);

fn claim_trigger(claim: &HostClaim) -> Option<ClaimTrigger> {
    let (generation, is_deleted, finalizers) = lifecycle_of(claim);
    let reboots = claim.annotations().iter().filter(|(key, _)| is_reboot_annotation(key));
    let reboots = reboots.map(|(key, value)| (key.clone(), value.clone())).collect();
    // An administrator may remove a host that was lost.
    let host = claim.status.as_ref().and_then(|status| status.bare_metal_host.clone());
    Some((generation, is_deleted, finalizers, reboots, host, claim.uid()))
}

/// An observer that records which claims wait for a host, and forgets claims that do not exist any more.
fn claim_observer(
    state: &Arc<ClaimState>,
    waker: &WakeObject,
    releases: &WakeObject,
) -> ObserverFactory<HostClaim> {
    let (state, waker, releases) = (Arc::clone(state), Arc::clone(waker), Arc::clone(releases));
    Box::new(move || {
        let (state, waker, releases) =
            (Arc::clone(&state), Arc::clone(&waker), Arc::clone(&releases));
        let mut known = RelevantValues::new(|_: &HostClaim| true);
        Box::new(move |event| {
            let mut concerned = Vec::new();
            for claim in known.changed_by(event) {
                if known.get(&claim).is_none() {
                    concerned.extend(state.forget(&claim));
                    let hosts = state.with_index(|index| index.claim_deleted(&claim));
                    hosts.iter().for_each(&*releases);
                }
            }
            if let Event::Apply(claim) | Event::InitApply(claim) = event {
                concerned.extend(state.with_index(|index| record_claim(index, claim)));
            }
            concerned.iter().for_each(&*waker);
        })
    })
}

/// Records whether a claim waits for a host. Returns the claims that have to be reconciled.
fn record_claim(index: &mut HostIndex, claim: &HostClaim) -> Vec<ObjectKey> {
    let has_host = claim.status.as_ref().is_some_and(|status| status.bare_metal_host.is_some());
    let is_deleted = claim.metadata.deletion_timestamp.is_some();
    if has_host || is_deleted || !validate_host_claim(claim).is_empty() {
        return index.stop_waiting(&ObjectKey::of(claim));
    }
    let created = claim.metadata.creation_timestamp.as_ref().map(|time| time.0);
    index.wait(ObjectKey::of(claim), HostRequest::of(claim), created);
    Vec::new()
}

/// Metadata of the Secrets with the label of Metal3. Contents are not kept.
#[derive(Clone)]
pub(super) struct SecretMetadata {
    stores: Vec<(Option<String>, Store<PartialObjectMeta<Secret>>)>,
    /// Whether each store is complete. A store of kube-rs wakes only one of those that wait for it.
    listed: Vec<watch::Receiver<bool>>,
}

impl SecretMetadata {
    fn follow(
        context: &ControllerContext,
        state: &Arc<ClaimState>,
        waker: &WakeObject,
    ) -> (Self, WatchDriver) {
        let selector = format!("{}={}", SECRET_LABEL.0, SECRET_LABEL.1);
        let (mut stores, mut listed, mut drivers) = (Vec::new(), Vec::new(), Vec::new());
        for (namespace, api) in
            namespaces(context).into_iter().zip(context.watched_apis::<PartialObjectMeta<Secret>>())
        {
            let writer = Writer::<PartialObjectMeta<Secret>>::default();
            stores.push((namespace, writer.as_reader()));
            let is_listed = watch::Sender::new(false);
            listed.push(is_listed.subscribe());
            let (state, waker) = (Arc::clone(state), Arc::clone(waker));
            let events = watcher(api, watcher::Config::default().labels(&selector))
                .default_backoff()
                .modify(narrow_secret)
                .reflect(writer);
            drivers.push(events.for_each(move |event| {
                match event {
                    Ok(event) => {
                        if matches!(event, Event::InitDone) {
                            is_listed.send_replace(true);
                        }
                        claims_of_secret(&state, &event).iter().for_each(&*waker);
                    }
                    Err(error) => warn_about_watch("Secret", &error),
                }
                std::future::ready(())
            }));
        }
        let driver = Box::pin(async move {
            join_all(drivers).await;
        });
        (Self { stores, listed }, driver)
    }

    /// Waits until all Secrets were listed once.
    pub(super) async fn ready(&self) {
        for is_listed in &self.listed {
            // An error means that the watch has ended, which only a shutdown does.
            let _ = is_listed.clone().wait_for(|is_listed| *is_listed).await;
        }
    }

    /// The metadata of a Secret, if it has the label.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<Arc<PartialObjectMeta<Secret>>> {
        let store = watched(&self.stores, key.namespace())?;
        store.get(&ObjectRef::new(key.name()).within(key.namespace()))
    }
}

/// Keeps what decides whether a copy is current.
fn narrow_secret(secret: &mut PartialObjectMeta<Secret>) {
    let metadata = std::mem::take(&mut secret.metadata);
    let annotations = metadata.annotations.map(|mut annotations| {
        annotations.retain(|key, _| {
            [CLAIM_COPY_ANNOTATION, CLAIM_SOURCE_ANNOTATION].contains(&key.as_str())
        });
        annotations
    });
    secret.metadata = ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        annotations,
        ..ObjectMeta::default()
    };
}

/// The claims that copy the Secret of an event, or whose copy it is.
fn claims_of_secret(
    state: &ClaimState,
    event: &Event<PartialObjectMeta<Secret>>,
) -> Vec<ObjectKey> {
    let secret = match event {
        Event::Apply(secret) | Event::InitApply(secret) | Event::Delete(secret) => secret,
        Event::Init | Event::InitDone => return Vec::new(),
    };
    let mut claims = lock(&state.sources).claims_of(&ObjectKey::of(secret));
    let copied_for = secret.annotations().get(CLAIM_COPY_ANNOTATION);
    let copied_for = copied_for.and_then(|claim| claim.split_once('/'));
    claims.extend(copied_for.map(|(namespace, name)| ObjectKey::new(namespace, name)));
    claims
}

/// Labels of namespaces, read when they are needed. A watch would need permissions for all namespaces.
pub(super) struct NamespaceLabels {
    client: Client,
    read: Mutex<HashMap<String, (Instant, Arc<ObjectLabels>)>>,
}

impl NamespaceLabels {
    pub(super) fn new(client: Client) -> Self {
        Self { client, read: Mutex::default() }
    }

    async fn get(&self, name: &str) -> Result<Arc<ObjectLabels>, kube::Error> {
        let recent = |(read_at, _): &&(Instant, _)| read_at.elapsed() < LABEL_AGE;
        if let Some((_, labels)) = lock(&self.read).get(name).filter(recent) {
            return Ok(Arc::clone(labels));
        }
        let api: Api<Namespace> = Api::all(self.client.clone());
        let namespace = api.get_metadata_opt(name).await?;
        let labels = namespace.map(|namespace| namespace.labels().clone());
        let labels = Arc::new(labels.unwrap_or_default());
        let mut read = lock(&self.read);
        read.retain(|_, (read_at, _)| read_at.elapsed() < LABEL_AGE);
        read.insert(name.to_owned(), (Instant::now(), Arc::clone(&labels)));
        Ok(labels)
    }
}
