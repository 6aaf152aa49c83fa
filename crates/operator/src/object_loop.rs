// SPDX-License-Identifier: Apache-2.0
//! Watches of the controllers of installations, and what prevents an object from being reconciled.
//!
//! Objects are read without a type. So an object that does not match the type of its kind is
//! reported and does not stop the others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::stream::{BoxStream, SelectAll};
use futures_util::{StreamExt as _, stream};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, PartialObjectMeta};
use kube::core::ApiResource;
use kube::runtime::Predicate as _;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{PredicateConfig, WatchStreamExt as _, predicates, watcher};
use kube::{Client, Resource};
use tracing::warn;

use crate::context::{ControllerContext, WatchScope, WatchedKind};
use crate::events::ObjectEventRecorder;
use crate::log_limit::{API_FAILURES, is_outage};
use crate::object_key::ObjectKey;
use crate::owned_objects::{OwnedObjectError, api_error_chain, api_error_text};
use crate::reconcile_loop::{LoopSettings, RESYNC, Reconciler, reconcile_queue};

/// Objects that are reconciled at the same time.
const CONCURRENCY: usize = 4;
/// Changes of several objects within this time cause one reconciliation.
const DEBOUNCE: Duration = Duration::from_millis(100);

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
    /// Whether the Kubernetes API cannot be used, so that other objects have the same obstacle.
    pub(crate) is_outage: bool,
}

impl Obstacle {
    /// A user has to change something.
    pub(crate) fn for_user(text: impl Into<String>) -> Self {
        Self { text: text.into(), needs_user: true, event: None, is_outage: false }
    }

    /// It passes, or the next attempt succeeds.
    pub(crate) fn transient(text: impl Into<String>) -> Self {
        Self { text: text.into(), needs_user: false, event: None, is_outage: false }
    }

    /// The request failed.
    pub(crate) fn request(what: &str, error: &kube::Error) -> Self {
        let text = format!("{what}: {}", api_error_text(error));
        Self { is_outage: is_outage(error), ..Self::transient(text) }
    }

    /// The same with the field that names the object.
    pub(crate) fn named_by(self, field: &str) -> Self {
        Self { text: format!("{} ({field} names it)", self.text), ..self }
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
                Self { is_outage: is_outage(&error), ..Self::transient(error.to_string()) }
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

    /// Shows an obstacle in the status. `next_attempt` is the time of the next attempt.
    async fn write_obstacle(
        &self,
        object: &DynamicObject,
        obstacle: &Obstacle,
        next_attempt: Timestamp,
    ) -> Result<(), Obstacle>;

    /// Where events are reported.
    fn events(&self) -> &ObjectEventRecorder;
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
    let scopes = namespaces
        .into_iter()
        .map(|namespace| reconcile_scope(context, namespace, Arc::clone(&reconciler)));
    join_all(scopes).await;
}

async fn reconcile_scope<R: ObjectReconciler>(
    context: &ControllerContext,
    namespace: Option<&str>,
    reconciler: Arc<R>,
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
    let (kind, own_resource) = (resource.kind.clone(), resource.clone());
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
    let mut queue = SelectAll::new();
    queue.push(own.boxed());
    queue.extend(reconciler.triggers(namespace, &store));
    let cache = store.clone();
    let ready = async move {
        // An error means that the watch has ended, which only a shutdown does.
        if cache.wait_until_ready().await.is_ok() {
            gate.open();
        }
    };
    let find = move |key: &ObjectKey| {
        let object = ObjectRef::new_with(key.name(), own_resource.clone());
        store.get(&object.within(key.namespace()))
    };
    let queue = queue.map(|object| {
        ObjectKey::new(object.namespace.as_deref().unwrap_or_default(), &object.name)
    });
    let objects = Arc::new(UntypedObjects { client: context.client.clone(), reconciler });
    let settings = LoopSettings { concurrency: CONCURRENCY, debounce: DEBOUNCE };
    reconcile_queue(context, objects, find, ready, queue, settings).await;
}

/// Reads each object again before it is reconciled, because the cached one may be older than our last
/// write.
struct UntypedObjects<R> {
    client: Client,
    reconciler: Arc<R>,
}

/// An object and why it was not reconciled.
#[derive(Debug, thiserror::Error)]
#[error("{}", obstacle.text)]
struct ObjectFailure {
    object: DynamicObject,
    obstacle: Obstacle,
}

#[async_trait]
impl<R: ObjectReconciler> Reconciler for UntypedObjects<R> {
    type Kind = DynamicObject;
    type Failure = Box<ObjectFailure>;
    const NAME: &'static str = R::CONTROLLER;
    const LONGEST_DELAY: Duration = RESYNC;

    async fn reconcile(
        &self,
        cached: &DynamicObject,
    ) -> Result<Option<Duration>, Box<ObjectFailure>> {
        let namespace = cached.metadata.namespace.as_deref().unwrap_or_default();
        let name = cached.metadata.name.as_deref().unwrap_or_default();
        let resource = self.reconciler.resource();
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &resource);
        let failure = |object, obstacle| Box::new(ObjectFailure { object, obstacle });
        match api.get_opt(name).await {
            Ok(None) => Ok(None),
            Ok(Some(object)) => match self.reconciler.reconcile(&object).await {
                Ok(delay) => Ok(Some(delay)),
                Err(obstacle) => Err(failure(object, obstacle)),
            },
            Err(error) => {
                let obstacle = Obstacle::request("cannot read the object", &error);
                Err(failure(cached.clone(), obstacle))
            }
        }
    }

    async fn report(&self, _: &DynamicObject, failure: Box<ObjectFailure>, retry_in: Duration) {
        let ObjectFailure { object, obstacle } = *failure;
        let (namespace, name) = (&object.metadata.namespace, &object.metadata.name);
        if let Some(omitted) = API_FAILURES.admit_unless(!obstacle.is_outage, R::CONTROLLER) {
            warn!(
                controller = R::CONTROLLER,
                namespace = namespace.as_deref(),
                name = name.as_deref(),
                error = obstacle.text,
                ?retry_in,
                omitted,
                "reconciliation failed"
            );
        }
        if let Some(reason) = obstacle.event {
            let subject = object.object_ref(&self.reconciler.resource());
            self.reconciler.events().warning_about(&subject, reason, &obstacle.text).await;
        }
        let next_attempt = Timestamp::now() + retry_in;
        let written = self.reconciler.write_obstacle(&object, &obstacle, next_attempt).await;
        let subject = format!("status of {}", R::CONTROLLER);
        if let Err(problem) = written
            && let Some(omitted) = API_FAILURES.admit_unless(!problem.is_outage, &subject)
        {
            warn!(
                namespace = namespace.as_deref(),
                name = name.as_deref(),
                error = problem.text,
                omitted,
                "status cannot be written"
            );
        }
    }
}

/// Metadata of objects of a kind that were created, changed or deleted.
pub(crate) fn watched_metadata<K: WatchedKind>(
    client: &Client,
    namespace: Option<&str>,
    label: Option<&str>,
) -> BoxStream<'static, PartialObjectMeta<K>> {
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
            if let Some(omitted) = API_FAILURES.admit(&format!("watch of {kind}"), Instant::now()) {
                let error = api_error_chain(error);
                warn!(kind, error, omitted, "watch failed; it is started again");
            }
        })
        .ok()
}

/// Owners of this kind whose labelled objects of the kind `K` changed.
pub(crate) fn owned_objects<K: WatchedKind>(
    client: &Client,
    namespace: Option<&str>,
    label: &str,
    owner: ApiResource,
) -> TriggerStream {
    watched_metadata::<K>(client, namespace, Some(label))
        .flat_map(move |object| stream::iter(owners_of_kind(&object, &owner)))
        .boxed()
}

/// References to the owners of this kind among the owners of an object.
fn owners_of_kind<K>(
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
