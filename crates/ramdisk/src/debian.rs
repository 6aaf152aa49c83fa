// SPDX-License-Identifier: Apache-2.0
//! Downloads packages from Debian's archive with apt and the keys of the build host. Needs no root
//! privileges and installs nothing.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::digest;

/// Metapackages usually depend on the kernel package directly; the limit ends dependency cycles.
const MAX_METAPACKAGE_DEPTH: usize = 4;

/// A package is not available.
#[derive(Debug, thiserror::Error)]
pub enum DebianError {
    /// apt is not installed.
    #[error(
        "cannot run {program}; Debian packages can only be downloaded on a system with apt, so give \
         --kernel and --modules instead"
    )]
    NoTools {
        /// The program.
        program: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The package lists do not contain it.
    #[error(
        "unknown Debian package {package}; run `apt-get update` and try again, or name another"
    )]
    Unknown {
        /// The package.
        package: String,
    },
    /// The download failed.
    #[error("apt-get cannot download {package}: {stderr}; run `apt-get update` and try again")]
    Download {
        /// The package.
        package: String,
        /// The error output of apt-get.
        stderr: String,
    },
    /// Not a kernel package.
    #[error("{package} is not a kernel package and depends on none")]
    NoKernel {
        /// The package.
        package: String,
    },
    /// The cache cannot be written.
    #[error("cannot store packages in {}", path.display())]
    Store {
        /// The folder or file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Debian's archive, with a cache directory of downloaded packages.
#[derive(Debug)]
pub(crate) struct DebianArchive {
    folder: PathBuf,
}

/// The description of a package by `apt-cache show`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DebianPackage {
    pub(crate) name: String,
    pub(crate) version: String,
    architecture: String,
    sha256: Option<String>,
    /// The dependencies; of alternatives, only the first.
    pub(crate) depends: Vec<String>,
}

impl DebianArchive {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Returns the package that contains a kernel: `package` itself, or the one that the metapackage
    /// depends on.
    pub(crate) fn resolve_kernel_package(
        &self,
        package: &str,
    ) -> Result<DebianPackage, DebianError> {
        let mut info = self.package_info(package)?;
        for _ in 0..MAX_METAPACKAGE_DEPTH {
            let is_kernel = |name: &&String| name.starts_with("linux-image-");
            match info.depends.iter().find(is_kernel).cloned() {
                Some(next) => info = self.package_info(&next)?,
                None if info.name.starts_with("linux-image-") => return Ok(info),
                None => break,
            }
        }
        Err(DebianError::NoKernel { package: package.to_owned() })
    }

    /// Returns the description of the newest version of a package.
    pub(crate) fn package_info(&self, package: &str) -> Result<DebianPackage, DebianError> {
        let unknown = || DebianError::Unknown { package: package.to_owned() };
        // apt-cache would parse it as an option.
        if package.starts_with('-') {
            return Err(unknown());
        }
        let output = run("apt-cache", &["show", "--no-all-versions", package], None)?;
        if !output.status.success() {
            return Err(unknown());
        }
        DebianPackage::parse(&String::from_utf8_lossy(&output.stdout)).ok_or_else(unknown)
    }

    /// Downloads a package unless it is in the cache, and returns its path.
    pub(crate) fn fetch(&self, info: &DebianPackage) -> Result<PathBuf, DebianError> {
        let store_error = |path: &Path| {
            let path = path.to_owned();
            move |source| DebianError::Store { path, source }
        };
        let cached = self.folder.join(info.file_name());
        if is_intact(&cached, info) {
            return Ok(cached);
        }
        fs::create_dir_all(&self.folder).map_err(store_error(&self.folder))?;
        let download = tempfile::tempdir_in(&self.folder).map_err(store_error(&self.folder))?;
        let version = format!("{}={}", info.name, info.version);
        let output = run("apt-get", &["-qq", "download", &version], Some(download.path()))?;
        let failed = |stderr: String| DebianError::Download { package: info.name.clone(), stderr };
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
            return Err(failed(stderr));
        }
        let downloaded = fs::read_dir(download.path())
            .map_err(store_error(download.path()))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension() == Some(OsStr::new("deb")))
            .ok_or_else(|| failed("no file was downloaded".to_owned()))?;
        if !is_intact(&downloaded, info) {
            return Err(failed("the checksum does not match".to_owned()));
        }
        fs::rename(&downloaded, &cached).map_err(store_error(&cached))?;
        Ok(cached)
    }
}

impl DebianPackage {
    /// Parses the first paragraph of the output of `apt-cache show`.
    fn parse(text: &str) -> Option<Self> {
        let paragraph = text.trim_start().split("\n\n").next()?;
        let field = |key: &str| {
            paragraph.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                (name == key).then(|| value.trim().to_owned())
            })
        };
        let depends = [field("Pre-Depends"), field("Depends")];
        let depends = depends.iter().flatten().flat_map(|list| list.split(','));
        let package_name = |depends: &str| {
            let first = depends.split('|').next()?.trim();
            let end = first.find([' ', '(', ':', '[']).unwrap_or(first.len());
            (end > 0).then(|| first[..end].to_owned())
        };
        Some(Self {
            name: field("Package")?,
            version: field("Version")?,
            architecture: field("Architecture")?,
            sha256: field("SHA256"),
            depends: depends.filter_map(package_name).collect(),
        })
    }

    /// Returns the file name that apt uses.
    fn file_name(&self) -> String {
        let version = self.version.replace(':', "%3a");
        format!("{}_{version}_{}.deb", self.name, self.architecture)
    }
}

/// Returns whether the file exists and its checksum matches.
fn is_intact(path: &Path, info: &DebianPackage) -> bool {
    match (fs::read(path), &info.sha256) {
        (Ok(bytes), Some(sha256)) => digest::sha256_hex(&bytes) == *sha256,
        // Locally installed packages have no checksum; apt verifies its downloads itself.
        (Ok(bytes), None) => !bytes.is_empty(),
        (Err(_), _) => false,
    }
}

fn run(
    program: &'static str,
    arguments: &[&str],
    folder: Option<&Path>,
) -> Result<std::process::Output, DebianError> {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C").stdin(std::process::Stdio::null());
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    command.output().map_err(|source| DebianError::NoTools { program, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_apt_cache_output() {
        let info = DebianPackage::parse(
            "Package: mdadm\nVersion: 1:4.2-5\nArchitecture: amd64\n\
             Depends: debconf (>= 0.5) | debconf-2.0, libc6 (>= 2.34), libudev1:any\n\
             Pre-Depends: init-system-helpers (>= 1.54~)\nSHA256: 93ac\n\n\
             Package: mdadm\nVersion: 4.1\n",
        )
        .unwrap();
        assert_eq!(info.depends, ["init-system-helpers", "debconf", "libc6", "libudev1"]);
        assert_eq!(info.file_name(), "mdadm_1%3a4.2-5_amd64.deb");
        assert_eq!(DebianPackage::parse("N: nothing\n"), None);
    }

    #[test]
    fn cached_package_is_used_only_if_intact() {
        let folder = tempfile::tempdir().unwrap();
        let mut info = DebianPackage {
            name: "a".to_owned(),
            version: "1".to_owned(),
            architecture: "all".to_owned(),
            sha256: Some(digest::sha256_hex(b"whole")),
            depends: Vec::new(),
        };
        let path = folder.path().join(info.file_name());
        fs::write(&path, "whole").unwrap();
        assert_eq!(DebianArchive::new(folder.path()).fetch(&info).unwrap(), path);
        fs::write(&path, "torn").unwrap();
        assert!(!is_intact(&path, &info));
        info.sha256 = None;
        assert!(is_intact(&path, &info));
    }
}
