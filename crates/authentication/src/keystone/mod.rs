// SPDX-License-Identifier: Apache-2.0
//! Tokens of OpenStack's identity service Keystone.

mod subject_token;
#[cfg(test)]
mod tests;
mod token_validator;

use std::path::PathBuf;
use std::time::Duration;

pub(crate) use token_validator::KeystoneValidator;

/// Name of the service in error messages.
pub(crate) const SERVICE: &str = "Keystone";

/// Settings of Keystone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeystoneSettings {
    /// URL of Keystone, such as `https://keystone.example:5000/v3`.
    pub url: String,
    /// Who validates tokens.
    pub service_user: KeystoneServiceUser,
    /// File with the password of the service user, or with the secret of the application credential.
    pub secret_file: PathBuf,
    /// For how long a valid token is accepted without a request to Keystone: the delay with which a
    /// revocation applies.
    pub cache_time: Duration,
    /// CA certificates (PEM) that verify Keystone; `None` for those of the system.
    pub ca_file: Option<PathBuf>,
}

/// How this service authenticates to Keystone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeystoneServiceUser {
    /// A user with a role in a project.
    Password {
        /// The user name.
        user: String,
        /// Domain of the user, by name.
        user_domain: String,
        /// The project, by name.
        project: String,
        /// Domain of the project, by name.
        project_domain: String,
    },
    /// An application credential.
    ApplicationCredential {
        /// Its id.
        id: String,
    },
}
