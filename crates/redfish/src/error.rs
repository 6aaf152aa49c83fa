// SPDX-License-Identifier: Apache-2.0
//! Errors of requests to a BMC, with advice for the operator.
//!
//! They never contain passwords, session tokens or request bodies.

use std::path::PathBuf;

/// Why a request to a BMC failed.
#[derive(Debug, thiserror::Error)]
pub enum RedfishError {
    /// The address is invalid.
    #[error("{address:?} is not the address of a Redfish service: {why}")]
    BadAddress {
        /// The address, without a password.
        address: String,
        /// What is wrong with it.
        why: String,
    },
    /// No response: DNS, routing, connection or timeout.
    #[error("no response from the BMC at {address}: {why}")]
    Unreachable {
        /// The address of the BMC.
        address: String,
        /// The network error.
        why: String,
    },
    /// The certificate or the TLS handshake is invalid.
    #[error("no secure connection to the BMC at {address}: {why}")]
    Certificate {
        /// The address of the BMC.
        address: String,
        /// The defect of the certificate or the handshake, and advice.
        why: String,
    },
    /// The trusted CA certificates could not be read.
    #[error(
        "the CA certificates in {} cannot be used: {why}; check redfish_verify_ca",
        path.display()
    )]
    BadTrust {
        /// The file or directory with the certificates.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The BMC rejects the credentials, also after a new login.
    #[error(
        "the BMC at {address} rejects the credentials; check redfish_username and redfish_password"
    )]
    Unauthorized {
        /// The address of the BMC.
        address: String,
    },
    /// The user is not allowed to do this.
    #[error(
        "the BMC does not let this user {method} {path}: {message}; a user with more rights is \
         needed"
    )]
    Forbidden {
        /// The method of the request.
        method: String,
        /// The path of the request.
        path: String,
        /// The message of the BMC.
        message: String,
    },
    /// Session authentication is required, but the BMC opens no session.
    #[error("the BMC at {address} opens no session: {why}; set redfish_auth_type to basic or auto")]
    NoSession {
        /// The address of the BMC.
        address: String,
        /// The response of the BMC.
        why: String,
    },
    /// The resource does not exist.
    #[error("the BMC has no {path}")]
    NotFound {
        /// The path of the request.
        path: String,
    },
    /// The BMC returned an error.
    #[error("the BMC returned {status} to {method} {path}: {message}")]
    Refused {
        /// The method of the request.
        method: String,
        /// The path of the request.
        path: String,
        /// The HTTP status.
        status: u16,
        /// The message ids of the response, such as `Base.1.8.ActionNotSupported`.
        code: Vec<String>,
        /// The message of the BMC, truncated.
        message: String,
    },
    /// The BMC redirects to another host, which must not get our credentials.
    #[error(
        "the BMC redirects {path} to {to}; if that is the right place, make it the redfish_address"
    )]
    Redirected {
        /// The path of the request.
        path: String,
        /// The target of the redirect.
        to: String,
    },
    /// The response is not valid Redfish.
    #[error("the response of the BMC for {path} is invalid: {why}")]
    Garbled {
        /// The path of the request.
        path: String,
        /// The defect.
        why: String,
    },
    /// The response exceeds the size limit.
    #[error("the response of the BMC for {path} is larger than {limit} bytes")]
    TooLarge {
        /// The path of the request.
        path: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// A collection exceeds the limit, or its pages form a loop.
    #[error("the collection {path} has more than {limit} members or leads back to itself")]
    Endless {
        /// The collection.
        path: String,
        /// The limit of members.
        limit: usize,
    },
    /// The BMC does not have the requested system.
    #[error("the BMC has no system {wanted:?}; set redfish_system_id to one of {}", listed(known))]
    NoSuchSystem {
        /// The requested path or id.
        wanted: String,
        /// The paths of the existing systems.
        known: Vec<String>,
    },
    /// The BMC lists no systems.
    #[error("the BMC at {address} lists no systems")]
    NoSystems {
        /// The address of the BMC.
        address: String,
    },
    /// The BMC has several systems, and the request names none.
    #[error("the BMC has several systems; set redfish_system_id to one of {}", listed(known))]
    SeveralSystems {
        /// The paths of the systems.
        known: Vec<String>,
    },
    /// The client is shutting down.
    #[error("the client of the BMC at {address} is shutting down")]
    Closed {
        /// The address of the BMC.
        address: String,
    },
}

impl RedfishError {
    /// The HTTP status of the response, if there was one.
    #[must_use]
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::Unauthorized { .. } => Some(401),
            Self::Forbidden { .. } => Some(403),
            Self::NotFound { .. } => Some(404),
            Self::BadAddress { .. }
            | Self::Unreachable { .. }
            | Self::Certificate { .. }
            | Self::BadTrust { .. }
            | Self::NoSession { .. }
            | Self::Redirected { .. }
            | Self::Garbled { .. }
            | Self::TooLarge { .. }
            | Self::Endless { .. }
            | Self::NoSuchSystem { .. }
            | Self::NoSystems { .. }
            | Self::SeveralSystems { .. }
            | Self::Closed { .. } => None,
        }
    }

    /// Returns whether the error response contains this message id, in any registry and version:
    /// `ActionNotSupported` matches `Base.1.8.ActionNotSupported`.
    #[must_use]
    pub fn has_message_id(&self, message: &str) -> bool {
        let Self::Refused { code, .. } = self else { return false };
        code.iter().any(|id| id.rsplit('.').next() == Some(message))
    }
}

fn listed(known: &[String]) -> String {
    if known.is_empty() { "none: it lists no systems".to_owned() } else { known.join(", ") }
}
