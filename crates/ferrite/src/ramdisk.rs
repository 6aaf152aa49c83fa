// SPDX-License-Identifier: Apache-2.0
//! `ferrite ramdisk build` builds the ramdisk that machines boot the agent from, and `ferrite serve`
//! finds it in the data directory.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use ironic_client::file_url;
use ramdisk::{ExtraFile, KernelSource, RamdiskManifest, RamdiskSpec};

use crate::config::Config;

/// Paths of the CA bundle of common distributions.
const HOST_CERTIFICATES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];
/// Values of `cpu_arch` for which the data directory can have a ramdisk of its own.
const ARCHITECTURES: [&str; 2] = ["aarch64", "x86_64"];
/// Number of names that are listed before "and N more".
const MAX_LISTED_NAMES: usize = 12;

/// Commands of `ferrite ramdisk`.
#[derive(Subcommand, Debug)]
pub(crate) enum RamdiskCommand {
    /// Build the agent's ramdisk from a kernel and its modules.
    Build(Box<BuildArguments>),
}

/// Options of `ferrite ramdisk build`.
#[derive(Args, Debug)]
pub(crate) struct BuildArguments {
    /// The configuration file (TOML), which may set the data directory.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory, where `ferrite serve` finds the ramdisk.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Write the ramdisk to this directory instead.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Set of drivers; `servers` includes those of `virtual`.
    #[arg(long, default_value = "servers")]
    drivers: DriversArgument,
    /// Download the kernel from Debian's archive with apt; without a name, the newest suitable one.
    #[arg(long, value_name = "PACKAGE", num_args = 0..=1, conflicts_with_all = ["kernel", "modules"])]
    from_debian: Option<Option<String>>,
    /// The kernel; by default the running one.
    #[arg(long, value_name = "FILE", requires = "modules")]
    kernel: Option<PathBuf>,
    /// Folder of the kernel modules, such as /lib/modules/6.1.0-54-amd64.
    #[arg(long, value_name = "DIR", requires = "kernel")]
    modules: Option<PathBuf>,
    /// The agent, a statically linked program; by default `ferrite-agent` beside this program.
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
    /// An additional module: a name, a pattern such as 'snd*' or a folder such as drivers/infiniband/.
    /// May be given several times.
    #[arg(long, value_name = "NAME")]
    with_module: Vec<String>,
    /// An additional program, with its libraries. May be given several times.
    #[arg(long, value_name = "NAME")]
    with_program: Vec<String>,
    /// Omit mdadm, mke2fs, busybox and dropbear: no software RAID, no partition images, no rescue.
    #[arg(long)]
    without_usual_programs: bool,
    /// A folder with firmware, instead of /lib/firmware and Debian's packages.
    #[arg(long, value_name = "DIR")]
    firmware: Vec<PathBuf>,
    /// A file with certificates (PEM) that the agent trusts.
    #[arg(long, value_name = "FILE")]
    ca: Vec<PathBuf>,
    /// Trust the public authorities that this system trusts.
    #[arg(long)]
    host_certificates: bool,
    /// A hardware manager, a program for /usr/lib/ferrite/managers.
    #[arg(long, value_name = "FILE")]
    manager: Vec<PathBuf>,
    /// An additional file.
    #[arg(long, value_name = "FILE:PATH", value_parser = extra_file)]
    file: Vec<ExtraFile>,
}

/// Sets of drivers.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DriversArgument {
    /// Virtual machines: small and quick.
    Virtual,
    /// Servers.
    Servers,
}

/// Runs a command.
pub(crate) fn run(command: &RamdiskCommand) -> anyhow::Result<()> {
    let RamdiskCommand::Build(arguments) = command;
    let recipe = arguments.recipe()?;
    if arguments.output.is_none()
        && let Some(data_dir) = recipe.output.parent()
    {
        prepare(data_dir)?;
    }
    let manifest = ramdisk::build(&recipe)?;
    show(&manifest, &recipe);
    Ok(())
}

/// The ramdisk of the container image, for data directories without one.
const PACKAGED_RAMDISK: &str = "/usr/lib/ferrite/ramdisk";

/// The agent of the Debian package.
const PACKAGED_AGENT: &str = "/usr/lib/ferrite/ferrite-agent";

/// Configures the ramdisk in the data directory, or else the one of the container image, unless
/// another one is configured.
pub(crate) fn use_data_dir_ramdisk(config: &mut Config, data_dir: &Path) {
    let folders = [ramdisk_folder(data_dir), PathBuf::from(PACKAGED_RAMDISK)];
    use_first_ramdisk(config, &folders);
    for architecture in ARCHITECTURES {
        use_architecture_ramdisk(config, architecture, &folders);
    }
}

/// Configures the ramdisk of an architecture, which is in a folder with its name, unless another one is
/// configured.
fn use_architecture_ramdisk(config: &mut Config, architecture: &str, folders: &[PathBuf]) {
    let boot = &mut config.boot;
    let (kernels, ramdisks) = (&mut boot.deploy_kernel_by_arch, &mut boot.deploy_ramdisk_by_arch);
    if !boot.enabled || kernels.contains_key(architecture) || ramdisks.contains_key(architecture) {
        return;
    }
    let folders = folders.iter().filter_map(|folder| folder.join(architecture).canonicalize().ok());
    let mut found = folders.filter_map(|folder| Some((ramdisk::find(&folder)?, folder)));
    let Some((found, folder)) = found.next() else { return };
    tracing::info!(
        ramdisk = %found.ramdisk.display(),
        architecture,
        "using the ramdisk of the architecture"
    );
    kernels.insert(architecture.to_owned(), file_url(&found.kernel));
    ramdisks.insert(architecture.to_owned(), file_url(&found.ramdisk));
    config.images.file_url_allowed_paths.push(folder);
}

/// Configures the ramdisk in the first of these folders that has one.
fn use_first_ramdisk(config: &mut Config, folders: &[PathBuf]) {
    let boot = &mut config.boot;
    if !boot.enabled || boot.deploy_kernel.is_some() || boot.deploy_ramdisk.is_some() {
        return;
    }
    // File URLs need an absolute path.
    let folders = folders.iter().filter_map(|folder| folder.canonicalize().ok());
    let mut found = folders.filter_map(|folder| Some((ramdisk::find(&folder)?, folder)));
    let Some((found, folder)) = found.next() else { return };
    let about = found.manifest.as_ref();
    tracing::info!(
        ramdisk = %found.ramdisk.display(),
        kernel = about.map_or("unknown", |manifest| manifest.kernel_version.as_str()),
        drivers = about.map_or("unknown", |manifest| manifest.drivers.as_str()),
        "using the ramdisk that was found"
    );
    boot.deploy_kernel = Some(file_url(&found.kernel));
    boot.deploy_ramdisk = Some(file_url(&found.ramdisk));
    config.images.file_url_allowed_paths.push(folder);
}

/// The default ramdisk folder of `ferrite serve`.
pub(crate) fn default_folder() -> anyhow::Result<PathBuf> {
    Ok(ramdisk_folder(&Config::load(None, std::env::vars())?.data_dir()?))
}

impl BuildArguments {
    fn recipe(&self) -> anyhow::Result<RamdiskSpec> {
        let mut config = Config::load(self.config.as_deref(), std::env::vars())?;
        if self.data_dir.is_some() {
            config.data_dir.clone_from(&self.data_dir);
        }
        let data_dir = config.data_dir()?;
        let kernel = match (&self.from_debian, &self.kernel, &self.modules) {
            (Some(package), _, _) => KernelSource::Debian { package: package.clone() },
            (None, Some(kernel), Some(modules)) => {
                KernelSource::Files { kernel: kernel.clone(), modules: modules.clone() }
            }
            // clap requires both or neither.
            (None, _, _) => KernelSource::Running,
        };
        let mut certificates = self.ca.clone();
        if self.host_certificates {
            certificates.push(host_certificates()?);
        }
        Ok(RamdiskSpec {
            kernel,
            drivers: match self.drivers {
                DriversArgument::Virtual => ramdisk::DriverProfile::Virtual,
                DriversArgument::Servers => ramdisk::DriverProfile::Servers,
            },
            agent: match &self.agent {
                Some(agent) => agent.clone(),
                None => default_agent()?,
            },
            modules: self.with_module.clone(),
            firmware: self.firmware.clone(),
            default_programs: !self.without_usual_programs,
            programs: self.with_program.clone(),
            certificates,
            managers: self.manager.clone(),
            files: self.file.clone(),
            output: self.output.clone().unwrap_or_else(|| ramdisk_folder(&data_dir)),
            // Not in the ramdisk folder, which image URLs may refer to.
            packages: data_dir.join("packages"),
        })
    }
}

/// Creates the data directory with the permissions that `ferrite serve` uses.
fn prepare(data_dir: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data_dir);
    created.with_context(|| {
        let shown = data_dir.display();
        format!("cannot create the data directory {shown}; give another with --data-dir")
    })
}

fn ramdisk_folder(data_dir: &Path) -> PathBuf {
    data_dir.join("ramdisk")
}

fn default_agent() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find this program; give --agent")?;
    let beside = program.with_file_name("ferrite-agent");
    let packaged = PathBuf::from(PACKAGED_AGENT);
    Ok(if !beside.exists() && packaged.exists() { packaged } else { beside })
}

fn host_certificates() -> anyhow::Result<PathBuf> {
    match HOST_CERTIFICATES.iter().map(Path::new).find(|path| path.is_file()) {
        Some(path) => Ok(path.to_owned()),
        None => {
            bail!("this system has no CA bundle; install ca-certificates")
        }
    }
}

fn extra_file(text: &str) -> Result<ExtraFile, String> {
    match text.rsplit_once(':') {
        Some((source, destination)) if !source.is_empty() && destination.starts_with('/') => {
            Ok(ExtraFile { source: source.into(), destination: destination.to_owned() })
        }
        _ => Err("give a file and its path in the ramdisk, such as motd:/etc/motd".to_owned()),
    }
}

#[expect(clippy::print_stdout, reason = "the output of the command")]
fn show(manifest: &RamdiskManifest, recipe: &RamdiskSpec) {
    print!("{}", summary(manifest, recipe));
}

fn summary(manifest: &RamdiskManifest, recipe: &RamdiskSpec) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<9}{value}");
    };
    line(
        "kernel",
        format!(
            "{}, {} ({})",
            manifest.kernel_version,
            megabytes(manifest.kernel.size),
            manifest.kernel_origin
        ),
    );
    line(
        "ramdisk",
        format!(
            "{} ({}), {} unpacked: {} modules for {}, {} firmware files",
            megabytes(manifest.ramdisk.size),
            manifest.compression,
            megabytes(manifest.unpacked_size),
            manifest.modules.len(),
            manifest.drivers,
            manifest.firmware.len()
        ),
    );
    for (name, origin) in &manifest.programs {
        line("program", format!("{name} ({origin})"));
    }
    if manifest.ramdisk.size > recipe.drivers.max_size() {
        let usual = megabytes(recipe.drivers.max_size());
        line("large", format!("more than the usual {usual} for {}", manifest.drivers));
    }
    let missing = &manifest.missing;
    if !missing.modules.is_empty() {
        let names = join_first(missing.modules.iter().cloned());
        line("missing", format!("modules that this kernel lacks: {names}"));
    }
    for (name, why) in &missing.programs {
        line("missing", format!("the program {name}: {why}"));
    }
    for (name, interpreter) in &missing.interpreters {
        line(
            "missing",
            format!("{interpreter}, which runs {name}: add it with --with-program or --file"),
        );
    }
    if !missing.firmware.is_empty() {
        let drivers =
            missing.firmware.iter().map(|(name, files)| format!("{name} ({})", files.len()));
        let names = join_first(drivers);
        line(
            "missing",
            format!("firmware files, by driver: {names}; give their folder with --firmware"),
        );
    }
    line("written", format!("to {}; ramdisk.toml lists the content", recipe.output.display()));
    text
}

fn join_first(names: impl ExactSizeIterator<Item = String>) -> String {
    let left = names.len().saturating_sub(MAX_LISTED_NAMES);
    let mut shown = names.take(MAX_LISTED_NAMES).collect::<Vec<_>>().join(", ");
    if left > 0 {
        let _ = write!(shown, " and {left} more");
    }
    shown
}

fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_extra_files() {
        let expected = ExtraFile { source: "a:b".into(), destination: "/etc/motd".to_owned() };
        assert_eq!(extra_file("a:b:/etc/motd"), Ok(expected));
        for wrong in ["motd", ":/etc/motd", "motd:etc/motd"] {
            extra_file(wrong).unwrap_err();
        }
    }

    #[test]
    fn uses_the_ramdisk_in_the_data_directory_before_the_packaged_one() {
        let data_dir = tempfile::tempdir().unwrap();
        let folder = data_dir.path().join("ramdisk");
        let packaged = data_dir.path().join("packaged");
        let before = Config::default();
        let configured = |mut config: Config| {
            use_first_ramdisk(&mut config, &[folder.clone(), packaged.clone()]);
            config
        };
        assert_eq!(configured(before.clone()).boot, before.boot);
        std::fs::create_dir(&packaged).unwrap();
        std::fs::write(packaged.join("kernel"), "kernel").unwrap();
        std::fs::write(packaged.join("ramdisk"), "ramdisk").unwrap();
        let url = format!("file://{}/kernel", packaged.canonicalize().unwrap().display());
        assert_eq!(configured(before.clone()).boot.deploy_kernel, Some(url));
        std::fs::remove_file(packaged.join("ramdisk")).unwrap();
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("kernel"), "kernel").unwrap();
        assert_eq!(
            configured(before.clone()).boot,
            before.boot,
            "a kernel without a ramdisk is ignored"
        );
        std::fs::write(folder.join("ramdisk"), "ramdisk").unwrap();
        std::fs::write(packaged.join("ramdisk"), "ramdisk").unwrap();

        let config = configured(before.clone());
        let folder = folder.canonicalize().unwrap();
        assert_eq!(config.boot.deploy_kernel, Some(format!("file://{}/kernel", folder.display())));
        assert_eq!(
            config.boot.deploy_ramdisk,
            Some(format!("file://{}/ramdisk", folder.display()))
        );
        let allowed: Vec<_> = config
            .images
            .file_url_allowed_paths
            .iter()
            .filter(|path| !before.images.file_url_allowed_paths.contains(path))
            .collect();
        assert_eq!(allowed, [&folder], "nothing else of the data directory is allowed");

        let mut named = before.clone();
        named.boot.deploy_ramdisk = Some("http://images/ramdisk".to_owned());
        assert_eq!(configured(named.clone()).boot, named.boot);
    }

    #[test]
    fn uses_the_ramdisks_of_architectures() {
        let data_dir = tempfile::tempdir().unwrap();
        let folder = data_dir.path().canonicalize().unwrap().join("aarch64");
        let configured = |mut config: Config| {
            use_architecture_ramdisk(&mut config, "aarch64", &[data_dir.path().to_owned()]);
            config
        };
        let before = Config::default();
        assert_eq!(configured(before.clone()).boot, before.boot);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("kernel"), "kernel").unwrap();
        std::fs::write(folder.join("ramdisk"), "ramdisk").unwrap();
        let config = configured(before.clone());
        let expected = format!("file://{}/ramdisk", folder.display());
        assert_eq!(config.boot.deploy_ramdisk_by_arch.get("aarch64"), Some(&expected));
        assert_eq!(config.boot.deploy_kernel_by_arch.len(), 1);
        assert!(config.images.file_url_allowed_paths.contains(&folder));
        let mut named = before;
        let other = [("aarch64".to_owned(), "http://images/arm".to_owned())];
        named.boot.deploy_kernel_by_arch = other.into();
        assert_eq!(configured(named.clone()).boot, named.boot);
    }

    #[test]
    fn shortens_long_lists() {
        let names = |count: usize| join_first((0..count).map(|number| number.to_string()));
        assert_eq!(names(2), "0, 1");
        assert!(names(15).ends_with("11 and 3 more"), "{}", names(15));
        assert_eq!(megabytes(10_250_000), "10.2 MB");
    }
}
