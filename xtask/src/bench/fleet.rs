// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask bench fleet`: fleets of simulated machines, deployed at once by one server.
//!
//! The simulated machines run in another process on the same computer, so the elapsed time includes
//! them; processor time and memory are those of the server alone.

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::interrupt::Interrupt;
use crate::{print, repository, shell};

/// Options of `cargo xtask bench fleet`.
#[derive(Args)]
pub(crate) struct FleetBenchOptions {
    /// Number of machines of each fleet; the first is the baseline.
    #[arg(default_values_t = [100, 300, 1000])]
    machines: Vec<u32>,
}

/// The figures of one fleet, as printed by the example of fleet-sim.
#[derive(Clone, Copy)]
struct FleetFigures {
    machines: f64,
    clean: f64,
    deploy: f64,
    cpu: f64,
    /// Memory of the server before and at the peak, in MiB.
    empty: f64,
    peak: f64,
    failed: f64,
}

/// Runs the benchmark and prints the figures.
pub(crate) fn run(options: &FleetBenchOptions) -> Result<()> {
    let root = repository::root();
    let interrupt = Interrupt::watch()?;
    print::heading("building");
    let example = ["--package", "fleet-sim", "--example", "deploy_at_once"];
    for what in [&["--package", "ferrite"][..], &example] {
        let mut build = shell::cargo(&root);
        shell::run(build.args(["build", "--release"]).args(what), &interrupt)?;
    }
    let release = std::path::absolute(repository::target(&root))?.join("release");
    print::heading("measuring");
    let mut command = std::process::Command::new(release.join("examples/deploy_at_once"));
    command.arg(release.join("ferrite"));
    command.args(options.machines.iter().map(u32::to_string));
    let mut fleets = Vec::new();
    let outcome = shell::run_and_capture(&mut command, &interrupt, |line| {
        print::line(line);
        fleets.extend(FleetFigures::read(line));
    });
    print::heading("figures");
    let first = *fleets.first().context("no fleet was deployed")?;
    print(&fleets, first);
    outcome?;
    if fleets.iter().any(|fleet| fleet.failed > 0.0) {
        bail!("not all machines became active");
    }
    Ok(())
}

impl FleetFigures {
    /// Parses a line of figures; returns `None` for other lines.
    fn read(line: &str) -> Option<Self> {
        let numbers: Option<Vec<f64>> =
            line.split_whitespace().map(|word| word.parse().ok()).collect();
        match *numbers?.as_slice() {
            [machines, clean, deploy, _, cpu, _, empty, peak, failed] => {
                Some(Self { machines, clean, deploy, cpu, empty, peak, failed })
            }
            _ => None,
        }
    }

    fn cpu_each(&self) -> f64 {
        self.cpu * 1e3 / self.machines
    }

    fn memory_each(&self) -> f64 {
        (self.peak - self.empty) * 1024.0 / self.machines
    }
}

fn print(fleets: &[FleetFigures], first: FleetFigures) {
    print::line(
        "| machines | active | cleaned in | deployed in | seconds each | of the first's | server CPU \
         | CPU each | of the first's | memory, empty | at its most | memory each | of the first's |",
    );
    print::line(&format!("|{}", "---|".repeat(13)));
    for it in fleets {
        let each = it.deploy / it.machines;
        print::line(&format!(
            "| {} | {} | {:.1} s | {:.1} s | {:.3} s | {:.2} | {:.1} s | {:.1} ms | {:.2} | {:.1} MiB \
             | {:.1} MiB | {:.0} KiB | {:.2} |",
            it.machines,
            it.machines - it.failed,
            it.clean,
            it.deploy,
            each,
            each / (first.deploy / first.machines),
            it.cpu,
            it.cpu_each(),
            it.cpu_each() / first.cpu_each(),
            it.empty,
            it.peak,
            it.memory_each(),
            it.memory_each() / first.memory_each(),
        ));
    }
    print::line("Of the first's: 1.00 grows linearly, less grows slower.");
}

#[test]
fn parses_only_lines_of_figures() {
    assert!(FleetFigures::read("machines  clean s  deploy s").is_none());
    assert!(FleetFigures::read("3 failed: \"no\"").is_none());
    let line = "     100      3.1       5.0       20.0          1.50           15.0      20.5     30.5       0";
    let read = FleetFigures::read(line).expect("nine numbers");
    assert_eq!((read.cpu_each(), read.memory_each()), (15.0, 102.4));
}
