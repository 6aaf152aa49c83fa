// SPDX-License-Identifier: Apache-2.0
//! Microversions: which one a request asks for, and what to say when it cannot have it.

use std::fmt;

/// The name of the service in an `OpenStack-API-Version` header.
const SERVICE: &str = "baremetal";

/// The microversion a request is served at: `1.<minor>`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ApiVersion(pub u16);

impl ApiVersion {
    /// The oldest version served, and the one served to those who do not ask.
    pub const MIN: Self = Self(1);
    /// The newest version served.
    pub const MAX: Self = Self(115);

    /// Whether something that appeared in `1.<since>` exists in this version.
    #[must_use]
    pub const fn has(self, since: u16) -> bool {
        self.0 >= since
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.0)
    }
}

/// Why a request cannot have the version it asks for. Every case is answered with 406.
///
/// The wording of the two range errors is what clients negotiate from, so it stays as it is.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VersionError {
    /// The header cannot be read. Answered without any version header.
    #[error("Invalid value for X-OpenStack-Ironic-API-Version header")]
    Unreadable,
    /// The major version is ours, the minor is not. Answered with the minimum and maximum headers.
    #[error(
        "Version {asked} was requested but the minor version is not supported by this service. \
         The supported version range is: [{min}, {max}].",
        min = ApiVersion::MIN,
        max = ApiVersion::MAX
    )]
    OutOfRange {
        /// The version asked for.
        asked: String,
    },
    /// Another major version. Answered with the minimum and maximum headers.
    #[error(
        "Mutually exclusive versions requested. Version {asked} requested but not supported by \
         this service. The supported version range is: [{min}, {max}].",
        min = ApiVersion::MIN,
        max = ApiVersion::MAX
    )]
    OtherMajor {
        /// The version asked for.
        asked: String,
    },
}

impl VersionError {
    /// Whether the answer carries the minimum and maximum version headers.
    #[must_use]
    pub const fn tells_range(&self) -> bool {
        match self {
            Self::Unreadable => false,
            Self::OutOfRange { .. } | Self::OtherMajor { .. } => true,
        }
    }
}

/// The version to serve, given the values of `X-OpenStack-Ironic-API-Version` and
/// `OpenStack-API-Version`. The second wins where it names this service.
///
/// # Errors
/// When the version cannot be read or is not served.
pub fn negotiate(
    header_ironic: Option<&str>,
    header_openstack: Option<&str>,
) -> Result<ApiVersion, VersionError> {
    match header_openstack.and_then(version_of_this_service).or(header_ironic) {
        None | Some("") => Ok(ApiVersion::MIN),
        Some(text) => parse(text.trim()),
    }
}

/// Finds `baremetal 1.N` in a list such as `compute 2.1, baremetal 1.80`.
fn version_of_this_service(header: &str) -> Option<&str> {
    header.split(',').find_map(|entry| {
        let (service, version) = entry.trim().split_once(' ')?;
        service.eq_ignore_ascii_case(SERVICE).then(|| version.trim())
    })
}

fn parse(text: &str) -> Result<ApiVersion, VersionError> {
    if text.eq_ignore_ascii_case("latest") {
        return Ok(ApiVersion::MAX);
    }
    let (major, minor) = text.split_once('.').ok_or(VersionError::Unreadable)?;
    let readable = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !readable(major) || !readable(minor) {
        return Err(VersionError::Unreadable);
    }
    // Clients that ask for absurd numbers get them back, cut to a length that cannot hurt.
    let asked = || text.chars().take(32).collect();
    if major.parse() != Ok(1_u16) {
        return Err(VersionError::OtherMajor { asked: asked() });
    }
    match minor.parse().map(ApiVersion) {
        Ok(version) if (ApiVersion::MIN..=ApiVersion::MAX).contains(&version) => Ok(version),
        Ok(_) | Err(_) => Err(VersionError::OutOfRange { asked: asked() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negotiation_table() {
        let out = |asked: &str| Err(VersionError::OutOfRange { asked: asked.to_owned() });
        let other = |asked: &str| Err(VersionError::OtherMajor { asked: asked.to_owned() });
        for (ironic, openstack, expected) in [
            (None, None, Ok(ApiVersion(1))),
            (Some("1.9"), None, Ok(ApiVersion(9))),
            (Some(" 1.9 "), None, Ok(ApiVersion(9))),
            (Some("1.115"), None, Ok(ApiVersion(115))),
            (Some("latest"), None, Ok(ApiVersion(115))),
            (Some("LATEST"), None, Ok(ApiVersion(115))),
            (Some("1.0"), None, out("1.0")),
            (Some("1.116"), None, out("1.116")),
            (Some("1.70000"), None, out("1.70000")),
            (Some("2.1"), None, other("2.1")),
            (Some("0.5"), None, other("0.5")),
            (Some("abc"), None, Err(VersionError::Unreadable)),
            (Some("1"), None, Err(VersionError::Unreadable)),
            (Some("1."), None, Err(VersionError::Unreadable)),
            (Some("1.1.1"), None, Err(VersionError::Unreadable)),
            (Some("1.-1"), None, Err(VersionError::Unreadable)),
            (Some("1.99999999999999999999"), None, out("1.99999999999999999999")),
            (Some(""), None, Ok(ApiVersion(1))),
            (Some("1.09"), None, Ok(ApiVersion(9))),
            (None, Some("baremetal 1.10"), Ok(ApiVersion(10))),
            (None, Some("compute 2.1, baremetal 1.11"), Ok(ApiVersion(11))),
            (None, Some("baremetal latest"), Ok(ApiVersion(115))),
            (None, Some("compute 2.1"), Ok(ApiVersion(1))),
            (Some("1.20"), Some("baremetal 1.10"), Ok(ApiVersion(10))),
            (Some("1.20"), Some("compute 2.1"), Ok(ApiVersion(20))),
            (Some("1.20"), Some("baremetal 1.116"), out("1.116")),
        ] {
            assert_eq!(negotiate(ironic, openstack), expected, "{ironic:?} {openstack:?}");
        }
    }

    #[test]
    fn words_that_clients_read() {
        assert_eq!(
            parse("1.116").unwrap_err().to_string(),
            "Version 1.116 was requested but the minor version is not supported by this service. \
             The supported version range is: [1.1, 1.115]."
        );
        assert_eq!(
            parse("2.1").unwrap_err().to_string(),
            "Mutually exclusive versions requested. Version 2.1 requested but not supported by \
             this service. The supported version range is: [1.1, 1.115]."
        );
        assert!(parse("2.1").unwrap_err().tells_range());
        assert!(!VersionError::Unreadable.tells_range());
    }
}
