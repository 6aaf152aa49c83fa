// SPDX-License-Identifier: Apache-2.0
//! The commit that is packaged: its identifier, its time and the version of the packages.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell;

/// The commit and the state of the work tree.
pub(crate) struct SourceCommit {
    /// The full identifier.
    pub(crate) id: String,
    /// The time of the commit in seconds since 1970, in every archive instead of the current time.
    pub(crate) time: u64,
    /// Whether files differ from the commit. The packages are then not reproducible.
    pub(crate) is_modified: bool,
    /// Whether the commit has the tag of its version, such as `v1.2.0`.
    is_release: bool,
}

/// The version of the packages, in the forms that their formats need.
#[derive(Clone)]
pub(crate) struct PackageVersion {
    /// A semantic version, also valid as a tag of an image.
    pub(crate) semantic: String,
    /// The same for Debian, where a hyphen would begin the revision.
    pub(crate) debian: String,
}

impl SourceCommit {
    /// Reads the checked-out commit. Fails outside a git repository.
    pub(crate) fn read(root: &Path, workspace_version: &str) -> Result<Self> {
        let id = git(root, &["rev-parse", "HEAD"]).context("packages are made from a commit")?;
        let time = git(root, &["show", "--no-patch", "--format=%ct", "HEAD"])?;
        let tags = git(root, &["tag", "--points-at", "HEAD"])?;
        let release_tag = format!("v{workspace_version}");
        Ok(Self {
            id,
            time: time.parse().with_context(|| format!("git printed the time `{time}`"))?,
            is_modified: !git(root, &["status", "--porcelain"])?.is_empty(),
            is_release: tags.lines().any(|tag| tag == release_tag),
        })
    }

    /// The version of a release, or else a version before it with time and commit.
    pub(crate) fn version(&self, workspace_version: &str) -> PackageVersion {
        let mut suffix = Vec::new();
        if !self.is_release {
            let digits: String =
                self.timestamp().chars().filter(char::is_ascii_digit).take(14).collect();
            suffix.push(format!("dev.{digits}.g{}", self.id.get(..12).unwrap_or(&self.id)));
        }
        if self.is_modified {
            suffix.push("modified".to_owned());
        }
        if suffix.is_empty() {
            return PackageVersion {
                semantic: workspace_version.to_owned(),
                debian: workspace_version.to_owned(),
            };
        }
        let suffix = suffix.join(".");
        PackageVersion {
            semantic: format!("{workspace_version}-{suffix}"),
            debian: format!("{workspace_version}~{suffix}"),
        }
    }

    /// The time as RFC 3339, in UTC.
    pub(crate) fn timestamp(&self) -> String {
        rfc3339(self.time)
    }

    /// The time as in Debian changelogs, in UTC.
    pub(crate) fn changelog_date(&self) -> String {
        let time = utc(self.time);
        let weekday = time.weekday().to_string();
        let month = time.month().to_string();
        format!(
            "{}, {:02} {} {} {:02}:{:02}:{:02} +0000",
            weekday.get(..3).unwrap_or(&weekday),
            time.day(),
            month.get(..3).unwrap_or(&month),
            time.year(),
            time.hour(),
            time.minute(),
            time.second()
        )
    }

    #[cfg(test)]
    pub(crate) fn example() -> Self {
        Self {
            id: "9789990afafb9038444fccbed942d34b33ad3097".to_owned(),
            time: 1_794_930_197,
            is_modified: false,
            is_release: false,
        }
    }
}

fn rfc3339(seconds: u64) -> String {
    let time = utc(seconds);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        time.year(),
        u8::from(time.month()),
        time.day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}

/// Times outside the range of the calendar become 1970.
fn utc(seconds: u64) -> time::OffsetDateTime {
    let seconds = i64::try_from(seconds).unwrap_or_default();
    time::OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(time::OffsetDateTime::UNIX_EPOCH)
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = shell::output_of(
        Command::new("git").current_dir(root).arg("--no-optional-locks").args(arguments),
    )?;
    Ok(output.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_names_the_commit_unless_it_is_a_release() {
        for (is_release, is_modified, semantic, debian) in [
            (true, false, "1.2.0", "1.2.0"),
            (true, true, "1.2.0-modified", "1.2.0~modified"),
            (
                false,
                false,
                "1.2.0-dev.20261117154317.g9789990afafb",
                "1.2.0~dev.20261117154317.g9789990afafb",
            ),
            (
                false,
                true,
                "1.2.0-dev.20261117154317.g9789990afafb.modified",
                "1.2.0~dev.20261117154317.g9789990afafb.modified",
            ),
        ] {
            let commit = SourceCommit { is_release, is_modified, ..SourceCommit::example() };
            let version = commit.version("1.2.0");
            assert_eq!((version.semantic.as_str(), version.debian.as_str()), (semantic, debian));
        }
    }

    #[test]
    fn formats_times() {
        let commit = SourceCommit::example();
        assert_eq!(commit.timestamp(), "2026-11-17T15:43:17Z");
        assert_eq!(commit.changelog_date(), "Tue, 17 Nov 2026 15:43:17 +0000");
    }
}
