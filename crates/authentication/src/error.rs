// SPDX-License-Identifier: Apache-2.0
//! Why a caller is not authenticated, and why authentication cannot be set up.

use std::path::PathBuf;
use std::time::Duration;

use http::StatusCode;

use crate::htpasswd::HtpasswdError;
use crate::password::PasswordError;
use crate::token_format::RandomError;

/// Why a caller is not authenticated. The messages of 401 are Ironic's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// No credentials.
    #[error("Authorization required")]
    Missing,
    /// User name or password is wrong.
    #[error("Incorrect username or password")]
    WrongCredentials,
    /// The token does not exist.
    #[error("The token is unknown, expired or revoked")]
    WrongToken,
    /// A token of an identity provider does not comply with the settings.
    #[error("The token is not accepted: {problem}")]
    RejectedToken {
        /// What is wrong.
        problem: &'static str,
    },
    /// The user of a client certificate does not exist or is disabled.
    #[error("The user of the client certificate does not exist or is disabled")]
    UnknownCertificateUser,
    /// An `Authorization` scheme that no enabled method has.
    #[error("Only HTTP basic authorization is understood here")]
    UnsupportedScheme,
    /// The credentials cannot be decoded.
    #[error("The Authorization header cannot be decoded")]
    Malformed,
    /// The scope header is not a project name.
    #[error("X-Ferrite-Project must be `system` or the name of a project")]
    InvalidScope,
    /// The user has no role in the requested scope.
    #[error("The user has no role in the scope {scope}")]
    NoRole {
        /// `system` or a project.
        scope: String,
    },
    /// Too many failed sign-ins of this user or from this address.
    #[error("Too many failed sign-ins from this address or of this user; try again later")]
    TooManyAttempts,
    /// Too many sign-ins are waiting.
    #[error("Too many sign-ins are being checked; try again soon")]
    Busy,
    /// An identity service, such as Keystone, does not respond.
    #[error(
        "The token cannot be checked now: the {service} service does not respond; try again later"
    )]
    IdentityServiceDown {
        /// The service.
        service: &'static str,
    },
    /// The identity provider did not sign the user in.
    #[error("The sign-in failed: {problem}")]
    SignInFailed {
        /// The reason.
        problem: String,
    },
    /// The user database does not respond.
    #[error("The credentials cannot be checked now: the database does not respond")]
    Unavailable,
}

impl AuthError {
    /// The HTTP status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Missing
            | Self::WrongCredentials
            | Self::WrongToken
            | Self::RejectedToken { .. }
            | Self::UnknownCertificateUser
            | Self::SignInFailed { .. } => StatusCode::UNAUTHORIZED,
            Self::UnsupportedScheme | Self::Malformed | Self::InvalidScope => {
                StatusCode::BAD_REQUEST
            }
            Self::NoRole { .. } => StatusCode::FORBIDDEN,
            Self::TooManyAttempts => StatusCode::TOO_MANY_REQUESTS,
            Self::Busy | Self::Unavailable | Self::IdentityServiceDown { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// After which time the client should retry.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooManyAttempts => Some(Duration::from_secs(10)),
            Self::Busy | Self::Unavailable => Some(Duration::from_secs(1)),
            Self::IdentityServiceDown { .. } => Some(Duration::from_secs(5)),
            Self::Missing
            | Self::WrongCredentials
            | Self::WrongToken
            | Self::RejectedToken { .. }
            | Self::UnknownCertificateUser
            | Self::UnsupportedScheme
            | Self::Malformed
            | Self::InvalidScope
            | Self::SignInFailed { .. }
            | Self::NoRole { .. } => None,
        }
    }
}

/// Authentication cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum AuthSetupError {
    /// The htpasswd file is unusable.
    #[error("cannot prepare the user file")]
    Htpasswd(#[from] HtpasswdError),
    /// The settings of OpenID Connect are unusable.
    #[error("cannot use OpenID Connect: {problem}")]
    OpenIdConnect {
        /// What is wrong.
        problem: String,
    },
    /// The settings of Keystone are unusable.
    #[error("cannot use Keystone: {problem}")]
    Keystone {
        /// What is wrong.
        problem: String,
    },
    /// The first user cannot be stored.
    #[error("cannot create the first user in the database")]
    Store(#[from] store::StoreError),
    /// The password of the first user cannot be hashed.
    #[error("cannot create the first user")]
    Password(#[from] PasswordError),
    /// The password of the first user cannot be generated.
    #[error("cannot create the first user")]
    Random(#[from] RandomError),
    /// The password file cannot be created.
    #[error("cannot create {path}; check that its directory exists and is writable")]
    Create {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}
