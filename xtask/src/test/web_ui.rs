// SPDX-License-Identifier: Apache-2.0
//! The checks and browser tests of the web UI, in front of the real program with a simulated fleet.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::programs::TestProgram;
use crate::interrupt::Interrupt;
use crate::{install, repository, shell};

/// The name of the browser tests in the list of test programs.
pub(super) const PROGRAM: &str = "web-ui browser tests";
const FOLDER: &str = "page-tests";
/// Measures times, so it runs alone.
const MEASURED_FILE: &str = "scale.test.js";
/// The browser tests mostly wait for machines.
const FILES_AT_ONCE: &str = "2";

/// Installs the npm packages of the checks and tests. Needs the network.
pub(super) fn install(root: &Path) -> Result<()> {
    let mut install = Command::new("npm");
    install.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
    shell::output_of(install.current_dir(root.join(FOLDER)))?;
    Ok(())
}

/// Types, lints, formatting and unit tests of the JavaScript.
pub(super) fn check(root: &Path, interrupt: &Interrupt) -> Result<()> {
    shell::run(Command::new("npm").args(["run", "check"]).current_dir(root.join(FOLDER)), interrupt)
}

/// The browser tests, except those that measure times.
pub(super) fn program(root: &Path) -> Result<TestProgram> {
    let folder = root.join(FOLDER);
    let mut files = test_files(&folder)?;
    files.retain(|name| name != MEASURED_FILE);
    Ok(TestProgram { name: PROGRAM.to_owned(), command: node_test(root, FILES_AT_ONCE, &files) })
}

/// The browser tests that measure times.
pub(super) fn measured_program(root: &Path) -> Result<TestProgram> {
    let files = [MEASURED_FILE.to_owned()];
    ensure!(root.join(FOLDER).join(MEASURED_FILE).exists(), "{FOLDER}/{MEASURED_FILE} is missing");
    Ok(TestProgram { name: format!("{PROGRAM} at scale"), command: node_test(root, "1", &files) })
}

fn node_test(root: &Path, at_once: &str, files: &[String]) -> Command {
    let target = absolute(repository::target(root));
    let mut command = Command::new("node");
    command
        .args(["--test", "--test-reporter=spec", &format!("--test-concurrency={at_once}")])
        .args(files)
        .current_dir(root.join(FOLDER))
        .env("FERRITE_TEST_BINARY", target.join("debug/ferrite"))
        .env("FERRITE_TEST_PICTURES", target.join("page-pictures"))
        .env("CHROMIUM", install::CHROMIUM);
    command
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// The names of the browser test files, sorted.
fn test_files(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".test.js") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}
