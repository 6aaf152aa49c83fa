// SPDX-License-Identifier: Apache-2.0
//! Runs the simulation with one seed, or with new seeds for some minutes.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use simulation::{SimulationReport, simulate};

/// Simulates three processes of Ferrite with faults.
#[derive(Parser)]
struct SimulateArguments {
    /// Run this seed and print its events.
    #[arg(long, conflicts_with = "minutes")]
    seed: Option<u64>,
    /// Run new seeds for this time.
    #[arg(long, default_value_t = 5)]
    minutes: u64,
    /// The first of the new seeds; by default it depends on the time.
    #[arg(long)]
    first_seed: Option<u64>,
}

fn main() -> ExitCode {
    match run(&SimulateArguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            print(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Returns whether no rule was violated.
fn run(arguments: &SimulateArguments) -> Result<bool> {
    if let Some(seed) = arguments.seed {
        let report = simulate(seed)?;
        report.events.iter().for_each(|event| print(event));
        return Ok(report_result(&report));
    }
    let first = arguments.first_seed.unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(1, |since| since.as_secs() * 1000)
    });
    let end = Instant::now() + Duration::from_secs(60 * arguments.minutes);
    let mut is_good = true;
    let mut seed = first;
    while Instant::now() < end {
        is_good &= report_result(&simulate(seed)?);
        seed += 1;
    }
    print(&format!("{} seeds from {first}", seed - first));
    Ok(is_good)
}

/// Prints the violations. Returns whether there are none.
fn report_result(report: &SimulationReport) -> bool {
    for violation in &report.violations {
        print(&format!("seed {}: {violation}", report.seed));
    }
    report.violations.is_empty()
}

fn print(line: &str) {
    // A closed pipe ends nothing that matters.
    let _ = writeln!(std::io::stdout(), "{line}");
}
