// SPDX-License-Identifier: Apache-2.0
//! The conductor's handle, and its start and stop.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use drivers::DriverRegistry;
use lifecycle::LifecycleSettings;
use node_model::{Actor, JobQueue, Node, NodeId, Timestamp};
use store::{LeaseOwner, SessionRenewals, Store, StoreClock};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::agent_log_tail::AgentLogTails;
use crate::agent_proof::RefusalNotes;
use crate::error::{ConductorStartError, error_text};
use crate::job_queue::JobQueueCounters;
use crate::session::ConductorSession;
use crate::{
    ConductorSettings, console_recorder, consoles, deployments, job_queue, maintenance, membership,
    power_sync, scheduler,
};

/// How long cancelled work may take to end when the process stops.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a stopping process waits for the end of its session. Others end it if the database is away.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// A handle of the conductor, shared by the API and the background tasks. Clones are cheap.
#[derive(Clone)]
pub struct Conductor(Arc<ConductorInner>);

/// The state that all clones of a [`Conductor`] share.
pub struct ConductorInner {
    pub(crate) store: Store,
    pub(crate) registry: DriverRegistry,
    pub(crate) settings: ConductorSettings,
    pub(crate) rules: LifecycleSettings,
    pub(crate) inspection: inspection::InspectionSettings,
    pub(crate) owner: LeaseOwner,
    pub(crate) session: Arc<ConductorSession>,
    pub(crate) clock: StoreClock,
    pub(crate) counters: ConductorCounters,
    pub(crate) agent_log_tails: AgentLogTails,
    pub(crate) refusal_notes: RefusalNotes,
    /// Wakes the task that runs deployments.
    pub(crate) deployments_changed: Notify,
    /// Wakes the task that starts queued jobs.
    pub(crate) job_ended: Notify,
    /// Direct calls that continue after their caller got a response.
    background: Mutex<JoinSet<()>>,
}

/// What a conductor is made of.
pub struct ConductorParts {
    /// The database.
    pub store: Store,
    /// The drivers.
    pub registry: DriverRegistry,
    /// The unique name of this process.
    pub hostname: String,
    /// Settings of the conductor.
    pub settings: ConductorSettings,
    /// Settings of decisions.
    pub rules: LifecycleSettings,
    /// Settings of inspections.
    pub inspection: inspection::InspectionSettings,
    /// The source of the current time.
    pub clock: StoreClock,
}

/// Counters for metrics.
#[derive(Default, Debug)]
pub struct ConductorCounters {
    /// Executed actions.
    pub actions: AtomicU64,
    /// Failed actions.
    pub failures: AtomicU64,
    /// Nodes with a running task.
    pub running: AtomicU64,
    /// Power polls.
    pub power_polls: AtomicU64,
    /// Searches for due nodes.
    pub searches: AtomicU64,
    deployments: JobQueueCounters,
    cleanings: JobQueueCounters,
}

impl ConductorCounters {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// The jobs of a queue.
    #[must_use]
    pub const fn queue(&self, queue: JobQueue) -> &JobQueueCounters {
        match queue {
            JobQueue::Deploy => &self.deployments,
            JobQueue::Clean => &self.cleanings,
        }
    }
}

impl std::ops::Deref for Conductor {
    type Target = ConductorInner;
    fn deref(&self) -> &ConductorInner {
        &self.0
    }
}

impl std::fmt::Debug for Conductor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conductor").field("hostname", &self.owner.hostname).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ConductorParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConductorParts").field("hostname", &self.hostname).finish_non_exhaustive()
    }
}

impl Conductor {
    /// A conductor that is not started.
    #[must_use]
    pub fn new(parts: ConductorParts) -> Self {
        let ConductorParts { store, registry, hostname, settings, rules, inspection, clock } =
            parts;
        let heartbeat_timeout = settings.ramdisk_heartbeat_timeout;
        let monotonic = store.monotonic_clock();
        let rules = LifecycleSettings { heartbeat_timeout, ..rules };
        Self(Arc::new(ConductorInner {
            store,
            registry,
            settings,
            rules,
            inspection,
            owner: LeaseOwner { hostname, run: Uuid::new_v4() },
            session: Arc::new(ConductorSession::new(monotonic)),
            clock,
            counters: ConductorCounters::default(),
            agent_log_tails: AgentLogTails::default(),
            refusal_notes: RefusalNotes::default(),
            deployments_changed: Notify::new(),
            job_ended: Notify::new(),
            background: Mutex::default(),
        }))
    }

    /// Starts as the first process of its name. See [`Self::start_after`].
    pub async fn start(&self) -> Result<RunningConductor, ConductorStartError> {
        self.start_after(None).await
    }

    /// Begins the session of this process, releases the leases of its previous run, and starts the
    /// background tasks. They run until [`RunningConductor::stop`].
    ///
    /// `previous_run` is a run that is known to have ended. If another run with the same name has a session,
    /// this waits until that is known to be dead, and fails if it is not.
    pub async fn start_after(
        &self,
        previous_run: Option<Uuid>,
    ) -> Result<RunningConductor, ConductorStartError> {
        membership::begin(self, previous_run).await?;
        self.resume_allocations().await?;
        let (renewals, events) = membership::start_renewals(self);
        let (stop, stopping) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(scheduler::run(self.clone(), stopping.clone()));
        tasks.spawn(membership::run(self.clone(), events, stopping.clone()));
        tasks.spawn(maintenance::run(self.clone(), stopping.clone()));
        tasks.spawn(consoles::run(self.clone(), stopping.clone()));
        tasks.spawn(console_recorder::run(self.clone(), stopping.clone()));
        tasks.spawn(deployments::run(self.clone(), stopping.clone()));
        tasks.spawn(job_queue::run(self.clone(), stopping.clone()));
        tasks.spawn(power_sync::run(self.clone(), stopping));
        Ok(RunningConductor { conductor: self.clone(), stop, tasks, renewals })
    }

    /// Closes all BMC sessions at shutdown: BMCs have few sessions, and unclosed ones last half an
    /// hour. Returns within a few seconds.
    pub async fn close_bmc_sessions(&self) {
        self.registry.close().await;
    }

    /// The id of this run of the process.
    #[must_use]
    pub fn run_id(&self) -> Uuid {
        self.owner.run
    }

    /// The settings of decisions.
    #[must_use]
    pub fn rules(&self) -> &LifecycleSettings {
        &self.rules
    }

    /// The settings of this conductor.
    #[must_use]
    pub fn settings(&self) -> &ConductorSettings {
        &self.settings
    }

    /// The name of this process.
    #[must_use]
    pub fn hostname(&self) -> &str {
        &self.owner.hostname
    }

    /// Counters for metrics.
    #[must_use]
    pub fn counters(&self) -> &ConductorCounters {
        &self.counters
    }

    /// Whether this process can manage `node`: it has the node's group and driver.
    pub(crate) fn can_drive(&self, node: &Node) -> bool {
        self.settings.conductor_group.eq_ignore_ascii_case(&node.conductor_group)
            && self.registry.has_driver(&node.driver)
    }

    /// Runs `work` in the background. [`RunningConductor::stop`] waits for it.
    pub(crate) fn in_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut background = self.background.lock().unwrap_or_else(PoisonError::into_inner);
        while background.try_join_next().is_some() {}
        background.spawn(work);
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    pub(crate) fn actor(&self) -> Actor {
        Actor::Conductor { hostname: self.owner.hostname.clone() }
    }

    pub(crate) fn lease_time(&self) -> Duration {
        Duration::from_secs(self.settings.lease_seconds.max(3))
    }

    /// Wakes a node that may be due. If the wake-up is lost, the search for due nodes finds it.
    pub async fn wake(&self, node: NodeId) -> Result<(), store::StoreError> {
        self.store
            .write(move |tx| {
                tx.wake(node);
                Ok(())
            })
            .await
    }
}

/// A started conductor.
#[derive(Debug)]
pub struct RunningConductor {
    conductor: Conductor,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    renewals: Option<SessionRenewals>,
}

impl RunningConductor {
    /// Stops starting work.
    pub fn begin_stop(&self) {
        self.conductor.session.drain();
        // Sending fails only if all tasks have ended already.
        let _ = self.stop.send(true);
    }

    /// Stops starting work, waits at most `timeout` for running actions, cancels the others, and ends the
    /// session of this process. Unfinished jobs continue in other processes, or at the next start.
    pub async fn stop(mut self, timeout: Duration) {
        self.begin_stop();
        let background = &self.conductor.background;
        let mut direct_calls =
            std::mem::take(&mut *background.lock().unwrap_or_else(PoisonError::into_inner));
        let mut finished = async || {
            while self.tasks.join_next().await.is_some() {}
            while direct_calls.join_next().await.is_some() {}
        };
        if tokio::time::timeout(timeout, finished()).await.is_err() {
            tracing::warn!(?timeout, "stopping with unfinished work, which others continue");
            self.conductor.session.close();
            // Cancelled work ends by itself, unless it waits for the database.
            let _ = tokio::time::timeout(CANCEL_TIMEOUT, finished()).await;
            self.tasks.abort_all();
            direct_calls.abort_all();
        }
        self.conductor.session.close();
        if let Some(renewals) = self.renewals.take() {
            // Fails only after a panic.
            let _ = tokio::task::spawn_blocking(move || renewals.stop()).await;
        }
        match tokio::time::timeout(END_TIMEOUT, membership::end(&self.conductor)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = error_text(&error), "session could not be ended");
            }
            Err(_) => tracing::warn!(timeout = ?END_TIMEOUT, "session could not be ended in time"),
        }
    }
}
