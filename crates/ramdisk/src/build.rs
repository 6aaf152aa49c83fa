// SPDX-License-Identifier: Apache-2.0
//! Builds a ramdisk: collects all parts, writes the archive, the kernel and the manifest.

use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::{fs, str};

use crate::compress::RamdiskCompression;
use crate::debian::DebianArchive;
use crate::elf::{self, ElfError};
use crate::firmware;
use crate::kernel::{self, KernelError, KernelSource};
use crate::manifest::{FileDigest, KERNEL, MANIFEST, MissingParts, RAMDISK, RamdiskManifest};
use crate::modules::{KernelModules, ModuleSelection, ModulesError};
use crate::profile::DriverProfile;
use crate::programs::{ProgramError, ProgramFinder};
use crate::tables;
use crate::tree::{RamdiskTree, TreeError};

/// The firmware directory of the build host.
const HOST_FIRMWARE_DIR: &str = "/lib/firmware";
/// The default CA bundle of OpenSSL and Go programs.
const CA_BUNDLE_PATH: &str = "etc/ssl/certs/ca-certificates.crt";
const MANAGERS_DIR: &str = "usr/lib/ferrite/managers";
const PASSWD: &str =
    "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n";
const GROUP: &str = "root:x:0:\ndisk:x:6:\nnogroup:x:65534:\n";

/// The inputs of a build.
#[derive(Clone, Debug)]
pub struct RamdiskSpec {
    /// The source of the kernel and its modules.
    pub kernel: KernelSource,
    /// The driver profile.
    pub drivers: DriverProfile,
    /// The agent, a static program.
    pub agent: PathBuf,
    /// Additional modules, by name, pattern or directory.
    pub modules: Vec<String>,
    /// Firmware directories. If empty, that of the build host and, with a Debian kernel, Debian's
    /// firmware packages.
    pub firmware: Vec<PathBuf>,
    /// Whether to include the programs of the profile, as far as they are found.
    pub default_programs: bool,
    /// Additional programs. The build fails if one is not found.
    pub programs: Vec<String>,
    /// PEM files with CA certificates that the agent trusts.
    pub certificates: Vec<PathBuf>,
    /// External hardware managers: programs that extend the agent's hardware support.
    pub managers: Vec<PathBuf>,
    /// Other files.
    pub files: Vec<ExtraFile>,
    /// The output directory.
    pub output: PathBuf,
    /// The cache directory of downloaded packages.
    pub packages: PathBuf,
}

/// A file to include in a ramdisk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraFile {
    /// The path on the build host.
    pub source: PathBuf,
    /// The path in the ramdisk.
    pub destination: String,
}

/// The ramdisk could not be built.
#[derive(Debug, thiserror::Error)]
pub enum RamdiskBuildError {
    /// The agent cannot be read.
    #[error("cannot read the agent {}; give its path with --agent", path.display())]
    NoAgent {
        /// The path.
        path: PathBuf,
        /// The cause.
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The agent cannot be used as `/init`.
    #[error(
        "invalid agent {}; give a static build of ferrite-agent for the architecture of the machines",
        path.display()
    )]
    Agent {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: ElfError,
    },
    /// The kernel.
    #[error("no kernel to build a ramdisk for")]
    Kernel(#[from] KernelError),
    /// The modules.
    #[error("cannot collect the kernel modules")]
    Modules(#[from] ModulesError),
    /// A program.
    #[error("cannot add a program to the ramdisk")]
    Program(#[from] ProgramError),
    /// A path in the ramdisk.
    #[error("cannot add a file to the ramdisk")]
    Tree(#[from] TreeError),
    /// An input file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Not a certificate.
    #[error("{} contains no PEM certificate", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
    },
    /// A module cannot be compressed.
    #[error("cannot compress the module {module}")]
    Pack {
        /// The module.
        module: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The output cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Builds a ramdisk: the files `kernel`, `ramdisk` and `ramdisk.toml`. Existing files are replaced
/// only if the build succeeds.
pub fn build(spec: &RamdiskSpec) -> Result<RamdiskManifest, RamdiskBuildError> {
    let failed = |name: &str| {
        let path = spec.output.join(name);
        move |source| RamdiskBuildError::Write { path, source }
    };
    // Cheap checks first, downloads later.
    let agent = fs::read(&spec.agent)
        .map_err(|source| RamdiskBuildError::NoAgent { path: spec.agent.clone(), source })?;
    let not_usable = |source| RamdiskBuildError::Agent { path: spec.agent.clone(), source };
    elf::dependencies(&agent).map_err(not_usable)?;
    let mut tree = base_tree()?;
    add_user_files(&mut tree, spec)?;

    let profile = spec.drivers.contents();
    let archive = DebianArchive::new(&spec.packages);
    let kernel = kernel::find_kernel(&spec.kernel, profile.kernel_package(), &archive)?;
    let library = KernelModules::open(&kernel.modules)?;
    kernel.check_version(&library.version)?;
    elf::check_static(&agent, library.architecture).map_err(not_usable)?;
    let agent_facts = FileDigest::of(&agent);
    tree.add_file("init", 0o755, agent)?;

    let selection = library.select(&profile.module_request(&spec.modules))?;
    add_modules(&mut tree, &library.version, &selection)?;
    let firmware = find_firmware(spec, &profile.firmware_packages, &selection, &archive);
    for (path, bytes) in &firmware.files {
        tree.add_file(&format!("lib/firmware/{path}"), 0o644, bytes.clone())?;
    }
    let architecture = library.architecture;
    let finder = ProgramFinder { root: Path::new("/"), archive: &archive, architecture };
    let mut missing = MissingParts {
        modules: selection.unknown.clone(),
        firmware: firmware.missing,
        ..MissingParts::default()
    };
    let defaults = if spec.default_programs { profile.programs.as_slice() } else { &[] };
    let programs = add_programs(&mut tree, &finder, defaults, &spec.programs, &mut missing)?;
    add_managers(&mut tree, &finder, &spec.managers, &mut missing)?;

    let mut unpacked = Vec::new();
    tree.write(&mut unpacked).map_err(failed(RAMDISK))?;
    let compression = RamdiskCompression::best(kernel.config.as_deref());
    let ramdisk = compression.compress(&unpacked).map_err(failed(RAMDISK))?;
    let manifest = RamdiskManifest {
        made_by: concat!("ferrite ", env!("CARGO_PKG_VERSION")).to_owned(),
        drivers: spec.drivers.name().to_owned(),
        kernel_version: library.version.clone(),
        kernel_origin: kernel.origin.clone(),
        architecture: architecture.name().to_owned(),
        compression,
        unpacked_size: unpacked.len() as u64,
        programs,
        modules: selection.modules.keys().cloned().collect(),
        load_first: selection.load_first.clone(),
        load_later: selection.load_later.clone(),
        firmware: firmware.files.into_keys().collect(),
        kernel: FileDigest::of(&kernel.bytes),
        ramdisk: FileDigest::of(&ramdisk),
        agent: agent_facts,
        missing,
    };
    let manifest_text = toml::to_string(&manifest).expect("the manifest is valid TOML");
    let results: [(&str, &[u8]); 3] =
        [(KERNEL, &kernel.bytes), (RAMDISK, &ramdisk), (MANIFEST, manifest_text.as_bytes())];
    replace_files(&spec.output, &results)?;
    Ok(manifest)
}

/// Returns the directories and files that every ramdisk contains.
fn base_tree() -> Result<RamdiskTree, TreeError> {
    let mut tree = RamdiskTree::default();
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
        (MANAGERS_DIR, 0o755),
    ] {
        tree.add_dir(path, mode)?;
    }
    for path in ["bin", "sbin", "usr/sbin"] {
        let to = if path.starts_with("usr/") { "bin" } else { "usr/bin" };
        tree.add_symlink(path, to)?;
    }
    // The kernel opens /dev/console for init before anything is mounted on /dev.
    tree.add_char_device("dev/console", 0o600, (5, 1))?;
    tree.add_char_device("dev/null", 0o666, (1, 3))?;
    tree.add_file("etc/passwd", 0o644, PASSWD.into())?;
    tree.add_file("etc/group", 0o644, GROUP.into())?;
    Ok(tree)
}

/// Adds certificates and additional files.
fn add_user_files(tree: &mut RamdiskTree, spec: &RamdiskSpec) -> Result<(), RamdiskBuildError> {
    let mut certificates = Vec::new();
    for path in &spec.certificates {
        let bytes = read_file(path)?;
        let is_pem =
            str::from_utf8(&bytes).is_ok_and(|text| text.contains("-----BEGIN CERTIFICATE"));
        if !is_pem {
            return Err(RamdiskBuildError::Certificate { path: path.clone() });
        }
        certificates.extend(bytes);
        certificates.push(b'\n');
    }
    if !certificates.is_empty() {
        tree.add_file(CA_BUNDLE_PATH, 0o644, certificates)?;
    }
    for file in &spec.files {
        let bytes = read_file(&file.source)?;
        tree.add_file(&file.destination, file_mode(&file.source)?, bytes)?;
    }
    Ok(())
}

/// Adds the modules and their tables. Each module is compressed on its own and decompressed by the
/// agent when it is loaded, so unused modules take little memory.
fn add_modules(
    tree: &mut RamdiskTree,
    version: &str,
    selection: &ModuleSelection,
) -> Result<(), RamdiskBuildError> {
    let folder = format!("lib/modules/{version}");
    for module in selection.modules.values() {
        let packed = RamdiskCompression::Zstd
            .compress(&module.bytes)
            .map_err(|source| RamdiskBuildError::Pack { module: module.path.clone(), source })?;
        tree.add_file(&format!("{folder}/{}", module.path), 0o644, packed)?;
    }
    for (name, table) in [
        ("modules.dep", tables::dependencies(selection)),
        ("modules.alias", tables::aliases(selection)),
        ("modules.softdep", tables::soft_dependencies(selection)),
        ("ferrite.order", tables::order(&selection.load_first)),
        ("ferrite.later", tables::order(&selection.load_later)),
    ] {
        tree.add_file(&format!("{folder}/{name}"), 0o644, table.into_bytes())?;
    }
    Ok(())
}

fn find_firmware(
    spec: &RamdiskSpec,
    packages: &[String],
    selection: &ModuleSelection,
    archive: &DebianArchive,
) -> firmware::FirmwareFiles {
    if !spec.firmware.is_empty() {
        return firmware::collect(selection, &spec.firmware);
    }
    let mut folders = vec![PathBuf::from(HOST_FIRMWARE_DIR)];
    let unpacked = match spec.kernel {
        KernelSource::Debian { .. } if !packages.is_empty() => {
            firmware::unpack_debian_firmware(packages, archive)
        }
        KernelSource::Debian { .. } | KernelSource::Files { .. } | KernelSource::Running => None,
    };
    if let Some(root) = &unpacked {
        folders.extend(["lib/firmware", "usr/lib/firmware"].map(|folder| root.path().join(folder)));
    }
    firmware::collect(selection, &folders)
}

/// Adds programs and returns their origins. Default programs may be missing.
fn add_programs(
    tree: &mut RamdiskTree,
    finder: &ProgramFinder<'_>,
    defaults: &[String],
    requested: &[String],
    missing: &mut MissingParts,
) -> Result<std::collections::BTreeMap<String, String>, RamdiskBuildError> {
    let mut origins = std::collections::BTreeMap::new();
    for name in defaults.iter().chain(requested) {
        let program = match finder.find(name) {
            Ok(program) => program,
            Err(error) if !requested.contains(name) => {
                missing.programs.insert(name.clone(), error.to_string());
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for (path, bytes) in program.libraries {
            tree.add_file(&path, 0o755, bytes)?;
        }
        // The default search path of the kernel and libc: init has no `PATH`.
        tree.add_file(&format!("usr/bin/{name}"), 0o755, program.bytes)?;
        origins.insert(name.clone(), program.origin);
    }
    // The shell of rescue users.
    if origins.contains_key("busybox") && !origins.contains_key("sh") {
        tree.add_symlink("usr/bin/sh", "busybox")?;
    }
    Ok(origins)
}

fn add_managers(
    tree: &mut RamdiskTree,
    finder: &ProgramFinder<'_>,
    managers: &[PathBuf],
    missing: &mut MissingParts,
) -> Result<(), RamdiskBuildError> {
    for path in managers {
        let bytes = read_file(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        for (path, bytes) in finder.host_libraries(path, &bytes)? {
            tree.add_file(&path, 0o755, bytes)?;
        }
        if let Some(interpreter) =
            script_interpreter(&bytes).filter(|program| !tree.contains(program))
        {
            missing.interpreters.insert(name.clone().into_owned(), interpreter);
        }
        tree.add_file(&format!("{MANAGERS_DIR}/{name}"), 0o755, bytes)?;
    }
    Ok(())
}

/// Returns the interpreter of a script.
fn script_interpreter(bytes: &[u8]) -> Option<String> {
    let line = bytes.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let line = str::from_utf8(line).ok()?;
    Some(line.split_whitespace().next()?.to_owned())
}

fn read_file(path: &Path) -> Result<Vec<u8>, RamdiskBuildError> {
    fs::read(path).map_err(|source| RamdiskBuildError::Read { path: path.to_owned(), source })
}

/// Returns 0755 for executable files and 0644 for others.
fn file_mode(path: &Path) -> Result<u32, RamdiskBuildError> {
    let metadata = fs::metadata(path)
        .map_err(|source| RamdiskBuildError::Read { path: path.to_owned(), source })?;
    Ok(if metadata.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 })
}

/// Writes all files under temporary names, then renames them.
fn replace_files(folder: &Path, files: &[(&str, &[u8])]) -> Result<(), RamdiskBuildError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| RamdiskBuildError::Write { path, source }
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let mut written = Vec::new();
    for (name, bytes) in files {
        let path = folder.join(name);
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(bytes)?;
            // Another user may serve the files; the directory's permissions control access.
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
