// SPDX-License-Identifier: Apache-2.0
//! The workers of a store in a simulation: the same as on a server, on threads that run in simulated time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use super::job::{PendingRead, ReadJob, WriteJob};
use super::server_link::{RECONNECT_INTERVAL, ServerLink};
use super::thread_time;
use super::workers::{DatabaseJob, DatabaseServer, JobQueue, OUTAGE_TIMEOUT, ServerWorker};
use crate::clock::{FollowedClock, OBSERVATION_INTERVAL};
use crate::error::StoreError;
use crate::reader::StoreReader;
use crate::store::StoreShared;

/// The workers and their queue.
pub(crate) struct SimulatedPool(Arc<SimulatedPoolState>);

struct SimulatedPoolState {
    queue: JobQueue,
    link: Arc<ServerLink>,
    idle: Mutex<Vec<ServerWorker>>,
    /// As many as there are workers.
    permits: Semaphore,
}

impl SimulatedPool {
    /// Starts `connections` workers on the current runtime.
    pub(crate) fn start(
        server: DatabaseServer,
        connections: usize,
        shared: Arc<StoreShared>,
    ) -> Self {
        let link = Arc::new(ServerLink::new(server));
        let worker = |_| ServerWorker::new(Arc::clone(&link), Arc::clone(&shared));
        let state = Arc::new(SimulatedPoolState {
            queue: JobQueue::new(),
            idle: Mutex::new((0..connections).map(worker).collect()),
            permits: Semaphore::new(connections),
            link,
        });
        tokio::spawn(end_outages(Arc::clone(&state)));
        if let Some(clock) = shared.followed_clock.clone() {
            tokio::spawn(follow_clock(Arc::clone(&state), clock));
        }
        Self(state)
    }

    /// Queues a read.
    pub(crate) fn read(&self, job: Box<dyn ReadJob>) {
        self.0.push(DatabaseJob::Read(job));
    }

    /// Queues a transaction.
    pub(crate) fn write(&self, job: Box<dyn WriteJob>) {
        self.0.push(DatabaseJob::Write(job));
    }

    /// The number of jobs that wait for a worker.
    pub(crate) fn queued_jobs(&self) -> usize {
        self.0.queue.len()
    }
}

impl SimulatedPoolState {
    fn push(self: &Arc<Self>, job: DatabaseJob) {
        self.queue.push(job);
        let pool = Arc::clone(self);
        tokio::spawn(async move {
            // Never closed.
            let _permit = pool.permits.acquire().await;
            // The job may have failed meanwhile, because the database is down.
            let Some(job) = pool.queue.try_pop() else { return };
            let Some(mut worker) = pool.idle().pop() else { return };
            let worker = thread_time::run_simulated(move || {
                worker.execute(job);
                worker
            });
            let worker = worker.await;
            pool.idle().push(worker);
        });
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<ServerWorker>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects again when the database is down. Meanwhile it fails the jobs for which no worker is free.
async fn end_outages(pool: Arc<SimulatedPoolState>) {
    let interval = Duration::min(RECONNECT_INTERVAL, OUTAGE_TIMEOUT);
    loop {
        tokio::time::sleep(interval).await;
        let Some(outage) = pool.link.outage() else { continue };
        pool.queue.fail_older_than(OUTAGE_TIMEOUT, || StoreError::Unavailable(outage.clone()));
        let link = Arc::clone(&pool.link);
        // The session is closed again: what matters is the recorded state.
        thread_time::run_simulated(move || drop(link.connect())).await;
    }
}

/// Compares the time of the store with the clock of the server in regular intervals.
async fn follow_clock(pool: Arc<SimulatedPoolState>, clock: Arc<FollowedClock>) {
    loop {
        tokio::time::sleep(OBSERVATION_INTERVAL).await;
        let read = Arc::clone(&clock);
        let closure = move |reader: &mut StoreReader<'_>| read.read_server(reader.session);
        let (reply, result) = oneshot::channel();
        pool.push(DatabaseJob::Read(Box::new(PendingRead { closure, reply })));
        if let Ok(Ok(observed)) = result.await
            && let Some(observed) = observed.if_exact()
        {
            clock.observe(observed);
        }
    }
}
