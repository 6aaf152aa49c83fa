// SPDX-License-Identifier: Apache-2.0
//! Why something that was asked of a node could not be done.

use lifecycle::{PowerRefusal, Refusal};

/// Why a request about a node failed. Each names the machine and says what to try.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such node.
    #[error("Node {0} could not be found.")]
    NoSuchNode(String),
    /// The verb is refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The change of power is refused.
    #[error(transparent)]
    PowerRefused(#[from] PowerRefusal),
    /// The machine or its driver said no.
    #[error("node {node}: {source}")]
    Driver {
        /// Which machine.
        node: String,
        /// What was wrong.
        source: bmc_drivers::Error,
    },
    /// The node's interfaces cannot be composed into a driver.
    #[error("node {node}: {source}")]
    Selection {
        /// Which machine.
        node: String,
        /// What was wrong.
        source: bmc_drivers::SelectionError,
    },
    /// A request makes no sense for this node.
    #[error("node {node}: {why}")]
    Invalid {
        /// Which machine.
        node: String,
        /// What was wrong.
        why: String,
    },
    /// Too many jobs of this kind run already.
    #[error(
        "{running} machines are in {kind} already, and {limit} may be at once; try again when some \
         have ended, or raise {option}"
    )]
    Limit {
        /// Which kind of job.
        kind: &'static str,
        /// How many run.
        running: u64,
        /// How many may.
        limit: u64,
        /// The setting to change.
        option: &'static str,
    },
    /// The agent said something it must not.
    #[error("{0}")]
    Agent(String),
    /// The state does not allow it.
    #[error("{0}")]
    Conflict(String),
    /// It is on its way: trying again in a moment helps.
    #[error("{0}")]
    NotYet(String),
    /// The inspection data could not be used.
    #[error("{0}")]
    Inspection(String),
    /// The database failed.
    #[error("the database could not be used")]
    Store(#[from] store::Error),
}
