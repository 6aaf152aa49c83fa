// SPDX-License-Identifier: Apache-2.0
//! Logs of the ramdisk, collected at the end of a job.

use crate::named_enum;
use crate::{AgentLogId, NodeId, Timestamp};

named_enum! {
    /// The job in which the ramdisk ran.
    AgentLogKind {
        /// Inspection.
        Inspection = "inspection",
        /// Deployment.
        Deploy = "deploy",
        /// Cleaning.
        Clean = "clean",
        /// Rescue.
        Rescue = "rescue",
        /// Servicing.
        Service = "service",
    }
}

/// A stored log. Its content, a `tar.gz` archive, is read separately.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentLog {
    /// The id.
    pub id: AgentLogId,
    /// The node.
    pub node_id: NodeId,
    /// When it was received.
    pub created_at: Timestamp,
    /// The job in which the ramdisk ran.
    pub kind: AgentLogKind,
    /// Why it was stored: the failure of the job, or a note that it succeeded.
    pub reason: String,
    /// The size of the archive in bytes.
    pub size: i64,
}

/// Limits on stored logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AgentLogLimits {
    /// The number of logs per node; the oldest are deleted first.
    pub per_node: u32,
    /// The size of one log in bytes; a longer one is not stored.
    pub bytes: u64,
}

impl Default for AgentLogLimits {
    /// Covers the last job and those before it. The log of a ramdisk has a few hundred kilobytes.
    fn default() -> Self {
        Self { per_node: 5, bytes: 16 << 20 }
    }
}
