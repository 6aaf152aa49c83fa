// SPDX-License-Identifier: Apache-2.0
//! Runs the simulation of three replicas, and chooses the seeds that the tests of a commit run.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::interrupt::Interrupt;
use crate::{repository, shell};

/// The name of the test program.
pub(crate) const PROGRAM: &str = "simulation";
/// The variable with the first of the seeds that depend on the commit.
const FIRST_SEED: &str = "FERRITE_SIMULATION_SEEDS";

/// Options of `cargo xtask simulate`.
#[derive(Args)]
pub(crate) struct SimulateOptions {
    /// Repeat this seed and print its events.
    #[arg(long, conflicts_with = "minutes")]
    seed: Option<u64>,
    /// Run new seeds for this time.
    #[arg(long, default_value_t = 5)]
    minutes: u64,
}

/// Runs the simulation. Fails if a rule is violated.
pub(crate) fn run(options: &SimulateOptions) -> Result<()> {
    let mut command = shell::cargo(&repository::root());
    command.args(["run", "--quiet", "--package", "simulation", "--bin", "simulate", "--"]);
    match options.seed {
        Some(seed) => command.args(["--seed", &seed.to_string()]),
        None => command.args(["--minutes", &options.minutes.to_string()]),
    };
    shell::run(&mut command, &Interrupt::watch()?)
}

/// The variable for seeds that depend on the commit: other seeds for each commit, and always the same ones.
/// Nothing outside a git repository.
pub(crate) fn new_seeds(root: &Path) -> Option<(&'static str, String)> {
    let mut git = Command::new("git");
    git.args(["rev-parse", "HEAD"]).current_dir(root);
    let commit = shell::output_of(&mut git).ok()?;
    let first = u64::from_str_radix(commit.get(..12)?, 16).ok()?;
    Some((FIRST_SEED, first.to_string()))
}
