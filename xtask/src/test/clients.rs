// SPDX-License-Identifier: Apache-2.0
//! The real clients from PyPI, in a virtual environment under `target/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::repository;

/// Every package with its version, so that a run of today and one of next year test the same.
const REQUIREMENTS: &str = "xtask/clients/requirements.txt";

/// Makes the environment unless it is there and up to date; says where it is.
pub(crate) fn ensure(root: &Path) -> Result<PathBuf> {
    let requirements = root.join(REQUIREMENTS);
    let wanted =
        fs::read_to_string(&requirements).with_context(|| format!("cannot read {REQUIREMENTS}"))?;
    let folder = repository::target(root).join("clients");
    // Written last, so an environment that was interrupted half way is made anew.
    let stamp = folder.join("complete");
    if fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
        return Ok(folder);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    quietly(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    quietly(
        Command::new(folder.join("bin/python"))
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--requirement",
            ])
            .arg(&requirements),
    )?;
    fs::write(&stamp, wanted)?;
    Ok(folder)
}

/// Runs a command whose output matters only when it fails; it may run beside others that print.
fn quietly(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().context("cannot run python3")?;
    if !output.status.success() {
        bail!(
            "cannot install the clients from PyPI: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
