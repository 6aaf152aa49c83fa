// SPDX-License-Identifier: Apache-2.0
//! Queues of jobs that are limited in number.

use crate::{Timestamp, WorkKind, named_enum};

named_enum! {
    /// The jobs that share a limit. Jobs beyond it wait, oldest first.
    JobQueue {
        /// Deployments and rebuilds.
        Deploy = "deploy",
        /// Automated and manual cleaning.
        Clean = "clean",
    }
}

impl JobQueue {
    /// The queue of a kind of job; `None` if it is not limited.
    #[must_use]
    pub const fn of(kind: WorkKind) -> Option<Self> {
        match kind {
            WorkKind::Deploy | WorkKind::Rebuild => Some(Self::Deploy),
            WorkKind::Clean | WorkKind::ManualClean => Some(Self::Clean),
            WorkKind::Verify
            | WorkKind::Inspect
            | WorkKind::TearDown
            | WorkKind::Rescue
            | WorkKind::Unrescue
            | WorkKind::Adopt
            | WorkKind::Service => None,
        }
    }
}

/// The jobs of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JobCounts {
    /// Jobs that were started.
    pub running: u64,
    /// Jobs that wait.
    pub queued: u64,
}

/// The position of a job that waits in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePosition {
    /// The queue.
    pub queue: JobQueue,
    /// 1 for the job that has waited longest.
    pub position: u64,
    /// The number of jobs that wait in the queue.
    pub length: u64,
    /// Since when it waits.
    pub since: Timestamp,
}
