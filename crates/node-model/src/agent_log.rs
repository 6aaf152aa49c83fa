// SPDX-License-Identifier: Apache-2.0
//! What the ramdisk on a machine wrote down while it worked there.

use crate::named;
use crate::{AgentLogId, NodeId, Timestamp};

named! {
    /// What the ramdisk was there for.
    LogKind {
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

/// A log that was kept. Its content is a `tar.gz` archive, and is read on its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentLog {
    /// Its identity.
    pub id: AgentLogId,
    /// The machine.
    pub node_id: NodeId,
    /// When it came.
    pub created_at: Timestamp,
    /// What the ramdisk was there for.
    pub kind: LogKind,
    /// Why it was kept: what failed, or that all went well.
    pub why: String,
    /// How many bytes the archive has.
    pub size: i64,
}

/// How much of the logs is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptLogs {
    /// Logs of one node; the oldest go first.
    pub per_node: u32,
    /// Bytes of one log; a longer one is not kept.
    pub bytes: u64,
}

impl Default for KeptLogs {
    /// Enough to see what an operation and those before it did. A ramdisk's log has some hundred
    /// kilobytes.
    fn default() -> Self {
        Self { per_node: 5, bytes: 16 << 20 }
    }
}
