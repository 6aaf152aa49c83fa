// SPDX-License-Identifier: Apache-2.0
//! Which methods of authentication are enabled.

use std::path::PathBuf;

use crate::keystone::KeystoneSettings;
use crate::openid_connect::OpenIdSettings;

/// The enabled methods. Without any, every caller may do everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AuthSettings {
    /// Passwords of an htpasswd file with bcrypt entries. The file is created with a random password
    /// for `admin` if it does not exist.
    pub htpasswd: Option<PathBuf>,
    /// Passwords and API tokens of users in the store.
    pub local: Option<LocalUserSettings>,
    /// Tokens of an OpenID Connect provider, and sign-in of browsers with it.
    pub openid_connect: Option<OpenIdSettings>,
    /// Tokens of Keystone.
    pub keystone: Option<KeystoneSettings>,
}

/// Settings of users in the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalUserSettings {
    /// Where the password of the first user is written.
    pub first_password_file: PathBuf,
}

impl AuthSettings {
    /// Whether the htpasswd file has all users.
    pub(super) fn is_htpasswd_only(&self) -> bool {
        self.local.is_none() && self.openid_connect.is_none() && self.keystone.is_none()
    }

    /// Only the htpasswd file.
    #[must_use]
    pub fn htpasswd(file: PathBuf) -> Self {
        Self { htpasswd: Some(file), ..Self::default() }
    }

    /// Only users in the store.
    #[must_use]
    pub fn local(first_password_file: PathBuf) -> Self {
        Self { local: Some(LocalUserSettings { first_password_file }), ..Self::default() }
    }
}
