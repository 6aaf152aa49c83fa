// SPDX-License-Identifier: Apache-2.0
//! Builds the packages a second time, from a clone in another folder, and compares the checksums.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::source_commit::SourceCommit;
use super::{CHECKSUMS, PackageOptions};
use crate::interrupt::Interrupt;
use crate::{print, repository, shell};

/// The folder of the second build, below the target folder. Deleted unless a file differs.
const FOLDER: &str = "package-again";

/// Fails if a file in `packages` differs from that of a second build of the same commit.
pub(super) fn verify(
    root: &Path,
    options: &PackageOptions,
    commit: &SourceCommit,
    packages: &Path,
    interrupt: &Interrupt,
) -> Result<()> {
    let folder = std::path::absolute(repository::target(root))?.join(FOLDER);
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot delete {}", folder.display()))?;
    }
    let (clone, out) = (folder.join("clone"), folder.join("packages"));
    print::heading(&format!("building again in {}", clone.display()));
    let mut git = Command::new("git");
    shell::output_of(git.args(["clone", "--quiet", "--no-checkout"]).arg(root).arg(&clone))?;
    let mut git = Command::new("git");
    git.arg("-C").arg(&clone).args(["checkout", "--quiet", "--detach", &commit.id]);
    shell::output_of(&mut git)?;
    let mut cargo = shell::cargo(&clone);
    cargo.env_remove("CARGO_TARGET_DIR");
    cargo.args(["xtask", "package", "--out"]).arg(&out);
    if let Some(image) = &options.image {
        cargo.args(["--image", image]);
    }
    if let Some(ramdisk) = &options.ramdisk {
        cargo.arg("--ramdisk").arg(std::path::absolute(ramdisk)?);
    }
    shell::run(&mut cargo, interrupt)?;
    let (first, second) = (read_checksums(packages)?, read_checksums(&out)?);
    let differing = differing_files(&first, &second);
    if !differing.is_empty() {
        bail!(
            "not reproducible: {} differ between {} and {}",
            differing.join(", "),
            packages.display(),
            out.display()
        );
    }
    fs::remove_dir_all(&folder)?;
    print::line("the second build has the same checksums");
    Ok(())
}

fn read_checksums(folder: &Path) -> Result<BTreeMap<String, String>> {
    let path = folder.join(CHECKSUMS);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(parse_checksums(&text))
}

/// File names and checksums.
fn parse_checksums(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|line| line.split_once("  "));
    lines.map(|(checksum, name)| (name.to_owned(), checksum.to_owned())).collect()
}

/// The files that are not the same in both builds, or only in one.
fn differing_files<'a>(
    first: &'a BTreeMap<String, String>,
    second: &'a BTreeMap<String, String>,
) -> Vec<&'a str> {
    let mut names: Vec<&str> = first.keys().chain(second.keys()).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| first.get(*name) != second.get(*name));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_and_missing_files_differ() {
        let first = parse_checksums("aa  same\nbb  changed\ncc  only-first\n");
        let second = parse_checksums("aa  same\nbc  changed\ndd  only-second\n");
        assert_eq!(differing_files(&first, &second), ["changed", "only-first", "only-second"]);
        assert!(differing_files(&first, &first).is_empty());
    }
}
