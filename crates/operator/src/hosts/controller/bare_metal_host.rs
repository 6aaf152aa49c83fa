// SPDX-License-Identifier: Apache-2.0
//! The controller of `BareMetalHost`: when hosts are looked at, and how many at once.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt, stream};
use kube::core::DeserializeGuard;
use kube::runtime::controller::{Action, Config, Error as ControllerError};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use kube::runtime::{Predicate, PredicateConfig, WatchStreamExt, applier, predicates};
use kube_resources::hosts::bare_metal_host::BareMetalHost;

use super::host_pass::HostPasses;
use super::host_slots::HostSlots;
use super::narrow::narrow_host;
use super::watching::{
    ObjectCache, ObserverFactory, WakeStream, WatchDriver, WatchObserver, key_of, warn_about_watch,
    watch_kind,
};
use crate::context::ControllerContext;
use crate::metrics::ReconcileOutcome;

/// Name of the controller in metrics.
const CONTROLLER: &str = "baremetalhost";

/// Writers of the host caches, one per watched namespace.
pub(super) struct HostWriters(Vec<Writer<BareMetalHost>>);

/// The cache of hosts, which [`run_hosts`] fills.
pub(super) fn host_cache(context: &ControllerContext) -> (ObjectCache<BareMetalHost>, HostWriters) {
    let apis = context.watched_apis::<BareMetalHost>();
    let writers: Vec<Writer<BareMetalHost>> = apis.iter().map(|_| Writer::default()).collect();
    let stores = writers.iter().map(Writer::as_reader).collect();
    (ObjectCache::of(context, stores), HostWriters(writers))
}

/// Runs passes over all hosts until the shutdown.
pub(super) fn run_hosts(
    context: &ControllerContext,
    passes: &Arc<HostPasses>,
    HostWriters(writers): HostWriters,
    wakes: Vec<WakeStream<BareMetalHost>>,
    observers: &[ObserverFactory<BareMetalHost>],
    concurrency: u16,
) -> WatchDriver {
    let apis = context.watched_apis::<DeserializeGuard<BareMetalHost>>();
    let controllers = apis.into_iter().zip(writers).zip(wakes).map(|((api, writer), wakes)| {
        let store = writer.as_reader();
        let (slots, hosts) = (passes.slots.clone(), passes.hosts.clone());
        let mut observers: Vec<WatchObserver<BareMetalHost>> =
            observers.iter().map(|new| new()).collect();
        let events = watch_kind(api, narrow_host).reflect(writer).inspect_ok(move |event| {
            follow_slots(&slots, event, &hosts);
            observers.iter_mut().for_each(|observer| observer(event));
        });
        // Status and labels are no reason for a pass.
        let relevant =
            predicates::generation.combine(predicates::annotations).combine(predicates::finalizers);
        let trigger =
            events.applied_objects().predicate_filter(relevant, PredicateConfig::default());
        let (shutdown, metrics) = (context.clone(), context.metrics.clone());
        let own = passes.slots.clone();
        let trigger = trigger
            .try_filter(move |host| std::future::ready(!own.is_own(&key_of(host), host)))
            .map_ok(|host| ObjectRef::from_obj(&host));
        let queue = stream::select(trigger, wakes.map(Ok))
            .take_until(Box::pin(async move { shutdown.stopped().await }));
        applier(
            move |host: Arc<BareMetalHost>, passes: Arc<HostPasses>| {
                let metrics = metrics.clone();
                Box::pin(async move {
                    let start = Instant::now();
                    let result = passes.pass(&host).await;
                    let outcome = match result {
                        Ok(None) => ReconcileOutcome::Settled,
                        Ok(Some(_)) => ReconcileOutcome::Requeued,
                        Err(_) => ReconcileOutcome::Failed,
                    };
                    metrics.reconciled(CONTROLLER, outcome, start.elapsed());
                    Ok::<Action, Infallible>(match result {
                        Ok(None) => Action::await_change(),
                        Ok(Some(after)) | Err(after) => Action::requeue(after),
                    })
                })
            },
            |_, error: &Infallible, _| match *error {},
            Arc::clone(passes),
            store,
            queue,
            Config::default().concurrency(concurrency),
        )
        .for_each(|result| {
            if let Err(ControllerError::QueueError(error)) = result {
                warn_about_watch("BareMetalHost", &error);
            }
            std::future::ready(())
        })
    });
    let controllers: Vec<_> = controllers.collect();
    Box::pin(async move {
        join_all(controllers).await;
    })
}

/// Keeps the slots in step with the cache.
fn follow_slots(
    slots: &HostSlots,
    event: &Event<BareMetalHost>,
    hosts: &ObjectCache<BareMetalHost>,
) {
    match event {
        Event::Apply(host) | Event::InitApply(host) => slots.seen(&key_of(host), host),
        Event::Delete(host) => slots.remove(&key_of(host)),
        Event::Init => {}
        // Deletions may have been missed.
        Event::InitDone => slots.retain(|key| hosts.get(key).is_some()),
    }
}
