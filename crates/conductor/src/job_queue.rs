// SPDX-License-Identifier: Apache-2.0
//! Starts queued jobs, oldest first, when others have ended.
//!
//! The limits hold for all processes together. Processes that start jobs at the same time may exceed a limit by a
//! few jobs. Which jobs run and wait is in the database, so a process that ends delays a job by a second at most. Each
//! process starts the jobs of the nodes that it can manage, so that a node without a process for it gets no place.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lifecycle::{
    Explanation, LifecycleSettings, job_limit, queue_job, start_queued_job, update_place,
};
use node_model::{JobCounts, JobQueue, Node, NodeId, WaitReason};
use store::{DueFilter, StoreError, StoreReader, StoreWriter};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::Conductor;
use crate::error::error_text;
use crate::scheduler::due_filter;

/// How often the queues are examined if no job of this process ends.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often nodes without a job are removed from the queues.
const REPAIR_INTERVAL: Duration = Duration::from_secs(60);
/// The maximum number of jobs that one transaction starts.
const BATCH_SIZE: u64 = 50;

/// The latest counts of the jobs in a queue, for metrics. They are those of all processes.
#[derive(Default, Debug)]
pub struct JobQueueCounters {
    running: AtomicU64,
    queued: AtomicU64,
}

impl JobQueueCounters {
    /// The counts.
    #[must_use]
    pub fn get(&self) -> JobCounts {
        JobCounts {
            running: self.running.load(Ordering::Relaxed),
            queued: self.queued.load(Ordering::Relaxed),
        }
    }

    fn set(&self, counts: JobCounts) {
        self.running.store(counts.running, Ordering::Relaxed);
        self.queued.store(counts.queued, Ordering::Relaxed);
    }
}

/// Gives a free place to a new job, or lets it wait behind the jobs that were queued earlier.
pub(crate) fn start_or_queue(
    conductor: &Conductor,
    tx: &mut StoreWriter<'_>,
    node: &mut Node,
    queue: JobQueue,
) -> Result<(), StoreError> {
    let now = tx.now();
    let is_free = tx.running_jobs(queue)? < job_limit(queue, &conductor.rules);
    if is_free && tx.next_queued_nodes(queue, &due_filter(conductor), 1)?.is_empty() {
        start_queued_job(node, queue, now);
    } else {
        queue_job(node, queue, now);
    }
    Ok(())
}

/// The jobs of every queue, for explanations.
pub(crate) struct QueueLoads(Vec<(JobQueue, JobCounts)>);

impl QueueLoads {
    pub(crate) fn read(reader: &mut StoreReader<'_>) -> Result<Self, StoreError> {
        let counts = |&queue: &JobQueue| Ok((queue, reader.job_counts(queue)?));
        Ok(Self(JobQueue::ALL.iter().map(counts).collect::<Result<_, StoreError>>()?))
    }

    /// Adds to the plan that the job would wait in its queue.
    pub(crate) fn add_to(&self, explanation: &mut Explanation, settings: &LifecycleSettings) {
        let Some((index, queue)) = explanation.queue else { return };
        let Some((_, counts)) = self.0.iter().find(|(found, _)| *found == queue) else { return };
        let limit = job_limit(queue, settings);
        if counts.queued > 0 || counts.running >= limit {
            let JobCounts { running, queued } = counts;
            let entry = format!(
                "wait: {} ({queue}: {running} of {limit} jobs run, {queued} wait)",
                WaitReason::JobQueue
            );
            explanation.plan.insert(index, entry);
        }
    }
}

/// Starts queued jobs until the conductor stops.
pub(crate) async fn run(conductor: Conductor, mut stopping: watch::Receiver<bool>) {
    let mut next_repair = Instant::now();
    loop {
        tokio::select! {
            biased;
            _ = stopping.changed() => return,
            () = conductor.job_ended.notified() => {}
            () = tokio::time::sleep(INTERVAL) => {}
        }
        if next_repair <= Instant::now() {
            next_repair = Instant::now() + REPAIR_INTERVAL;
            if let Err(error) = remove_ended_jobs(&conductor).await {
                tracing::warn!(error = error_text(&error), retry_in = ?REPAIR_INTERVAL, "job queues could not be repaired");
            }
        }
        for &queue in JobQueue::ALL {
            if let Err(error) = fill(&conductor, queue).await {
                tracing::warn!(%queue, error = error_text(&error), retry_in = ?INTERVAL, "queued jobs could not be started");
            }
        }
    }
}

/// Starts jobs until the limit of the queue is reached or none waits.
pub(crate) async fn fill(conductor: &Conductor, queue: JobQueue) -> Result<(), StoreError> {
    let limit = job_limit(queue, &conductor.rules);
    loop {
        // Most often nothing waits: a read does not compete with writes.
        let counts = conductor.store.read(move |reader| reader.job_counts(queue)).await?;
        conductor.counters.queue(queue).set(counts);
        if counts.queued == 0 || counts.running >= limit {
            return Ok(());
        }
        let filter = due_filter(conductor);
        let write = move |tx: &mut StoreWriter<'_>| start_next(tx, queue, &filter, limit);
        let started = conductor.store.write(write).await?;
        if started == 0 {
            return Ok(());
        }
        tracing::info!(%queue, jobs = started, "queued jobs started");
    }
}

/// Starts the jobs that have waited longest, and returns their number.
fn start_next(
    tx: &mut StoreWriter<'_>,
    queue: JobQueue,
    filter: &DueFilter,
    limit: u64,
) -> Result<usize, StoreError> {
    let free = limit.saturating_sub(tx.running_jobs(queue)?).min(BATCH_SIZE);
    let mut started = 0;
    for id in tx.next_queued_nodes(queue, filter, free)? {
        let Some(mut node) = tx.get(id)? else { continue };
        if node.queued_at.is_none() {
            // Another process started it meanwhile.
            continue;
        }
        if start_queued_job(&mut node, queue, tx.now()) {
            started += 1;
            tx.wake(id);
        } else if !update_place(&mut node) {
            continue;
        }
        tx.save(&mut node)?;
    }
    Ok(started)
}

/// Removes nodes without a job from the queues.
pub(crate) async fn remove_ended_jobs(conductor: &Conductor) -> Result<(), StoreError> {
    let ids: Vec<NodeId> =
        conductor.store.scan(|reader| reader.nodes_with_ended_jobs(BATCH_SIZE)).await?;
    if ids.is_empty() {
        return Ok(());
    }
    conductor
        .store
        .write(move |tx| {
            for &id in &ids {
                if let Some(mut node) = tx.get(id)?
                    && update_place(&mut node)
                {
                    tx.save(&mut node)?;
                }
            }
            Ok(())
        })
        .await
}
