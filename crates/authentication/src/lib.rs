// SPDX-License-Identifier: Apache-2.0
//! Authentication: who a caller is.
//!
//! [`Authenticator::identify`] returns the [`access_policy::Caller`] of a request from its headers and
//! address. Methods: passwords of an htpasswd file, passwords and API tokens of users in the store,
//! session cookies of the web UI, tokens of an OpenID Connect provider and of Keystone.
//!
//! Verifying a password takes tens to hundreds of milliseconds of CPU by design. It happens once per
//! password; after that, a digest of the credentials is looked up instead. Verifications run on
//! blocking threads, few at a time, in an order that favours clients without failures.

mod authenticator;
mod credential_cache;
mod credentials;
mod disabled_projects;
mod error;
mod first_user;
mod htpasswd;
mod identity_service_client;
mod keystone;
mod local_users;
mod openid_connect;
mod password;
mod roles;
mod sessions;
mod sign_in_events;
mod sign_in_queue;
#[cfg(test)]
mod test_service;
mod token_format;
mod verification;

pub use authenticator::{AuthSettings, Authenticator, LocalUserSettings, SignedIn};
pub use credentials::{
    AUTH_TOKEN, CredentialHeaders, PROJECT, SESSION_COOKIE, named_cookie, session_cookie,
};
pub use error::{AuthError, AuthSetupError};
pub use htpasswd::{FirstPassword, HtpasswdError, HtpasswdLineError};
pub use keystone::{KeystoneServiceUser, KeystoneSettings};
pub use openid_connect::{
    ClaimMapping, LoginRedirect, LoginResponse, OpenIdClientSettings, OpenIdSettings,
    SigningAlgorithm,
};
pub use password::{PasswordError, check_new_password};
pub use token_format::{GeneratedToken, RandomError};
