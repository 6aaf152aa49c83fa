// SPDX-License-Identifier: Apache-2.0
//! The name and password that open the simulated BMCs.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The name and password that open every BMC of a fleet.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name.
    pub username: String,
    /// The password.
    pub password: String,
    /// What basic authentication sends, made once.
    basic: String,
}

impl Credentials {
    /// Credentials of this name and password.
    #[must_use]
    pub fn new(username: &str, password: &str) -> Self {
        let basic = STANDARD.encode(format!("{username}:{password}"));
        Self { username: username.to_owned(), password: password.to_owned(), basic }
    }

    /// Whether they are these.
    pub(crate) fn are(&self, username: &str, password: &str) -> bool {
        self.username == username && self.password == password
    }

    /// Whether an `Authorization` header has them.
    pub(crate) fn are_in(&self, authorization: &str) -> bool {
        let Some((scheme, given)) = authorization.split_once(' ') else { return false };
        scheme.eq_ignore_ascii_case("basic") && given.trim() == self.basic
    }
}

impl Default for Credentials {
    fn default() -> Self {
        Self::new("admin", "password")
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}
