// SPDX-License-Identifier: Apache-2.0
//! Microversions: which dialect of the API is spoken.

use std::fmt;

/// The newest dialect this client was tried with.
pub(crate) const NEWEST: Version = Version(115);

/// A version of the API, all of which are `1.something`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version(pub u16);

impl Version {
    /// The version in a header, if it is one of ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        text.trim().strip_prefix("1.")?.parse().ok().map(Self)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "1.{}", self.0)
    }
}
