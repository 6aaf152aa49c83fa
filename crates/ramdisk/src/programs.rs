// SPDX-License-Identifier: Apache-2.0
//! External programs that the agent runs, such as mdadm, with their libraries. They are copied from
//! the build host, or else from Debian's archive.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use crate::debian::{DebianArchive, DebianError, DebianPackage};
use crate::elf::{self, ElfArchitecture, ElfError};
use crate::package::{self, PackageError};

/// Packages of programs whose names differ.
const PACKAGE_NAMES: [(&str, &str); 9] = [
    ("mke2fs", "e2fsprogs"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.fat", "dosfstools"),
    ("mkfs.vfat", "dosfstools"),
    ("nvme", "nvme-cli"),
    ("sgdisk", "gdisk"),
    ("smartctl", "smartmontools"),
    ("busybox", "busybox-static"),
    ("dropbear", "dropbear-bin"),
];
/// Searched in addition to `PATH`, which may lack the `sbin` directories.
const PROGRAM_DIRS: [&str; 4] = ["usr/sbin", "usr/bin", "sbin", "bin"];
/// The maximum number of symbolic links in a path, as in the kernel.
const MAX_SYMLINKS: usize = 40;
/// The maximum number of dependencies to unpack for one program.
const MAX_PACKAGES: usize = 100;

/// A program is not usable.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// Neither the build host nor Debian has it.
    #[error("{name} is not installed on this system and not available from Debian")]
    Unknown {
        /// The program.
        name: String,
        /// The cause.
        #[source]
        source: DebianError,
    },
    /// The package does not contain the program.
    #[error("the package {package} does not contain the program {name}")]
    NotInPackage {
        /// The program.
        name: String,
        /// The package.
        package: String,
    },
    /// Not a program name.
    #[error("{name:?} is not a program name; give one such as mdadm, without a path")]
    Name {
        /// The invalid name.
        name: String,
    },
    /// A library is missing.
    #[error("{name} needs {library}, which was not found")]
    Library {
        /// The program that needs it.
        name: String,
        /// The library.
        library: String,
    },
    /// The program or a library is damaged, or for another architecture.
    #[error("invalid program or library {}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: ElfError,
    },
    /// A package cannot be unpacked.
    #[error("invalid package {}", path.display())]
    Package {
        /// The package.
        path: PathBuf,
        /// The cause.
        #[source]
        source: PackageError,
    },
    /// A file cannot be read or written.
    #[error("cannot read or write {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Finds programs and their libraries.
#[derive(Debug)]
pub(crate) struct ProgramFinder<'a> {
    /// The root directory of the build host.
    pub(crate) root: &'a Path,
    pub(crate) archive: &'a DebianArchive,
    pub(crate) architecture: ElfArchitecture,
}

/// A program and its libraries by path.
#[derive(Debug)]
pub(crate) struct ProgramFiles {
    pub(crate) bytes: Vec<u8>,
    pub(crate) libraries: BTreeMap<String, Vec<u8>>,
    /// The origin, for display.
    pub(crate) origin: String,
}

impl ProgramFinder<'_> {
    /// Finds a program by its name.
    pub(crate) fn find(&self, name: &str) -> Result<ProgramFiles, ProgramError> {
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return Err(ProgramError::Name { name: name.to_owned() });
        }
        if let Some((path, bytes)) = find_program(self.root, name) {
            // If it is for another architecture or lacks a library, Debian's package may work.
            if let Ok(libraries) = self.resolve_libraries(name, &path, &bytes, &[self.root]) {
                return Ok(ProgramFiles { bytes, libraries, origin: path.display().to_string() });
            }
        }
        self.find_in_debian(name)
    }

    /// Returns the libraries of a program on the build host.
    pub(crate) fn host_libraries(
        &self,
        path: &Path,
        bytes: &[u8],
    ) -> Result<BTreeMap<String, Vec<u8>>, ProgramError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.resolve_libraries(&name, path, bytes, &[self.root])
    }

    fn find_in_debian(&self, name: &str) -> Result<ProgramFiles, ProgramError> {
        let known = PACKAGE_NAMES.iter().find(|(program, _)| *program == name);
        let package = known.map_or(name, |(_, package)| package);
        let unknown = |source| ProgramError::Unknown { name: name.to_owned(), source };
        let info = self.archive.package_info(package).map_err(unknown)?;
        let root = tempfile::tempdir()
            .map_err(|source| ProgramError::Read { path: std::env::temp_dir(), source })?;
        let unpack = |info: &DebianPackage| {
            let path = self.archive.fetch(info).map_err(unknown)?;
            package::unpack(&path, root.path(), |path| !path.starts_with("usr/share"))
                .map_err(|source| ProgramError::Package { path, source })
        };
        unpack(&info)?;
        let (path, bytes) = find_program(root.path(), name).ok_or_else(|| {
            ProgramError::NotInPackage { name: name.to_owned(), package: package.to_owned() }
        })?;
        let origin = format!("{} {}", info.name, info.version);
        let roots = [root.path(), self.root];
        if let Ok(libraries) = self.resolve_libraries(name, &path, &bytes, &roots) {
            return Ok(ProgramFiles { bytes, libraries, origin });
        }
        let mut unpacked = BTreeSet::new();
        let mut to_fetch = VecDeque::from(info.depends);
        while let Some(next) = to_fetch.pop_front() {
            if !next.starts_with("lib")
                || unpacked.len() > MAX_PACKAGES
                || !unpacked.insert(next.clone())
            {
                continue;
            }
            // Virtual packages are unknown to `apt-cache show`.
            let Ok(info) = self.archive.package_info(&next) else { continue };
            unpack(&info)?;
            to_fetch.extend(info.depends);
        }
        let libraries = self.resolve_libraries(name, &path, &bytes, &roots)?;
        Ok(ProgramFiles { bytes, libraries, origin })
    }

    /// Returns the loader and all libraries, each from the first of `roots` that has it.
    fn resolve_libraries(
        &self,
        name: &str,
        path: &Path,
        bytes: &[u8],
        roots: &[&Path],
    ) -> Result<BTreeMap<String, Vec<u8>>, ProgramError> {
        let mut files = BTreeMap::new();
        if !bytes.starts_with(b"\x7fELF") {
            return Ok(files);
        }
        let damaged = |path: &Path, source| ProgramError::Damaged { path: path.to_owned(), source };
        let needs = elf::dependencies(bytes).map_err(|source| damaged(path, source))?;
        if needs.architecture != self.architecture {
            let (found, required) = (needs.architecture, self.architecture);
            return Err(damaged(path, ElfError::WrongArchitecture { found, required }));
        }
        let missing = |library: &str| ProgramError::Library {
            name: name.to_owned(),
            library: library.to_owned(),
        };
        if let Some(loader) = needs.loader {
            let bytes = roots.iter().find_map(|root| read_in_root(root, Path::new(&loader)));
            files.insert(loader.clone(), bytes.ok_or_else(|| missing(&loader))?);
        }
        let mut names = BTreeSet::new();
        let mut to_find: Vec<(String, Vec<String>)> =
            needs.libraries.into_iter().map(|name| (name, needs.runpath.clone())).collect();
        while let Some((library, folders)) = to_find.pop() {
            // The loader may be listed as a library too.
            let is_loader =
                files.keys().any(|path: &String| path.ends_with(&format!("/{library}")));
            if is_loader || !names.insert(library.clone()) {
                continue;
            }
            let (path, bytes) =
                self.find_library(&library, &folders, roots).ok_or_else(|| missing(&library))?;
            let needs =
                elf::dependencies(&bytes).map_err(|source| damaged(Path::new(&path), source))?;
            to_find.extend(needs.libraries.into_iter().map(|name| (name, needs.runpath.clone())));
            files.insert(path, bytes);
        }
        Ok(files)
    }

    /// Finds a library of the right architecture in the loader's search path. Returns path and content.
    fn find_library(
        &self,
        name: &str,
        folders: &[String],
        roots: &[&Path],
    ) -> Option<(String, Vec<u8>)> {
        let architecture = self.architecture.name();
        let defaults = [
            format!("/lib/{architecture}-linux-gnu"),
            format!("/usr/lib/{architecture}-linux-gnu"),
            "/lib64".to_owned(),
            "/usr/lib64".to_owned(),
            "/lib".to_owned(),
            "/usr/lib".to_owned(),
        ];
        let runpath = folders.iter().filter(|folder| folder.starts_with('/'));
        let folders: Vec<&String> = runpath.chain(&defaults).collect();
        for root in roots {
            for folder in &folders {
                let path = format!("{}/{name}", folder.trim_end_matches('/'));
                let Some(bytes) = read_in_root(root, Path::new(&path)) else { continue };
                if elf::dependencies(&bytes)
                    .is_ok_and(|needs| needs.architecture == self.architecture)
                {
                    return Some((path, bytes));
                }
            }
        }
        None
    }
}

fn find_program(root: &Path, name: &str) -> Option<(PathBuf, Vec<u8>)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // `PATH` only applies to the build host.
    let own = std::env::split_paths(&path).filter(|_| root == Path::new("/"));
    own.chain(PROGRAM_DIRS.iter().map(PathBuf::from)).find_map(|folder| {
        let path = folder.join(name);
        Some((Path::new("/").join(&path), read_in_root(root, &path)?))
    })
}

/// Reads a file below `root`. Symbolic links are resolved inside of it.
fn read_in_root(root: &Path, path: &Path) -> Option<Vec<u8>> {
    let mut left = MAX_SYMLINKS;
    let mut ahead: VecDeque<OsString> = path_components(path);
    let mut done: Vec<OsString> = Vec::new();
    let at = |done: &[OsString]| root.join(done.iter().collect::<PathBuf>());
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            done.pop();
            continue;
        }
        done.push(name);
        let Ok(target) = fs::read_link(at(&done)) else { continue };
        left = left.checked_sub(1)?;
        done.pop();
        if target.is_absolute() {
            done.clear();
        }
        for name in path_components(&target).into_iter().rev() {
            ahead.push_front(name);
        }
    }
    let path = at(&done);
    // Excludes directories, and devices that can be read forever.
    path.is_file().then(|| fs::read(path).ok())?
}

fn path_components(path: &Path) -> VecDeque<OsString> {
    let plain = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(plain).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::fixtures;

    /// Creates a root directory with a program, its libraries and its loader.
    fn test_root() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for folder in ["usr/sbin", "usr/lib/x86_64-linux-gnu", "usr/lib64", "empty"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        symlink("usr/lib", at("lib")).unwrap();
        symlink("/usr/lib64", at("lib64")).unwrap();
        fs::write(at("usr/lib64/ld.so"), fixtures::elf_program(None, &[])).unwrap();
        let library = fixtures::elf_program(None, &["libc.so.6"]);
        fs::write(at("usr/lib/x86_64-linux-gnu/libudev.so.1.7"), library).unwrap();
        symlink("libudev.so.1.7", at("usr/lib/x86_64-linux-gnu/libudev.so.1")).unwrap();
        fs::write(
            at("usr/lib/x86_64-linux-gnu/libc.so.6"),
            fixtures::elf_program(None, &["ld.so"]),
        )
        .unwrap();
        let program = fixtures::elf_program(Some("/lib64/ld.so"), &["libudev.so.1", "libc.so.6"]);
        fs::write(at("usr/sbin/ferrite-test-program"), program).unwrap();
        root
    }

    fn with_finder<T>(root: &Path, then: impl FnOnce(&ProgramFinder<'_>) -> T) -> T {
        let archive = DebianArchive::new(&root.join("packages"));
        let architecture =
            elf::dependencies(&fixtures::elf_program(None, &[])).unwrap().architecture;
        then(&ProgramFinder { root, archive: &archive, architecture })
    }

    #[test]
    fn finds_libraries_of_a_program() {
        let root = test_root();
        let program =
            with_finder(root.path(), |finder| finder.find("ferrite-test-program")).unwrap();
        let paths: Vec<&str> = program.libraries.keys().map(String::as_str).collect();
        assert_eq!(
            paths,
            [
                "/lib/x86_64-linux-gnu/libc.so.6",
                "/lib/x86_64-linux-gnu/libudev.so.1",
                "/lib64/ld.so"
            ]
        );
        assert_eq!(program.origin, "/usr/sbin/ferrite-test-program");
    }

    #[test]
    fn reports_missing_library() {
        let root = test_root();
        let bytes = fixtures::elf_program(Some("/lib64/ld.so"), &["libnone.so.9"]);
        let error = with_finder(root.path(), |finder| {
            finder.host_libraries(Path::new("tool"), &bytes).unwrap_err().to_string()
        });
        assert_eq!(error, "tool needs libnone.so.9, which was not found");
        let error = with_finder(root.path(), |finder| {
            finder.find("../etc/passwd").unwrap_err().to_string()
        });
        assert!(error.starts_with("\"../etc/passwd\" is not a program name"), "{error}");
    }

    #[test]
    fn symlinks_resolve_inside_the_root() {
        let root = test_root();
        fs::write(root.path().join("file"), "inside").unwrap();
        symlink("/file", root.path().join("absolute")).unwrap();
        symlink("../../../../file", root.path().join("empty/up")).unwrap();
        symlink("circle", root.path().join("circle")).unwrap();
        let read = |path: &str| read_in_root(root.path(), Path::new(path));
        assert_eq!(read("/absolute").unwrap(), b"inside");
        assert_eq!(read("/empty/up").unwrap(), b"inside");
        assert_eq!(read("/circle"), None);
        assert_eq!(read("/empty"), None);
    }
}
