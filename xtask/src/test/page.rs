// SPDX-License-Identifier: Apache-2.0
//! The tests of the web page: a browser in front of the real program with a simulated rack.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::tally::Tally;
use crate::interrupt::Interrupt;
use crate::{install, repository, shell};

/// Where they are.
const FOLDER: &str = "page-tests";

/// Installs what they need and runs them against the program that was built for tests.
pub(crate) fn test(root: &Path, interrupt: &Interrupt, tally: &mut Tally) -> Result<()> {
    install::page(interrupt)?;
    let folder = root.join(FOLDER);
    let mut install = Command::new("npm");
    install.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(&folder);
    shell::run(&mut install, interrupt)?;
    shell::run(shell::cargo(root).args(["build", "--package", "ferrite"]), interrupt)?;
    let target = repository::target(root);
    let mut tests = Command::new("node");
    tests
        // One at a time: some of them measure.
        .args(["--test", "--test-concurrency=1", "--test-reporter=spec"])
        .current_dir(&folder)
        .env("FERRITE_BINARY", target.join("debug/ferrite"))
        .env("FERRITE_PICTURES", target.join("page-pictures"))
        .env("CHROMIUM", install::CHROMIUM);
    shell::run_and_read(&mut tests, interrupt, |line| tally.read(line))
}
