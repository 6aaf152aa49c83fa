// SPDX-License-Identifier: Apache-2.0
//! Our agent in its ramdisk, made with `ferrite ramdisk build` as an operator makes it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::kernel::Kernel;
use crate::interrupt::Interrupt;
use crate::{repository, shell};

/// Where the agent runs there are no libraries.
const TARGET: &str = "x86_64-unknown-linux-gnu";
const PROFILE: &str = "agent";

/// Builds the agent as it is shipped.
pub(crate) fn build(root: &Path, interrupt: &Interrupt) -> Result<()> {
    let mut build = shell::cargo(root);
    build.args(["rustc", "--package", "agent", "--bin", "ferrite-agent"]);
    build.args(["--profile", PROFILE, "--target", TARGET, "--"]);
    shell::run(build.args(["-C", "target-feature=+crt-static"]), interrupt)
}

/// The pair that machines boot.
pub(crate) struct OwnAgent {
    pub(crate) kernel: PathBuf,
    pub(crate) ramdisk: PathBuf,
}

impl OwnAgent {
    /// Makes it of the agent that was built before, with `ferrite`. It fetches packages, so where
    /// there is a network.
    pub(crate) fn make(
        root: &Path,
        ferrite: &Path,
        kernel: &Kernel,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let target = std::path::absolute(repository::target(root))?;
        let agent = target.join(TARGET).join(PROFILE).join("ferrite-agent");
        // Where `ferrite serve` with this data directory would find it.
        let data = target.join("agent-data");
        let folder = data.join("ramdisk");
        let made = Self { kernel: folder.join("kernel"), ramdisk: folder.join("ramdisk") };
        if !is_newer(&made.ramdisk, &[&agent, ferrite, &kernel.path])? {
            let mut ramdisk = Command::new(ferrite);
            ramdisk.args(["ramdisk", "build", "--drivers", "virtual"]);
            ramdisk.arg("--kernel").arg(&kernel.path).arg("--modules").arg(kernel.modules());
            ramdisk.arg("--agent").arg(&agent).arg("--data-dir").arg(&data);
            shell::run(&mut ramdisk, interrupt)?;
        }
        Ok(made)
    }
}

/// Whether a file is there and was made after all of these.
fn is_newer(file: &Path, than: &[&Path]) -> Result<bool> {
    let Ok(made) = fs::metadata(file) else { return Ok(false) };
    let made = made.modified()?;
    for path in than {
        let metadata =
            fs::metadata(path).with_context(|| format!("cannot see {}", path.display()))?;
        if metadata.modified()? >= made {
            return Ok(false);
        }
    }
    Ok(true)
}
