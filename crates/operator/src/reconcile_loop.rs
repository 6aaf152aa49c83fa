// SPDX-License-Identifier: Apache-2.0
//! The loop of all controllers: reconciles the objects of a queue, repeats failures with a growing delay,
//! and records metrics.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use kube::Resource;
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument as _, info_span, warn};

use crate::context::ControllerContext;
use crate::log_limit::API_FAILURES;
use crate::metrics::ReconcileOutcome;
use crate::object_key::ObjectKey;
use crate::owned_objects::api_error_chain;

/// Delay after the first failure; it doubles with each one.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// Time after which an object is reconciled again without a change: for what is not watched.
pub(crate) const RESYNC: Duration = Duration::from_secs(300);

/// Reconciles the objects of one kind.
#[async_trait]
pub(crate) trait Reconciler: Send + Sync + 'static {
    /// The kind.
    type Kind: Resource + Send + Sync + 'static;
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
        let Some(omitted) = API_FAILURES.admit_failure(Self::NAME, &failure) else { return };
        let metadata = object.meta();
        warn!(
            controller = Self::NAME,
            namespace = metadata.namespace.as_deref(),
            name = metadata.name.as_deref(),
            error = api_error_chain(&failure),
            ?retry_in,
            omitted,
            "reconciliation failed"
        );
    }
}

/// How the objects of a queue are reconciled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopSettings {
    /// Objects that are reconciled at the same time.
    pub(crate) concurrency: usize,
    /// Requests for an object within this time cause one reconciliation.
    pub(crate) debounce: Duration,
}

/// Reconciles objects as `queue` requests it, until the manager stops; `find` returns the current object.
/// Nothing starts before `ready` completes. An object is never reconciled twice at the same time.
pub(crate) async fn reconcile_queue<R: Reconciler>(
    context: &ControllerContext,
    reconciler: Arc<R>,
    find: impl Fn(&ObjectKey) -> Option<Arc<R::Kind>>,
    ready: impl Future<Output = ()>,
    queue: impl Stream<Item = ObjectKey>,
    settings: LoopSettings,
) {
    let back_off = BackOff::new(R::LONGEST_DELAY);
    let pass = |key, object| reconcile_object(&*reconciler, object, key, &back_off, context);
    let mut ready = std::pin::pin!(ready.fuse());
    let mut queue = std::pin::pin!(queue.take_until(context.stopped()));
    let mut running = FuturesUnordered::new();
    let mut schedule = ReconcileSchedule::default();
    let (mut is_ready, mut is_open) = (false, true);
    while is_open || !running.is_empty() {
        // Reconciliations that wait for nothing would keep the thread.
        tokio::task::coop::consume_budget().await;
        let can_start = |running: usize| is_ready && is_open && running < settings.concurrency;
        while can_start(running.len())
            && let Some(key) = schedule.start_next(Instant::now())
        {
            match find(&key) {
                Some(object) => running.push(pass(key, object)),
                None => {
                    back_off.succeeded(&key);
                    schedule.ended(&key, None);
                }
            }
        }
        let next = schedule.next_start().filter(|_| can_start(running.len()));
        tokio::select! {
            woken = queue.next(), if is_open => match woken {
                Some(key) => schedule.request(key, Instant::now() + settings.debounce),
                None => is_open = false,
            },
            Some((key, delay)) = running.next() => {
                schedule.ended(&key, delay.map(|delay| Instant::now() + delay));
            }
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            () = &mut ready, if !is_ready => is_ready = true,
        }
    }
}

/// Reconciles an object. Returns its key and the delay until it is done again without a change.
async fn reconcile_object<R: Reconciler>(
    reconciler: &R,
    object: Arc<R::Kind>,
    key: ObjectKey,
    back_off: &BackOff,
    context: &ControllerContext,
) -> (ObjectKey, Option<Duration>) {
    let started = Instant::now();
    let span = info_span!("reconciliation", controller = R::NAME, object = %key);
    let (delay, outcome) = async {
        match reconciler.reconcile(&object).await {
            Ok(after) => {
                back_off.succeeded(&key);
                match after {
                    Some(after) if after < RESYNC => (Some(after), ReconcileOutcome::Requeued),
                    Some(_) | None => (after, ReconcileOutcome::Settled),
                }
            }
            Err(failure) => {
                let delay = back_off.failed(&key);
                reconciler.report(&object, failure, delay).await;
                (Some(delay), ReconcileOutcome::Failed)
            }
        }
    }
    .instrument(span)
    .await;
    context.metrics.reconciled(R::NAME, outcome, started.elapsed());
    (key, delay)
}

/// When objects are reconciled next. An object that is idle is in no list, so thousands of them need no memory.
#[derive(Default)]
struct ReconcileSchedule {
    waiting: BTreeSet<(Instant, ObjectKey)>,
    objects: HashMap<ObjectKey, ScheduledObject>,
}

enum ScheduledObject {
    /// It is reconciled at this time.
    Waiting(Instant),
    /// It is being reconciled, and again at this time if that was requested meanwhile.
    Running(Option<Instant>),
}

impl ReconcileSchedule {
    /// Reconciles an object at a time, or earlier if that was requested before.
    fn request(&mut self, key: ObjectKey, at: Instant) {
        match self.objects.get_mut(&key) {
            None => {
                self.objects.insert(key.clone(), ScheduledObject::Waiting(at));
                self.waiting.insert((at, key));
            }
            Some(ScheduledObject::Waiting(before)) if *before <= at => {}
            Some(ScheduledObject::Waiting(before)) => {
                self.waiting.remove(&(*before, key.clone()));
                *before = at;
                self.waiting.insert((at, key));
            }
            Some(ScheduledObject::Running(again)) => *again = earliest(*again, Some(at)),
        }
    }

    /// The time of the next object.
    fn next_start(&self) -> Option<Instant> {
        self.waiting.first().map(|(at, _)| *at)
    }

    /// The next object, if its time has come. It counts as running until [`ReconcileSchedule::ended`].
    fn start_next(&mut self, now: Instant) -> Option<ObjectKey> {
        self.next_start().filter(|at| *at <= now)?;
        let (_, key) = self.waiting.pop_first()?;
        self.objects.insert(key.clone(), ScheduledObject::Running(None));
        Some(key)
    }

    /// An object was reconciled. It is reconciled again at `next`, or earlier if that was requested meanwhile.
    fn ended(&mut self, key: &ObjectKey, next: Option<Instant>) {
        let Some((key, ScheduledObject::Running(again))) = self.objects.remove_entry(key) else {
            return;
        };
        match earliest(again, next) {
            Some(at) => self.request(key, at),
            // After a start all objects were here.
            None if self.objects.is_empty() => self.objects.shrink_to_fit(),
            None => {}
        }
    }
}

fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

/// Delays after failures: doubled with each failure of an object since its last success.
struct BackOff {
    failures: Mutex<HashMap<ObjectKey, u32>>,
    longest: Duration,
}

impl BackOff {
    fn new(longest: Duration) -> Self {
        Self { failures: Mutex::default(), longest }
    }

    fn succeeded(&self, key: &ObjectKey) {
        // The map is consistent after every statement.
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Counts a failure and returns the delay until the next attempt.
    fn failed(&self, key: &ObjectKey) -> Duration {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(key.clone()).or_default();
        let factor = 2_u32.saturating_pow(*count);
        *count = count.saturating_add(1);
        FIRST_DELAY.saturating_mul(factor).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use k8s_openapi::api::core::v1::ConfigMap;
    use tokio::sync::{mpsc, watch};

    use super::*;
    use crate::context::WatchScope;
    use crate::health::OperatorReadiness;
    use crate::metrics::OperatorMetrics;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("n", name)
    }

    #[test]
    fn delays_double_up_to_the_longest() {
        let back_off = BackOff::new(Duration::from_secs(300));
        let delays = || back_off.failed(&key("a")).as_secs();
        let first: Vec<u64> = (0..11).map(|_| delays()).collect();
        assert_eq!(first, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert!((0..1000).all(|_| delays() == 300));
    }

    #[test]
    fn a_success_resets_the_delay() {
        let back_off = BackOff::new(Duration::from_secs(60));
        let failed = |name: &str| back_off.failed(&key(name)).as_secs();
        assert_eq!((failed("a"), failed("a"), failed("b")), (1, 2, 1));
        back_off.succeeded(&key("a"));
        assert_eq!((failed("a"), failed("b")), (1, 2));
    }

    #[test]
    fn the_earliest_request_counts() {
        let (start, mut schedule) = (Instant::now(), ReconcileSchedule::default());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        schedule.request(key("a"), at(5));
        schedule.request(key("b"), at(3));
        schedule.request(key("a"), at(9));
        assert_eq!(schedule.next_start(), Some(at(3)));
        schedule.request(key("a"), at(2));
        assert_eq!(schedule.start_next(at(1)), None);
        assert_eq!(schedule.start_next(at(4)), Some(key("a")));
        assert_eq!(schedule.start_next(at(4)), Some(key("b")));
        assert_eq!(schedule.start_next(at(9)), None, "both are running");
        // Requested while it is running.
        schedule.request(key("a"), at(6));
        schedule.request(key("a"), at(7));
        assert_eq!(schedule.start_next(at(9)), None, "it is still running");
        schedule.ended(&key("a"), Some(at(20)));
        schedule.ended(&key("b"), Some(at(10)));
        assert_eq!(schedule.start_next(at(6)), Some(key("a")));
        schedule.ended(&key("a"), None);
        assert_eq!(schedule.next_start(), Some(at(10)));
        assert_eq!(schedule.start_next(at(10)), Some(key("b")));
        schedule.ended(&key("b"), None);
        assert!(schedule.objects.is_empty() && schedule.waiting.is_empty());
        assert_eq!(schedule.objects.capacity(), 0);
    }

    /// Records when objects are reconciled, and returns scripted delays.
    struct Recorder {
        start: Instant,
        passes: Mutex<Vec<(String, u64)>>,
        delays: Mutex<VecDeque<Option<Duration>>>,
        /// How long a reconciliation takes.
        takes: Duration,
    }

    #[async_trait]
    impl Reconciler for Recorder {
        type Kind = ConfigMap;
        type Failure = Infallible;
        const NAME: &'static str = "recorder";

        async fn reconcile(&self, object: &ConfigMap) -> Result<Option<Duration>, Infallible> {
            let name = object.metadata.name.clone().unwrap_or_default();
            self.passes.lock().unwrap().push((name, self.start.elapsed().as_secs()));
            tokio::time::sleep(self.takes).await;
            Ok(self.delays.lock().unwrap().pop_front().flatten())
        }
    }

    struct LoopBench {
        recorder: Arc<Recorder>,
        wake: mpsc::UnboundedSender<ObjectKey>,
        stop: watch::Sender<bool>,
        ended: tokio::task::JoinHandle<()>,
    }

    impl LoopBench {
        /// Starts a loop whose cache is complete after a second, and which finds all objects but `gone`.
        fn start(concurrency: usize, takes: u64, delays: &[Option<u64>]) -> Self {
            let delays = delays.iter().map(|delay| delay.map(Duration::from_secs)).collect();
            let recorder = Arc::new(Recorder {
                start: Instant::now(),
                passes: Mutex::default(),
                delays: Mutex::new(delays),
                takes: Duration::from_secs(takes),
            });
            let (wake, mut woken) = mpsc::unbounded_channel();
            let (stop, shutdown) = watch::channel(false);
            let context = ControllerContext {
                client: kube::Client::new(
                    tower::service_fn(|_: http::Request<kube::client::Body>| async {
                        Ok::<_, Infallible>(http::Response::new(kube::client::Body::empty()))
                    }),
                    "n",
                ),
                scope: WatchScope::Cluster,
                shutdown,
                metrics: OperatorMetrics::new(),
                readiness: OperatorReadiness::default(),
            };
            let reconciler = Arc::clone(&recorder);
            let ended = tokio::spawn(async move {
                let find = |key: &ObjectKey| {
                    let mut object = ConfigMap::default();
                    object.metadata.name = Some(key.name().to_owned());
                    (key.name() != "gone").then(|| Arc::new(object))
                };
                let ready = tokio::time::sleep(Duration::from_secs(1));
                let queue = futures_util::stream::poll_fn(move |task| woken.poll_recv(task));
                let settings = LoopSettings { concurrency, debounce: Duration::ZERO };
                reconcile_queue(&context, reconciler, find, ready, queue, settings).await;
            });
            Self { recorder, wake, stop, ended }
        }

        fn wake(&self, name: &str) {
            self.wake.send(key(name)).unwrap();
        }

        /// Waits, and returns the passes since the last call and when they started.
        async fn passes_after(&self, seconds: u64) -> Vec<(String, u64)> {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            std::mem::take(&mut *self.recorder.passes.lock().unwrap())
        }
    }

    fn passes(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
        expected.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn objects_are_reconciled_when_requested_and_after_delays() {
        let bench = LoopBench::start(8, 0, &[Some(30), None, None, Some(400), None]);
        bench.wake("a");
        bench.wake("a");
        bench.wake("gone");
        assert_eq!(bench.passes_after(20).await, passes(&[("a", 1)]));
        assert_eq!(bench.passes_after(60).await, passes(&[("a", 31)]));
        bench.wake("a");
        assert_eq!(bench.passes_after(20).await, passes(&[("a", 80)]));
        // An earlier request replaces the delay.
        bench.wake("a");
        assert_eq!(bench.passes_after(100).await, passes(&[("a", 100)]));
        bench.wake("a");
        assert_eq!(bench.passes_after(1000).await, passes(&[("a", 200)]));
        bench.stop.send(true).unwrap();
        bench.ended.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn few_objects_are_reconciled_at_once_and_none_twice() {
        let bench = LoopBench::start(2, 10, &[]);
        ["a", "b", "c"].iter().for_each(|name| bench.wake(name));
        assert_eq!(bench.passes_after(5).await, passes(&[("a", 1), ("b", 1)]));
        bench.wake("a");
        let more = bench.passes_after(10).await;
        assert_eq!(more.len(), 2, "{more:?}");
        assert!(more.contains(&("a".to_owned(), 11)) && more.contains(&("c".to_owned(), 11)));
        // What is running ends, and nothing else starts.
        bench.wake("b");
        bench.stop.send(true).unwrap();
        bench.ended.await.unwrap();
        assert_eq!(bench.recorder.start.elapsed().as_secs(), 21);
        assert_eq!(bench.recorder.passes.lock().unwrap().as_slice(), []);
    }
}
