// SPDX-License-Identifier: Apache-2.0
//! Programs of other people that the agent runs, such as mdadm, with the libraries they need. They
//! are taken from the system we run on, or else from Debian's archive.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use crate::debian::{About, Archive, DebianError};
use crate::elf::{self, Architecture, ElfError};
use crate::package::{self, PackageError};

/// The packages of programs that are not called like them.
const PACKAGES: [(&str, &str); 9] = [
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
/// Where programs are besides the `PATH`, as those for root may not be on it.
const PROGRAMS: [&str; 4] = ["usr/sbin", "usr/bin", "sbin", "bin"];
/// How many links one path may have, as with the kernel.
const MOST_LINKS: usize = 40;
/// More packages than any program needs.
const MOST_PACKAGES: usize = 100;

/// Why a program cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// Neither this system nor Debian has it.
    #[error("there is no {name} on this system, and Debian's archive does not help")]
    Unknown {
        /// The program.
        name: String,
        /// Why.
        #[source]
        source: DebianError,
    },
    /// The package has no such program.
    #[error("the package {package} has no program {name}")]
    NotInPackage {
        /// The program.
        name: String,
        /// The package.
        package: String,
    },
    /// It is no name of a program.
    #[error("{name:?} is no name of a program; give one such as mdadm, without a path")]
    Name {
        /// What was given.
        name: String,
    },
    /// A library is missing.
    #[error("{name} needs {library}, which is nowhere to be found")]
    Library {
        /// Who needs it.
        name: String,
        /// The library.
        library: String,
    },
    /// The program or a library of it is damaged.
    #[error("{} cannot be used", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: ElfError,
    },
    /// A package cannot be unpacked.
    #[error("the package {} cannot be used", path.display())]
    Package {
        /// The package.
        path: PathBuf,
        /// Why.
        #[source]
        source: PackageError,
    },
    /// Something cannot be read, or not be written.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Where programs are taken from.
#[derive(Debug)]
pub(crate) struct Shelves<'a> {
    /// The system we run on.
    pub(crate) root: &'a Path,
    pub(crate) archive: &'a Archive,
    pub(crate) architecture: Architecture,
}

/// A program, and the libraries it needs by path.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) bytes: Vec<u8>,
    pub(crate) libraries: BTreeMap<String, Vec<u8>>,
    /// For people: where it is from.
    pub(crate) origin: String,
}

impl Shelves<'_> {
    /// Finds a program by its name.
    pub(crate) fn program(&self, name: &str) -> Result<Program, ProgramError> {
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return Err(ProgramError::Name { name: name.to_owned() });
        }
        if let Some((path, bytes)) = find_program(self.root, name) {
            // What is for other machines, or lacks a library, may be whole in a package.
            if let Ok(libraries) = self.libraries(name, &path, &bytes, &[self.root]) {
                return Ok(Program { bytes, libraries, origin: path.display().to_string() });
            }
        }
        self.packaged(name)
    }

    /// The libraries that a program of the system we run on needs.
    pub(crate) fn libraries_of(
        &self,
        path: &Path,
        bytes: &[u8],
    ) -> Result<BTreeMap<String, Vec<u8>>, ProgramError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.libraries(&name, path, bytes, &[self.root])
    }

    fn packaged(&self, name: &str) -> Result<Program, ProgramError> {
        let known = PACKAGES.iter().find(|(program, _)| *program == name);
        let package = known.map_or(name, |(_, package)| package);
        let unknown = |source| ProgramError::Unknown { name: name.to_owned(), source };
        let about = self.archive.about(package).map_err(unknown)?;
        let root = tempfile::tempdir()
            .map_err(|source| ProgramError::Read { path: std::env::temp_dir(), source })?;
        let unpack = |about: &About| {
            let path = self.archive.fetch(about).map_err(unknown)?;
            package::unpack(&path, root.path(), |path| !path.starts_with("usr/share"))
                .map_err(|source| ProgramError::Package { path, source })
        };
        unpack(&about)?;
        let (path, bytes) = find_program(root.path(), name).ok_or_else(|| {
            ProgramError::NotInPackage { name: name.to_owned(), package: package.to_owned() }
        })?;
        let origin = format!("{} {}", about.name, about.version);
        let roots = [root.path(), self.root];
        if let Ok(libraries) = self.libraries(name, &path, &bytes, &roots) {
            return Ok(Program { bytes, libraries, origin });
        }
        let mut seen = BTreeSet::new();
        let mut to_fetch = VecDeque::from(about.depends);
        while let Some(next) = to_fetch.pop_front() {
            if !next.starts_with("lib") || seen.len() > MOST_PACKAGES || !seen.insert(next.clone())
            {
                continue;
            }
            // What apt does not know is a name that other packages stand in for.
            let Ok(about) = self.archive.about(&next) else { continue };
            unpack(&about)?;
            to_fetch.extend(about.depends);
        }
        let libraries = self.libraries(name, &path, &bytes, &roots)?;
        Ok(Program { bytes, libraries, origin })
    }

    /// Everything the loader will look for, from the first of `roots` that has it.
    fn libraries(
        &self,
        name: &str,
        path: &Path,
        bytes: &[u8],
        roots: &[&Path],
    ) -> Result<BTreeMap<String, Vec<u8>>, ProgramError> {
        let mut found = BTreeMap::new();
        if !bytes.starts_with(b"\x7fELF") {
            return Ok(found);
        }
        let damaged = |path: &Path, source| ProgramError::Damaged { path: path.to_owned(), source };
        let needs = elf::needs(bytes).map_err(|source| damaged(path, source))?;
        if needs.architecture != self.architecture {
            let (found, wanted) = (needs.architecture, self.architecture);
            return Err(damaged(path, ElfError::OtherMachine { found, wanted }));
        }
        let missing = |library: &str| ProgramError::Library {
            name: name.to_owned(),
            library: library.to_owned(),
        };
        if let Some(loader) = needs.loader {
            let bytes = roots.iter().find_map(|root| read_in(root, Path::new(&loader)));
            found.insert(loader.clone(), bytes.ok_or_else(|| missing(&loader))?);
        }
        let mut names = BTreeSet::new();
        let mut to_find: Vec<(String, Vec<String>)> =
            needs.libraries.into_iter().map(|name| (name, needs.folders.clone())).collect();
        while let Some((library, folders)) = to_find.pop() {
            // The loader may be named as a library too.
            let is_loader =
                found.keys().any(|path: &String| path.ends_with(&format!("/{library}")));
            if is_loader || !names.insert(library.clone()) {
                continue;
            }
            let (path, bytes) =
                self.library(&library, &folders, roots).ok_or_else(|| missing(&library))?;
            let needs = elf::needs(&bytes).map_err(|source| damaged(Path::new(&path), source))?;
            to_find.extend(needs.libraries.into_iter().map(|name| (name, needs.folders.clone())));
            found.insert(path, bytes);
        }
        Ok(found)
    }

    /// A library for our kind of machine, from where loaders look, and its path.
    fn library(
        &self,
        name: &str,
        folders: &[String],
        roots: &[&Path],
    ) -> Option<(String, Vec<u8>)> {
        let architecture = self.architecture.name();
        let usual = [
            format!("/lib/{architecture}-linux-gnu"),
            format!("/usr/lib/{architecture}-linux-gnu"),
            "/lib64".to_owned(),
            "/usr/lib64".to_owned(),
            "/lib".to_owned(),
            "/usr/lib".to_owned(),
        ];
        let asked = folders.iter().filter(|folder| folder.starts_with('/'));
        let folders: Vec<&String> = asked.chain(&usual).collect();
        for root in roots {
            for folder in &folders {
                let path = format!("{}/{name}", folder.trim_end_matches('/'));
                let Some(bytes) = read_in(root, Path::new(&path)) else { continue };
                if elf::needs(&bytes).is_ok_and(|needs| needs.architecture == self.architecture) {
                    return Some((path, bytes));
                }
            }
        }
        None
    }
}

fn find_program(root: &Path, name: &str) -> Option<(PathBuf, Vec<u8>)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // The folders of our own `PATH` mean something in our own system only.
    let own = std::env::split_paths(&path).filter(|_| root == Path::new("/"));
    own.chain(PROGRAMS.iter().map(PathBuf::from)).find_map(|folder| {
        let path = folder.join(name);
        Some((Path::new("/").join(&path), read_in(root, &path)?))
    })
}

/// Reads a file of the system at `root`, whose links lead to places in it.
fn read_in(root: &Path, path: &Path) -> Option<Vec<u8>> {
    let mut left = MOST_LINKS;
    let mut ahead: VecDeque<OsString> = names(path);
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
        for name in names(&target).into_iter().rev() {
            ahead.push_front(name);
        }
    }
    let path = at(&done);
    // Not a folder, nor a device that would never end.
    path.is_file().then(|| fs::read(path).ok())?
}

fn names(path: &Path) -> VecDeque<OsString> {
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

    /// A system with one program, its library and its loader.
    fn system() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for folder in ["usr/sbin", "usr/lib/x86_64-linux-gnu", "usr/lib64", "empty"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        symlink("usr/lib", at("lib")).unwrap();
        symlink("/usr/lib64", at("lib64")).unwrap();
        fs::write(at("usr/lib64/ld.so"), fixtures::program(None, &[])).unwrap();
        let library = fixtures::program(None, &["libc.so.6"]);
        fs::write(at("usr/lib/x86_64-linux-gnu/libudev.so.1.7"), library).unwrap();
        symlink("libudev.so.1.7", at("usr/lib/x86_64-linux-gnu/libudev.so.1")).unwrap();
        fs::write(at("usr/lib/x86_64-linux-gnu/libc.so.6"), fixtures::program(None, &["ld.so"]))
            .unwrap();
        let program = fixtures::program(Some("/lib64/ld.so"), &["libudev.so.1", "libc.so.6"]);
        fs::write(at("usr/sbin/ferrite-test-program"), program).unwrap();
        root
    }

    fn with_shelves<T>(root: &Path, then: impl FnOnce(&Shelves<'_>) -> T) -> T {
        let archive = Archive::new(&root.join("packages"));
        let architecture = elf::needs(&fixtures::program(None, &[])).unwrap().architecture;
        then(&Shelves { root, archive: &archive, architecture })
    }

    #[test]
    fn a_program_brings_its_libraries() {
        let root = system();
        let program =
            with_shelves(root.path(), |shelves| shelves.program("ferrite-test-program")).unwrap();
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
    fn a_missing_library_is_told() {
        let root = system();
        let bytes = fixtures::program(Some("/lib64/ld.so"), &["libnone.so.9"]);
        let told = with_shelves(root.path(), |shelves| {
            shelves.libraries_of(Path::new("tool"), &bytes).unwrap_err().to_string()
        });
        assert_eq!(told, "tool needs libnone.so.9, which is nowhere to be found");
        let told = with_shelves(root.path(), |shelves| {
            shelves.program("../etc/passwd").unwrap_err().to_string()
        });
        assert!(told.starts_with("\"../etc/passwd\" is no name of a program"), "{told}");
    }

    #[test]
    fn links_lead_to_places_in_their_own_system() {
        let root = system();
        fs::write(root.path().join("file"), "inside").unwrap();
        symlink("/file", root.path().join("absolute")).unwrap();
        symlink("../../../../file", root.path().join("empty/up")).unwrap();
        symlink("circle", root.path().join("circle")).unwrap();
        let read = |path: &str| read_in(root.path(), Path::new(path));
        assert_eq!(read("/absolute").unwrap(), b"inside");
        assert_eq!(read("/empty/up").unwrap(), b"inside");
        assert_eq!(read("/circle"), None);
        assert_eq!(read("/empty"), None);
    }
}
