// SPDX-License-Identifier: Apache-2.0
//! User name and password of the simulated BMCs.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// User name and password of every BMC of a fleet.
#[derive(Clone, PartialEq, Eq)]
pub struct BmcCredentials {
    /// The user name.
    pub username: String,
    /// The password.
    pub password: String,
    /// Both, encoded for HTTP basic authentication.
    basic: String,
}

impl BmcCredentials {
    /// Creates credentials.
    #[must_use]
    pub fn new(username: &str, password: &str) -> Self {
        let basic = STANDARD.encode(format!("{username}:{password}"));
        Self { username: username.to_owned(), password: password.to_owned(), basic }
    }

    /// Whether user name and password are correct.
    pub(crate) fn matches(&self, username: &str, password: &str) -> bool {
        self.username == username && self.password == password
    }

    /// Whether an `Authorization` header contains them.
    pub(crate) fn matches_basic_auth(&self, authorization: &str) -> bool {
        let Some((scheme, encoded)) = authorization.split_once(' ') else { return false };
        scheme.eq_ignore_ascii_case("basic") && encoded.trim() == self.basic
    }
}

impl Default for BmcCredentials {
    fn default() -> Self {
        Self::new("admin", "password")
    }
}

impl fmt::Debug for BmcCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}
