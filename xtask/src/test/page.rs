// SPDX-License-Identifier: Apache-2.0
//! The tests of the web page: a browser in front of the real program with a simulated rack.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::tally::Tally;
use crate::interrupt::Interrupt;
use crate::{install, repository, shell};

/// Where they are.
const FOLDER: &str = "page-tests";
/// Those that measure, and so run alone.
const MEASURED: &str = "scale.test.js";

/// Installs what they need and runs them against the program that was built for tests.
pub(crate) fn test(root: &Path, interrupt: &Interrupt, tally: &mut Tally) -> Result<()> {
    install::page(interrupt)?;
    let folder = root.join(FOLDER);
    let mut install = Command::new("npm");
    install.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(&folder);
    shell::run(&mut install, interrupt)?;
    shell::run(shell::cargo(root).args(["build", "--package", "ferrite"]), interrupt)?;
    let (measured, others): (Vec<_>, Vec<_>) =
        files(&folder)?.into_iter().partition(|name| name == MEASURED);
    let target = repository::target(root);
    let mut outcome = Ok(());
    // Most of what the others do is wait for machines: two at a time.
    for (at_a_time, names) in [(2, others), (1, measured)] {
        let mut tests = Command::new("node");
        tests
            .args(["--test", "--test-reporter=spec", &format!("--test-concurrency={at_a_time}")])
            .args(names)
            .current_dir(&folder)
            .env("FERRITE_BINARY", target.join("debug/ferrite"))
            .env("FERRITE_PICTURES", target.join("page-pictures"))
            .env("CHROMIUM", install::CHROMIUM);
        let ran = shell::run_and_read(&mut tests, interrupt, |line| tally.read(line));
        outcome = outcome.and(ran);
    }
    outcome
}

/// The names of the files with tests, in order.
fn files(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".test.js") {
            names.push(name);
        }
    }
    ensure!(names.iter().any(|name| name == MEASURED), "there is no {FOLDER}/{MEASURED}");
    names.sort();
    Ok(names)
}
