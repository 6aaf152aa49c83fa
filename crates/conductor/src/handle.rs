// SPDX-License-Identifier: Apache-2.0
//! The handle on a conductor, and its start and stop.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bmc_drivers::Registry;
use node_model::{Actor, Node, NodeId, Timestamp};
use store::{Clock, Owner, Store};
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::agent_lines::Said;
use crate::{Settings, console_record, consoles, membership, power_sync, scheduler};

/// A conductor: cheap to clone, shared by the API and the background tasks.
#[derive(Clone)]
pub struct Conductor(Arc<Inner>);

/// What all clones of a [`Conductor`] share.
pub struct Inner {
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) settings: Settings,
    pub(crate) rules: lifecycle::Settings,
    pub(crate) inspection: inspection::Settings,
    pub(crate) owner: Owner,
    pub(crate) clock: Clock,
    pub(crate) tally: Tally,
    pub(crate) said: Said,
    /// Direct calls that go on after their caller was answered.
    background: Mutex<JoinSet<()>>,
}

/// Counts for metrics.
#[derive(Default, Debug)]
pub struct Tally {
    /// Actions carried out.
    pub actions: AtomicU64,
    /// Actions that failed.
    pub failures: AtomicU64,
    /// Nodes being worked on right now.
    pub running: AtomicU64,
    /// Looks at a machine's power.
    pub power_looks: AtomicU64,
}

impl Tally {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl std::ops::Deref for Conductor {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl std::fmt::Debug for Conductor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conductor").field("hostname", &self.owner.hostname).finish_non_exhaustive()
    }
}

impl Conductor {
    /// A conductor that is not running yet.
    #[must_use]
    pub fn new(
        store: Store,
        registry: Registry,
        hostname: String,
        settings: Settings,
        rules: lifecycle::Settings,
        inspection: inspection::Settings,
        clock: Clock,
    ) -> Self {
        let agent_is_fresh = settings.ramdisk_heartbeat_timeout;
        let rules = lifecycle::Settings { agent_is_fresh, ..rules };
        Self(Arc::new(Inner {
            store,
            registry,
            settings,
            rules,
            inspection,
            owner: Owner { hostname, run: Uuid::new_v4() },
            clock,
            tally: Tally::default(),
            said: Said::default(),
            background: Mutex::default(),
        }))
    }

    /// Registers this process, takes up what an earlier run of it left, and starts looking after
    /// nodes. Everything stops when the returned [`Running`] is told to.
    pub async fn start(&self) -> Result<Running, store::Error> {
        membership::register(self).await?;
        membership::take_up(self).await?;
        self.take_up_allocations().await?;
        let (stop, stopping) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(scheduler::run(self.clone(), stopping.clone()));
        tasks.spawn(membership::run(self.clone(), stopping.clone()));
        tasks.spawn(consoles::run(self.clone(), stopping.clone()));
        tasks.spawn(console_record::run(self.clone(), stopping.clone()));
        tasks.spawn(power_sync::run(self.clone(), stopping));
        Ok(Running { conductor: self.clone(), stop, tasks })
    }

    /// The registry of drivers.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// How decisions are configured.
    #[must_use]
    pub fn rules(&self) -> &lifecycle::Settings {
        &self.rules
    }

    /// How this conductor is configured.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The name of this process.
    #[must_use]
    pub fn hostname(&self) -> &str {
        &self.owner.hostname
    }

    /// Counts for metrics.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Whether this process may work on `node`: it is of its group and it has its driver.
    pub(crate) fn can_drive(&self, node: &Node) -> bool {
        self.settings.conductor_group.eq_ignore_ascii_case(&node.conductor_group)
            && self.registry.has_driver(&node.driver)
    }

    /// Lets `work` go on after its caller was answered. Stopping waits for it as for jobs.
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

    /// A hint that a node may have something to do. Losing it costs only time.
    pub async fn wake(&self, node: NodeId) -> Result<(), store::Error> {
        self.store
            .write(move |tx| {
                tx.wake(node);
                Ok(())
            })
            .await
    }
}

/// A conductor at work.
#[derive(Debug)]
pub struct Running {
    conductor: Conductor,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Running {
    /// Stops taking up work, lets what is going on finish for at most `patience`, and says goodbye.
    /// What is not finished by then goes on where it was when the next process starts.
    pub async fn stop(mut self, patience: Duration) {
        // Nobody listening means that every task has ended already.
        let _ = self.stop.send(true);
        let background = &self.conductor.background;
        let mut direct_calls =
            std::mem::take(&mut *background.lock().unwrap_or_else(PoisonError::into_inner));
        let finished = async {
            while self.tasks.join_next().await.is_some() {}
            while direct_calls.join_next().await.is_some() {}
        };
        if tokio::time::timeout(patience, finished).await.is_err() {
            tracing::warn!("work still in flight is left to the next start");
            self.tasks.abort_all();
        }
        if let Err(error) = membership::leave(&self.conductor).await {
            tracing::warn!(%error, "could not say goodbye");
        }
    }
}
