// SPDX-License-Identifier: Apache-2.0
//! Reconciliation of the objects of one kind: watches, retries with capped back-off, metrics.
//!
//! Objects are read without a type. So an object that does not match the type of its kind is
//! reported and does not stop the others.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::future::{Either, join_all, pending, select};
use futures_util::stream::{BoxStream, SelectAll};
use futures_util::{FutureExt as _, StreamExt as _};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, PartialObjectMeta};
use kube::core::ApiResource;
use kube::runtime::Predicate as _;
use kube::runtime::controller::{Action, Config as ControllerConfig, applier};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{PredicateConfig, WatchStreamExt as _, predicates, watcher};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tracing::{debug, warn};

use crate::context::{ControllerContext, WatchScope};
use crate::metrics::ReconcileOutcome;
use crate::owned_objects::{OwnedObjectError, api_error_text};

/// Objects that are reconciled at the same time.
const CONCURRENCY: u16 = 4;
/// Changes of several objects within this time cause one reconciliation.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Delay after the first failure; it doubles with each one.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// Longest delay.
const MAX_DELAY: Duration = Duration::from_secs(300);
/// Time after which an object is reconciled again without a change: for what is not watched.
pub(crate) const RESYNC: Duration = Duration::from_secs(300);

/// Objects to reconcile.
pub(crate) type TriggerStream = BoxStream<'static, ObjectRef<DynamicObject>>;

/// Why an object is not reconciled completely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    /// Text for the status.
    pub(crate) text: String,
    /// Whether a user has to change something.
    pub(crate) needs_user: bool,
    /// Reason of the event, if there is one.
    pub(crate) event: Option<&'static str>,
}

impl Obstacle {
    /// A user has to change something.
    pub(crate) fn for_user(text: impl Into<String>) -> Self {
        Self { text: text.into(), needs_user: true, event: None }
    }

    /// It passes, or the next attempt succeeds.
    pub(crate) fn transient(text: impl Into<String>) -> Self {
        Self { text: text.into(), needs_user: false, event: None }
    }

    /// The request failed.
    pub(crate) fn request(what: &str, error: &kube::Error) -> Self {
        Self::transient(format!("{what}: {}", api_error_text(error)))
    }

    /// The same with an event.
    pub(crate) fn with_event(self, reason: &'static str) -> Self {
        Self { event: Some(reason), ..self }
    }
}

impl From<OwnedObjectError> for Obstacle {
    fn from(error: OwnedObjectError) -> Self {
        match error {
            OwnedObjectError::Foreign { .. } | OwnedObjectError::Rejected { .. } => {
                Self::for_user(error.to_string())
            }
            OwnedObjectError::Request { .. } | OwnedObjectError::Incomplete => {
                Self::transient(error.to_string())
            }
        }
    }
}

/// Brings the objects of one kind into their requested state.
#[async_trait]
pub(crate) trait ObjectReconciler: Send + Sync + 'static {
    /// Name in metrics and logs.
    const CONTROLLER: &'static str;

    /// The kind.
    fn resource(&self) -> ApiResource;

    /// Other objects whose changes are a reason to reconcile an object of the kind. `objects` has those
    /// of the kind in the namespace, or in all.
    fn triggers(
        &self,
        namespace: Option<&str>,
        objects: &Store<DynamicObject>,
    ) -> Vec<TriggerStream>;

    /// Reconciles an object and returns when it has to be done again without a change.
    async fn reconcile(&self, object: &DynamicObject) -> Result<Duration, Obstacle>;

    /// Shows an obstacle in the status and as event. `next_attempt` is the time of the next attempt.
    async fn report(&self, object: &DynamicObject, obstacle: &Obstacle, next_attempt: Timestamp);
}

/// Reconciles all objects of the kind until the manager stops.
pub(crate) async fn reconcile_objects<R: ObjectReconciler>(
    context: &ControllerContext,
    reconciler: Arc<R>,
) {
    let namespaces = match &context.scope {
        WatchScope::Cluster => vec![None],
        WatchScope::Namespaces(names) => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    let retries = Arc::new(RetryCounters::default());
    let scopes = namespaces.into_iter().map(|namespace| {
        reconcile_scope(context, namespace, Arc::clone(&reconciler), Arc::clone(&retries))
    });
    join_all(scopes).await;
}

async fn reconcile_scope<R: ObjectReconciler>(
    context: &ControllerContext,
    namespace: Option<&str>,
    reconciler: Arc<R>,
    retries: Arc<RetryCounters>,
) {
    let resource = reconciler.resource();
    let gate = context.readiness.gate(match namespace {
        Some(name) => format!("cache of {} in {name}", resource.kind),
        None => format!("cache of {}", resource.kind),
    });
    let api: Api<DynamicObject> = match namespace {
        Some(name) => Api::namespaced_with(context.client.clone(), name, &resource),
        None => Api::all_with(context.client.clone(), &resource),
    };
    let writer = reflector::store::Writer::new(resource.clone());
    let store = writer.as_reader();
    // Not changes of the status, which the reconciler itself writes.
    let changes = predicates::generation
        .combine(predicates::annotations)
        .combine(predicates::labels)
        .combine(predicates::finalizers);
    let kind = resource.kind.clone();
    let own = watcher(api, watcher::Config::default())
        .default_backoff()
        .modify(|object: &mut DynamicObject| object.metadata.managed_fields = None)
        .reflect(writer)
        .applied_objects()
        .predicate_filter(changes, PredicateConfig::default())
        .filter_map(move |result| {
            let found = logged(&kind, result);
            let resource = resource.clone();
            async move { Some(ObjectRef::from_obj_with(&found?, resource)) }
        });
    let mut triggers = SelectAll::new();
    triggers.push(own.boxed());
    triggers.extend(reconciler.triggers(namespace, &store));
    let stopped = context.clone();
    let queue = triggers
        .map(Ok::<_, Infallible>)
        .take_until(async move { stopped.stopped().await }.boxed());
    let client = context.client.clone();
    let metrics = context.metrics.clone();
    let pass = move |object: Arc<DynamicObject>, reconciler: Arc<R>| {
        let (client, metrics, retries) = (client.clone(), metrics.clone(), Arc::clone(&retries));
        async move {
            let started = Instant::now();
            let (action, outcome) = reconcile_once(&client, &object, &*reconciler, &retries).await;
            metrics.reconciled(R::CONTROLLER, outcome, started.elapsed());
            Ok::<_, Infallible>(action)
        }
        .boxed()
    };
    let config = ControllerConfig::default().concurrency(CONCURRENCY).debounce(DEBOUNCE);
    // Objects that were deleted before their turn are reported as errors here.
    let never = |_: Arc<DynamicObject>, error: &Infallible, _: Arc<R>| match *error {};
    let cache = store.clone();
    let controller =
        applier(pass, never, reconciler, store, queue, config).for_each(|result| async move {
            if let Err(error) = result {
                debug!(controller = R::CONTROLLER, error = %error, "object was not reconciled");
            }
        });
    let stopping = context.clone();
    let synced = async move {
        // Without a complete cache the queue does not end at a stop.
        let ready = Box::pin(cache.wait_until_ready());
        match select(ready, Box::pin(stopping.stopped())).await {
            Either::Left((Ok(()), _)) => gate.open(),
            Either::Left((Err(_), _)) => {}
            Either::Right(_) => return,
        }
        pending::<()>().await;
    };
    select(Box::pin(controller), Box::pin(synced)).await;
}

/// One attempt. The object is read again, because the cached one may be older than our last write.
async fn reconcile_once<R: ObjectReconciler>(
    client: &Client,
    cached: &DynamicObject,
    reconciler: &R,
    retries: &RetryCounters,
) -> (Action, ReconcileOutcome) {
    let namespace = cached.metadata.namespace.as_deref().unwrap_or_default();
    let name = cached.metadata.name.as_deref().unwrap_or_default();
    let key = format!("{namespace}/{name}");
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &reconciler.resource());
    let (object, result) = match api.get_opt(name).await {
        Ok(None) => {
            retries.reset(&key);
            return (Action::await_change(), ReconcileOutcome::Settled);
        }
        Ok(Some(object)) => {
            let result = reconciler.reconcile(&object).await;
            (object, result)
        }
        Err(error) => (cached.clone(), Err(Obstacle::request("cannot read the object", &error))),
    };
    match result {
        Ok(delay) => {
            retries.reset(&key);
            let outcome = if delay >= RESYNC {
                ReconcileOutcome::Settled
            } else {
                ReconcileOutcome::Requeued
            };
            (Action::requeue(delay), outcome)
        }
        Err(obstacle) => {
            let delay = retries.failed(&key);
            warn!(
                controller = R::CONTROLLER,
                namespace,
                name,
                error = obstacle.text,
                retry_in = ?delay,
                "reconciliation failed"
            );
            let next = Timestamp::now() + delay;
            reconciler.report(&object, &obstacle, next).await;
            (Action::requeue(delay), ReconcileOutcome::Failed)
        }
    }
}

/// Numbers of failures since the last success.
#[derive(Default)]
struct RetryCounters(Mutex<HashMap<String, u32>>);

impl RetryCounters {
    fn reset(&self, key: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Counts a failure and returns the delay until the next attempt.
    fn failed(&self, key: &str) -> Duration {
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counters.entry(key.to_owned()).or_default();
        *count = count.saturating_add(1);
        retry_delay(*count)
    }
}

/// The delay after this number of failures.
fn retry_delay(failures: u32) -> Duration {
    let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
    FIRST_DELAY.saturating_mul(factor).min(MAX_DELAY)
}

/// Metadata of objects of a kind that were created, changed or deleted.
pub(crate) fn watched_metadata<K>(
    client: &Client,
    namespace: Option<&str>,
    label: Option<&str>,
) -> BoxStream<'static, PartialObjectMeta<K>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + Debug
        + Send
        + Sync
        + 'static,
{
    let api: Api<PartialObjectMeta<K>> = match namespace {
        Some(name) => Api::namespaced(client.clone(), name),
        None => Api::all(client.clone()),
    };
    let mut config = watcher::Config::default();
    if let Some(label) = label {
        config = config.labels(label);
    }
    let kind = K::kind(&()).into_owned();
    watcher(api, config)
        .default_backoff()
        .touched_objects()
        .filter_map(move |result| {
            let found = logged(&kind, result);
            async move { found }
        })
        .boxed()
}

fn logged<T>(kind: &str, result: Result<T, watcher::Error>) -> Option<T> {
    result
        .inspect_err(|error| {
            warn!(
                kind,
                error = error_chain::error_chain(error),
                "watch failed; it is started again"
            );
        })
        .ok()
}

/// References to the owners of this kind among the owners of an object.
pub(crate) fn owners_of_kind<K>(
    object: &PartialObjectMeta<K>,
    owner: &ApiResource,
) -> Vec<ObjectRef<DynamicObject>> {
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let owners = object.metadata.owner_references.iter().flatten();
    owners
        .filter(|reference| {
            let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
            reference.kind == owner.kind && group == owner.group
        })
        .map(|reference| ObjectRef::new_with(&reference.name, owner.clone()).within(namespace))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_and_are_capped() {
        let delays: Vec<u64> = (1..=11).map(|count| retry_delay(count).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(retry_delay(u32::MAX), MAX_DELAY);
        assert_eq!(retry_delay(0), FIRST_DELAY);
    }

    #[test]
    fn a_success_resets_the_delay() {
        let retries = RetryCounters::default();
        assert_eq!(retries.failed("a"), Duration::from_secs(1));
        assert_eq!(retries.failed("a"), Duration::from_secs(2));
        assert_eq!(retries.failed("b"), Duration::from_secs(1));
        retries.reset("a");
        assert_eq!(retries.failed("a"), Duration::from_secs(1));
    }
}
