// SPDX-License-Identifier: Apache-2.0
//! Where kernels come from: a package of Debian, two paths, or the system we run on.

use std::path::{Path, PathBuf};
use std::{fs, io};

use tempfile::TempDir;

use crate::debian::{Archive, DebianError};
use crate::package::{self, PackageError};

/// Where to take the kernel from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelSource {
    /// A package of Debian, by default the one for the drivers that are wanted.
    Debian {
        /// The package; a metapackage such as `linux-image-amd64` stands for the newest kernel.
        package: Option<String>,
    },
    /// Files that are there.
    Files {
        /// The kernel.
        kernel: PathBuf,
        /// Its modules, a folder such as `/lib/modules/6.1.0-54-amd64`.
        modules: PathBuf,
    },
    /// The kernel of the system we run on.
    Running,
}

/// Why there is no kernel.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// Debian's archive does not give it.
    #[error(transparent)]
    Debian(#[from] DebianError),
    /// A package cannot be unpacked.
    #[error("the package {} cannot be used", path.display())]
    Package {
        /// The package.
        path: PathBuf,
        /// Why.
        #[source]
        source: PackageError,
    },
    /// A package lacks what a kernel has.
    #[error("the package {package} holds no {what}; name a package such as linux-image-amd64")]
    Lacks {
        /// The package.
        package: String,
        /// What it lacks.
        what: &'static str,
    },
    /// The system we run on does not show its kernel.
    #[error(
        "the running kernel ({version}) cannot be used: {} is not there; give --from-debian to fetch one, \
         or --kernel and --modules", path.display()
    )]
    NotHere {
        /// Its version.
        version: String,
        /// What was looked for.
        path: PathBuf,
    },
    /// A file cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is something else.
    #[error("{} is no kernel", path.display())]
    NoKernel {
        /// The file.
        path: PathBuf,
    },
    /// Kernel and modules do not belong together.
    #[error("the kernel is {kernel}, and the modules are for {modules}: give those of one kernel")]
    Mismatch {
        /// The version of the kernel.
        kernel: String,
        /// The version of the modules.
        modules: String,
    },
}

/// A kernel that was found.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) bytes: Vec<u8>,
    pub(crate) modules: PathBuf,
    /// How it was built (`CONFIG_…`), if that can be told.
    pub(crate) config: Option<String>,
    /// For people: where it is from.
    pub(crate) origin: String,
    /// Holds the modules, if they were unpacked for us.
    _unpacked: Option<TempDir>,
}

/// Finds the kernel. `package` is the one of Debian to take if none is named.
pub(crate) fn find(
    source: &KernelSource,
    package: &str,
    archive: &Archive,
) -> Result<Kernel, KernelError> {
    match source {
        KernelSource::Debian { package: named } => {
            from_debian(named.as_deref().unwrap_or(package), archive)
        }
        KernelSource::Files { kernel, modules } => {
            let version = modules.file_name().unwrap_or_default().to_string_lossy();
            let beside = kernel.with_file_name(format!("config-{version}"));
            let config = [beside, modules.join("config")]
                .iter()
                .find_map(|path| fs::read_to_string(path).ok());
            Ok(Kernel {
                bytes: read(kernel)?,
                modules: modules.clone(),
                config,
                origin: kernel.display().to_string(),
                _unpacked: None,
            })
        }
        KernelSource::Running => running(Path::new("/")),
    }
}

impl Kernel {
    /// Makes sure that the file is a kernel, and the one the modules are for where it says so.
    pub(crate) fn check(&self, modules_version: &str) -> Result<(), KernelError> {
        let Some(kernel) = version(&self.bytes) else {
            let path = PathBuf::from(&self.origin);
            return if is_kernel(&self.bytes) {
                Ok(())
            } else {
                Err(KernelError::NoKernel { path })
            };
        };
        if kernel == modules_version {
            return Ok(());
        }
        Err(KernelError::Mismatch { kernel, modules: modules_version.to_owned() })
    }
}

fn from_debian(package: &str, archive: &Archive) -> Result<Kernel, KernelError> {
    let about = archive.kernel(package)?;
    let file = archive.fetch(&about)?;
    let failed = |source| KernelError::Read { path: std::env::temp_dir(), source };
    let unpacked = tempfile::tempdir().map_err(failed)?;
    let wanted = |path: &Path| {
        ["boot", "lib/modules", "usr/lib/modules"].iter().any(|folder| path.starts_with(folder))
    };
    package::unpack(&file, unpacked.path(), wanted)
        .map_err(|source| KernelError::Package { path: file.clone(), source })?;
    let lacks = |what| KernelError::Lacks { package: about.name.clone(), what };
    let root = unpacked.path();
    let kernel = only(&root.join("boot"), "vmlinu").ok_or_else(|| lacks("kernel"))?;
    let modules = ["lib/modules", "usr/lib/modules"]
        .iter()
        .find_map(|folder| only(&root.join(folder), ""))
        .ok_or_else(|| lacks("modules"))?;
    let config = only(&root.join("boot"), "config-");
    Ok(Kernel {
        bytes: read(&kernel)?,
        config: config.and_then(|path| fs::read_to_string(path).ok()),
        modules,
        origin: format!("{} {}", about.name, about.version),
        _unpacked: Some(unpacked),
    })
}

/// The kernel that the system at `root` runs.
fn running(root: &Path) -> Result<Kernel, KernelError> {
    let release = root.join("proc/sys/kernel/osrelease");
    let version = fs::read_to_string(&release)
        .map_err(|source| KernelError::Read { path: release.clone(), source })?;
    let version = version.trim();
    let modules = root.join("lib/modules").join(version);
    let places = [root.join(format!("boot/vmlinuz-{version}")), modules.join("vmlinuz")];
    let not_here =
        |path: &Path| KernelError::NotHere { version: version.to_owned(), path: path.to_owned() };
    let kernel = places.iter().find(|path| path.exists());
    let kernel = kernel.ok_or_else(|| not_here(&places[0]))?;
    if !modules.is_dir() {
        return Err(not_here(&modules));
    }
    let config = fs::read_to_string(root.join(format!("boot/config-{version}"))).ok();
    Ok(Kernel {
        bytes: read(kernel)?,
        modules,
        config,
        origin: format!("the running kernel {version}"),
        _unpacked: None,
    })
}

/// The first thing in a folder whose name begins like this.
fn only(folder: &Path, start: &str) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
        })
        .collect();
    found.sort();
    found.into_iter().next()
}

fn read(path: &Path) -> Result<Vec<u8>, KernelError> {
    fs::read(path).map_err(|source| KernelError::Read { path: path.to_owned(), source })
}

/// Whether the file begins as kernels for some kind of machine do.
fn is_kernel(bytes: &[u8]) -> bool {
    const X86: (usize, &[u8]) = (0x202, b"HdrS");
    const ARM: (usize, &[u8]) = (0x38, b"ARM\x64");
    const EFI: (usize, &[u8]) = (0, b"MZ");
    const PLAIN: (usize, &[u8]) = (0, b"\x7fELF");
    const GZIP: (usize, &[u8]) = (0, &[0x1f, 0x8b]);
    [X86, ARM, EFI, PLAIN, GZIP]
        .iter()
        .any(|(at, magic)| bytes.get(*at..).is_some_and(|rest| rest.starts_with(magic)))
}

/// The version that kernels for x86 carry in their header (Documentation/arch/x86/boot.rst).
fn version(bytes: &[u8]) -> Option<String> {
    if bytes.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let at = u16::from_le_bytes(bytes.get(0x20e..0x210)?.try_into().ok()?);
    let text = bytes.get(usize::from(at) + 0x200..)?;
    let text = text.split(|&byte| byte == 0).next()?;
    let version = std::str::from_utf8(text).ok()?.split(' ').next()?;
    (at != 0 && !version.is_empty()).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn kernel(bytes: Vec<u8>) -> Kernel {
        Kernel {
            bytes,
            modules: PathBuf::new(),
            config: None,
            origin: "vmlinuz".to_owned(),
            _unpacked: None,
        }
    }

    #[test]
    fn kernel_and_modules_must_belong_together() {
        let found = kernel(fixtures::kernel("6.1.0-54-amd64"));
        found.check("6.1.0-54-amd64").unwrap();
        assert_eq!(
            found.check("6.1.0-50-amd64").unwrap_err().to_string(),
            "the kernel is 6.1.0-54-amd64, and the modules are for 6.1.0-50-amd64: give those of one kernel"
        );
        kernel(b"MZ and so on".to_vec()).check("6").unwrap();
        let told = kernel(b"text".to_vec()).check("6").unwrap_err().to_string();
        assert_eq!(told, "vmlinuz is no kernel");
        let whole = fixtures::kernel("6.1");
        for end in 0..whole.len() {
            let _ = version(&whole[..end]);
        }
    }

    #[test]
    fn a_running_kernel_that_cannot_be_read_is_told() {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path().join("proc/sys/kernel");
        fs::create_dir_all(&proc).unwrap();
        fs::write(proc.join("osrelease"), "6.1.0\n").unwrap();
        let told = running(root.path()).unwrap_err().to_string();
        assert!(told.contains("boot/vmlinuz-6.1.0 is not there; give --from-debian"), "{told}");
        fs::create_dir_all(root.path().join("boot")).unwrap();
        fs::write(root.path().join("boot/vmlinuz-6.1.0"), fixtures::kernel("6.1.0")).unwrap();
        assert!(running(root.path()).unwrap_err().to_string().contains("lib/modules/6.1.0"));
        fs::create_dir_all(root.path().join("lib/modules/6.1.0")).unwrap();
        running(root.path()).unwrap().check("6.1.0").unwrap();
    }
}
