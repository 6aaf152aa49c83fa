// SPDX-License-Identifier: Apache-2.0
//! Puts a ramdisk together.

use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::{fs, str};

use crate::compress::Compression;
use crate::debian::Archive;
use crate::elf::{self, ElfError};
use crate::firmware;
use crate::kernel::{self, KernelError, KernelSource};
use crate::manifest::{Facts, KERNEL, MANIFEST, Manifest, Missing, RAMDISK};
use crate::modules::{Library, ModulesError, Selection};
use crate::profile::Drivers;
use crate::programs::{ProgramError, Shelves};
use crate::tables;
use crate::tree::{Tree, TreeError};

/// Where the system we run on keeps firmware.
const HOST_FIRMWARE: &str = "/lib/firmware";
/// Where programs that were written for OpenSSL or Go look for certificates.
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";
const MANAGERS: &str = "usr/lib/ferrite/managers";
const PASSWD: &str =
    "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n";
const GROUP: &str = "root:x:0:\ndisk:x:6:\nnogroup:x:65534:\n";

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Where the kernel is from.
    pub kernel: KernelSource,
    /// The drivers.
    pub drivers: Drivers,
    /// The agent, a static program.
    pub agent: PathBuf,
    /// Modules besides those of the drivers, by name, pattern or folder.
    pub modules: Vec<String>,
    /// Folders with firmware; by default that of the system we run on, and packages of Debian if the
    /// kernel is one.
    pub firmware: Vec<PathBuf>,
    /// Whether the programs are taken that the agent usually runs.
    pub usual_programs: bool,
    /// Programs besides. Unlike the usual ones, they must be found.
    pub programs: Vec<String>,
    /// Files with certificates (PEM) of authorities that the agent trusts.
    pub certificates: Vec<PathBuf>,
    /// Hardware managers: programs that the agent asks about hardware it does not know.
    pub managers: Vec<PathBuf>,
    /// Other files.
    pub files: Vec<ExtraFile>,
    /// Where the ramdisk goes.
    pub output: PathBuf,
    /// Where fetched packages are kept.
    pub packages: PathBuf,
}

/// A file to be put into a ramdisk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraFile {
    /// The file.
    pub source: PathBuf,
    /// Its path in the ramdisk.
    pub destination: String,
}

/// Why there is no ramdisk.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// There is no agent.
    #[error("the agent {} cannot be read; say with --agent where it is", path.display())]
    NoAgent {
        /// Where it was looked for.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The agent cannot be `/init`.
    #[error(
        "the agent {} cannot be used; give a static build of ferrite-agent for the machines that boot it",
        path.display()
    )]
    Agent {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: ElfError,
    },
    /// The kernel.
    #[error("there is no kernel to make a ramdisk for")]
    Kernel(#[from] KernelError),
    /// The modules.
    #[error("there are no modules to put into the ramdisk")]
    Modules(#[from] ModulesError),
    /// A program.
    #[error("a program cannot be put into the ramdisk")]
    Program(#[from] ProgramError),
    /// A place in the ramdisk.
    #[error("a file cannot be put into the ramdisk")]
    Tree(#[from] TreeError),
    /// A file that was named cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{} holds no certificate in PEM", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
    },
    /// A module cannot be packed.
    #[error("the module {module} cannot be packed")]
    Pack {
        /// The module.
        module: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The result cannot be written.
    #[error("{} cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Makes a ramdisk: the files `kernel`, `ramdisk` and `ramdisk.toml`. What was there before is
/// replaced when all is well, and left alone otherwise.
pub fn build(recipe: &Recipe) -> Result<Manifest, BuildError> {
    let failed = |name: &str| {
        let path = recipe.output.join(name);
        move |source| BuildError::Write { path, source }
    };
    // What can be checked at once comes before what takes a download.
    let agent = fs::read(&recipe.agent)
        .map_err(|source| BuildError::NoAgent { path: recipe.agent.clone(), source })?;
    let not_usable = |source| BuildError::Agent { path: recipe.agent.clone(), source };
    elf::needs(&agent).map_err(not_usable)?;
    let mut tree = fixed_files()?;
    add_own_files(&mut tree, recipe)?;

    let profile = recipe.drivers.profile();
    let archive = Archive::new(&recipe.packages);
    let kernel = kernel::find(&recipe.kernel, profile.package(), &archive)?;
    let library = Library::open(&kernel.modules)?;
    kernel.check(&library.version)?;
    elf::check_static(&agent, library.architecture).map_err(not_usable)?;
    let agent_facts = Facts::of(&agent);
    tree.file("init", 0o755, agent)?;

    let selection = library.select(&profile.wanted(&recipe.modules))?;
    add_modules(&mut tree, &library.version, &selection)?;
    let firmware = find_firmware(recipe, &profile.firmware_packages, &selection, &archive);
    for (path, bytes) in &firmware.files {
        tree.file(&format!("lib/firmware/{path}"), 0o644, bytes.clone())?;
    }
    let architecture = library.architecture;
    let shelves = Shelves { root: Path::new("/"), archive: &archive, architecture };
    let mut missing = Missing {
        modules: selection.unknown.clone(),
        firmware: firmware.missing,
        ..Missing::default()
    };
    let usual = if recipe.usual_programs { profile.programs.as_slice() } else { &[] };
    let programs = add_programs(&mut tree, &shelves, usual, &recipe.programs, &mut missing)?;
    add_managers(&mut tree, &shelves, &recipe.managers, &mut missing)?;

    let mut unpacked = Vec::new();
    tree.write(&mut unpacked).map_err(failed(RAMDISK))?;
    let compression = Compression::best(kernel.config.as_deref());
    let ramdisk = compression.compress(&unpacked).map_err(failed(RAMDISK))?;
    let manifest = Manifest {
        made_by: concat!("ferrite ", env!("CARGO_PKG_VERSION")).to_owned(),
        drivers: recipe.drivers.name().to_owned(),
        kernel_version: library.version.clone(),
        kernel_origin: kernel.origin.clone(),
        architecture: architecture.name().to_owned(),
        compression,
        unpacked_size: unpacked.len() as u64,
        programs,
        modules: selection.modules.keys().cloned().collect(),
        load_first: selection.first.clone(),
        load_later: selection.later.clone(),
        firmware: firmware.files.into_keys().collect(),
        kernel: Facts::of(&kernel.bytes),
        ramdisk: Facts::of(&ramdisk),
        agent: agent_facts,
        missing,
    };
    let told = toml::to_string(&manifest).expect("a manifest is texts and numbers in tables");
    let results: [(&str, &[u8]); 3] =
        [(KERNEL, &kernel.bytes), (RAMDISK, &ramdisk), (MANIFEST, told.as_bytes())];
    replace(&recipe.output, &results)?;
    Ok(manifest)
}

/// What every ramdisk has.
fn fixed_files() -> Result<Tree, TreeError> {
    let mut tree = Tree::default();
    for (path, mode) in [
        ("dev", 0o755),
        ("mnt", 0o755),
        ("proc", 0o555),
        ("root", 0o700),
        ("run", 0o755),
        ("sys", 0o555),
        ("tmp", 0o1777),
        ("usr/bin", 0o755),
        ("var/log", 0o755),
        (MANAGERS, 0o755),
    ] {
        tree.folder(path, mode)?;
    }
    for path in ["bin", "sbin", "usr/sbin"] {
        let to = if path.starts_with("usr/") { "bin" } else { "usr/bin" };
        tree.link(path, to)?;
    }
    // The kernel opens the one for init before anything is mounted on /dev.
    tree.character_device("dev/console", 0o600, (5, 1))?;
    tree.character_device("dev/null", 0o666, (1, 3))?;
    tree.file("etc/passwd", 0o644, PASSWD.into())?;
    tree.file("etc/group", 0o644, GROUP.into())?;
    Ok(tree)
}

/// Certificates, and files that somebody wants in the ramdisk.
fn add_own_files(tree: &mut Tree, recipe: &Recipe) -> Result<(), BuildError> {
    let mut certificates = Vec::new();
    for path in &recipe.certificates {
        let bytes = read(path)?;
        let is_pem =
            str::from_utf8(&bytes).is_ok_and(|text| text.contains("-----BEGIN CERTIFICATE"));
        if !is_pem {
            return Err(BuildError::Certificate { path: path.clone() });
        }
        certificates.extend(bytes);
        certificates.push(b'\n');
    }
    if !certificates.is_empty() {
        tree.file(CERTIFICATES, 0o644, certificates)?;
    }
    for file in &recipe.files {
        let bytes = read(&file.source)?;
        tree.file(&file.destination, mode_of(&file.source)?, bytes)?;
    }
    Ok(())
}

/// Modules are packed one by one, and unpacked by the agent when it loads them: those that are not
/// needed take little of the machine's memory.
fn add_modules(tree: &mut Tree, version: &str, selection: &Selection) -> Result<(), BuildError> {
    let folder = format!("lib/modules/{version}");
    for module in selection.modules.values() {
        let packed = Compression::Zstd
            .compress(&module.bytes)
            .map_err(|source| BuildError::Pack { module: module.path.clone(), source })?;
        tree.file(&format!("{folder}/{}", module.path), 0o644, packed)?;
    }
    for (name, table) in [
        ("modules.dep", tables::dependencies(selection)),
        ("modules.alias", tables::aliases(selection)),
        ("modules.softdep", tables::soft_dependencies(selection)),
        ("ferrite.order", tables::order(&selection.first)),
        ("ferrite.later", tables::order(&selection.later)),
    ] {
        tree.file(&format!("{folder}/{name}"), 0o644, table.into_bytes())?;
    }
    Ok(())
}

fn find_firmware(
    recipe: &Recipe,
    packages: &[String],
    selection: &Selection,
    archive: &Archive,
) -> firmware::Firmware {
    if !recipe.firmware.is_empty() {
        return firmware::collect(selection, &recipe.firmware);
    }
    let mut folders = vec![PathBuf::from(HOST_FIRMWARE)];
    let unpacked = match recipe.kernel {
        KernelSource::Debian { .. } if !packages.is_empty() => {
            firmware::from_debian(packages, archive)
        }
        KernelSource::Debian { .. } | KernelSource::Files { .. } | KernelSource::Running => None,
    };
    if let Some(root) = &unpacked {
        folders.extend(["lib/firmware", "usr/lib/firmware"].map(|folder| root.path().join(folder)));
    }
    firmware::collect(selection, &folders)
}

/// Adds programs, and tells where they are from. The usual ones may be missing.
fn add_programs(
    tree: &mut Tree,
    shelves: &Shelves<'_>,
    usual: &[String],
    asked: &[String],
    missing: &mut Missing,
) -> Result<std::collections::BTreeMap<String, String>, BuildError> {
    let mut origins = std::collections::BTreeMap::new();
    for name in usual.iter().chain(asked) {
        let program = match shelves.program(name) {
            Ok(program) => program,
            Err(error) if !asked.contains(name) => {
                missing.programs.insert(name.clone(), error.to_string());
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for (path, bytes) in program.libraries {
            tree.file(&path, 0o755, bytes)?;
        }
        // Where programs are looked for that no `PATH` says otherwise: init has none.
        tree.file(&format!("usr/bin/{name}"), 0o755, program.bytes)?;
        origins.insert(name.clone(), program.origin);
    }
    // The shell of whoever is let in for rescue.
    if origins.contains_key("busybox") && !origins.contains_key("sh") {
        tree.link("usr/bin/sh", "busybox")?;
    }
    Ok(origins)
}

fn add_managers(
    tree: &mut Tree,
    shelves: &Shelves<'_>,
    managers: &[PathBuf],
    missing: &mut Missing,
) -> Result<(), BuildError> {
    for path in managers {
        let bytes = read(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        for (path, bytes) in shelves.libraries_of(path, &bytes)? {
            tree.file(&path, 0o755, bytes)?;
        }
        if let Some(interpreter) = interpreter(&bytes).filter(|program| !tree.has(program)) {
            missing.interpreters.insert(name.clone().into_owned(), interpreter);
        }
        tree.file(&format!("{MANAGERS}/{name}"), 0o755, bytes)?;
    }
    Ok(())
}

/// The program that runs a script.
fn interpreter(bytes: &[u8]) -> Option<String> {
    let line = bytes.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let line = str::from_utf8(line).ok()?;
    Some(line.split_whitespace().next()?.to_owned())
}

fn read(path: &Path) -> Result<Vec<u8>, BuildError> {
    fs::read(path).map_err(|source| BuildError::Read { path: path.to_owned(), source })
}

/// Programs stay programs.
fn mode_of(path: &Path) -> Result<u32, BuildError> {
    let about =
        fs::metadata(path).map_err(|source| BuildError::Read { path: path.to_owned(), source })?;
    Ok(if about.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 })
}

/// Writes all files, and gives them their names only then.
fn replace(folder: &Path, files: &[(&str, &[u8])]) -> Result<(), BuildError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| BuildError::Write { path, source }
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let mut written = Vec::new();
    for (name, bytes) in files {
        let path = folder.join(name);
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(bytes)?;
            // Others may serve it; the folder says who may look.
            file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
            file.as_file().sync_all()?;
            Ok(file)
        };
        written.push((write().map_err(failed(&path))?, path));
    }
    for (file, path) in written {
        file.persist(&path).map_err(|error| failed(&path)(error.error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
