// SPDX-License-Identifier: Apache-2.0
//! Limits on the number of jobs: which jobs need a free place, and how they wait for one.
//!
//! [`settle`](crate::settle) returns [`SettleResult::NeedsPlace`](crate::SettleResult::NeedsPlace) before the first action of
//! a limited job. The conductor, which can count jobs, then calls [`start_queued_job`] or [`queue_job`].

use node_model::{JobQueue, Node, Stage, Timestamp, WaitReason};

use crate::LifecycleSettings;
use crate::record::begin_wait;

/// The maximum number of jobs of a queue that run at once.
#[must_use]
pub const fn job_limit(queue: JobQueue, settings: &LifecycleSettings) -> u64 {
    match queue {
        JobQueue::Deploy => settings.max_concurrent_deploy,
        JobQueue::Clean => settings.max_concurrent_clean,
    }
}

/// The queue whose place the job needs before its next action.
pub(crate) fn needed_place(node: &Node) -> Option<JobQueue> {
    let work = node.work.as_ref()?;
    let queue = JobQueue::of(work.kind)?;
    let has_place = node.job_queue == Some(queue) && node.queued_at.is_none();
    (work.stage == Stage::Prepare && !has_place).then_some(queue)
}

/// Gives a place to the job. Returns false if it does not wait for one.
pub fn start_queued_job(node: &mut Node, queue: JobQueue, now: Timestamp) -> bool {
    if needed_place(node) != Some(queue) {
        return false;
    }
    if let Some(work) = &mut node.work {
        work.awaiting = false;
        work.since = now;
    }
    node.job_queue = Some(queue);
    node.queued_at = None;
    node.due_at = Some(now);
    true
}

/// Puts the job at the end of its queue.
pub fn queue_job(node: &mut Node, queue: JobQueue, now: Timestamp) {
    node.job_queue = Some(queue);
    node.queued_at = Some(now);
    begin_wait(node, WaitReason::JobQueue, None, now);
}

/// Updates the place after the job changed. Returns whether anything changed.
///
/// A job that has ended, was aborted in the queue, or became one of another queue gives back its place. A job that has
/// no place although it is past its first stage was started by an earlier version: it is counted from now on.
pub fn update_place(node: &mut Node) -> bool {
    let before = (node.job_queue, node.queued_at);
    let work = node.work.as_ref();
    let queue = work.and_then(|work| JobQueue::of(work.kind));
    let stage = work.map(|work| work.stage);
    if node.job_queue != queue || (node.queued_at.is_some() && stage != Some(Stage::Prepare)) {
        node.job_queue = None;
        node.queued_at = None;
    }
    if matches!(stage, Some(Stage::Plan | Stage::Run | Stage::Finish)) {
        node.job_queue = queue;
    }
    (node.job_queue, node.queued_at) != before
}
