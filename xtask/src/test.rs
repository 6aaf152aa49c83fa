// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask test`: everything CI runs, with everything it needs.

pub(crate) mod archive;
mod image;
pub(crate) mod kernel;
mod lab;
pub(crate) mod network;
pub(crate) mod own_agent;
mod page;
pub(crate) mod parts;
pub(crate) mod process;
mod python;
mod ramdisk;
mod servers;
pub(crate) mod stock_agent;
mod tally;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::interrupt::Interrupt;
use crate::{install, repository, say, shell, tidy};
use network::Network;
use parts::{Downloads, LabAndParts, LabParts};
use servers::Servers;
use tally::Tally;

/// Runs all checks, goes on after a failure so that one run tells everything, and says at the end
/// how it went. The last line is what CI reads.
pub(crate) fn run(quick: bool) -> Result<()> {
    if !quick {
        Network::check()?;
    }
    let root = repository::root();
    let interrupt = Interrupt::watch()?;
    let mut report = Report::default();
    let mut tally = Tally::default();

    // What is downloaded is slow and the compiler does not need it: both at once.
    let downloads = (!quick).then(|| Downloads::begin(&root, &interrupt)).transpose()?;

    report.step("formatting", &interrupt, || {
        shell::run(shell::cargo(&root).args(["fmt", "--all", "--check"]), &interrupt)
    });
    report.step("tidiness", &interrupt, tidy::run);
    report.step("lints", &interrupt, || {
        let mut clippy = shell::cargo(&root);
        clippy.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
        shell::run(&mut clippy, &interrupt)
    });
    // Built apart: it may download, which the tests cannot.
    report.step("test build", &interrupt, || {
        let mut build = shell::cargo(&root);
        build.args(["test", "--workspace", "--no-run"]);
        shell::run(&mut build, &interrupt)
    });
    if !quick {
        // Before the tests, whose network has no way out: it may download.
        report.step("page", &interrupt, || page::test(&root, &interrupt, &mut tally));
        report.step("agent build", &interrupt, || own_agent::build(&root, &interrupt));
    }
    report.step("tests", &interrupt, || {
        let mut tests = shell::cargo(&root);
        tests.args(["test", "--workspace", "--no-fail-fast"]);
        let outside = downloads.map(Outside::prepare_with(&interrupt)).transpose()?;
        if let Some(outside) = &outside {
            tests.arg("--offline").envs(outside.servers.variables()).envs(outside.lab.variables());
        }
        shell::run_and_read(&mut tests, &interrupt, |line| tally.read(line))
    });
    report.finish(tally)
}

/// Runs one command with the servers up.
pub(crate) fn with_servers(command: &[String]) -> Result<()> {
    let interrupt = Interrupt::watch()?;
    let (program, arguments) = command.split_first().context("no command given")?;
    let servers = Servers::start(&install::servers(&interrupt)?)?;
    shell::run(Command::new(program).args(arguments).envs(servers.variables()), &interrupt)
}

/// Runs one command with the lab up, in the lab's network.
pub(crate) fn with_lab(command: &[String]) -> Result<()> {
    Network::check()?;
    let interrupt = Interrupt::watch()?;
    let (program, arguments) = command.split_first().context("no command given")?;
    let root = repository::root();
    let downloads = Downloads::begin(&root, &interrupt)?;
    // The command is cargo as a rule, and where it runs nothing can be downloaded.
    shell::run(shell::cargo(&root).args(["fetch", "--quiet"]), &interrupt)?;
    let mut build = shell::cargo(&root);
    shell::run(build.args(["test", "--quiet", "--package", "ferrite", "--no-run"]), &interrupt)?;
    own_agent::build(&root, &interrupt)?;
    let parts = LabParts::prepare(&root, &debug_ferrite(&root)?, downloads, &interrupt)?;
    let _network = Network::enter()?;
    let lab = LabAndParts::start(parts)?;
    let mut command = Command::new(program);
    command.args(arguments).envs(lab.variables()).env("CARGO_NET_OFFLINE", "true");
    shell::run(&mut command, &interrupt)
}

/// The server as the tests build it.
fn debug_ferrite(root: &Path) -> Result<PathBuf> {
    Ok(std::path::absolute(repository::target(root))?.join("debug/ferrite"))
}

/// What the tests talk to that is not ours, in a network of its own. The order of the fields is the
/// order in which things end.
struct Outside {
    servers: Servers,
    lab: LabAndParts,
    _network: Network,
}

impl Outside {
    fn prepare_with(interrupt: &Interrupt) -> impl FnOnce(Downloads) -> Result<Self> {
        move |downloads| {
            let servers = install::servers(interrupt)?;
            let root = repository::root();
            let parts = LabParts::prepare(&root, &debug_ferrite(&root)?, downloads, interrupt)?;
            // From here on nothing can be downloaded.
            let network = Network::enter()?;
            let servers = Servers::start(&servers)?;
            let lab = LabAndParts::start(parts)?;
            Ok(Self { servers, lab, _network: network })
        }
    }
}

/// How each step went.
#[derive(Default)]
struct Report {
    lines: Vec<String>,
    failed: u64,
}

impl Report {
    fn step(&mut self, name: &str, interrupt: &Interrupt, work: impl FnOnce() -> Result<()>) {
        if interrupt.is_raised() {
            return;
        }
        say::heading(name);
        let began = Instant::now();
        let outcome = work();
        let seconds = began.elapsed().as_secs();
        match outcome {
            Ok(()) => self.lines.push(format!("ok      {name} ({seconds} s)")),
            Err(error) => {
                say::problem(&format!("{name}: {error:#}"));
                self.failed += 1;
                self.lines.push(format!("FAILED  {name} ({seconds} s): {error:#}"));
            }
        }
    }

    /// Prints the summary. A failed step that no failed test accounts for counts as one failure,
    /// so that the closing line never says `0 failed` of a run that failed.
    fn finish(self, tally: Tally) -> Result<()> {
        say::heading("summary");
        for line in &self.lines {
            say::line(line);
        }
        let tests_account_for = u64::from(tally.failed > 0);
        let failed = tally.failed + self.failed.saturating_sub(tests_account_for);
        say::line(&format!("{} passed, {failed} failed", tally.passed));
        if self.failed > 0 { std::process::exit(1) } else { Ok(()) }
    }
}
