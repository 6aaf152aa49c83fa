// SPDX-License-Identifier: Apache-2.0
//! The OpenID Connect provider of the end-to-end tests, from npm, under `target/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{repository, shell};

/// The folder with the package and the exact versions of all it needs.
const SOURCE: &str = "xtask/oidc-provider";
const LOCK_FILE: &str = "package-lock.json";

/// Installs the package unless it is up to date, and returns the folder that contains `node_modules`.
pub(super) fn ensure(root: &Path) -> Result<PathBuf> {
    let source = root.join(SOURCE);
    let wanted = fs::read_to_string(source.join(LOCK_FILE))
        .with_context(|| format!("cannot read {SOURCE}/{LOCK_FILE}"))?;
    let folder = std::path::absolute(repository::target(root).join("oidc-provider"))?;
    // Written at the end, so that an interrupted installation is repeated.
    let stamp = folder.join("complete");
    if fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
        return Ok(folder);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    for name in ["package.json", LOCK_FILE] {
        fs::copy(source.join(name), folder.join(name))?;
    }
    let mut install = Command::new("npm");
    install.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(&folder);
    shell::output_of(&mut install)
        .context("cannot install the OpenID Connect provider from npm")?;
    fs::write(&stamp, wanted)?;
    Ok(folder)
}
