// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask test`: everything CI runs, with everything it needs.

mod clients;
mod servers;
mod tally;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::interrupt::Interrupt;
use crate::{install, repository, say, shell, tidy};
use servers::Servers;
use tally::Tally;

/// Runs all checks, goes on after a failure so that one run tells everything, and says at the end
/// how it went. The last line is what CI reads.
pub(crate) fn run(quick: bool) -> Result<()> {
    let root = repository::root();
    let interrupt = Interrupt::watch()?;
    let mut report = Report::default();
    let mut tally = Tally::default();

    // PyPI is slow and the compiler does not need it: both at once.
    let clients = (!quick).then(|| spawn_clients(&root, &interrupt)).transpose()?;

    report.step("formatting", &interrupt, || {
        shell::run(shell::cargo(&root).args(["fmt", "--all", "--check"]), &interrupt)
    });
    report.step("tidiness", &interrupt, tidy::run);
    report.step("lints", &interrupt, || {
        let mut clippy = shell::cargo(&root);
        clippy.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
        shell::run(&mut clippy, &interrupt)
    });
    report.step("tests", &interrupt, || {
        let mut tests = shell::cargo(&root);
        tests.args(["test", "--workspace", "--no-fail-fast"]);
        let outside = clients.map(Outside::prepare_with(&interrupt)).transpose()?;
        if let Some(outside) = &outside {
            tests.envs(outside.servers.variables()).env("FERRITE_TEST_CLIENTS", &outside.clients);
        }
        shell::run_and_read(&mut tests, &interrupt, |line| tally.read(line))
    });
    if !quick {
        report.step("release build", &interrupt, || {
            shell::run(
                shell::cargo(&root).args(["build", "--release", "--package", "ferrite"]),
                &interrupt,
            )
        });
    }
    report.finish(tally)
}

/// Runs one command with the servers up.
pub(crate) fn with_servers(command: &[String]) -> Result<()> {
    let interrupt = Interrupt::watch()?;
    let (program, arguments) = command.split_first().context("no command given")?;
    let servers = Servers::start(&install::servers(&interrupt)?)?;
    shell::run(Command::new(program).args(arguments).envs(servers.variables()), &interrupt)
}

/// What the tests talk to that is not ours.
struct Outside {
    servers: Servers,
    clients: PathBuf,
}

type ClientsThread = thread::JoinHandle<Result<PathBuf>>;

impl Outside {
    fn prepare_with(interrupt: &Interrupt) -> impl FnOnce(ClientsThread) -> Result<Self> {
        move |clients| {
            let servers = Servers::start(&install::servers(interrupt)?)?;
            let clients = match clients.join() {
                Ok(clients) => clients?,
                Err(_) => bail!("the thread that installs the clients panicked"),
            };
            Ok(Self { servers, clients })
        }
    }
}

fn spawn_clients(root: &Path, interrupt: &Interrupt) -> Result<ClientsThread> {
    install::python(interrupt)?;
    let root = root.to_owned();
    Ok(thread::spawn(move || clients::ensure(&root)))
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
