// SPDX-License-Identifier: Apache-2.0
//! What can go wrong between us and a BMC, in words an operator can act on.
//!
//! Nothing secret is ever inside: no password, no session token, no request body.

use std::path::PathBuf;

/// Why a BMC did not do or say what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be one of a BMC.
    #[error("{address:?} is not the address of a Redfish service: {why}")]
    BadAddress {
        /// The address as given, without any password in it.
        address: String,
        /// What is wrong with it.
        why: String,
    },
    /// No answer came: no name, no route, no listener, a reset or a timeout.
    #[error("no answer from the BMC at {address}: {why}")]
    Unreachable {
        /// Where the BMC should be.
        address: String,
        /// What the network said, in words.
        why: String,
    },
    /// TLS could not be agreed on: the certificate or the handshake.
    #[error("no secure connection to the BMC at {address}: {why}")]
    Certificate {
        /// Where the BMC is.
        address: String,
        /// What is wrong with the certificate or the handshake, and what to do about it.
        why: String,
    },
    /// The CA certificates to trust could not be read.
    #[error(
        "the CA certificates in {} cannot be used: {why}; check redfish_verify_ca",
        path.display()
    )]
    BadTrust {
        /// The file or directory that was to hold them.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The BMC wants a user name and a password other than ours, also after logging in anew.
    #[error(
        "the BMC at {address} rejects the credentials; check redfish_username and redfish_password"
    )]
    Unauthorized {
        /// Where the BMC is.
        address: String,
    },
    /// The credentials are good, and not good enough for this.
    #[error(
        "the BMC does not let this user {method} {path}: {message}; a user with more rights is \
         needed"
    )]
    Forbidden {
        /// The method that was refused.
        method: String,
        /// The path it was refused for.
        path: String,
        /// What the BMC said about it.
        message: String,
    },
    /// Session authentication was asked for and the BMC gives no session.
    #[error("the BMC at {address} opens no session: {why}; set redfish_auth_type to basic or auto")]
    NoSession {
        /// Where the BMC is.
        address: String,
        /// What it did instead.
        why: String,
    },
    /// There is no such resource.
    #[error("the BMC has no {path}")]
    NotFound {
        /// The path that was asked for.
        path: String,
    },
    /// The BMC answered with an error.
    #[error("the BMC answered {status} to {method} {path}: {message}")]
    Refused {
        /// The method of the request.
        method: String,
        /// The path of the request.
        path: String,
        /// The HTTP status.
        status: u16,
        /// The message ids in the answer, such as `Base.1.8.ActionNotSupported`.
        code: Vec<String>,
        /// What the BMC said, shortened.
        message: String,
    },
    /// The BMC sends us to another host, where our credentials do not belong.
    #[error(
        "the BMC redirects {path} to {to}; if that is the right place, make it the redfish_address"
    )]
    Redirected {
        /// The path that was asked for.
        path: String,
        /// Where it was redirected to.
        to: String,
    },
    /// The answer is not what a Redfish service sends.
    #[error("the BMC's answer for {path} cannot be read: {why}")]
    Garbled {
        /// The path that was asked for.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The answer is larger than any resource has reason to be.
    #[error("the BMC's answer for {path} is larger than {limit} bytes")]
    TooLarge {
        /// The path that was asked for.
        path: String,
        /// How many bytes would have been read.
        limit: usize,
    },
    /// A collection goes on and on.
    #[error("the collection {path} has more than {limit} members or leads back to itself")]
    Endless {
        /// The collection.
        path: String,
        /// How many members would have been read.
        limit: usize,
    },
    /// The BMC does not have the system it was asked for.
    #[error("the BMC has no system {wanted:?}; set redfish_system_id to one of {}", listed(known))]
    NoSuchSystem {
        /// The path or id asked for.
        wanted: String,
        /// The paths of the systems it has.
        known: Vec<String>,
    },
    /// The BMC lists no systems at all.
    #[error("the BMC at {address} lists no systems")]
    NoSystems {
        /// Where the BMC is.
        address: String,
    },
    /// The BMC has several systems and none was named.
    #[error("the BMC has several systems; set redfish_system_id to one of {}", listed(known))]
    SeveralSystems {
        /// The paths of the systems it has.
        known: Vec<String>,
    },
    /// Our side is going away: no more requests are let through to this BMC.
    #[error("requests to the BMC at {address} are no longer let through")]
    Closed {
        /// Where the BMC is.
        address: String,
    },
}

impl Error {
    /// The HTTP status the BMC answered with, where it did answer.
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

    /// Whether the BMC's refusal carries this message, whichever registry and version it is from:
    /// `says("ActionNotSupported")` matches `Base.1.8.ActionNotSupported`.
    #[must_use]
    pub fn says(&self, message: &str) -> bool {
        let Self::Refused { code, .. } = self else { return false };
        code.iter().any(|id| id.rsplit('.').next() == Some(message))
    }
}

fn listed(known: &[String]) -> String {
    if known.is_empty() { "none: it lists no systems".to_owned() } else { known.join(", ") }
}
