// SPDX-License-Identifier: Apache-2.0
//! Microversions and their negotiation.

use std::fmt;

/// The name of the service in an `OpenStack-API-Version` header.
const SERVICE: &str = "baremetal";

/// The microversion of a request: `1.<minor>`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ApiVersion(pub u16);

impl ApiVersion {
    /// The oldest supported version, and the default.
    pub const MIN: Self = Self(1);
    /// The newest supported version.
    pub const MAX: Self = Self(115);

    /// Whether this version includes features of `1.<since>`.
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

/// Why the requested version is rejected. The status is always 406.
///
/// Clients parse the text of the two range errors.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VersionError {
    /// The header is malformed. The response has no version headers.
    #[error("Invalid value for X-OpenStack-Ironic-API-Version header")]
    Malformed,
    /// The minor version is not supported. The response has the minimum and maximum headers.
    #[error(
        "Version {requested} was requested but the minor version is not supported by this service. \
         The supported version range is: [{min}, {max}].",
        min = ApiVersion::MIN,
        max = ApiVersion::MAX
    )]
    OutOfRange {
        /// The requested version.
        requested: String,
    },
    /// Another major version. The response has the minimum and maximum headers.
    #[error(
        "Mutually exclusive versions requested. Version {requested} requested but not supported by \
         this service. The supported version range is: [{min}, {max}].",
        min = ApiVersion::MIN,
        max = ApiVersion::MAX
    )]
    UnsupportedMajor {
        /// The requested version.
        requested: String,
    },
}

impl VersionError {
    /// Whether the response has the minimum and maximum version headers.
    #[must_use]
    pub const fn has_version_range(&self) -> bool {
        match self {
            Self::Malformed => false,
            Self::OutOfRange { .. } | Self::UnsupportedMajor { .. } => true,
        }
    }
}

/// The version of a request, from the headers `X-OpenStack-Ironic-API-Version` and
/// `OpenStack-API-Version`. The second takes precedence if it names this service.
///
/// # Errors
/// If the version is malformed or not supported.
pub fn negotiate(
    header_ironic: Option<&str>,
    header_openstack: Option<&str>,
) -> Result<ApiVersion, VersionError> {
    match header_openstack.and_then(find_service_version).or(header_ironic) {
        None | Some("") => Ok(ApiVersion::MIN),
        Some(text) => parse(text.trim()),
    }
}

/// Finds `baremetal 1.N` in a list such as `compute 2.1, baremetal 1.80`.
fn find_service_version(header: &str) -> Option<&str> {
    header.split(',').find_map(|entry| {
        let (service, version) = entry.trim().split_once(' ')?;
        service.eq_ignore_ascii_case(SERVICE).then(|| version.trim())
    })
}

fn parse(text: &str) -> Result<ApiVersion, VersionError> {
    if text.eq_ignore_ascii_case("latest") {
        return Ok(ApiVersion::MAX);
    }
    let (major, minor) = text.split_once('.').ok_or(VersionError::Malformed)?;
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !is_number(major) || !is_number(minor) {
        return Err(VersionError::Malformed);
    }
    // The requested version is echoed, truncated.
    let requested = || text.chars().take(32).collect();
    if major.parse() != Ok(1_u16) {
        return Err(VersionError::UnsupportedMajor { requested: requested() });
    }
    match minor.parse().map(ApiVersion) {
        Ok(version) if (ApiVersion::MIN..=ApiVersion::MAX).contains(&version) => Ok(version),
        Ok(_) | Err(_) => Err(VersionError::OutOfRange { requested: requested() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negotiates_versions() {
        let out_of_range =
            |version: &str| Err(VersionError::OutOfRange { requested: version.to_owned() });
        let unsupported_major =
            |version: &str| Err(VersionError::UnsupportedMajor { requested: version.to_owned() });
        for (ironic, openstack, expected) in [
            (None, None, Ok(ApiVersion(1))),
            (Some("1.9"), None, Ok(ApiVersion(9))),
            (Some(" 1.9 "), None, Ok(ApiVersion(9))),
            (Some("1.115"), None, Ok(ApiVersion(115))),
            (Some("latest"), None, Ok(ApiVersion(115))),
            (Some("LATEST"), None, Ok(ApiVersion(115))),
            (Some("1.0"), None, out_of_range("1.0")),
            (Some("1.116"), None, out_of_range("1.116")),
            (Some("1.70000"), None, out_of_range("1.70000")),
            (Some("2.1"), None, unsupported_major("2.1")),
            (Some("0.5"), None, unsupported_major("0.5")),
            (Some("abc"), None, Err(VersionError::Malformed)),
            (Some("1"), None, Err(VersionError::Malformed)),
            (Some("1."), None, Err(VersionError::Malformed)),
            (Some("1.1.1"), None, Err(VersionError::Malformed)),
            (Some("1.-1"), None, Err(VersionError::Malformed)),
            (Some("1.99999999999999999999"), None, out_of_range("1.99999999999999999999")),
            (Some(""), None, Ok(ApiVersion(1))),
            (Some("1.09"), None, Ok(ApiVersion(9))),
            (None, Some("baremetal 1.10"), Ok(ApiVersion(10))),
            (None, Some("compute 2.1, baremetal 1.11"), Ok(ApiVersion(11))),
            (None, Some("baremetal latest"), Ok(ApiVersion(115))),
            (None, Some("compute 2.1"), Ok(ApiVersion(1))),
            (Some("1.20"), Some("baremetal 1.10"), Ok(ApiVersion(10))),
            (Some("1.20"), Some("compute 2.1"), Ok(ApiVersion(20))),
            (Some("1.20"), Some("baremetal 1.116"), out_of_range("1.116")),
        ] {
            assert_eq!(negotiate(ironic, openstack), expected, "{ironic:?} {openstack:?}");
        }
    }

    #[test]
    fn version_errors_have_the_text_clients_parse() {
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
        assert!(parse("2.1").unwrap_err().has_version_range());
        assert!(!VersionError::Malformed.has_version_range());
    }
}
