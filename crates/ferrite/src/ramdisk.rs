// SPDX-License-Identifier: Apache-2.0
//! `ferrite ramdisk build`: makes the ramdisk that machines boot the agent from; and how
//! `ferrite serve` comes by it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use ramdisk::{ExtraFile, KernelSource, Manifest, Recipe};

use crate::config::Config;

/// Where certificates of public authorities are on most systems.
const HOST_CERTIFICATES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];
/// How many names of a list are shown before it is cut.
const SHOWN: usize = 12;

/// What to do with ramdisks.
#[derive(Subcommand, Debug)]
pub(crate) enum RamdiskCommand {
    /// Make the agent's ramdisk from a kernel and its modules.
    Build(Box<BuildArguments>),
}

/// Options of `ferrite ramdisk build`.
#[derive(Args, Debug)]
pub(crate) struct BuildArguments {
    /// The configuration file (TOML), which may name the data directory.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory, where `ferrite serve` finds the ramdisk.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Put the ramdisk here instead.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The machines it is for: `servers` has the drivers of `virtual` too.
    #[arg(long, default_value = "servers")]
    drivers: DriversArgument,
    /// Fetch the kernel from Debian's archive with apt; without a name, the newest that suits.
    #[arg(long, value_name = "PACKAGE", num_args = 0..=1, conflicts_with_all = ["kernel", "modules"])]
    from_debian: Option<Option<String>>,
    /// The kernel; by default the running one.
    #[arg(long, value_name = "FILE", requires = "modules")]
    kernel: Option<PathBuf>,
    /// The kernel's modules, a folder such as /lib/modules/6.1.0-54-amd64.
    #[arg(long, value_name = "DIR", requires = "kernel")]
    modules: Option<PathBuf>,
    /// The agent, a static program; by default `ferrite-agent` beside this program.
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
    /// Another module: a name, a pattern such as 'snd*' or a folder such as drivers/infiniband/.
    /// May be given several times.
    #[arg(long, value_name = "NAME")]
    with_module: Vec<String>,
    /// Another program for the ramdisk, with its libraries. May be given several times.
    #[arg(long, value_name = "NAME")]
    with_program: Vec<String>,
    /// Leave out mdadm, mke2fs, busybox and dropbear: no software RAID, no partition images, no rescue.
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
    /// Another file for the ramdisk.
    #[arg(long, value_name = "FILE:PATH", value_parser = extra_file)]
    file: Vec<ExtraFile>,
}

/// The machines a ramdisk is for.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DriversArgument {
    /// Virtual machines: small and quick.
    Virtual,
    /// Servers.
    Servers,
}

/// Carries out a command.
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

/// Lets machines boot from the ramdisk in the data directory, unless the configuration names another.
pub(crate) fn adopt(config: &mut Config, data_dir: &Path) {
    let boot = &mut config.boot;
    if !boot.enabled || boot.deploy_kernel.is_some() || boot.deploy_ramdisk.is_some() {
        return;
    }
    let folder = folder_in(data_dir);
    // Where we stand may change, and what is told to others must not depend on it.
    let Ok(folder) = folder.canonicalize() else { return };
    let Some(found) = ramdisk::find(&folder) else { return };
    let about = found.manifest.as_ref();
    tracing::info!(
        ramdisk = %found.ramdisk.display(),
        kernel = about.map_or("unknown", |manifest| manifest.kernel_version.as_str()),
        drivers = about.map_or("unknown", |manifest| manifest.drivers.as_str()),
        "machines boot the agent from the ramdisk in the data directory"
    );
    boot.deploy_kernel = Some(file_url(&found.kernel));
    boot.deploy_ramdisk = Some(file_url(&found.ramdisk));
    config.images.file_url_allowed_paths.push(folder);
}

/// The folder of the ramdisk that `ferrite serve` uses if it is told nothing.
pub(crate) fn default_folder() -> anyhow::Result<PathBuf> {
    Ok(folder_in(&Config::load(None, std::env::vars())?.data_dir()?))
}

impl BuildArguments {
    fn recipe(&self) -> anyhow::Result<Recipe> {
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
            // Neither is given without the other.
            (None, _, _) => KernelSource::Running,
        };
        let mut certificates = self.ca.clone();
        if self.host_certificates {
            certificates.push(host_certificates()?);
        }
        Ok(Recipe {
            kernel,
            drivers: match self.drivers {
                DriversArgument::Virtual => ramdisk::Drivers::Virtual,
                DriversArgument::Servers => ramdisk::Drivers::Servers,
            },
            agent: match &self.agent {
                Some(agent) => agent.clone(),
                None => beside_us()?,
            },
            modules: self.with_module.clone(),
            firmware: self.firmware.clone(),
            usual_programs: !self.without_usual_programs,
            programs: self.with_program.clone(),
            certificates,
            managers: self.manager.clone(),
            files: self.file.clone(),
            output: self.output.clone().unwrap_or_else(|| folder_in(&data_dir)),
            // Not in the folder of the ramdisk, as that is open to whoever may name images.
            packages: data_dir.join("packages"),
        })
    }
}

/// Makes the data directory as `ferrite serve` would, which may come after us.
fn prepare(data_dir: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data_dir);
    made.with_context(|| {
        let shown = data_dir.display();
        format!("cannot make the data directory {shown}; give another with --data-dir")
    })
}

fn folder_in(data_dir: &Path) -> PathBuf {
    data_dir.join("ramdisk")
}

fn beside_us() -> anyhow::Result<PathBuf> {
    let us = std::env::current_exe().context("cannot tell where this program is; give --agent")?;
    Ok(us.with_file_name("ferrite-agent"))
}

fn host_certificates() -> anyhow::Result<PathBuf> {
    match HOST_CERTIFICATES.iter().map(Path::new).find(|path| path.is_file()) {
        Some(path) => Ok(path.to_owned()),
        None => {
            bail!("this system has no certificates of public authorities; install ca-certificates")
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

/// The path as an address; letters that mean something there are written as numbers.
pub(crate) fn file_url(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let mut url = "file://".to_owned();
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            let _ = write!(url, "%{byte:02X}");
        }
    }
    url
}

#[expect(clippy::print_stdout, reason = "this is where the program speaks to its user")]
fn show(manifest: &Manifest, recipe: &Recipe) {
    print!("{}", summary(manifest, recipe));
}

fn summary(manifest: &Manifest, recipe: &Recipe) -> String {
    let mut text = String::new();
    let mut line = |name: &str, told: String| {
        let _ = writeln!(text, "{name:<9}{told}");
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
            "{} ({}), {} unpacked: {} modules for {}, {} files of firmware",
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
    if manifest.ramdisk.size > recipe.drivers.largest() {
        let usual = megabytes(recipe.drivers.largest());
        line("large", format!("more than the {usual} that a ramdisk for {} has", manifest.drivers));
    }
    let missing = &manifest.missing;
    if !missing.modules.is_empty() {
        let names = first_of(missing.modules.iter().cloned());
        line("missing", format!("modules that this kernel does not have: {names}"));
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
        let names = first_of(drivers);
        line(
            "missing",
            format!("files of firmware, by driver: {names}; --firmware says where they are"),
        );
    }
    line("written", format!("to {}, with a list of all in ramdisk.toml", recipe.output.display()));
    text
}

fn first_of(names: impl ExactSizeIterator<Item = String>) -> String {
    let left = names.len().saturating_sub(SHOWN);
    let mut shown = names.take(SHOWN).collect::<Vec<_>>().join(", ");
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
    fn files_are_named_with_their_places() {
        let expected = ExtraFile { source: "a:b".into(), destination: "/etc/motd".to_owned() };
        assert_eq!(extra_file("a:b:/etc/motd"), Ok(expected));
        for wrong in ["motd", ":/etc/motd", "motd:etc/motd"] {
            extra_file(wrong).unwrap_err();
        }
    }

    #[test]
    fn a_ramdisk_in_the_data_directory_is_the_default() {
        let data_dir = tempfile::tempdir().unwrap();
        let folder = data_dir.path().join("ramdisk");
        let before = Config::default();
        let adopted = |mut config: Config| {
            adopt(&mut config, data_dir.path());
            config
        };
        assert_eq!(adopted(before.clone()).boot, before.boot);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("kernel"), "kernel").unwrap();
        assert_eq!(adopted(before.clone()).boot, before.boot, "half a ramdisk is none");
        std::fs::write(folder.join("ramdisk"), "ramdisk").unwrap();

        let config = adopted(before.clone());
        let folder = folder.canonicalize().unwrap();
        assert_eq!(config.boot.deploy_kernel, Some(format!("file://{}/kernel", folder.display())));
        assert_eq!(
            config.boot.deploy_ramdisk,
            Some(format!("file://{}/ramdisk", folder.display()))
        );
        let opened: Vec<_> = config
            .images
            .file_url_allowed_paths
            .iter()
            .filter(|path| !before.images.file_url_allowed_paths.contains(path))
            .collect();
        assert_eq!(opened, [&folder], "and nothing else of the data directory");

        let mut named = before.clone();
        named.boot.deploy_ramdisk = Some("http://images/ramdisk".to_owned());
        assert_eq!(adopted(named.clone()).boot, named.boot);
    }

    #[test]
    fn addresses_of_files_can_be_read_back() {
        assert_eq!(file_url(Path::new("/srv/a b%/ü")), "file:///srv/a%20b%25/%C3%BC");
    }

    #[test]
    fn long_lists_are_cut() {
        let names = |count: usize| first_of((0..count).map(|number| number.to_string()));
        assert_eq!(names(2), "0, 1");
        assert!(names(15).ends_with("11 and 3 more"), "{}", names(15));
        assert_eq!(megabytes(10_250_000), "10.2 MB");
    }
}
