// SPDX-License-Identifier: Apache-2.0
//! Errors of interface calls. The caller adds the node.

use std::error::Error as StdError;

use node_model::{InterfaceKind, UnreachablePeer};

/// Why an interface call failed.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The BMC does not respond.
    #[error(
        "the BMC at {address} could not be reached while trying to {what}; check its address, its \
         network and that it is up"
    )]
    BmcUnreachable {
        /// The BMC's address.
        address: String,
        /// The operation: a verb and its object.
        what: String,
        /// The network error.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The agent does not respond.
    #[error(
        "the agent at {address} could not be reached while trying to {what}; the machine may have \
         crashed, lost its network or been switched off: look at its console"
    )]
    AgentUnreachable {
        /// The agent's URL.
        address: String,
        /// The operation: a verb and its object.
        what: String,
        /// The network error.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The BMC rejects the credentials.
    #[error(
        "the BMC at {address} rejected the credentials while trying to {what}; check the user name \
         and password in driver_info"
    )]
    CredentialsRejected {
        /// The BMC's address.
        address: String,
        /// The operation: a verb and its object.
        what: String,
    },
    /// The BMC's certificate is not trusted.
    #[error("the BMC at {address} could not be trusted while trying to {what}: {why}")]
    Untrusted {
        /// The BMC's address.
        address: String,
        /// The operation: a verb and its object.
        what: String,
        /// The defect of the certificate, and how to fix it.
        why: String,
    },
    /// The implementation does not support the operation.
    #[error(
        "the {interface} interface '{implementation}' cannot {what}; set {interface}_interface to \
         one that can"
    )]
    Unsupported {
        /// The interface.
        interface: InterfaceKind,
        /// Its implementation.
        implementation: &'static str,
        /// The operation: a verb and its object.
        what: String,
    },
    /// A value is invalid.
    #[error("'{name}' is invalid: {why}")]
    InvalidParameter {
        /// The key, with the object it is in where that is not obvious.
        name: String,
        /// What is invalid, and which values are valid.
        why: String,
    },
    /// A required value is missing.
    #[error("'{name}' is missing: {why}")]
    MissingParameter {
        /// The key, with the object it is in where that is not obvious.
        name: String,
        /// What the value is needed for.
        why: String,
    },
    /// The named component does not exist.
    #[error("the BMC has no {what}; {hint}")]
    NotFound {
        /// The kind of component and its name.
        what: String,
        /// How to list the existing ones.
        hint: String,
    },
    /// The machine failed or rejected the operation.
    #[error("failed to {what}: {why}")]
    Failed {
        /// The operation: a verb and its object.
        what: String,
        /// The reported reason, and what to try.
        why: String,
    },
}

impl DriverError {
    /// Whether a retry may succeed without any change.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        self.unreachable_peer().is_some()
    }

    /// The peer that did not respond; `None` for other errors.
    #[must_use]
    pub const fn unreachable_peer(&self) -> Option<UnreachablePeer> {
        match self {
            Self::BmcUnreachable { .. } => Some(UnreachablePeer::Bmc),
            Self::AgentUnreachable { .. } => Some(UnreachablePeer::Agent),
            Self::CredentialsRejected { .. }
            | Self::Untrusted { .. }
            | Self::Unsupported { .. }
            | Self::InvalidParameter { .. }
            | Self::MissingParameter { .. }
            | Self::NotFound { .. }
            | Self::Failed { .. } => None,
        }
    }

    /// Whether the request or the node's fields are the cause, not the machine. The API responds with
    /// 400.
    #[must_use]
    pub const fn is_caller_error(&self) -> bool {
        match self {
            Self::Unsupported { .. }
            | Self::InvalidParameter { .. }
            | Self::MissingParameter { .. } => true,
            Self::BmcUnreachable { .. }
            | Self::AgentUnreachable { .. }
            | Self::CredentialsRejected { .. }
            | Self::Untrusted { .. }
            | Self::NotFound { .. }
            | Self::Failed { .. } => false,
        }
    }

    /// Whether the requested component does not exist. The API responds with 404.
    #[must_use]
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// An [`DriverError::InvalidParameter`].
    pub fn invalid(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self::InvalidParameter { name: name.into(), why: why.into() }
    }

    /// An [`DriverError::Failed`].
    pub fn failed(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Failed { what: what.into(), why: why.into() }
    }

    /// An [`DriverError::MissingParameter`].
    pub fn missing(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self::MissingParameter { name: name.into(), why: why.into() }
    }
}
