// SPDX-License-Identifier: Apache-2.0
//! Packages from Debian's archive, by the tools and with the keys of the system we run on. Root is
//! not needed, and nothing is installed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::digest;

/// Metapackages lead to kernels in one step; more would be a circle.
const MOST_STEPS: usize = 4;

/// Why a package cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum DebianError {
    /// There is no apt.
    #[error(
        "{program} cannot be run; packages of Debian can only be fetched where its tools are, so give \
         --kernel and --modules instead"
    )]
    NoTools {
        /// The program.
        program: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is not in the lists.
    #[error("apt knows no package {package}; run `apt-get update` and try again, or name another")]
    Unknown {
        /// The package.
        package: String,
    },
    /// It cannot be fetched.
    #[error("apt-get cannot download {package}: {told}; run `apt-get update` and try again")]
    Download {
        /// The package.
        package: String,
        /// What apt-get said.
        told: String,
    },
    /// It is no kernel and leads to none.
    #[error("{package} is no package of a kernel and depends on none")]
    NoKernel {
        /// The package.
        package: String,
    },
    /// The folder of packages cannot be used.
    #[error("the packages in {} cannot be kept", path.display())]
    Keep {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Debian's archive, and the folder where what was fetched from it is kept.
#[derive(Debug)]
pub(crate) struct Archive {
    folder: PathBuf,
}

/// What apt says of a package.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) version: String,
    architecture: String,
    sha256: Option<String>,
    /// The packages it needs, the first of alternatives.
    pub(crate) depends: Vec<String>,
}

impl Archive {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// The package with the files of a kernel: itself, or what a metapackage stands for.
    pub(crate) fn kernel(&self, package: &str) -> Result<About, DebianError> {
        let mut about = self.about(package)?;
        for _ in 0..MOST_STEPS {
            let is_kernel = |name: &&String| name.starts_with("linux-image-");
            match about.depends.iter().find(is_kernel).cloned() {
                Some(next) => about = self.about(&next)?,
                None if about.name.starts_with("linux-image-") => return Ok(about),
                None => break,
            }
        }
        Err(DebianError::NoKernel { package: package.to_owned() })
    }

    /// What apt says of the newest version of a package.
    pub(crate) fn about(&self, package: &str) -> Result<About, DebianError> {
        let unknown = || DebianError::Unknown { package: package.to_owned() };
        // It would be taken for an option.
        if package.starts_with('-') {
            return Err(unknown());
        }
        let output = run("apt-cache", &["show", "--no-all-versions", package], None)?;
        if !output.status.success() {
            return Err(unknown());
        }
        About::parse(&String::from_utf8_lossy(&output.stdout)).ok_or_else(unknown)
    }

    /// Fetches a package, unless it is there.
    pub(crate) fn fetch(&self, about: &About) -> Result<PathBuf, DebianError> {
        let keep = |path: &Path| {
            let path = path.to_owned();
            move |source| DebianError::Keep { path, source }
        };
        let kept = self.folder.join(about.file_name());
        if is_whole(&kept, about) {
            return Ok(kept);
        }
        fs::create_dir_all(&self.folder).map_err(keep(&self.folder))?;
        let download = tempfile::tempdir_in(&self.folder).map_err(keep(&self.folder))?;
        let wanted = format!("{}={}", about.name, about.version);
        let output = run("apt-get", &["-qq", "download", &wanted], Some(download.path()))?;
        let failed = |told: String| DebianError::Download { package: about.name.clone(), told };
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
            return Err(failed(told));
        }
        let found = fs::read_dir(download.path())
            .map_err(keep(download.path()))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension() == Some(OsStr::new("deb")))
            .ok_or_else(|| failed("it left nothing behind".to_owned()))?;
        if !is_whole(&found, about) {
            return Err(failed("its checksum is wrong".to_owned()));
        }
        fs::rename(&found, &kept).map_err(keep(&kept))?;
        Ok(kept)
    }
}

impl About {
    /// Reads the first paragraph.
    fn parse(text: &str) -> Option<Self> {
        let paragraph = text.trim_start().split("\n\n").next()?;
        let field = |wanted: &str| {
            paragraph.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                (name == wanted).then(|| value.trim().to_owned())
            })
        };
        let depends = [field("Pre-Depends"), field("Depends")];
        let depends = depends.iter().flatten().flat_map(|list| list.split(','));
        let plain = |depends: &str| {
            let first = depends.split('|').next()?.trim();
            let end = first.find([' ', '(', ':', '[']).unwrap_or(first.len());
            (end > 0).then(|| first[..end].to_owned())
        };
        Some(Self {
            name: field("Package")?,
            version: field("Version")?,
            architecture: field("Architecture")?,
            sha256: field("SHA256"),
            depends: depends.filter_map(plain).collect(),
        })
    }

    /// As apt calls the file.
    fn file_name(&self) -> String {
        let version = self.version.replace(':', "%3a");
        format!("{}_{version}_{}.deb", self.name, self.architecture)
    }
}

/// Whether the file is there, and is what apt says it is.
fn is_whole(path: &Path, about: &About) -> bool {
    match (fs::read(path), &about.sha256) {
        (Ok(bytes), Some(sha256)) => digest::sha256(&bytes) == *sha256,
        // Installed by hand, perhaps; apt has checked what it downloads.
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
    fn the_words_of_apt_are_read() {
        let about = About::parse(
            "Package: mdadm\nVersion: 1:4.2-5\nArchitecture: amd64\n\
             Depends: debconf (>= 0.5) | debconf-2.0, libc6 (>= 2.34), libudev1:any\n\
             Pre-Depends: init-system-helpers (>= 1.54~)\nSHA256: 93ac\n\n\
             Package: mdadm\nVersion: 4.1\n",
        )
        .unwrap();
        assert_eq!(about.depends, ["init-system-helpers", "debconf", "libc6", "libudev1"]);
        assert_eq!(about.file_name(), "mdadm_1%3a4.2-5_amd64.deb");
        assert_eq!(About::parse("N: nothing\n"), None);
    }

    #[test]
    fn a_kept_package_is_taken_only_if_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut about = About {
            name: "a".to_owned(),
            version: "1".to_owned(),
            architecture: "all".to_owned(),
            sha256: Some(digest::sha256(b"whole")),
            depends: Vec::new(),
        };
        let path = folder.path().join(about.file_name());
        fs::write(&path, "whole").unwrap();
        assert_eq!(Archive::new(folder.path()).fetch(&about).unwrap(), path);
        fs::write(&path, "torn").unwrap();
        assert!(!is_whole(&path, &about));
        about.sha256 = None;
        assert!(is_whole(&path, &about));
    }
}
