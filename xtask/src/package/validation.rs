// SPDX-License-Identifier: Apache-2.0
//! Validates packages with the programs that install them.

mod chart_check;
mod debian_check;
mod image_check;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest as _, Sha256};

use super::source_commit::SourceCommit;
use super::static_build::StaticPrograms;
use super::{CHECKSUMS, PackageCompression, PackageInputs, PackageSet};
use crate::interrupt::Interrupt;
use crate::test::agent_ramdisk::AgentBuild;
use crate::test::debug_ferrite;
use crate::test::python::{self, PACKAGE_TOOLS};
use crate::{install, repository, shell};

/// For packages that are deleted after the check.
const FAST: PackageCompression = PackageCompression { gzip: 1, xz: 0 };

/// Packages the programs of the test build, with a small ramdisk, and validates the packages.
pub(crate) fn check_test_build(root: &Path, manifests: &Path, interrupt: &Interrupt) -> Result<()> {
    let ferrite = debug_ferrite(root)?;
    let agent = AgentBuild::ForTests.program(&std::path::absolute(repository::target(root))?);
    let folder = tempfile::tempdir()?;
    let stripped = folder.path().join("ferrite");
    let mut strip = Command::new("strip");
    shell::output_of(strip.arg("-o").arg(&stripped).arg(ferrite))?;
    let ramdisk = folder.path().join("ramdisk");
    fs::create_dir(&ramdisk)?;
    for name in ["kernel", "ramdisk", "ramdisk.toml"] {
        fs::write(ramdisk.join(name), name)?;
    }
    let commit = SourceCommit::read(root, env!("CARGO_PKG_VERSION"))?;
    let inputs = PackageInputs {
        root,
        programs: StaticPrograms { ferrite: stripped, agent },
        version: commit.version(env!("CARGO_PKG_VERSION")),
        commit,
        image: None,
        ramdisk: Some(ramdisk),
        manifests: manifests.to_owned(),
        compression: FAST,
    };
    let packages = inputs.write(&folder.path().join("packages"))?;
    check(root, &packages, interrupt)
}

/// Validates all packages. Installs the programs for that.
pub(super) fn check(root: &Path, packages: &PackageSet, interrupt: &Interrupt) -> Result<()> {
    install::package_tools(interrupt)?;
    check_checksums(&packages.folder)?;
    image_check::check(packages)?;
    debian_check::check(packages)?;
    let tools = python::ensure(root, &PACKAGE_TOOLS)?;
    chart_check::check(&packages.operator, &tools.join("bin/helm"), &kubectl(root)?)?;
    Ok(())
}

/// The command that runs kubectl: the control plane of the tests contains it.
fn kubectl(root: &Path) -> Result<Vec<PathBuf>> {
    let built = std::path::absolute(repository::target(root))?.join("kube/test-control-plane");
    if built.exists() {
        return Ok(vec![built, "kubectl".into()]);
    }
    match install::on_path("kubectl") {
        Some(program) => Ok(vec![program]),
        None => bail!("kubectl is missing; build it with `cargo xtask with-kube true`"),
    }
}

/// Every file of the folder is listed with its checksum.
fn check_checksums(folder: &Path) -> Result<()> {
    let listed = fs::read_to_string(folder.join(CHECKSUMS))?;
    for line in listed.lines() {
        let (checksum, name) = line.split_once("  ").context("SHA256SUMS is malformed")?;
        let content = fs::read(folder.join(name)).with_context(|| name.to_owned())?;
        if hex::encode(Sha256::digest(&content)) != checksum {
            bail!("the checksum of {name} is wrong");
        }
    }
    Ok(())
}

/// Fails unless `text` contains each of `expected`.
fn require(description: &str, text: &str, expected: &[&str]) -> Result<()> {
    for part in expected {
        if !text.contains(part) {
            bail!("{description} has no `{part}`:\n{text}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_wrong_checksums() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "content").unwrap();
        let checksum = hex::encode(Sha256::digest("content"));
        let list = folder.path().join(CHECKSUMS);
        fs::write(&list, format!("{checksum}  a\n")).unwrap();
        check_checksums(folder.path()).unwrap();
        fs::write(&list, format!("{}  a\n", checksum.replace(&checksum[..2], "zz"))).unwrap();
        let error = check_checksums(folder.path()).unwrap_err();
        assert!(error.to_string().contains("of a is wrong"), "{error}");
    }
}
