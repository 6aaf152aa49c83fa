// SPDX-License-Identifier: Apache-2.0
//! Python packages from PyPI, in virtual environments under `target/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{install, repository};

/// A virtual environment.
pub(crate) struct PythonEnvironment {
    /// For messages.
    description: &'static str,
    /// A file with the exact version of every package.
    requirements: &'static str,
    /// The folder below `target/`.
    folder: &'static str,
    /// The Python interpreter.
    python: &'static str,
    venv_options: &'static [&'static str],
    pip_options: &'static [&'static str],
}

/// The real command-line client and SDK.
pub(crate) const CLIENTS: PythonEnvironment = PythonEnvironment {
    description: "clients",
    requirements: "xtask/clients/requirements.txt",
    folder: "clients",
    python: "python3",
    venv_options: &[],
    pip_options: &[],
};

/// Ironic itself, for tests of our CLI.
pub(crate) const STOCK_IRONIC: PythonEnvironment = PythonEnvironment {
    description: "Ironic",
    requirements: "xtask/stock-ironic/requirements.txt",
    folder: "stock-ironic",
    python: "python3",
    venv_options: &[],
    pip_options: &["--no-deps"],
};

/// Keystone, for tests with its tokens.
pub(crate) const KEYSTONE: PythonEnvironment = PythonEnvironment {
    description: "Keystone",
    requirements: "xtask/keystone/requirements.txt",
    folder: "keystone",
    python: "python3",
    venv_options: &[],
    pip_options: &["--no-deps"],
};

/// The BMC emulators of the lab. They need Debian's libvirt bindings and therefore Debian's Python.
pub(crate) const EMULATORS: PythonEnvironment = PythonEnvironment {
    description: "emulators",
    requirements: "xtask/lab/requirements.txt",
    folder: "emulators",
    python: install::DEBIAN_PYTHON,
    venv_options: &["--system-site-packages"],
    pip_options: &["--no-deps", "--ignore-installed"],
};

/// The stock ironic-python-agent, for a ramdisk with Debian's Python.
pub(crate) const STOCK_AGENT: PythonEnvironment = PythonEnvironment {
    description: "agent of Ironic",
    requirements: "xtask/lab/stock-agent-requirements.txt",
    folder: "stock-agent",
    python: install::DEBIAN_PYTHON,
    venv_options: &[],
    pip_options: &["--no-deps", "--no-compile"],
};

/// Helm, which renders the chart of the operator.
pub(crate) const PACKAGE_TOOLS: PythonEnvironment = PythonEnvironment {
    description: "tools for packages",
    requirements: "xtask/packages/requirements.txt",
    folder: "package-tools",
    python: "python3",
    venv_options: &[],
    pip_options: &["--no-deps"],
};

/// Creates the environment unless it is up to date, and returns its folder.
pub(crate) fn ensure(root: &Path, environment: &PythonEnvironment) -> Result<PathBuf> {
    let requirements = root.join(environment.requirements);
    let wanted = fs::read_to_string(&requirements)
        .with_context(|| format!("cannot read {}", environment.requirements))?;
    // Absolute, because programs with other working folders use it.
    let folder = std::path::absolute(repository::target(root).join(environment.folder))?;
    // Written at the end, so that an interrupted installation is repeated.
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
            .with_context(|| format!("cannot install the {} from PyPI", environment.description))?;
    }
    fs::write(&stamp, wanted)?;
    Ok(folder)
}

/// Runs a command and prints nothing; its output is part of the error if it fails.
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
