// SPDX-License-Identifier: Apache-2.0
//! The Go compiler: the installed one if it is recent enough, or one from the Go module proxy.
//!
//! Debian's Go is older than what Kubernetes needs. Every Go can download a newer one as a module,
//! verified with the checksum database.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{repository, shell};

/// The version that is downloaded.
const VERSION: &str = "1.26.8";

/// Returns the program `go` in at least the version `wanted`, such as `1.26.0`. Downloads it below
/// `target/` if the installed one is older.
pub(super) fn ensure(root: &Path, wanted: &str) -> Result<PathBuf> {
    let wanted = parse_version(wanted).with_context(|| format!("{wanted:?} is not a version"))?;
    let installed = shell::output_of(Command::new("go").arg("version"))?;
    if installed_version(&installed).is_some_and(|found| found >= wanted) {
        return Ok("go".into());
    }
    if parse_version(VERSION) < Some(wanted) {
        bail!("Go {wanted:?} is needed, and {VERSION} would be downloaded: update {}", file!());
    }
    download(root).with_context(|| format!("cannot download Go {VERSION}"))
}

/// A command with the cache of modules below `target/`.
pub(super) fn command(root: &Path, program: &Path) -> Result<Command> {
    let cache = std::path::absolute(repository::target(root).join("go-modules"))?;
    fs::create_dir_all(&cache)?;
    let mut command = Command::new(program);
    command.env("GOMODCACHE", &cache).env("GOTOOLCHAIN", "local").current_dir(&cache);
    // Read-only files could not be removed together with `target/`.
    command.env("GOFLAGS", "-mod=mod -modcacherw");
    Ok(command)
}

fn download(root: &Path) -> Result<PathBuf> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => bail!("no Go is known for the architecture {other}"),
    };
    let module = format!("golang.org/toolchain@v0.0.1-go{VERSION}.linux-{architecture}");
    let mut download = command(root, Path::new("go"))?;
    download.args(["mod", "download", "-json", &module]);
    let output: Value = serde_json::from_str(&shell::output_of(&mut download)?)?;
    let folder = output["Dir"].as_str().context("go mod download printed no folder")?;
    let folder = PathBuf::from(folder);
    // Files of modules are not executable.
    for programs in ["bin", &format!("pkg/tool/linux_{architecture}")] {
        for entry in fs::read_dir(folder.join(programs))? {
            fs::set_permissions(entry?.path(), Permissions::from_mode(0o755))?;
        }
    }
    Ok(folder.join("bin/go"))
}

/// Parses `go version go1.26.8 linux/amd64`.
fn installed_version(output: &str) -> Option<[u32; 3]> {
    parse_version(output.split_whitespace().nth(2)?.strip_prefix("go")?)
}

/// Parses `1.26.8` or `1.19`. Release candidates are not versions.
fn parse_version(text: &str) -> Option<[u32; 3]> {
    let mut version = [0; 3];
    let mut parts = text.split('.');
    for number in &mut version {
        match parts.next() {
            Some(part) => *number = part.parse().ok()?,
            None => break,
        }
    }
    parts.next().is_none().then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        let installed = |text: &str| installed_version(&format!("go version {text} linux/amd64\n"));
        assert_eq!(installed("go1.26.8"), Some([1, 26, 8]));
        assert_eq!(installed("go1.19"), Some([1, 19, 0]));
        assert!(installed("go1.9") < installed("go1.26.0"));
        for unknown in ["go1.27rc1", "devel", "go1.2.3.4", "1.26.8"] {
            assert_eq!(installed(unknown), None, "{unknown}");
        }
        assert_eq!(installed_version(""), None);
    }
}
