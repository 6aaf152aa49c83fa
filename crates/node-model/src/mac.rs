// SPDX-License-Identifier: Apache-2.0
//! Hardware addresses: six bytes, or twenty for InfiniBand, written lower case with colons.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A MAC address in canonical form (`52:54:00:aa:bb:01`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(Box<str>);

/// The text is not a hardware address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a MAC address such as 52:54:00:aa:bb:01")]
pub struct ParseMacError(String);

impl Mac {
    /// The address in canonical form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Mac {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        const INFINIBAND_BYTES: usize = 20;
        let mut bytes = 0;
        let well_formed = text.split([':', '-']).all(|byte| {
            bytes += 1;
            byte.len() == 2 && byte.bytes().all(|digit| digit.is_ascii_hexdigit())
        });
        if well_formed && (bytes == 6 || bytes == INFINIBAND_BYTES) {
            Ok(Self(text.to_ascii_lowercase().replace('-', ":").into()))
        } else {
            Err(ParseMacError(text.chars().take(80).collect()))
        }
    }
}

impl TryFrom<String> for Mac {
    type Error = ParseMacError;
    fn try_from(text: String) -> Result<Self, ParseMacError> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.0.into()
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_to_canonical_form() {
        for text in ["52:54:00:AA:bb:01", "52-54-00-aa-BB-01"] {
            assert_eq!(text.parse::<Mac>().unwrap().as_str(), "52:54:00:aa:bb:01");
        }
    }

    #[test]
    fn rejects_malformed_addresses() {
        for text in ["", "52:54:00:aa:bb", "52:54:00:aa:bb:zz", "525400aabb01", "5:54:00:aa:bb:01:"]
        {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
    }
}
