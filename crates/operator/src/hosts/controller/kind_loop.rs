// SPDX-License-Identifier: Apache-2.0
//! The loop of controllers of smaller kinds: which object is reconciled when.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::join_all;
use kube::runtime::applier;
use kube::runtime::controller::{Action, Config};
use tracing::warn;

use super::super::provisioner::HostKey;
use super::watching::{ObjectCache, WakeStream, WatchDriver, WatchedKind, key_of};
use crate::context::ControllerContext;
use crate::metrics::ReconcileOutcome;

/// Time until the next attempt after the Kubernetes API failed; doubled with every failure.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// Objects of a kind that are reconciled at once.
const CONCURRENCY: u16 = 8;

/// Reconciles the objects of one kind.
#[async_trait]
pub(super) trait KindReconciler: Send + Sync + 'static {
    /// The kind.
    type Kind: WatchedKind;
    /// Name of the controller in metrics.
    const NAME: &'static str;

    /// Reconciles an object. Returns when to look again; `None` means after a change. An error of the
    /// Kubernetes API is repeated.
    async fn reconcile(&self, object: &Self::Kind) -> Result<Option<Duration>, kube::Error>;
}

struct KindLoop<R> {
    reconciler: R,
    failures: Mutex<HashMap<HostKey, u32>>,
}

impl<R: KindReconciler> KindLoop<R> {
    async fn run(&self, object: &R::Kind) -> Result<Option<Duration>, Duration> {
        let key = key_of(object);
        let result = self.reconciler.reconcile(object).await;
        // The map is consistent after every statement.
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(after) => {
                failures.remove(&key);
                Ok(after)
            }
            Err(error) => {
                warn!(
                    controller = R::NAME,
                    namespace = key.namespace,
                    name = key.name,
                    error = &error as &dyn std::error::Error,
                    "reconciliation failed and is repeated"
                );
                let count = failures.entry(key).or_default();
                let retry = FIRST_RETRY.saturating_mul(1 << (*count).min(6)).min(LONGEST_RETRY);
                *count += 1;
                Err(retry)
            }
        }
    }
}

/// Runs a controller until the shutdown. `wakes` select the objects.
pub(super) fn run_kind<R: KindReconciler>(
    context: &ControllerContext,
    cache: &ObjectCache<R::Kind>,
    wakes: Vec<WakeStream<R::Kind>>,
    reconciler: R,
) -> WatchDriver {
    let failures = Mutex::default();
    let shared = Arc::new(KindLoop { reconciler, failures });
    let loops = cache.stores().into_iter().zip(wakes).map(|(store, wakes)| {
        let (shutdown, metrics) = (context.clone(), context.metrics.clone());
        let queue = wakes
            .map(Ok::<_, Infallible>)
            .take_until(Box::pin(async move { shutdown.stopped().await }));
        applier(
            move |object: Arc<R::Kind>, shared: Arc<KindLoop<R>>| {
                let metrics = metrics.clone();
                Box::pin(async move {
                    let start = Instant::now();
                    let result = shared.run(&object).await;
                    let outcome = match result {
                        Ok(None) => ReconcileOutcome::Settled,
                        Ok(Some(_)) => ReconcileOutcome::Requeued,
                        Err(_) => ReconcileOutcome::Failed,
                    };
                    metrics.reconciled(R::NAME, outcome, start.elapsed());
                    Ok::<Action, Infallible>(match result {
                        Ok(None) => Action::await_change(),
                        Ok(Some(after)) | Err(after) => Action::requeue(after),
                    })
                })
            },
            |_, error: &Infallible, _| match *error {},
            Arc::clone(&shared),
            store,
            queue,
            Config::default().concurrency(CONCURRENCY),
        )
        // Objects that do not exist any more are no reason for anything.
        .for_each(|_| std::future::ready(()))
    });
    let loops: Vec<_> = loops.collect();
    Box::pin(async move {
        join_all(loops).await;
    })
}
