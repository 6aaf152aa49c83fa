// SPDX-License-Identifier: Apache-2.0
//! A Debian kernel with its modules, unpacked under `target/` and not installed: what the tests boot.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::repository;

/// Debian's name for the newest kernel for virtual machines.
const NEWEST: &str = "linux-image-cloud-amd64";

/// Makes sure that there is one; says where the kernel itself is.
pub(crate) fn ensure(root: &Path) -> Result<PathBuf> {
    let folder = std::path::absolute(repository::target(root).join("kernel"))?;
    if let Some(kernel) = kernel_in(&folder) {
        return Ok(kernel);
    }
    let download = folder.with_extension("download");
    if download.exists() {
        fs::remove_dir_all(&download)?;
    }
    fs::create_dir_all(&download)?;
    let package = package()?;
    said(Command::new("apt-get").args(["-qq", "download", &package]).current_dir(&download))?;
    let archive = fs::read_dir(&download)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|ending| ending == "deb"))
        .with_context(|| format!("apt-get downloaded no package {package}"))?;
    said(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(download.join("root")))?;
    // Renamed last, so that a kernel that was interrupted half way is fetched anew.
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::rename(download.join("root"), &folder)?;
    fs::remove_dir_all(&download)?;
    kernel_in(&folder).with_context(|| format!("there is no kernel in {package}"))
}

fn kernel_in(folder: &Path) -> Option<PathBuf> {
    let boot = fs::read_dir(folder.join("boot")).ok()?;
    let mut names = boot.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    names.find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"))
    })
}

/// The package behind Debian's name for the newest.
fn package() -> Result<String> {
    let said = said(Command::new("apt-cache").args(["depends", NEWEST]))?;
    let depends = said.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    match depends.map(str::trim).find(|name| name.starts_with("linux-image-")) {
        Some(name) => Ok(name.to_owned()),
        None => bail!("{NEWEST} depends on no kernel; run `apt-get update` and try again"),
    }
}

/// Runs a command whose output matters only when it fails, or to us.
fn said(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {:?}", command.get_program()))?;
    if !output.status.success() {
        bail!("{:?} failed: {}", command.get_program(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
