// SPDX-License-Identifier: Apache-2.0
//! Builds our agent and its ramdisk with `ferrite ramdisk build`, as an operator does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::kernel::DebianKernel;
use crate::interrupt::Interrupt;
use crate::{repository, shell};

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Which build of the agent is used.
#[derive(Clone, Copy)]
pub(crate) enum AgentBuild {
    /// Quick to compile; the optimiser takes longer than the tests gain by it.
    ForTests,
    /// As it is shipped, for measurements.
    Shipped,
}

impl AgentBuild {
    /// The cargo profile.
    fn profile(self) -> &'static str {
        match self {
            Self::ForTests => "agent-test",
            Self::Shipped => "agent",
        }
    }

    /// Where cargo puts the program.
    pub(crate) fn program(self, target: &Path) -> PathBuf {
        target.join(TARGET).join(self.profile()).join("ferrite-agent")
    }
}

/// Builds the agent. It is linked statically, because the ramdisk has no shared libraries.
pub(crate) fn build(root: &Path, build: AgentBuild, interrupt: &Interrupt) -> Result<()> {
    let mut cargo = shell::cargo(root);
    cargo.args(["rustc", "--package", "agent", "--bin", "ferrite-agent"]);
    cargo.args(["--profile", build.profile(), "--target", TARGET, "--"]);
    shell::run(cargo.args(["-C", "target-feature=+crt-static"]), interrupt)
}

/// The kernel and the ramdisk that machines boot.
pub(crate) struct AgentRamdisk {
    pub(crate) kernel: PathBuf,
    pub(crate) ramdisk: PathBuf,
}

impl AgentRamdisk {
    /// Makes the ramdisk from an agent that was built before, unless it is up to date. Downloads
    /// packages.
    pub(crate) fn ensure(
        root: &Path,
        build: AgentBuild,
        ferrite: &Path,
        kernel: &DebianKernel,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let target = std::path::absolute(repository::target(root))?;
        let agent = build.program(&target);
        // `ferrite serve` with this data directory finds it there.
        let data = target.join(format!("{}-data", build.profile()));
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

/// Returns whether a file exists and is newer than all of `than`.
fn is_newer(file: &Path, than: &[&Path]) -> Result<bool> {
    let Ok(made) = fs::metadata(file) else { return Ok(false) };
    let made = made.modified()?;
    for path in than {
        let metadata =
            fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
        if metadata.modified()? >= made {
            return Ok(false);
        }
    }
    Ok(true)
}
