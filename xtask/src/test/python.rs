// SPDX-License-Identifier: Apache-2.0
//! What comes from PyPI, in virtual environments under `target/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{install, repository};

/// A virtual environment.
pub(crate) struct Environment {
    /// What is in it, for messages.
    what: &'static str,
    /// Every package with its version, so that a run of today and one of next year test the same.
    requirements: &'static str,
    /// Its name under `target/`.
    folder: &'static str,
    /// The Python it is made with.
    python: &'static str,
    venv_options: &'static [&'static str],
    pip_options: &'static [&'static str],
}

/// The clients people use.
pub(crate) const CLIENTS: Environment = Environment {
    what: "clients",
    requirements: "xtask/clients/requirements.txt",
    folder: "clients",
    python: "python3",
    venv_options: &[],
    pip_options: &[],
};

/// Ironic itself, for the command line to be tried against.
pub(crate) const STOCK_IRONIC: Environment = Environment {
    what: "Ironic",
    requirements: "xtask/stock-ironic/requirements.txt",
    folder: "stock-ironic",
    python: "python3",
    venv_options: &[],
    pip_options: &["--no-deps"],
};

/// The BMCs of the lab. They use Debian's bindings to libvirt, hence its Python and its packages;
/// of the others none is taken from there.
pub(crate) const EMULATORS: Environment = Environment {
    what: "emulators",
    requirements: "xtask/lab/requirements.txt",
    folder: "emulators",
    python: install::DEBIAN_PYTHON,
    venv_options: &["--system-site-packages"],
    pip_options: &["--no-deps", "--ignore-installed"],
};

/// Ironic's own agent, for a ramdisk of Debian's packages; that ramdisk has Debian's Python.
pub(crate) const STOCK_AGENT: Environment = Environment {
    what: "agent of Ironic",
    requirements: "xtask/lab/stock-agent-requirements.txt",
    folder: "stock-agent",
    python: install::DEBIAN_PYTHON,
    venv_options: &[],
    pip_options: &["--no-deps", "--no-compile"],
};

/// Makes the environment unless it is there and up to date; says where it is.
pub(crate) fn ensure(root: &Path, environment: &Environment) -> Result<PathBuf> {
    let requirements = root.join(environment.requirements);
    let wanted = fs::read_to_string(&requirements)
        .with_context(|| format!("cannot read {}", environment.requirements))?;
    // Absolute, because it is used by programs that run elsewhere.
    let folder = std::path::absolute(repository::target(root).join(environment.folder))?;
    // Written last, so an environment that was interrupted half way is made anew.
    let stamp = folder.join("complete");
    if fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
        return Ok(folder);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let mut venv = Command::new(environment.python);
    venv.args(["-m", "venv"]).args(environment.venv_options).arg(&folder);
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
        .args(environment.pip_options)
        .arg("--requirement")
        .arg(&requirements);
    for mut command in [venv, pip] {
        quietly(&mut command)
            .with_context(|| format!("cannot install the {} from PyPI", environment.what))?;
    }
    fs::write(&stamp, wanted)?;
    Ok(folder)
}

/// Runs a command whose output matters only when it fails; it may run beside others that print.
fn quietly(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().context("cannot run python3")?;
    if !output.status.success() {
        bail!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
