// SPDX-License-Identifier: Apache-2.0
//! Checks the dependencies with cargo-deny: licences, duplicate versions, banned crates, sources and
//! known vulnerabilities, with the rules in `deny.toml`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::interrupt::Interrupt;
use crate::{print, repository, shell};

/// The version that is installed. `deny.toml` is written for it.
const VERSION: &str = "0.20.2";
/// Time limit for the download of the advisory database.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(120);
/// Other users of the processors come first while it is compiled.
const NICENESS: &str = "10";

/// Installs cargo-deny in a thread, beside other builds.
pub(super) struct CargoDenyInstall(thread::JoinHandle<Result<PathBuf>>);

/// Whether known vulnerabilities were checked.
pub(crate) enum AdvisoryCheck {
    Done,
    /// There is no copy of the database, and it cannot be downloaded for this reason.
    Skipped(String),
}

impl CargoDenyInstall {
    /// Returns at once.
    pub(super) fn start(root: &Path) -> Self {
        let root = root.to_owned();
        Self(thread::spawn(move || ensure(&root)))
    }

    /// Waits for the installation and checks the dependencies.
    pub(super) fn check(self, root: &Path, interrupt: &Interrupt) -> Result<AdvisoryCheck> {
        let program = match self.0.join() {
            Ok(installed) => installed?,
            Err(_) => bail!("the installation of cargo-deny panicked"),
        };
        check_with(&program, root, interrupt)
    }
}

/// `cargo xtask deny`: installs cargo-deny if needed and checks the dependencies.
pub(crate) fn run() -> Result<()> {
    let root = repository::root();
    let interrupt = Interrupt::watch()?;
    check_with(&ensure(&root)?, &root, &interrupt).map(drop)
}

impl AdvisoryCheck {
    /// A line for the summary; `None` if everything was checked.
    pub(crate) fn note(&self) -> Option<String> {
        match self {
            Self::Done => None,
            Self::Skipped(reason) => Some(format!("advisories SKIPPED: {reason}")),
        }
    }
}

/// Returns the path of cargo-deny. Compiles it unless it is installed.
fn ensure(root: &Path) -> Result<PathBuf> {
    let installed = PathBuf::from("cargo-deny");
    if has_version(&installed) {
        return Ok(installed);
    }
    let folder = std::path::absolute(repository::target(root))?.join("tools");
    let program = folder.join("bin/cargo-deny");
    if has_version(&program) {
        return Ok(program);
    }
    let build = folder.join("build");
    // Not optimised: it takes one second to run, and three times as long to compile optimised.
    let mut install = Command::new("nice");
    install.args(["-n", NICENESS]).arg(shell::cargo(root).get_program());
    install.args(["install", "cargo-deny", "--version", VERSION, "--locked", "--debug", "--quiet"]);
    install.args(["--force", "--root"]).arg(&folder).arg("--target-dir").arg(&build);
    install.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0").current_dir(root);
    shell::output_of(&mut install).context("cannot install cargo-deny")?;
    fs::remove_dir_all(&build)?;
    Ok(program)
}

fn has_version(program: &Path) -> bool {
    let shown = shell::output_of(Command::new(program).arg("--version"));
    shown.is_ok_and(|text| text.trim() == format!("cargo-deny {VERSION}"))
}

fn check_with(program: &Path, root: &Path, interrupt: &Interrupt) -> Result<AdvisoryCheck> {
    let mut rules = deny(program, root);
    // An exception that is no longer needed is an error, so that the list does not grow stale.
    rules.args(["check", "-D", "unmatched-skip", "-D", "unnecessary-skip"]);
    rules.args(["licenses", "bans", "sources"]);
    shell::run(&mut rules, interrupt)?;
    if let Err(error) = download_advisories(program, root, interrupt) {
        if interrupt.is_raised() {
            return Err(error);
        }
        let reason = format!("{error:#}");
        if !has_advisories() {
            let skipped = AdvisoryCheck::Skipped(reason);
            print::line(&skipped.note().unwrap_or_default());
            return Ok(skipped);
        }
        print::line(&format!("advisories: checked with the existing database: {reason}"));
    }
    let mut advisories = deny(program, root);
    advisories.args(["check", "--disable-fetch", "advisories"]);
    shell::run(&mut advisories, interrupt)?;
    Ok(AdvisoryCheck::Done)
}

fn deny(program: &Path, root: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root).arg("--locked");
    command
}

/// Downloads the advisory database of RustSec, or updates the existing copy.
fn download_advisories(program: &Path, root: &Path, interrupt: &Interrupt) -> Result<()> {
    let mut fetch = deny(program, root);
    fetch.args(["fetch", "db"]);
    // Fails instead of a question for a password.
    fetch.env("GIT_TERMINAL_PROMPT", "0").stdin(Stdio::null()).stdout(Stdio::null());
    let errors = tempfile::NamedTempFile::new()?;
    let mut child = fetch.stderr(errors.reopen()?).spawn()?;
    let downloaded =
        shell::wait(&mut child, "cargo-deny fetch db", Some(DOWNLOAD_TIMEOUT), interrupt);
    downloaded.map_err(|error| {
        let printed = fs::read_to_string(errors.path()).unwrap_or_default();
        let cause = printed.lines().rfind(|line| !line.trim().is_empty());
        error.context(format!(
            "the advisory database cannot be downloaded ({})",
            cause.unwrap_or("no error message").trim()
        ))
    })
}

/// Whether there is a copy of the advisory database in cargo-deny's default place.
fn has_advisories() -> bool {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let databases = home.and_then(|home| fs::read_dir(home.join("advisory-dbs")).ok());
    databases.into_iter().flatten().flatten().any(|entry| entry.path().join("crates").is_dir())
}
