// SPDX-License-Identifier: Apache-2.0
//! Why a machine did not do what it was asked to.
//!
//! The caller knows which machine it was and says so when it passes the error on.

use std::error::Error as StdError;

use node_model::{InterfaceKind, Silent};

/// Why a call of an interface failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The BMC does not answer.
    #[error(
        "the BMC at {address} could not be reached while trying to {what}; check its address, its \
         network and that it is up"
    )]
    Unreachable {
        /// Where it should be.
        address: String,
        /// What was wanted of it.
        what: String,
        /// What the network said.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The agent does not answer.
    #[error(
        "the agent at {address} could not be reached while trying to {what}; the machine may have \
         crashed, lost its network or been switched off: look at its console"
    )]
    AgentSilent {
        /// Where it should be.
        address: String,
        /// What was wanted of it.
        what: String,
        /// What the network said.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The BMC answers and does not let us in.
    #[error(
        "the BMC at {address} refused the credentials while asked to {what}; check the user name \
         and password in driver_info"
    )]
    Refused {
        /// Where it is.
        address: String,
        /// What was wanted of it.
        what: String,
    },
    /// The BMC cannot prove who it is.
    #[error("the BMC at {address} could not be trusted while trying to {what}: {why}")]
    Untrusted {
        /// Where it is.
        address: String,
        /// What was wanted of it.
        what: String,
        /// What is wrong with its certificate, and what to do about it.
        why: String,
    },
    /// This implementation never can.
    #[error(
        "the {interface} interface '{implementation}' cannot {what}; set {interface}_interface to \
         one that can"
    )]
    Unsupported {
        /// Which interface.
        interface: InterfaceKind,
        /// Its implementation.
        implementation: &'static str,
        /// What was wanted of it.
        what: String,
    },
    /// A value is wrong.
    #[error("'{name}' is invalid: {why}")]
    InvalidParameter {
        /// The key, with the object it is in where that is not obvious.
        name: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// A value is needed and not there.
    #[error("'{name}' is missing: {why}")]
    MissingParameter {
        /// The key, with the object it is in where that is not obvious.
        name: String,
        /// What it is needed for.
        why: String,
    },
    /// What was named is not there.
    #[error("the BMC has no {what}; {hint}")]
    NotFound {
        /// The thing, with its name.
        what: String,
        /// How to find out what there is.
        hint: String,
    },
    /// The machine tried and failed, or said no.
    #[error("failed to {what}: {why}")]
    Failed {
        /// What was wanted of it.
        what: String,
        /// What it said, and what to try.
        why: String,
    },
}

impl Error {
    /// Whether trying the same again later may succeed without anybody changing anything.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        self.silent().is_some()
    }

    /// Who did not answer, if that is what went wrong.
    #[must_use]
    pub const fn silent(&self) -> Option<Silent> {
        match self {
            Self::Unreachable { .. } => Some(Silent::Bmc),
            Self::AgentSilent { .. } => Some(Silent::Agent),
            Self::Refused { .. }
            | Self::Untrusted { .. }
            | Self::Unsupported { .. }
            | Self::InvalidParameter { .. }
            | Self::MissingParameter { .. }
            | Self::NotFound { .. }
            | Self::Failed { .. } => None,
        }
    }

    /// Whether the request or the node's fields are at fault rather than the machine: what an API
    /// answers with 400.
    #[must_use]
    pub const fn is_callers_fault(&self) -> bool {
        match self {
            Self::Unsupported { .. }
            | Self::InvalidParameter { .. }
            | Self::MissingParameter { .. } => true,
            Self::Unreachable { .. }
            | Self::AgentSilent { .. }
            | Self::Refused { .. }
            | Self::Untrusted { .. }
            | Self::NotFound { .. }
            | Self::Failed { .. } => false,
        }
    }

    /// Whether what was asked for is not there: what an API answers with 404.
    #[must_use]
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    pub(crate) fn invalid(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self::InvalidParameter { name: name.into(), why: why.into() }
    }

    pub(crate) fn failed(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Failed { what: what.into(), why: why.into() }
    }

    pub(crate) fn missing(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self::MissingParameter { name: name.into(), why: why.into() }
    }
}
