// SPDX-License-Identifier: Apache-2.0
//! Versions of the service: names, comparison, and which ones can be installed.
//!
//! A version is a release of Ferrite, such as `0.1`, a release of Ironic, such as `38.0`, or
//! `latest`. The operator installs the release of Ferrite that it belongs to. Releases of Ironic are
//! accepted for existing manifests: the service has the API of each of them.

use std::cmp::Ordering;
use std::fmt;

use thiserror::Error;

/// Releases of Ironic that manifests of Metal3 name, with their highest API microversion. The
/// service has a higher one.
const IRONIC_RELEASES: &[(IronicVersion, &str)] = &[
    (IronicVersion::number(35, 0), "1.111"),
    (IronicVersion::number(37, 0), "1.112"),
    (IronicVersion::number(38, 0), "1.113"),
];

/// Releases of Ironic with a lower major number are not supported by Metal3's operator any more, and
/// Ferrite's own releases are below it.
const FIRST_IRONIC_MAJOR: u32 = 30;

/// Text of [`IronicVersion::Latest`].
const LATEST: &str = "latest";

/// A version in `spec.version` or in the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IronicVersion {
    /// The newest one.
    Latest,
    /// A numbered release.
    Number {
        /// First number.
        major: u32,
        /// Second number.
        minor: u32,
    },
}

/// What a version number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseSeries {
    /// Releases of Ferrite.
    Ferrite,
    /// Releases of Ironic.
    Ironic,
}

/// Why a version cannot be installed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IronicVersionError {
    /// The text is not a version.
    #[error("{0:?} is not a version; use MAJOR.MINOR, such as {example}, or latest", example = SupportedVersions::own().default)]
    Malformed(String),
    /// The version is unknown.
    #[error("version {version} is not supported; use one of {supported}")]
    Unsupported {
        /// The version.
        version: IronicVersion,
        /// Supported versions, separated by commas.
        supported: String,
    },
}

impl IronicVersion {
    const fn number(major: u32, minor: u32) -> Self {
        Self::Number { major, minor }
    }

    /// Parses `latest` or `MAJOR.MINOR`. A third number, as in releases of Ferrite, is ignored.
    pub fn parse(text: &str) -> Result<Self, IronicVersionError> {
        if text == LATEST {
            return Ok(Self::Latest);
        }
        let malformed = || IronicVersionError::Malformed(text.to_owned());
        let mut numbers = text.splitn(3, '.').map(|number| {
            let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
            number.parse::<u32>().ok().filter(|_| is_number)
        });
        let mut next =
            || numbers.next().map_or(Ok(None), |number| number.ok_or_else(malformed).map(Some));
        let (major, minor, _patch) = (next()?, next()?, next()?);
        match (major, minor) {
            (Some(major), Some(minor)) if (major, minor) != (0, 0) => {
                Ok(Self::number(major, minor))
            }
            _ => Err(malformed()),
        }
    }

    /// What the number counts; `None` for `latest`.
    #[must_use]
    pub const fn series(self) -> Option<ReleaseSeries> {
        match self {
            Self::Latest => None,
            Self::Number { major, .. } if major >= FIRST_IRONIC_MAJOR => {
                Some(ReleaseSeries::Ironic)
            }
            Self::Number { .. } => Some(ReleaseSeries::Ferrite),
        }
    }

    /// Whether installing this version over `installed` would be a downgrade.
    ///
    /// Leaving `latest` is allowed, as in Metal3's operator. A release of Ironic and a release of
    /// Ferrite are not comparable: both names stand for the operator's own release.
    #[must_use]
    pub fn is_downgrade_from(self, installed: Self) -> bool {
        installed != Self::Latest && self.partial_cmp(&installed) == Some(Ordering::Less)
    }
}

/// `latest` is greater than every number; numbers of different series are not comparable.
impl PartialOrd for IronicVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (*self, *other) {
            (Self::Latest, Self::Latest) => Some(Ordering::Equal),
            (Self::Latest, Self::Number { .. }) => Some(Ordering::Greater),
            (Self::Number { .. }, Self::Latest) => Some(Ordering::Less),
            (
                Self::Number { major, minor },
                Self::Number { major: other_major, minor: other_minor },
            ) => (self.series() == other.series())
                .then(|| (major, minor).cmp(&(other_major, other_minor))),
        }
    }
}

impl fmt::Display for IronicVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => formatter.write_str(LATEST),
            Self::Number { major, minor } => write!(formatter, "{major}.{minor}"),
        }
    }
}

/// The versions that an operator can install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupportedVersions {
    /// Version of an `Ironic` without one.
    pub default: IronicVersion,
    versions: Vec<IronicVersion>,
}

impl SupportedVersions {
    /// The versions of an operator of this release.
    #[must_use]
    pub fn own() -> Self {
        // The crates of the workspace have one version.
        let own = IronicVersion::parse(env!("CARGO_PKG_VERSION")).unwrap_or(IronicVersion::Latest);
        Self::new(own)
    }

    /// The versions of an operator with this default, which is one of them.
    #[must_use]
    pub fn new(default: IronicVersion) -> Self {
        let mut versions = vec![IronicVersion::Latest, default];
        versions.extend(IRONIC_RELEASES.iter().map(|(version, _)| *version));
        if let Ok(own) = IronicVersion::parse(env!("CARGO_PKG_VERSION")) {
            versions.push(own);
        }
        versions.sort_by_key(|version| match version {
            IronicVersion::Latest => (u32::MAX, u32::MAX),
            IronicVersion::Number { major, minor } => (*major, *minor),
        });
        versions.dedup();
        Self { default, versions }
    }

    /// The version of an `Ironic`. Fails if it cannot be installed.
    pub fn select(&self, requested: Option<&str>) -> Result<IronicVersion, IronicVersionError> {
        let Some(text) = requested else { return Ok(self.default) };
        let version = IronicVersion::parse(text)?;
        if self.versions.contains(&version) {
            return Ok(version);
        }
        let names: Vec<String> = self.versions.iter().map(ToString::to_string).collect();
        Err(IronicVersionError::Unsupported { version, supported: names.join(", ") })
    }
}

/// Highest API microversion of a release of Ironic, which clients of that version expect.
#[must_use]
pub fn expected_microversion(version: IronicVersion) -> Option<&'static str> {
    IRONIC_RELEASES.iter().find(|(release, _)| *release == version).map(|(_, highest)| *highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> IronicVersion {
        IronicVersion::parse(text).unwrap()
    }

    #[test]
    fn parses_versions() {
        for (text, expected) in [
            ("latest", Some("latest")),
            ("38.0", Some("38.0")),
            ("0.1", Some("0.1")),
            ("0.1.0", Some("0.1")),
            ("1.20.300", Some("1.20")),
            ("0.0", None),
            ("38", None),
            ("", None),
            (".", None),
            ("38.", None),
            ("38.x", None),
            ("+38.0", None),
            ("38.0.", None),
            ("38.0.1.2", None),
            ("99999999999.0", None),
            ("Latest", None),
        ] {
            let parsed = IronicVersion::parse(text).ok().map(|version| version.to_string());
            assert_eq!(parsed.as_deref(), expected, "{text}");
        }
        let error = IronicVersion::parse("38").unwrap_err().to_string();
        assert!(error.starts_with("\"38\" is not a version; use MAJOR.MINOR, such as "), "{error}");
    }

    #[test]
    fn compares_versions_of_a_series() {
        for (requested, installed, expected) in [
            ("38.0", "37.0", false),
            ("37.0", "38.0", true),
            ("37.0", "37.0", false),
            ("latest", "38.0", false),
            ("38.0", "latest", false),
            ("0.1", "latest", false),
            ("0.1", "0.2", true),
            ("0.2", "0.1", false),
            ("0.10", "0.9", false),
            ("0.1", "38.0", false),
            ("38.0", "0.1", false),
        ] {
            let is_downgrade = version(requested).is_downgrade_from(version(installed));
            assert_eq!(is_downgrade, expected, "{installed} to {requested}");
        }
    }

    #[test]
    fn unsupported_versions_are_rejected_with_the_supported_ones() {
        let supported = SupportedVersions::new(version("0.7"));
        assert_eq!(supported.select(None), Ok(version("0.7")));
        for text in ["latest", "38.0", "37.0", "35.0", "0.7", "0.7.3"] {
            assert_eq!(supported.select(Some(text)), Ok(version(text)), "{text}");
        }
        let own = SupportedVersions::own().default;
        let error = supported.select(Some("36.0")).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "version 36.0 is not supported; use one of {own}, 0.7, 35.0, 37.0, 38.0, latest"
            )
        );
    }

    #[test]
    fn releases_of_ironic_have_an_expected_microversion() {
        assert_eq!(expected_microversion(version("38.0")), Some("1.113"));
        assert_eq!(expected_microversion(version("0.1")), None);
    }
}
