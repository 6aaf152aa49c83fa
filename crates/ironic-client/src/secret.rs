// SPDX-License-Identifier: Apache-2.0
//! Passwords and tokens that are not printed.

use std::fmt;

/// A text whose `Debug` output is masked.
#[derive(Clone, PartialEq, Eq)]
pub struct HiddenText(String);

impl HiddenText {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for HiddenText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}
