// SPDX-License-Identifier: Apache-2.0
//! Sources of the kernel: a Debian package, two paths, or the build host.

use std::path::{Path, PathBuf};
use std::{fs, io};

use tempfile::TempDir;

use crate::debian::{DebianArchive, DebianError};
use crate::package::{self, PackageError};

/// The source of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelSource {
    /// A Debian package.
    Debian {
        /// The package, by default that of the driver profile. A metapackage such as
        /// `linux-image-amd64` selects the newest kernel.
        package: Option<String>,
    },
    /// Local files.
    Files {
        /// The kernel.
        kernel: PathBuf,
        /// The module directory, such as `/lib/modules/6.1.0-54-amd64`.
        modules: PathBuf,
    },
    /// The running kernel of the build host.
    Running,
}

/// No usable kernel.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The package is not available.
    #[error(transparent)]
    Debian(#[from] DebianError),
    /// The package cannot be unpacked.
    #[error("invalid package {}", path.display())]
    Package {
        /// The package.
        path: PathBuf,
        /// The cause.
        #[source]
        source: PackageError,
    },
    /// The package has no kernel or no modules.
    #[error("the package {package} contains no {what}; name a package such as linux-image-amd64")]
    IncompletePackage {
        /// The package.
        package: String,
        /// The missing part.
        what: &'static str,
    },
    /// The files of the running kernel are not installed.
    #[error(
        "cannot use the running kernel ({version}): {} does not exist; give --from-debian to download one, \
         or --kernel and --modules", path.display()
    )]
    RunningKernelMissing {
        /// The version of the kernel.
        version: String,
        /// The missing path.
        path: PathBuf,
    },
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file is not a kernel.
    #[error("{} is not a kernel", path.display())]
    NoKernel {
        /// The file.
        path: PathBuf,
    },
    /// Kernel and modules have different versions.
    #[error("the kernel is {kernel}, but the modules are for {modules}; give those of one kernel")]
    Mismatch {
        /// The version of the kernel.
        kernel: String,
        /// The version of the modules.
        modules: String,
    },
}

/// A kernel with its modules and configuration.
#[derive(Debug)]
pub(crate) struct KernelBundle {
    pub(crate) bytes: Vec<u8>,
    pub(crate) modules: PathBuf,
    /// The build configuration (`CONFIG_…`), if available.
    pub(crate) config: Option<String>,
    /// The origin, for display.
    pub(crate) origin: String,
    /// Keeps the directory of unpacked modules.
    _unpacked: Option<TempDir>,
}

/// Finds the kernel. `package` is the default Debian package.
pub(crate) fn find_kernel(
    source: &KernelSource,
    package: &str,
    archive: &DebianArchive,
) -> Result<KernelBundle, KernelError> {
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
            Ok(KernelBundle {
                bytes: read(kernel)?,
                modules: modules.clone(),
                config,
                origin: kernel.display().to_string(),
                _unpacked: None,
            })
        }
        KernelSource::Running => running_kernel(Path::new("/")),
    }
}

impl KernelBundle {
    /// Fails if the file is not a kernel, or has another version than the modules. Not all have one.
    pub(crate) fn check_version(&self, expected_version: &str) -> Result<(), KernelError> {
        let Some(kernel) = kernel_version(&self.bytes) else {
            let path = PathBuf::from(&self.origin);
            return if has_kernel_magic(&self.bytes) {
                Ok(())
            } else {
                Err(KernelError::NoKernel { path })
            };
        };
        if kernel == expected_version {
            return Ok(());
        }
        Err(KernelError::Mismatch { kernel, modules: expected_version.to_owned() })
    }
}

fn from_debian(package: &str, archive: &DebianArchive) -> Result<KernelBundle, KernelError> {
    let info = archive.resolve_kernel_package(package)?;
    let file = archive.fetch(&info)?;
    let failed = |source| KernelError::Read { path: std::env::temp_dir(), source };
    let unpacked = tempfile::tempdir().map_err(failed)?;
    let is_needed = |path: &Path| {
        ["boot", "lib/modules", "usr/lib/modules"].iter().any(|folder| path.starts_with(folder))
    };
    package::unpack(&file, unpacked.path(), is_needed)
        .map_err(|source| KernelError::Package { path: file.clone(), source })?;
    let incomplete = |what| KernelError::IncompletePackage { package: info.name.clone(), what };
    let root = unpacked.path();
    let boot = root.join("boot");
    let kernel = first_with_prefix(&boot, "vmlinu").ok_or_else(|| incomplete("kernel"))?;
    let modules = ["lib/modules", "usr/lib/modules"]
        .iter()
        .find_map(|folder| first_with_prefix(&root.join(folder), ""))
        .ok_or_else(|| incomplete("modules"))?;
    let config = first_with_prefix(&boot, "config-");
    Ok(KernelBundle {
        bytes: read(&kernel)?,
        config: config.and_then(|path| fs::read_to_string(path).ok()),
        modules,
        origin: format!("{} {}", info.name, info.version),
        _unpacked: Some(unpacked),
    })
}

/// Returns the kernel that runs in the system at `root`.
fn running_kernel(root: &Path) -> Result<KernelBundle, KernelError> {
    let release = root.join("proc/sys/kernel/osrelease");
    let version = fs::read_to_string(&release)
        .map_err(|source| KernelError::Read { path: release.clone(), source })?;
    let version = version.trim();
    let modules = root.join("lib/modules").join(version);
    let candidates = [root.join(format!("boot/vmlinuz-{version}")), modules.join("vmlinuz")];
    let missing = |path: &Path| KernelError::RunningKernelMissing {
        version: version.to_owned(),
        path: path.to_owned(),
    };
    let kernel = candidates.iter().find(|path| path.exists());
    let kernel = kernel.ok_or_else(|| missing(&candidates[0]))?;
    if !modules.is_dir() {
        return Err(missing(&modules));
    }
    let config = fs::read_to_string(root.join(format!("boot/config-{version}"))).ok();
    Ok(KernelBundle {
        bytes: read(kernel)?,
        modules,
        config,
        origin: format!("the running kernel {version}"),
        _unpacked: None,
    })
}

/// Returns the first path, by name, whose file name has this prefix.
fn first_with_prefix(folder: &Path, prefix: &str) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
        })
        .collect();
    found.sort();
    found.into_iter().next()
}

fn read(path: &Path) -> Result<Vec<u8>, KernelError> {
    fs::read(path).map_err(|source| KernelError::Read { path: path.to_owned(), source })
}

/// Returns whether the file has the magic number of a kernel of any architecture.
fn has_kernel_magic(bytes: &[u8]) -> bool {
    const X86: (usize, &[u8]) = (0x202, b"HdrS");
    const ARM: (usize, &[u8]) = (0x38, b"ARM\x64");
    const EFI: (usize, &[u8]) = (0, b"MZ");
    const PLAIN: (usize, &[u8]) = (0, b"\x7fELF");
    const GZIP: (usize, &[u8]) = (0, &[0x1f, 0x8b]);
    [X86, ARM, EFI, PLAIN, GZIP]
        .iter()
        .any(|(at, magic)| bytes.get(*at..).is_some_and(|rest| rest.starts_with(magic)))
}

/// Returns the version in the header of x86 kernels (Documentation/arch/x86/boot.rst).
fn kernel_version(bytes: &[u8]) -> Option<String> {
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

    fn kernel_bundle(bytes: Vec<u8>) -> KernelBundle {
        KernelBundle {
            bytes,
            modules: PathBuf::new(),
            config: None,
            origin: "vmlinuz".to_owned(),
            _unpacked: None,
        }
    }

    #[test]
    fn rejects_modules_of_another_kernel() {
        let bundle = kernel_bundle(fixtures::kernel_image("6.1.0-54-amd64"));
        bundle.check_version("6.1.0-54-amd64").unwrap();
        assert_eq!(
            bundle.check_version("6.1.0-50-amd64").unwrap_err().to_string(),
            "the kernel is 6.1.0-54-amd64, but the modules are for 6.1.0-50-amd64; give those of one kernel"
        );
        kernel_bundle(b"MZ...".to_vec()).check_version("6").unwrap();
        let error = kernel_bundle(b"text".to_vec()).check_version("6").unwrap_err().to_string();
        assert_eq!(error, "vmlinuz is not a kernel");
        let whole = fixtures::kernel_image("6.1");
        for end in 0..whole.len() {
            let _ = kernel_version(&whole[..end]);
        }
    }

    #[test]
    fn reports_missing_files_of_running_kernel() {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path().join("proc/sys/kernel");
        fs::create_dir_all(&proc).unwrap();
        fs::write(proc.join("osrelease"), "6.1.0\n").unwrap();
        let error = running_kernel(root.path()).unwrap_err().to_string();
        let expected = "boot/vmlinuz-6.1.0 does not exist; give --from-debian";
        assert!(error.contains(expected), "{error}");
        fs::create_dir_all(root.path().join("boot")).unwrap();
        fs::write(root.path().join("boot/vmlinuz-6.1.0"), fixtures::kernel_image("6.1.0")).unwrap();
        assert!(running_kernel(root.path()).unwrap_err().to_string().contains("lib/modules/6.1.0"));
        fs::create_dir_all(root.path().join("lib/modules/6.1.0")).unwrap();
        running_kernel(root.path()).unwrap().check_version("6.1.0").unwrap();
    }
}
