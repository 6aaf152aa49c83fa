// SPDX-License-Identifier: Apache-2.0
//! Errors of requests to the conductor.

use std::borrow::Cow;

use error_chain::error_chain;
use lifecycle::{PowerRequestError, ProvisionRequestError};

/// Why a request about a node failed.
#[derive(Debug, thiserror::Error)]
pub enum ConductorError {
    /// The node does not exist.
    #[error("Node {0} could not be found.")]
    NoSuchNode(String),
    /// The provision request is rejected.
    #[error(transparent)]
    ProvisionRejected(#[from] ProvisionRequestError),
    /// The power request is rejected.
    #[error(transparent)]
    PowerRejected(#[from] PowerRequestError),
    /// A driver call failed.
    #[error("node {node}: {source}")]
    Driver {
        /// The node.
        node: String,
        /// The cause.
        source: drivers::DriverError,
    },
    /// The node's interfaces cannot be composed into a driver.
    #[error("node {node}: {source}")]
    Selection {
        /// The node.
        node: String,
        /// The cause.
        source: drivers::DriverSelectionError,
    },
    /// The request is not valid for this node.
    #[error("node {node}: {why}")]
    Invalid {
        /// The node.
        node: String,
        /// The reason.
        why: String,
    },
    /// An agent's request is rejected.
    #[error("{0}")]
    Agent(String),
    /// The state of the node does not allow the request.
    #[error("{0}")]
    Conflict(String),
    /// The request cannot be served yet; a retry helps.
    #[error("{0}")]
    NotYet(String),
    /// The inspection data are not usable.
    #[error("{0}")]
    Inspection(String),
    /// The database failed.
    #[error("the database could not be used")]
    Store(#[from] store::StoreError),
}

/// Why a conductor could not start.
#[derive(Debug, thiserror::Error)]
pub enum ConductorStartError {
    /// Another process with the same name uses the database.
    #[error(
        "another running process that uses the database has the name {hostname}; stop it, or give this one \
         another name with conductor.host"
    )]
    NameInUse {
        /// The name.
        hostname: String,
    },
    /// The database failed.
    #[error("the database could not be used")]
    Store(#[from] store::StoreError),
}

impl ConductorError {
    /// Whether the driver does not support the call.
    #[must_use]
    pub const fn is_unsupported(&self) -> bool {
        matches!(self, Self::Driver { source: drivers::DriverError::Unsupported { .. }, .. })
    }
}

/// An error with its causes, for logs and users. Passwords of URLs are masked.
pub(crate) fn error_text(error: &(dyn std::error::Error + 'static)) -> String {
    let text = error_chain(error);
    match node_model::mask_urls(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(masked) => masked,
    }
}
