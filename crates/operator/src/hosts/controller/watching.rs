// SPDX-License-Identifier: Apache-2.0
//! Watches and caches. One object that cannot be read is reported and does not affect others.

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream};
use futures_util::{Future, Stream, StreamExt, TryStreamExt, future};
use kube::Api;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use tracing::warn;

use super::compact_store::{CompactStore, CompactStoreWriter};
use crate::context::{ControllerContext, WatchScope, WatchedKind};
use crate::log_limit::API_FAILURES;
use crate::object_key::ObjectKey;
use crate::owned_objects::api_error_chain;
use crate::reconcile_loop::{LoopSettings, Reconciler, reconcile_queue};

/// Objects per page of a list, so that a large list is not in memory at once.
const PAGE_SIZE: u32 = 200;

/// Events of the objects behind an API, after `narrow` removed what the cache does not need. Lost
/// connections are restored.
fn watch_kind<K: WatchedKind>(
    api: Api<DeserializeGuard<K>>,
    narrow: fn(&mut K),
    known: CompactStore<K>,
) -> impl Stream<Item = Result<Event<K>, watcher::Error>> + Send {
    let config = watcher::Config::default().page_size(PAGE_SIZE);
    watcher(api, config)
        .default_backoff()
        .try_filter_map(move |event| future::ready(Ok(readable(event, &known))))
        .modify(move |object| {
            object.meta_mut().managed_fields = None;
            narrow(object);
        })
}

/// The event, unless its object cannot be read. The deletion of such an object is reported with its last
/// version that could be read.
fn readable<K: WatchedKind>(
    event: Event<DeserializeGuard<K>>,
    known: &CompactStore<K>,
) -> Option<Event<K>> {
    let checked = |guard: DeserializeGuard<K>| match guard.0 {
        Ok(object) => Some(object),
        Err(invalid) => {
            warn!(
                kind = %K::kind(&()),
                namespace = invalid.metadata.namespace.as_deref(),
                name = invalid.metadata.name.as_deref(),
                error = invalid.error,
                "object cannot be read and is ignored"
            );
            None
        }
    };
    let last_known = |guard: DeserializeGuard<K>| match guard.0 {
        Ok(object) => Some(object),
        Err(invalid) => {
            let name = invalid.metadata.name.as_deref().unwrap_or_default();
            let namespace = invalid.metadata.namespace.as_deref().unwrap_or_default();
            known.get(&ObjectKey::new(namespace, name)).map(Arc::unwrap_or_clone)
        }
    };
    Some(match event {
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
        Event::InitApply(object) => Event::InitApply(checked(object)?),
        Event::Apply(object) => Event::Apply(checked(object)?),
        Event::Delete(object) => Event::Delete(last_known(object)?),
    })
}

/// Wakes the controllers of one kind, one per watched namespace.
#[derive(Clone)]
pub(super) struct ObjectWakers {
    /// `None` is all namespaces.
    pending: Vec<(Option<String>, Arc<PendingObjects>)>,
}

/// Objects to be reconciled, each once, so that their number is bounded however often they are woken.
#[derive(Default)]
struct PendingObjects(Mutex<PendingState>);

#[derive(Default)]
struct PendingState {
    keys: BTreeSet<ObjectKey>,
    /// The task that waits for keys.
    task: Option<Waker>,
}

impl PendingObjects {
    fn insert(&self, key: ObjectKey) {
        let mut state = self.lock();
        state.keys.insert(key);
        if let Some(task) = state.task.take() {
            task.wake();
        }
    }

    fn poll_next(&self, task: &Context<'_>) -> Poll<Option<ObjectKey>> {
        let mut state = self.lock();
        match state.keys.pop_first() {
            Some(key) => Poll::Ready(Some(key)),
            None => {
                state.task = Some(task.waker().clone());
                Poll::Pending
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, PendingState> {
        // The state is consistent after every statement.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests of one controller.
pub(super) type WakeStream = BoxStream<'static, ObjectKey>;

impl ObjectWakers {
    /// One stream for each watched namespace, in the order of [`ControllerContext::watched_apis`].
    pub(super) fn new(context: &ControllerContext) -> (Self, Vec<WakeStream>) {
        let (mut all, mut streams) = (Vec::new(), Vec::new());
        for namespace in namespaces(context) {
            let pending = Arc::new(PendingObjects::default());
            all.push((namespace, Arc::clone(&pending)));
            let stream: WakeStream = stream::poll_fn(move |task| pending.poll_next(task)).boxed();
            streams.push(stream);
        }
        (Self { pending: all }, streams)
    }

    /// Requests the reconciliation of an object, if its namespace is watched.
    pub(super) fn wake(&self, key: &ObjectKey) {
        if let Some(pending) = watched(&self.pending, key.namespace()) {
            pending.insert(key.clone());
        }
    }
}

/// The watched namespaces; `None` is all.
pub(super) fn namespaces(context: &ControllerContext) -> Vec<Option<String>> {
    match &context.scope {
        WatchScope::Cluster => vec![None],
        WatchScope::Namespaces(names) => names.iter().cloned().map(Some).collect(),
    }
}

/// What belongs to a namespace, of something for each watched namespace.
pub(super) fn watched<'a, T>(parts: &'a [(Option<String>, T)], namespace: &str) -> Option<&'a T> {
    let is_in = |name: &Option<String>| name.as_deref().is_none_or(|name| name == namespace);
    parts.iter().find(|(name, _)| is_in(name)).map(|(_, part)| part)
}

/// Objects of one kind, kept up to date by a future that its owner runs.
pub(super) struct ObjectCache<K: WatchedKind> {
    stores: Vec<(Option<String>, CompactStore<K>)>,
}

impl<K: WatchedKind> Clone for ObjectCache<K> {
    fn clone(&self) -> Self {
        Self { stores: self.stores.clone() }
    }
}

impl<K: WatchedKind> ObjectCache<K> {
    /// The object, if it exists.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        watched(&self.stores, key.namespace())?.get(key)
    }

    /// Whether it has the objects of a namespace.
    pub(super) fn has_namespace(&self, namespace: &str) -> bool {
        watched(&self.stores, namespace).is_some()
    }

    /// All objects.
    pub(super) fn all(&self) -> Vec<Arc<K>> {
        self.stores.iter().flat_map(|(_, store)| store.all()).collect()
    }

    /// Waits until all objects were listed once.
    pub(super) async fn ready(&self) {
        for (_, store) in &self.stores {
            store.ready().await;
        }
    }
}

/// The future that keeps a cache up to date.
pub(super) type WatchDriver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Gets the events of one watch.
pub(super) type WatchObserver<K> = Box<dyn FnMut(&Event<K>) + Send>;
/// Creates an observer for each watch, because each lists its objects separately.
pub(super) type ObserverFactory<K> = Box<dyn Fn() -> WatchObserver<K> + Send + Sync>;

/// Observers that call `wake` for objects whose relevant value changes. Objects that do not exist
/// count as the default.
pub(super) fn on_change<K, V>(
    relevant: fn(&K) -> V,
    wake: impl Fn(&ObjectKey) + Clone + Send + Sync + 'static,
) -> ObserverFactory<K>
where
    K: WatchedKind,
    V: Default + PartialEq + Send + 'static,
{
    Box::new(move || {
        let wake = wake.clone();
        let mut values = RelevantValues::new(relevant);
        Box::new(move |event| values.changed_by(event).iter().for_each(&wake))
    })
}

/// A cache of all objects of a kind, and the future that keeps it up to date.
pub(super) fn object_cache<K: WatchedKind>(
    context: &ControllerContext,
    narrow: fn(&mut K),
    observers: &[ObserverFactory<K>],
) -> (ObjectCache<K>, WatchDriver) {
    let (mut stores, mut drivers) = (Vec::new(), Vec::new());
    for api in context.watched_apis::<DeserializeGuard<K>>() {
        let mut writer = CompactStoreWriter::new();
        stores.push(writer.reader());
        let mut observers: Vec<WatchObserver<K>> = observers.iter().map(|new| new()).collect();
        let events = watch_kind(api, narrow, writer.reader());
        drivers.push(events.for_each(move |event| {
            match event {
                Ok(event) => {
                    writer.apply(&event);
                    observers.iter_mut().for_each(|observer| observer(&event));
                }
                Err(error) => warn_about_watch(&K::kind(&()), &error),
            }
            future::ready(())
        }));
    }
    let driver = Box::pin(async move {
        join_all(drivers).await;
    });
    (ObjectCache { stores: namespaces(context).into_iter().zip(stores).collect() }, driver)
}

/// Reconciles the objects that `wakes` select, until the manager stops.
pub(super) fn reconcile_cached<R: Reconciler<Kind: WatchedKind>>(
    context: &ControllerContext,
    cache: &ObjectCache<R::Kind>,
    wakes: Vec<WakeStream>,
    concurrency: usize,
    reconciler: Arc<R>,
) -> WatchDriver {
    let context = context.clone();
    let queues: Vec<_> = cache.stores.iter().map(|(_, store)| store.clone()).zip(wakes).collect();
    Box::pin(async move {
        let loops = queues.into_iter().map(|(store, wakes)| {
            let settings = LoopSettings { concurrency, debounce: Duration::ZERO };
            let (reconciler, listed) = (Arc::clone(&reconciler), store.clone());
            let ready = async move { listed.ready().await };
            let find = move |key: &ObjectKey| store.get(key);
            reconcile_queue(&context, reconciler, find, ready, wakes, settings)
        });
        join_all(loops).await;
    })
}

/// What decisions depend on, of all objects of a watch. Defaults are not stored.
pub(super) struct RelevantValues<K, V> {
    known: HashMap<ObjectKey, V>,
    /// The objects of a list that is being read.
    relisted: HashMap<ObjectKey, V>,
    relevant: fn(&K) -> V,
}

impl<K: WatchedKind, V: Default + PartialEq> RelevantValues<K, V> {
    pub(super) fn new(relevant: fn(&K) -> V) -> Self {
        Self { known: HashMap::new(), relisted: HashMap::new(), relevant }
    }

    /// The value of an object, unless it is the default.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&V> {
        self.known.get(key)
    }

    /// Applies an event and returns the objects whose value differs.
    pub(super) fn changed_by(&mut self, event: &Event<K>) -> Vec<ObjectKey> {
        match event {
            Event::Init => {
                self.relisted.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                let value = (self.relevant)(object);
                if value != V::default() {
                    self.relisted.insert(ObjectKey::of(object), value);
                }
                Vec::new()
            }
            Event::InitDone => {
                let before = std::mem::replace(&mut self.known, std::mem::take(&mut self.relisted));
                let is_new = |key: &&ObjectKey| !before.contains_key(*key);
                let mut changed: Vec<ObjectKey> =
                    self.known.keys().filter(is_new).cloned().collect();
                let differs = |(key, value): &(ObjectKey, V)| self.known.get(key) != Some(value);
                changed.extend(before.into_iter().filter(differs).map(|(key, _)| key));
                changed
            }
            Event::Apply(object) => self.set(ObjectKey::of(object), (self.relevant)(object)),
            Event::Delete(object) => self.set(ObjectKey::of(object), V::default()),
        }
    }

    fn set(&mut self, key: ObjectKey, value: V) -> Vec<ObjectKey> {
        let is_default = value == V::default();
        let is_changed = match self.known.get(&key) {
            Some(before) => *before != value,
            None => !is_default,
        };
        if !is_changed {
            return Vec::new();
        }
        match is_default {
            true => _ = self.known.remove(&key),
            false => _ = self.known.insert(key.clone(), value),
        }
        vec![key]
    }
}

/// Reports a watch that is restored later.
pub(super) fn warn_about_watch(kind: &str, error: &watcher::Error) {
    if let Some(omitted) = API_FAILURES.admit(&format!("watch of {kind}"), Instant::now()) {
        warn!(kind, error = api_error_chain(error), omitted, "watch failed and is repeated");
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::error_boundary::InvalidObject;

    use super::*;

    fn object(name: &str, value: Option<&str>) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object.data = value.map(|value| [("value".to_owned(), value.to_owned())].into());
        object
    }

    #[test]
    fn the_deletion_of_an_unreadable_object_is_reported() {
        let mut writer = CompactStoreWriter::<ConfigMap>::new();
        let mut readable_object = object("a", Some("1"));
        readable_object.metadata.namespace = Some("n".to_owned());
        writer.apply(&Event::Apply(readable_object.clone()));
        let unreadable = |name: &str| {
            let mut metadata = readable_object.metadata.clone();
            metadata.name = Some(name.to_owned());
            DeserializeGuard(Err(InvalidObject { error: "test".to_owned(), metadata }))
        };
        let known = writer.reader();
        assert!(readable(Event::Apply(unreadable("a")), &known).is_none());
        assert!(readable(Event::Delete(unreadable("never-read")), &known).is_none());
        let Some(Event::Delete(deleted)) = readable(Event::Delete(unreadable("a")), &known) else {
            panic!("the deletion is lost");
        };
        assert_eq!(deleted, readable_object);
    }

    #[test]
    fn only_relevant_changes_are_reported() {
        let relevant = |object: &ConfigMap| object.data.clone().unwrap_or_default();
        let mut values = RelevantValues::new(relevant);
        let mut check = |event, expected: &[&str]| {
            let mut changed: Vec<String> =
                values.changed_by(&event).into_iter().map(|key| key.name().to_owned()).collect();
            changed.sort_unstable();
            assert_eq!(changed, expected);
        };
        check(Event::Init, &[]);
        check(Event::InitApply(object("a", Some("1"))), &[]);
        check(Event::InitApply(object("b", None)), &[]);
        check(Event::InitDone, &["a"]);
        check(Event::Apply(object("b", None)), &[]);
        check(Event::Apply(object("a", Some("1"))), &[]);
        check(Event::Apply(object("b", Some("2"))), &["b"]);
        check(Event::Apply(object("a", Some("3"))), &["a"]);
        check(Event::Delete(object("a", Some("3"))), &["a"]);
        check(Event::Delete(object("c", None)), &[]);
        // The connection was lost; meanwhile b was deleted and d was created.
        check(Event::Init, &[]);
        check(Event::InitApply(object("d", Some("1"))), &[]);
        check(Event::InitDone, &["b", "d"]);
    }
}
