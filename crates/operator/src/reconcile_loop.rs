// SPDX-License-Identifier: Apache-2.0
//! The loop of all controllers: reconciles the objects of a queue, repeats failures with a growing delay,
//! and records metrics.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use kube::Resource;
use kube::runtime::applier;
use kube::runtime::controller::{Action, Config, Error as ControllerError};
use kube::runtime::reflector::{ObjectRef, Store};
use tracing::warn;

use crate::context::ControllerContext;
use crate::metrics::ReconcileOutcome;

/// Delay after the first failure; it doubles with each one.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// Time after which an object is reconciled again without a change: for what is not watched.
pub(crate) const RESYNC: Duration = Duration::from_secs(300);

/// Reconciles the objects of one kind.
#[async_trait]
pub(crate) trait Reconciler: Send + Sync + 'static {
    /// The kind.
    type Kind: Resource<DynamicType: Debug + Eq + Hash + Clone + Unpin + Send + Sync>
        + Clone
        + Send
        + Sync
        + 'static;
    /// Why an object was not reconciled.
    type Failure: std::error::Error + Send + Sync + 'static;
    /// Name of the controller in metrics and logs.
    const NAME: &'static str;
    /// Longest delay after failures.
    const LONGEST_DELAY: Duration = Duration::from_secs(60);

    /// Reconciles an object. Returns when to do it again without a change; `None` means never.
    async fn reconcile(&self, object: &Self::Kind) -> Result<Option<Duration>, Self::Failure>;

    /// Reports a failure. The next attempt is after `retry_in`.
    async fn report(&self, object: &Self::Kind, failure: Self::Failure, retry_in: Duration) {
        let metadata = object.meta();
        warn!(
            controller = Self::NAME,
            namespace = metadata.namespace.as_deref(),
            name = metadata.name.as_deref(),
            error = error_chain::error_chain(&failure),
            ?retry_in,
            "reconciliation failed"
        );
    }
}

/// Reconciles objects as `queue` requests it, until the manager stops. Nothing starts before `store` has all
/// objects.
pub(crate) async fn reconcile_queue<R: Reconciler>(
    context: &ControllerContext,
    reconciler: Arc<R>,
    store: Store<R::Kind>,
    queue: impl Stream<Item = ObjectRef<R::Kind>> + Send + 'static,
    config: Config,
) {
    let (stopped, metrics) = (context.clone(), context.metrics.clone());
    let queue = queue
        .map(Ok::<_, Infallible>)
        .take_until(async move { stopped.stopped().await }.boxed())
        .boxed();
    let back_off = Arc::new(BackOff::new(R::LONGEST_DELAY));
    let failures = Arc::clone(&back_off);
    let pass = move |object: Arc<R::Kind>, reconciler: Arc<R>| {
        let (metrics, back_off) = (metrics.clone(), Arc::clone(&back_off));
        async move {
            let started = Instant::now();
            let key = key_of(object.meta().namespace.as_deref(), object.meta().name.as_deref());
            let (action, outcome) = match reconciler.reconcile(&object).await {
                Ok(after) => {
                    back_off.succeeded(&key);
                    let outcome = match after {
                        Some(after) if after < RESYNC => ReconcileOutcome::Requeued,
                        Some(_) | None => ReconcileOutcome::Settled,
                    };
                    (after.map_or_else(Action::await_change, Action::requeue), outcome)
                }
                Err(failure) => {
                    let delay = back_off.failed(key);
                    reconciler.report(&object, failure, delay).await;
                    (Action::requeue(delay), ReconcileOutcome::Failed)
                }
            };
            metrics.reconciled(R::NAME, outcome, started.elapsed());
            Ok::<_, Infallible>(action)
        }
        .boxed()
    };
    let never = |_: Arc<R::Kind>, error: &Infallible, _: Arc<R>| match *error {};
    applier(pass, never, reconciler, store, queue, config)
        .for_each(|result| {
            if let Err(ControllerError::ObjectNotFound(gone)) = result {
                failures.succeeded(&key_of(gone.namespace.as_deref(), Some(&gone.name)));
            }
            std::future::ready(())
        })
        .await;
}

fn key_of(namespace: Option<&str>, name: Option<&str>) -> String {
    format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default())
}

/// Delays after failures: doubled with each failure of an object since its last success.
struct BackOff {
    failures: Mutex<HashMap<String, u32>>,
    longest: Duration,
}

impl BackOff {
    fn new(longest: Duration) -> Self {
        Self { failures: Mutex::default(), longest }
    }

    fn succeeded(&self, key: &str) {
        // The map is consistent after every statement.
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Counts a failure and returns the delay until the next attempt.
    fn failed(&self, key: String) -> Duration {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(key).or_default();
        let factor = 2_u32.saturating_pow(*count);
        *count = count.saturating_add(1);
        FIRST_DELAY.saturating_mul(factor).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let back_off = BackOff::new(Duration::from_secs(300));
        let delays = || back_off.failed("a".to_owned()).as_secs();
        let first: Vec<u64> = (0..11).map(|_| delays()).collect();
        assert_eq!(first, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert!((0..1000).all(|_| delays() == 300));
    }

    #[test]
    fn a_success_resets_the_delay() {
        let back_off = BackOff::new(Duration::from_secs(60));
        let failed = |key: &str| back_off.failed(key.to_owned()).as_secs();
        assert_eq!((failed("a"), failed("a"), failed("b")), (1, 2, 1));
        back_off.succeeded("a");
        assert_eq!((failed("a"), failed("b")), (1, 2));
    }
}
