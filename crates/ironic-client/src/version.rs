// SPDX-License-Identifier: Apache-2.0
//! Microversions of the Ironic API.

use std::fmt;

/// The newest microversion this client supports.
pub(crate) const NEWEST_MICROVERSION: Microversion = Microversion(115);

/// The minor number of an API version `1.x`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Microversion(pub u16);

impl Microversion {
    /// Parses the value of a version header.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        text.trim().strip_prefix("1.")?.parse().ok().map(Self)
    }
}

impl fmt::Display for Microversion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "1.{}", self.0)
    }
}
